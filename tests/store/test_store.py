"""A store: what it is made of, how versions are found, and the diffs between any two snapshots."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dkge_dist.store.manifest import FORMAT, Manifest, ModelManifest, SnapshotManifest, parse_manifest, parts_of, sealed
from dkge_dist.store.models import publish_model
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import NumberTakenError, Store
from dkge_dist.store.tables import table_parts
from dkge_dist.surfaces import api
from dkge_dist.types import Field, Split
from tests.graphs import (
    Labelled,
    alive,
    assert_sound,
    content,
    everything,
    head,
    labelled,
    listing,
    movies,
    write_changes,
    write_tsv,
)
from tests.store.damage import flipped
from tests.store.small_models import night, publish, saved, some_weights

NAMES = ["base", "one", "two", "three", "back", "full", "six"]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Snapshots of every kind; what goes in one night comes back in another."""
    folder = tmp_path_factory.mktemp("evolving")
    path = folder / "store"
    triples = movies(120)
    wanted = {"valid": 6, "test": 6}
    api.ingest(path, write_tsv(folder / "base.tsv", triples), **wanted)
    lost = sorted(content(path, "base")[Split.VALID])[:2]
    api.ingest(path, write_changes(folder / "one.changes", movies(8, first=120), triples[:8]))
    api.ingest(path, write_changes(folder / "two.changes", [("n", "writer", "m"), ("m", "writer", "n")], lost))
    api.ingest(path, write_changes(folder / "three.changes", [*triples[:3], *lost], [("n", "writer", "m")]), valid=6)
    two = content(path, "two")
    api.ingest(path, write_tsv(folder / "back.tsv", sorted(set().union(*two.values()))))
    api.ingest(path, write_tsv(folder / "full.tsv", movies(200)), **wanted, force=True)
    api.ingest(path, write_changes(folder / "six.changes", [("late", "actor", "person1")], movies(5, first=50)))
    assert [version["name"] for version in api.log(path)["versions"]] == NAMES
    assert {version["stored"] for version in api.log(path)["versions"]} == {"full", "change"}
    return path


def objects(state: dict[Split, set[Labelled]]) -> tuple[set[str], set[str]]:
    triples = set().union(*state.values())
    return {label for h, _, t in triples for label in (h, t)}, {relation for _, relation, _ in triples}


@pytest.mark.parametrize(("old", "new"), list(itertools.product(NAMES, NAMES)))
def test_between_any_two(store: Path, old: str, new: str) -> None:
    opened = Store.open(store)
    first, last = opened.find_snapshot(old), opened.find_snapshot(new)
    diff = opened.diff(first, last)
    names = opened.dictionaries(max(first, last, key=lambda manifest: manifest.version))
    before, after = content(store, old), content(store, new)
    for split in Split:
        assert labelled(diff.splits[split].added, names) == after[split] - before[split]
        assert labelled(diff.splits[split].deleted, names) == before[split] - after[split]
    (entities, relations), (entities_after, relations_after) = objects(before), objects(after)
    assert set(names[0].labels(diff.emerging_entities)) == entities_after - entities
    assert set(names[0].labels(diff.removed_entities)) == entities - entities_after
    assert set(names[1].labels(diff.emerging_relations)) == relations_after - relations
    assert set(names[1].labels(diff.removed_relations)) == relations - relations_after
    report = api.diff(store, old, new)
    assert (report["from"], report["to"]) == (old, new)
    assert report["added"] == len(after[Split.TRAIN] - before[Split.TRAIN])
    assert report["deleted"] == len(before[Split.TRAIN] - after[Split.TRAIN])
    assert report["emerging_entities"] == len(entities_after - entities)


@pytest.mark.parametrize("name", NAMES)
def test_who_is_alive(store: Path, name: str) -> None:
    opened = Store.open(store)
    manifest = opened.find_snapshot(name)
    snapshot, names = opened.snapshot(manifest), opened.dictionaries(manifest)
    entities, relations = objects(content(store, name))
    assert alive(snapshot.entities_alive, names[0]) == entities
    assert alive(snapshot.relations_alive, names[1]) == relations
    assert (manifest.snapshot.entities, manifest.snapshot.relations) == (len(entities), len(relations))


@pytest.mark.parametrize("name", NAMES[1:])
def test_the_log_tells_the_diff_to_the_parent(store: Path, name: str) -> None:
    (version,) = [version for version in api.log(store)["versions"] if version["name"] == name]
    parent = Store.open(store).manifest(version["parent"]).snapshot.name
    diff = api.diff(store, parent, name)
    keys = set(diff) - {"from", "to", "seconds"}
    assert {key: version[key] for key in keys} == {key: diff[key] for key in keys}


def test_examples_are_some_of_the_changes(store: Path) -> None:
    report = api.diff(store, "base", "one", examples=3)
    before, after = content(store, "base")[Split.TRAIN], content(store, "one")[Split.TRAIN]
    added = {tuple(row) for row in report["added_examples"]}
    deleted = {tuple(row) for row in report["deleted_examples"]}
    assert len(added) == len(deleted) == 3
    assert added <= after - before
    assert deleted <= before - after


def test_a_written_diff_holds_every_change_of_train(store: Path, tmp_path: Path) -> None:
    api.diff(store, "base", "six", out=tmp_path / "out.changes")
    lines = [line.split("\t") for line in (tmp_path / "out.changes").read_text().splitlines()]
    before, after = content(store, "base")[Split.TRAIN], content(store, "six")[Split.TRAIN]
    assert {tuple(line[1:]) for line in lines if line[0] == "+"} == after - before
    assert {tuple(line[1:]) for line in lines if line[0] == "-"} == before - after
    assert len(lines) == len(before ^ after)


@pytest.mark.parametrize("name", ["nobody", "8", "0", "", "-1"])
def test_snapshots_that_are_not_there(store: Path, name: str) -> None:
    with pytest.raises(StoreError, match=f"no snapshot '{name}'; the newest are two, three, back, full, six"):
        api.diff(store, "base", name)


def test_models_are_found_by_number_and_by_snapshot(model: Path) -> None:
    night(model, 1)
    night(model, 2)
    publish(model, snapshot=4)
    store = Store.open(model)
    assert store.find_model().version == 5
    assert [store.find_model(str(n)).version for n in (2, 3, 4, 5)] == [2, 2, 2, 5]
    assert store.find_model("first").version == 2
    assert store.find_model("night1").version == 2
    assert store.find_model("night2").version == 5
    with pytest.raises(StoreError, match=f"{model}: there is no model at '1' yet; `dkge train {model}` learns one"):
        store.find_model("1")
    with pytest.raises(StoreError, match="no snapshot 'nobody'; the newest are first, night1, night2"):
        store.find_model("nobody")
    with pytest.raises(StoreError, match="no snapshot '9'"):
        store.find_model("9")


def test_a_store_without_models_says_how_to_get_one(graph: Path, tmp_path: Path) -> None:
    advice = "there is no model{} yet; `dkge train .*` learns one"
    for name, at in ((None, ""), ("1", " at '1'"), ("first", " at 'first'")):
        with pytest.raises(StoreError, match=advice.format(at)):
            Store.open(graph).find_model(name)
    empty = Store(tmp_path / "empty")
    empty.ensure()
    with pytest.raises(StoreError, match=advice.format("")):
        Store.open(tmp_path / "empty").find_model()
    with pytest.raises(StoreError, match="version 1 is a snapshot, not a model"):
        Store.open(graph).model_manifest(1)


def test_a_model_is_no_snapshot(model: Path) -> None:
    store = Store.open(model)
    with pytest.raises(StoreError, match="version 2 is a model, not a snapshot"):
        store.snapshot_manifest(2)
    assert store.find_snapshot("2").version == 1
    assert store.current_snapshot() == store.snapshot_manifest(1)


@pytest.mark.parametrize(
    ("current", "message"),
    [
        ({"snapshot": 1, "model": 3}, "says it stands on version 3"),
        ({"snapshot": 3, "model": 2}, "says it stands on version 3"),
        ({"snapshot": 0, "model": 2}, r"current\.snapshot"),
    ],
)
def test_versions_that_stand_on_later_ones_are_refused(model: Path, current: dict, message: str) -> None:
    path = model / "versions" / "00000002.json"
    content = json.loads(path.read_bytes())
    del content["sha256"]
    path.write_bytes(sealed(json.dumps(content | {"current": current}, indent=1)))
    with pytest.raises(StoreError, match=message):
        Store.open(model).find_model()


def test_any_flipped_bit_in_the_marker_is_found(model: Path) -> None:
    path = model / "store.json"
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        flipped(path, bit)
        for open_store in (Store.open, Store.open_or_new):
            with pytest.raises(
                StoreError, match=r"store\.json: (damaged|the store has format \d+, this program reads)"
            ):
                open_store(model)
        path.write_bytes(content)
    assert api.check(model)["ok"]


def test_other_files_among_the_versions_do_no_harm(model: Path) -> None:
    for name in ("00000001.json~", "notes.txt", "1.json", ".00000009.json.0123"):
        (model / "versions" / name).write_text("rubbish")
    assert_sound(model)
    assert head(model).version == 2


@pytest.mark.parametrize("command", ["check", "log", "ingest"])
@pytest.mark.parametrize(("number", "advice"), [(FORMAT + 1, "upgrade dkge_dist"), (4, "ingest and train into a new")])
def test_a_store_of_another_format_is_refused_with_advice(
    graph: Path, tmp_path: Path, command: str, number: int, advice: str
) -> None:
    (graph / "store.json").write_text(json.dumps({"format": number, "more": "of it"}))
    before = listing(graph)
    calls = {
        "check": lambda: api.check(graph),
        "log": lambda: api.log(graph),
        "ingest": lambda: api.ingest(graph, write_tsv(tmp_path / "next.tsv", movies(100))),
    }
    expected = f"the store has format {number}, this program reads {FORMAT}: .*{advice}"
    with pytest.raises(StoreError, match=expected):
        calls[command]()
    assert listing(graph) == before


def test_a_damaged_manifest_stops_whoever_needs_it(model: Path, tmp_path: Path) -> None:
    flipped(model / "versions" / "00000002.json", 4000)
    before = listing(model)
    with pytest.raises(StoreError, match=r"00000002\.json"):
        api.ingest(model, write_tsv(tmp_path / "next.tsv", movies(100)))
    assert listing(model) == before
    assert everything(model, Store.open(model).manifest(1)) == set(movies(60))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no store here yet; `dkge ingest .*new SOURCE` makes one"),
        (lambda path: path.mkdir(), "no store here yet; `dkge ingest .*new SOURCE` makes one"),
        (lambda path: path.write_text("x"), r"not a store \(no store\.json\)"),
    ],
)
def test_what_is_no_store(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path / "new")
    with pytest.raises(StoreError, match=message):
        api.check(tmp_path / "new")


def test_a_store_sees_what_others_publish(graph: Path) -> None:
    store = Store.open(graph)
    night(graph, 1)
    assert store.head() == Store.open(graph).head()
    assert store.find_snapshot("night1").version == 2
    with pytest.raises(
        NumberTakenError, match=r"version 2 was published by another writer meanwhile \(snapshot 'night1'"
    ):
        store.publish(store.manifest(2))


@pytest.mark.parametrize("which", ["dense", "block", "index"])
def test_a_version_whose_parts_are_gone_is_not_published(graph: Path, which: str) -> None:
    """Somebody cleaned while it was written."""
    store = Store.open(graph)
    entry = saved(store, some_weights(store))
    table = entry.entities[Field.JOINT]
    gone = {"dense": entry.dense, "block": next(table_parts(store.storage, table)), "index": table.base}[which]
    store.storage.part_path(gone.part).unlink()
    with pytest.raises(StoreError, match=f"part .*{gone.digest} is missing"):
        publish_model(store, entry, 1.0)
    assert Store.open(graph).versions() == [1]


def test_a_snapshot_whose_parts_are_gone_is_not_published(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish_version = Store.publish

    def late(store: Store, manifest: Manifest) -> None:
        assert isinstance(manifest, SnapshotManifest)
        assert manifest.snapshot.change is not None
        store.storage.part_path(manifest.snapshot.change.rows.part).unlink()
        publish_version(store, manifest)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "publish", late)
        with pytest.raises(StoreError, match=r"part .* is missing"):
            night(graph, 1)
    assert Store.open(graph).versions() == [1]
    assert night(graph, 1)["version"] == 2
    assert_sound(graph)


def test_trainings_of_a_store_are_in_a_folder_of_it(graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(graph.parent)
    assert Store.open("store").trainings.folder == graph / "training"


def test_a_model_that_does_not_say_what_is_current_is_refused(model: Path) -> None:
    path = model / "versions" / "00000002.json"
    content = json.loads(path.read_bytes())
    del content["sha256"], content["current"]
    with pytest.raises(StoreError, match=r"00000002\.json: not a manifest of this program: current"):
        parse_manifest(sealed(json.dumps(content, indent=1)), str(path))


def test_any_flipped_bit_in_the_newest_manifest_is_found(model: Path) -> None:
    """No later version has its checksum."""
    path = model / "versions" / "00000002.json"
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 7):
        altered = bytearray(content)
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreError, match=r"00000002\.json: "):
            parse_manifest(bytes(altered), str(path))
    assert parse_manifest(content, str(path)) == head(model)


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"null", b"\xff\xfe", b"{}", b'{"format": 1}', b"{" * 50])
def test_files_that_are_no_manifests(model: Path, data: bytes) -> None:
    path = model / "versions" / "00000002.json"
    path.write_bytes(data)
    (problem,) = api.check(model)["problems"]
    assert (problem["version"], str(path) in problem["problem"]) == (2, True)


@pytest.mark.parametrize(("number", "advice"), [(FORMAT + 1, "upgrade dkge_dist"), (4, "ingest and train into a new")])
def test_another_format_is_refused_with_advice(model: Path, number: int, advice: str) -> None:
    path = model / "versions" / "00000002.json"
    path.write_bytes(sealed(json.dumps({"format": number, "whatever": "that may hold"}, indent=1)))
    expected = f"{path}: the store has format {number}, this program reads {FORMAT}: .*{advice}"
    (problem,) = api.check(model)["problems"]
    assert re.match(expected, problem["problem"])
    with pytest.raises(StoreError, match=expected):
        api.log(model)


def altered(model: Path, change: Callable[[dict], object]) -> bytes:
    """The manifest of a model, changed by somebody who can compute checksums."""
    content = json.loads((model / "versions" / "00000002.json").read_bytes())
    del content["sha256"]
    change(content)
    return sealed(json.dumps(content, indent=1))


@pytest.mark.parametrize("kind", ["entities", "relations"])
@pytest.mark.parametrize("field", Field)
def test_models_without_one_of_their_tables_are_refused(with_model: Path, kind: str, field: Field) -> None:
    data = altered(with_model, lambda content: content["model"][kind].pop(field))
    expected = f"2: not a manifest of this program: model.{kind}: .*a model without {field} vectors"
    with pytest.raises(StoreError, match=expected):
        parse_manifest(data, "2")


def test_unknown_tables_are_refused(with_model: Path) -> None:
    data = altered(with_model, lambda content: content["model"]["entities"].update(other=None))
    with pytest.raises(StoreError, match=r"2: not a manifest of this program: model\.entities\.other"):
        parse_manifest(data, "2")


def test_tables_are_found_by_field_and_written_by_name(with_model: Path) -> None:
    data = (with_model / "versions" / "00000002.json").read_bytes()
    manifest = parse_manifest(data, "2")
    assert isinstance(manifest, ModelManifest)
    assert list(manifest.model.entities) == list(manifest.model.relations) == list(Field)
    assert manifest.to_json() == data
    assert list(json.loads(data)["model"]["entities"]) == ["knowledge", "context", "joint"]


def test_every_part_of_a_manifest_is_named(with_model: Path) -> None:
    def digests(value: object) -> list[str]:
        if isinstance(value, dict):
            found = [value["digest"]] if "digest" in value else []
            return [*found, *(digest for item in value.values() for digest in digests(item))]
        return [digest for item in value for digest in digests(item)] if isinstance(value, list) else []

    for version in (1, 2):
        data = (with_model / "versions" / f"{version:08d}.json").read_bytes()
        expected = digests(json.loads(data))
        assert len(expected) >= 9
        assert sorted(part.digest for part in parts_of(parse_manifest(data, ""))) == sorted(expected)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000])
def test_deeply_nested_json_is_damage(data: bytes) -> None:
    with pytest.raises(StoreError, match="somewhere: damaged"):
        parse_manifest(data, "somewhere")
