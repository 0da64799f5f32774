"""Diffs between any two snapshots of a store, near or far, forward or backward, are those of sets of labels."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from dkge_dist import api
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.types import Split
from tests.graphs import Labelled, alive, content, labelled, movies, write_changes, write_tsv

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


def test_by_number(store: Path) -> None:
    by_number, by_name = api.diff(store, "1", "7"), api.diff(store, "base", "six")
    del by_number["seconds"], by_name["seconds"]
    assert by_number == by_name


@pytest.mark.parametrize("name", ["nobody", "8", "0", "", "-1"])
def test_snapshots_that_are_not_there(store: Path, name: str) -> None:
    with pytest.raises(StoreError, match=f"no snapshot '{name}'; the newest are two, three, back, full, six"):
        api.diff(store, "base", name)
