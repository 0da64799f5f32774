"""`check` names whatever is broken in a store, and what is broken is never taken for data."""

from __future__ import annotations

import hashlib
import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dkge_dist import api
from dkge_dist.store.manifest import FORMAT, parse_manifest, sealed
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from tests.graphs import everything, head, listing, movies, write_changes, write_tsv

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
    return [name for name, kind in listing(store).items() if kind != "folder" and name != "store.json"]


def flipped(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


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


def test_progress_is_heard(sound: Path) -> None:
    heard: list[float] = []
    api.check(sound, progress=lambda done, text: heard.append(done))
    assert heard == [0.25, 0.5, 0.75, 1.0]


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


def test_any_flipped_bit_in_the_newest_manifest_is_found(store: Path) -> None:
    """No later version vouches for it."""
    path = store / "versions" / f"{VERSIONS:08d}.json"
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 7):
        altered = bytearray(content)
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreError, match=r"00000004\.json: "):
            parse_manifest(bytes(altered), str(path))
    assert parse_manifest(content, str(path)) == head(store)


def test_any_flipped_bit_in_the_marker_is_found(store: Path) -> None:
    path = store / "store.json"
    content = path.read_bytes()
    for bit in range(8 * len(content)):
        flipped(path, bit)
        with pytest.raises(StoreError, match=r"store\.json: (damaged|the store has format \d+, this program reads)"):
            api.check(store)
        path.write_bytes(content)
    assert api.check(store)["ok"]


@pytest.mark.parametrize("size", [0, 1, -1])
def test_truncated_files_are_named(store: Path, size: int) -> None:
    for name in files(store):
        path = store / name
        content = path.read_bytes()
        path.write_bytes(content[:size])
        assert any(str(path) in problem for problem in problems(store)), name
        path.write_bytes(content)


def test_longer_files_are_named(store: Path) -> None:
    for name in files(store):
        path = store / name
        content = path.read_bytes()
        path.write_bytes(content + b"\n")
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


def test_other_files_among_the_versions_do_no_harm(store: Path) -> None:
    for name in ("00000001.json~", "notes.txt", "1.json", ".00000009.json.0123"):
        (store / "versions" / name).write_text("rubbish")
    assert problems(store) == []
    assert head(store).version == VERSIONS


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
            "name rows that no label has",
        ),
    ],
)
def test_manifests_that_do_not_fit_their_parts(store: Path, change: Callable[[dict], None], message: str) -> None:
    resealed(store, 2, change)
    found = [problem for problem in api.check(store)["problems"] if problem["version"] == 2]
    assert any(re.search(message, problem["problem"]) for problem in found), found


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"null", b"\xff\xfe", b"{}", b'{"format": 1}', b"{" * 50])
def test_files_that_are_no_manifests(store: Path, data: bytes) -> None:
    path = store / "versions" / f"{VERSIONS:08d}.json"
    path.write_bytes(data)
    assert [str(path) in problem for problem in problems(store)] == [True]


@pytest.mark.parametrize("command", ["check", "log", "ingest"])
def test_a_newer_store_is_refused_with_advice(store: Path, tmp_path: Path, command: str) -> None:
    (store / "store.json").write_text(json.dumps({"format": FORMAT + 1, "more": "of it"}))
    before = listing(store)
    calls = {
        "check": lambda: api.check(store),
        "log": lambda: api.log(store),
        "ingest": lambda: api.ingest(store, write_tsv(tmp_path / "next.tsv", movies(100))),
    }
    expected = f"the store has format {FORMAT + 1}, this program reads up to {FORMAT}: upgrade dkge_dist"
    with pytest.raises(StoreError, match=expected):
        calls[command]()
    assert listing(store) == before


def test_a_newer_version_is_refused_with_advice(store: Path) -> None:
    path = store / "versions" / f"{VERSIONS:08d}.json"
    path.write_text(json.dumps({"format": FORMAT + 1, "whatever": "that may hold"}))
    expected = f"the store has format {FORMAT + 1}, this program reads up to {FORMAT}: upgrade dkge_dist"
    assert problems(store) == [f"{path}: {expected}"]
    with pytest.raises(StoreError, match=expected):
        api.log(store)


def test_a_damaged_manifest_stops_whoever_needs_it(store: Path, tmp_path: Path) -> None:
    flipped(store / "versions" / f"{VERSIONS:08d}.json", 4000)
    before = listing(store)
    with pytest.raises(StoreError, match=r"00000004\.json"):
        api.ingest(store, write_tsv(tmp_path / "next.tsv", movies(100)))
    assert listing(store) == before
    assert everything(store, Store.open(store).manifest(3)) == {*movies(104)[4:], ("new", "writer", "title3")}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: None, "no such folder; `dkge ingest .*new SOURCE` makes one"),
        (lambda path: path.mkdir(), r"not a store \(no store\.json\)"),
        (lambda path: path.write_text("x"), r"not a store \(no store\.json\)"),
    ],
)
def test_what_is_no_store(tmp_path: Path, make: Callable[[Path], object], message: str) -> None:
    make(tmp_path / "new")
    with pytest.raises(StoreError, match=message):
        api.check(tmp_path / "new")
