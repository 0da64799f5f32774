"""`check` names whatever is broken in a store, and what is broken is never taken for data."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dkge_dist.store.manifest import ModelEntry, PartEntry, TableEntry, sealed
from dkge_dist.store.models import publish_model
from dkge_dist.store.parts import save_columns
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.store.tables import table_parts
from dkge_dist.surfaces import api
from dkge_dist.types import Field
from tests.graphs import assert_sound, listing, movies, write_changes, write_tsv
from tests.store.damage import flipped
from tests.store.small_models import saved, some_weights

VERSIONS = 4


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with held-out triples, changes, several segments and a folded snapshot."""
    folder = tmp_path_factory.mktemp("sound")
    store = folder / "store"
    api.ingest(store, write_tsv(folder / "base.tsv", movies(100)), valid=5, test=5)
    api.ingest(store, write_changes(folder / "one.changes", movies(4, first=100), movies(4)))
    api.ingest(store, write_changes(folder / "two.changes", [("new", "writer", "title3")]))
    api.ingest(store, write_tsv(folder / "full.tsv", [*movies(140)[4:], ("new", "writer", "title3")]))
    assert [version["stored"] for version in api.log(store)["versions"]] == ["full", "change", "change", "full"]
    return store


@pytest.fixture
def store(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "store"))


def files(store: Path) -> list[str]:
    """Those that versions are made of: neither the marker nor the hint of the newest version."""
    return [name for name, kind in listing(store).items() if kind != "folder" and name not in ("store.json", "head")]


def problems(store: Path) -> list[str]:
    report = api.check(store)
    assert report["ok"] == (not report["problems"])
    assert all(1 <= problem["version"] <= VERSIONS for problem in report["problems"])
    return [problem["problem"] for problem in report["problems"]]


def resealed(store: Path, version: int, change: Callable[[dict], None]) -> None:
    """Alter a manifest as somebody would who knows how they are sealed, and those that name it as well."""
    for number in range(version, VERSIONS + 1):
        path = store / "versions" / f"{number:08d}.json"
        content = json.loads(path.read_bytes())
        del content["sha256"]
        if number == version:
            change(content)
        else:
            before = store / "versions" / f"{number - 1:08d}.json"
            content["parent"] = hashlib.sha256(before.read_bytes()).hexdigest()
        path.write_bytes(sealed(json.dumps(content, indent=1)))


def test_a_sound_store(sound: Path) -> None:
    before = listing(sound)
    report = api.check(sound)
    assert report["problems"] == []
    assert report["ok"] is True
    assert report["versions"] == VERSIONS
    parts = [name for name in files(sound) if name.startswith("parts/")]
    assert report["parts"] == len(parts)
    assert report["bytes"] == sum((sound / name).stat().st_size for name in parts)
    assert listing(sound) == before


def test_progress_is_heard_of_every_part(sound: Path) -> None:
    heard: list[float] = []
    report = api.check(sound, progress=lambda done, text: heard.append(done))
    assert heard == sorted(heard)
    assert set(heard) == {0.0, 0.25, 0.5, 0.75, 1.0}
    assert len(heard) == report["parts"] + report["versions"]


def test_one_flipped_bit_in_any_file_is_found_and_named(store: Path) -> None:
    chance = random.Random(1)
    for name in files(store):
        path = store / name
        content = path.read_bytes()
        for _ in range(2):
            flipped(path, chance.randrange(8 * len(content)))
            found = problems(store)
            path.write_bytes(content)
            assert any(str(path) in problem for problem in found), name
    assert problems(store) == []


@pytest.mark.parametrize("size", [0, 1, -1])
def test_truncated_files_are_named(store: Path, size: int) -> None:
    for name in files(store):
        path = store / name
        content = path.read_bytes()
        path.write_bytes(content[:size])
        assert any(str(path) in problem for problem in problems(store)), name
        path.write_bytes(content)


def test_missing_parts_are_named(store: Path) -> None:
    for name in files(store):
        if name.startswith("parts/"):
            path = store / name
            path.rename(store / "aside")
            assert f"part {path} is missing" in problems(store)
            (store / "aside").rename(path)


def test_links_are_named(store: Path) -> None:
    for name in files(store):
        path = store / name
        path.rename(store / "aside")
        path.symlink_to(store / "aside")
        assert any(str(path) in problem for problem in problems(store)), name
        path.unlink()
        (store / "aside").rename(path)


@pytest.mark.parametrize("name", ["parts", "versions", "parts/??", "staging"])
def test_folders_that_lead_out_of_the_store_are_refused(store: Path, tmp_path: Path, name: str) -> None:
    """By whoever reads, and by whoever would write to them."""
    folder = next(iter(sorted(store.glob(name))))
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    outside = listing(tmp_path / "elsewhere")
    message = f"{folder} is a link; links are not followed in a store"
    if name.startswith("parts"):
        assert message in problems(store)
    if name != "parts/??":
        with pytest.raises(StoreError, match=re.escape(message)):
            api.ingest(store, write_tsv(tmp_path / "next.tsv", movies(90)), force=True)
    with pytest.raises(StoreError, match=re.escape(message)):
        api.gc(store, keep=1, grace_hours=0)
    assert listing(tmp_path / "elsewhere") == outside


@pytest.mark.parametrize("version", range(1, VERSIONS))
def test_missing_versions_are_named(store: Path, version: int) -> None:
    (store / "versions" / f"{version:08d}.json").unlink()
    assert f"version {version} is missing" in problems(store)


def test_a_version_of_another_store(store: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    api.ingest(other, write_tsv(tmp_path / "base.tsv", movies(50)))
    shutil.copy(other / "versions" / "00000001.json", store / "versions" / "00000001.json")
    assert "version 2 was made on top of another version 1 than there is" in problems(store)


def test_everything_that_is_broken_is_named_at_once(store: Path) -> None:
    broken = [name for name in files(store) if name.startswith("parts/")][::3]
    for name in broken:
        flipped(store / name, 999)
    found = problems(store)
    assert len(found) == len(broken) > 3
    for name in broken:
        assert any(str(store / name) in problem for problem in found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content["snapshot"].update(train=7), "manifest says"),
        (lambda content: content["snapshot"].update(entities=7), "manifest says"),
        (lambda content: content["snapshot"].update(content="0" * 32), "its manifest says 0000"),
        (lambda content: content["snapshot"].update(parent=9), "says it stands on version 9"),
        (lambda content: content["snapshot"].update(parent=2), "says it stands on version 2"),
        (lambda content: content.update(version=3), "says it is version 3"),
        (lambda content: content.update(surprise=1), "not a manifest of this program: surprise"),
        (lambda content: content.update(kind="other"), "a version of kind 'other'"),
        (lambda content: content["snapshot"].update(train="7"), r"not a manifest of this program: snapshot\.train"),
        (
            lambda content: content["snapshot"]["change"]["triples"].update(digest="../" * 21 + "x"),
            r"snapshot\.change\.triples\.digest",
        ),
        (lambda content: content["snapshot"]["change"]["triples"].update(rows=1), "rows instead of 1"),
        (lambda content: content["snapshot"].update(change=None), "has a parent but no change to it"),
        (
            lambda content: content["snapshot"]["change"].update(triples=content["snapshot"]["change"]["rows"]),
            "holds columns",
        ),
        (
            lambda content: content["entity_segments"][0].update(slots=content["relation_segments"][0]["slots"]),
            "slots cannot be",
        ),
        (
            lambda content: content.update(entity_segments=content["relation_segments"]),
            "has rows that no label has",
        ),
    ],
)
def test_manifests_that_do_not_fit_their_parts(store: Path, change: Callable[[dict], None], message: str) -> None:
    resealed(store, 2, change)
    found = [problem for problem in api.check(store)["problems"] if problem["version"] == 2]
    assert any(re.search(message, problem["problem"]) for problem in found), found


def test_degrees_that_are_not_those_of_the_triples_are_named(store: Path) -> None:
    opened = Store.open(store)
    base = opened.snapshot_manifest(VERSIONS).snapshot.base
    assert base is not None
    rows = base.entity_degrees.rows
    for count, message in ((rows, "stored degrees are not those of the triples"), (rows - 1, "rows that no label has")):
        with opened.storage.staging() as staging:
            part = save_columns(staging, {name: np.ones(count, np.int32) for name in ("train", "total")})
        entry = {"entity_degrees": part.model_dump()}
        resealed(store, VERSIONS, lambda content, entry=entry: content["snapshot"]["base"].update(entry))
        assert any(message in problem for problem in problems(store))


def model_parts(path: Path) -> dict[str, PartEntry]:
    """Every part of the current model, by what it is."""
    store = Store.open(path)
    entry = store.find_model().model
    found = {"dense": entry.dense, "history": entry.history}
    for noun, tables in (("entities", entry.entities), ("relations", entry.relations)):
        for field, table in tables.items():
            found[f"{noun}-{field}"] = table.base
            for number, part in enumerate(table_parts(store.storage, table)):
                found[f"{noun}-{field}-{number}"] = part
    return found


def test_check_looks_at_every_part_of_a_model(model: Path) -> None:
    parts = {str(path) for path in (model / "parts").rglob("*") if path.is_file()}
    report = api.check(model)
    assert (report["ok"], report["parts"]) == (True, len(parts))
    assert len(model_parts(model)) > 2 + 6 + 6 * 1


@pytest.mark.parametrize("harm", ["truncated", "missing", "flipped"])
def test_check_names_broken_parts_of_a_model(model: Path, harm: str) -> None:
    store = Store.open(model)
    for what, part in model_parts(model).items():
        path = store.storage.part_path(part.part)
        content = path.read_bytes()
        if harm == "missing":
            path.unlink()
        else:
            middle = len(content) // 2
            path.write_bytes(content[:-1] if harm == "truncated" else content[:middle] + b"#" + content[middle + 1 :])
        problems = api.check(model)["problems"]
        assert [problem["version"] for problem in problems] == [2], what
        assert str(path) in problems[0]["problem"], what
        path.write_bytes(content)
    assert_sound(model)


def republished(path: Path, change: Callable[[ModelEntry], dict]) -> list[str]:
    """What a check finds in a model of sound parts that do not fit together."""
    store = Store.open(path)
    entry = store.find_model().model
    publish_model(store, entry.model_copy(update=change(entry)), 1.0)
    problems = api.check(path)["problems"]
    assert {problem["version"] for problem in problems} <= {3}
    return [problem["problem"] for problem in problems]


def test_check_names_tables_that_do_not_fit_each_other(model: Path) -> None:
    (problem,) = republished(model, lambda entry: {"entities": {**entry.entities, "joint": entry.relations["joint"]}})
    assert problem == "tables of different shapes"


def test_check_names_tables_with_another_shape_than_their_index(model: Path) -> None:
    def more_rows(entry: ModelEntry) -> dict:
        table: TableEntry = entry.relations["joint"]
        return {"relations": {**entry.relations, "joint": table.model_copy(update={"rows": table.rows + 5})}}

    (problem,) = republished(model, more_rows)
    assert f"has 2 rows, its table {2 + 5}" in problem


def test_check_names_vectors_that_are_no_numbers(graph: Path) -> None:
    store = Store.open(graph)
    weights = some_weights(store)
    weights.entities[Field.CONTEXT][[17, 20], 1] = [np.nan, np.inf]
    publish_model(store, saved(store, weights), 1.0)
    problems = [problem["problem"] for problem in api.check(graph)["problems"]]
    assert problems == ["context vector of entity row 17 is not finite (and 1 others)"]
