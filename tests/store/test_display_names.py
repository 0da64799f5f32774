"""Display names in a store against plain dictionaries: names by row, rows by name, and what changed."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dkge_dist.graph.dictionary import NameTable
from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import SourceError
from dkge_dist.store import display_names
from dkge_dist.store.display_names import StoredNames, add_names, check_run, load_run
from dkge_dist.store.guards import SuspiciousSourceError
from dkge_dist.store.manifest import PartEntry, parts_of
from dkge_dist.store.parts import RUN_GROWTH, save_columns
from dkge_dist.store.storage import Storage, StoreError, open_storage
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import ROW
from tests.graphs import assert_sound, everything, head, listing, movies, write_changes, write_tsv
from tests.store.damage import flipped

ROWS = 40
NAME = st.one_of(
    st.sampled_from(["Hamlet", "hamlet", "HAMLET", "Ödipus", "ödipus", "Straße", "STRASSE", "ﬁ", "x" * 300]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4),
    st.just(""),
)
"""An empty one takes the name away."""
NIGHTS = st.lists(st.dictionaries(st.integers(0, ROWS - 1), NAME, max_size=12), max_size=8)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    return open_storage(tmp_path_factory.mktemp("names"))


def table(names: dict[int, str]) -> NameTable:
    return NameTable.of(np.array([*names], ROW), Labels.from_strings(names.values()))


def stored(storage: Storage, nights: list[dict[int, str]]) -> list[PartEntry]:
    runs: list[PartEntry] = []
    with storage.staging() as staging:
        for night in nights:
            runs = add_names(staging, runs, table(night))
    return runs


def after(nights: list[dict[int, str]]) -> dict[int, str]:
    """The names after some nights."""
    every: dict[int, str] = {}
    for night in nights:
        every |= night
    return {row: name for row, name in every.items() if name}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nights=NIGHTS)
def test_names_after_nights_are_those_of_a_dictionary(storage: Storage, nights: list[dict[int, str]]) -> None:
    runs = stored(storage, nights)
    expected = after(nights)
    names = StoredNames(storage, runs)
    assert names.of(range(-1, ROWS + 1)) == [expected.get(row) for row in range(-1, ROWS + 1)]
    for wanted in {name for night in nights for name in night.values()} | {"hamlet", "nobody"}:
        found = {(row, name) for row, name in expected.items() if wanted and name.casefold() == wanted.casefold()}
        assert set(names.find(wanted)) == found
    whole = names.table()
    assert dict(zip(whole.rows.tolist(), whole.names, strict=True)) == expected
    sizes = [run.rows for run in runs]
    assert all(longer >= RUN_GROWTH * shorter for longer, shorter in itertools.pairwise(sizes))
    assert [problem for run in runs for problem in check_run(storage, run, ROWS)] == []


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nights=NIGHTS, more=st.dictionaries(st.integers(0, ROWS - 1), NAME), few=st.sampled_from([0, 1000]))
def test_what_changes_is_what_is_written(
    storage: Storage, nights: list[dict[int, str]], more: dict[int, str], few: int
) -> None:
    """One by one, and all at once."""
    expected = after(nights)
    some = {row: name for row, name in expected.items() if row % 3 == 0}
    given_names = {**some, **more}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(display_names, "FEW", few)
        changed = StoredNames(storage, stored(storage, nights)).changed(table(given_names))
    found = dict(zip(changed.rows.tolist(), changed.names, strict=True))
    assert found == {row: name for row, name in given_names.items() if expected.get(row, "") != name}


def test_names_that_were_taken_away_leave_nothing_behind(storage: Storage) -> None:
    assert stored(storage, [{1: "one", 2: "two"}, {1: "", 2: ""}]) == []
    (run,) = stored(storage, [{1: "one", 2: "two"}, {1: ""}])
    assert run.rows == 1


def large(storage: Storage) -> PartEntry:
    (run,) = stored(storage, [{row: f"The Name {row}" for row in range(0, 4000, 2)}])
    return run


def test_nothing_is_read_before_it_is_asked_for(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    run = large(storage)
    monkeypatch.setattr(type(storage), "part_path", lambda self, part: pytest.fail("a part was read"))
    StoredNames(storage, [run])


def test_no_wrong_bit_makes_a_wrong_name(storage: Storage) -> None:
    run = large(storage)
    path = storage.part_path(run.part)
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 8 * run.size, 150).tolist()
    bits += rng.integers(0, 8 * 1024, 50).tolist()  # What says where the columns are.
    bits += (8 * run.size - 1 - rng.integers(0, 8 * 1024, 50)).tolist()
    refused = 0
    for bit in bits:
        flipped(path, bit)
        row = int(rng.integers(0, 4000))
        try:
            names = StoredNames(storage, [run])
            assert names.of([row]) == [f"The Name {row}" if row % 2 == 0 else None]
            assert [found.row for found in names.find(f"THE NAME {row}")] == ([row] if row % 2 == 0 else [])
        except StoreError as error:
            refused += str(path) in str(error)
        flipped(path, bit)
    assert refused > 90


def test_crafted_runs_are_refused(storage: Storage) -> None:
    """Whoever can compute checksums gets an error, not a crash."""
    columns = {
        "row": np.array([1, 2], np.int32),
        "name": Labels.from_strings(["a", "b"]).to_arrow(),
        "hash": np.array([5, 4], np.uint64),
        "place": np.array([0, 7], np.int32),
    }
    with storage.staging() as staging:
        run = save_columns(staging, columns)
        unordered = save_columns(staging, {**columns, "row": np.array([2, 2], np.int32)})
        other = save_columns(staging, {"row": columns["row"]})
    assert list(check_run(storage, run, 9)) == [f"part {run.digest}: the index of its names is none"]
    assert f"part {run.digest} names rows that no label has" in list(check_run(storage, run, 2))
    with pytest.raises(StoreError, match="its rows are not ascending"):
        load_run(storage, unordered)
    with pytest.raises(StoreError, match="holds columns"):
        StoredNames(storage, [other]).of([1])


def write_names(path: Path, names: dict[str, str]) -> Path:
    path.write_text("".join(f"{label}\t{name}\n" for label, name in names.items()), encoding="utf-8")
    return path


def names_of(path: Path) -> dict[str, str]:
    """Every display name by its label, looked up row by row."""
    store = Store.open(path)
    found: dict[str, str] = {}
    for dictionary in store.dictionaries(store.head()):
        stored = dictionary.display_names.of(range(len(dictionary))) if dictionary.display_names is not None else []
        found |= {dictionary.label(row): name for row, name in enumerate(stored) if name is not None}
    return found


FIRST = {"title0": "The Matrix", "person0": "Keanu Reeves", "actor": "cast member"}


@pytest.fixture
def named(store: Path, tmp_path: Path) -> Path:
    """Snapshot `base` (version 1) without names, and version 2, which names three things."""
    api.ingest(store, write_names(tmp_path / "first.tsv", FIRST), format="labels")
    return store


class TestIngest:
    def test_names_come_with_a_snapshot(self, tmp_path: Path) -> None:
        store, names = tmp_path / "store", write_names(tmp_path / "names.tsv", {**FIRST, "nobody": "x"})
        report = api.ingest(store, write_tsv(tmp_path / "base.tsv", movies(60)), labels=names)
        assert (report["version"], report["named_entities"], report["named_relations"]) == (1, 2, 1)
        assert report["counts"]["display names of labels that are in no triple"] == 1
        assert names_of(store) == FIRST
        assert_sound(store)

    def test_a_store_without_names_has_no_part_for_them(self, store: Path) -> None:
        assert head(store).display_names is None
        assert names_of(store) == {}

    def test_names_alone_are_a_version_and_no_snapshot(self, named: Path, tmp_path: Path) -> None:
        assert (head(named).kind, head(named).version, head(named).current.snapshot) == ("names", 2, 1)
        assert names_of(named) == FIRST
        (last,) = api.log(named)["versions"][1:]
        assert (last["kind"], last["name"], last["named"]) == ("names", "base", {"entities": 2, "relations": 1})
        report = api.ingest(named, tmp_path / "base.tsv", labels=write_names(tmp_path / "n", {"title1": "Speed"}))
        assert (report["unchanged"], report["version"], report["named_entities"]) == (True, 1, 1)
        assert names_of(named) == {**FIRST, "title1": "Speed"}
        assert_sound(named)

    def test_what_is_named_so_already_changes_nothing(self, named: Path, tmp_path: Path) -> None:
        before = listing(named)
        report = api.ingest(named, tmp_path / "base.tsv", labels=[tmp_path / "first.tsv"])
        assert (report["unchanged"], report["named_entities"], report["bytes_written"]) == (True, 0, 0)
        assert listing(named) == before

    def test_an_empty_name_takes_the_name_away(self, named: Path, tmp_path: Path) -> None:
        taken = write_names(tmp_path / "n.tsv", {"title0": "", "actor": "", "title1": "", "person0": "Neo"})
        report = api.ingest(named, taken, format="labels")
        assert [report[f"{verb}_{kind}"] for verb in ("named", "unnamed") for kind in ("entities", "relations")] == [
            1, 0, 1, 1,
        ]  # fmt: skip
        assert api.log(named)["versions"][-1]["named"] == {
            "entities": 1, "relations": 0, "removed_entities": 1, "removed_relations": 1,
        }  # fmt: skip
        assert names_of(named) == {"person0": "Neo"}
        before = listing(named)
        assert api.ingest(named, taken, format="labels")["unnamed_entities"] == 0, "there is none any more"
        assert listing(named) == before
        api.rollback(named, 2)
        assert names_of(named) == FIRST
        assert_sound(named)

    def test_nothing_is_taken_away_where_nothing_is_named(self, store: Path, tmp_path: Path) -> None:
        before = listing(store)
        api.ingest(store, write_names(tmp_path / "n.tsv", {"title0": ""}), format="labels")
        assert listing(store) == before

    def test_later_files_replace_earlier_ones(self, named: Path, tmp_path: Path) -> None:
        one = write_names(tmp_path / "one.tsv", {"title0": "one", "title1": "one"})
        two = write_names(tmp_path / "two.tsv", {"title1": "two"})
        api.ingest(named, write_changes(tmp_path / "n.changes", [("x", "actor", "y")]), labels=[one, two])
        assert names_of(named) == {**FIRST, "title0": "one", "title1": "two"}

    def test_labels_that_come_with_the_night_are_named(self, named: Path, tmp_path: Path) -> None:
        night = write_changes(tmp_path / "n.changes", [("new", "writer", "title0")])
        api.ingest(named, night, labels=write_names(tmp_path / "n.tsv", {"new": "New One", "writer": "written by"}))
        assert names_of(named) == {**FIRST, "new": "New One", "writer": "written by"}
        assert_sound(named)

    def test_labels_of_triples_that_change_nothing_have_no_rows_to_name(self, named: Path, tmp_path: Path) -> None:
        night = write_changes(tmp_path / "n.changes", deleted=[("ghost", "actor", "title0")])
        names = write_names(tmp_path / "n.tsv", {"ghost": "Boo", "title2": "Heat"})
        api.ingest(named, night, labels=names, force=True, name="base")
        assert names_of(named) == {**FIRST, "title2": "Heat"}
        assert_sound(named)

    def test_an_older_snapshot_that_is_repeated_brings_no_names(self, named: Path, tmp_path: Path) -> None:
        api.ingest(named, write_changes(tmp_path / "n.changes", [("x", "actor", "y")]))
        api.ingest(named, tmp_path / "base.tsv", name="base", labels=write_names(tmp_path / "n.tsv", {"title0": "old"}))
        assert names_of(named) == FIRST

    def test_names_of_a_source(self, tmp_path: Path) -> None:
        label = "<http://www.w3.org/2000/01/rdf-schema#label>"
        text = f'<x:a> <x:p> <x:b> .\n<x:a> {label} "The A"@en .\n<x:p> {label} "is p of" .\n<x:c> {label} "C" .\n'
        (tmp_path / "g.nt").write_text(text)
        report = api.ingest(tmp_path / "store", tmp_path / "g.nt")
        assert everything(tmp_path / "store", "g") == {("<x:a>", "<x:p>", "<x:b>")}
        assert names_of(tmp_path / "store") == {"<x:a>": "The A", "<x:p>": "is p of"}
        assert report["counts"] == {"display names of labels that are in no triple": 1}
        names = write_names(tmp_path / "n.tsv", {"<x:a>": "mine"})
        api.ingest(tmp_path / "store", tmp_path / "g.nt", labels=names)
        assert names_of(tmp_path / "store") == {"<x:a>": "mine", "<x:p>": "is p of"}, "a file overrules the source"


class TestRefusals:
    def test_a_file_of_other_labels(self, store: Path, tmp_path: Path) -> None:
        before = listing(store)
        swapped = write_names(tmp_path / "n.tsv", {"The Matrix": "title0"})
        with pytest.raises(SuspiciousSourceError, match=r"n\.tsv: none of its 1 labels is an entity or a relation"):
            api.ingest(store, tmp_path / "base.tsv", labels=swapped)
        assert listing(store) == before
        assert api.ingest(store, tmp_path / "base.tsv", labels=swapped, force=True)["named_entities"] == 0

    def test_an_empty_file_names_nothing(self, named: Path, tmp_path: Path) -> None:
        night = write_changes(tmp_path / "n.changes", [("x", "actor", "y")])
        report = api.ingest(named, night, labels=write_names(tmp_path / "n.tsv", {}))
        assert (report["unchanged"], report["named_entities"]) == (False, 0)
        assert names_of(named) == FIRST

    def test_bad_lines_lose_nothing(self, named: Path, tmp_path: Path) -> None:
        before = listing(named)
        path = tmp_path / "n.tsv"
        path.write_text("title1\tone\nno name\n")
        night = write_changes(tmp_path / "n.changes", [("x", "actor", "y")])
        with pytest.raises(SourceError, match=r"n\.tsv:2: 1 columns instead of 2"):
            api.ingest(named, night, labels=path)
        assert listing(named) == before
        report = api.ingest(named, night, labels=path, max_bad_lines=1)
        assert (report["named_entities"], report["counts"]["bad_lines"]) == (1, 1)

    def test_names_need_a_graph(self, tmp_path: Path) -> None:
        with pytest.raises(SourceError, match="a change needs a snapshot to change"):
            api.ingest(tmp_path / "store", write_names(tmp_path / "n.tsv", FIRST), format="labels")


LABEL = st.sampled_from(["title0", "title1", "title2", "person3", "person4", "actor", "director"])
NAME = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=5)


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(nights=st.lists(st.dictionaries(LABEL, NAME, min_size=1), min_size=1, max_size=6))
def test_names_after_nights_are_names_from_nothing(
    tmp_path_factory: pytest.TempPathFactory, nights: list[dict[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("nights")
    base, expected = write_tsv(folder / "base.tsv", movies(60)), {}
    api.ingest(folder / "store", base)
    for number, night in enumerate(nights):
        source = write_changes(folder / f"{number}.changes", [(f"new{number}", "actor", "title0")])
        night = {**night, f"new{number}": f"New {number}"}
        api.ingest(folder / "store", source, labels=write_names(folder / "n.tsv", night))
        expected |= night
    expected = {label: name for label, name in expected.items() if name}
    assert names_of(folder / "store") == expected
    whole = write_tsv(folder / "whole.tsv", everything(folder / "store", str(len(nights) + 1)))
    api.ingest(folder / "fresh", whole, labels=write_names(folder / "all.tsv", expected))
    assert names_of(folder / "fresh") == expected
    assert_sound(folder / "store")


class TestHistory:
    def test_a_rollback_brings_old_names_back(self, named: Path, tmp_path: Path) -> None:
        api.ingest(named, write_names(tmp_path / "n.tsv", {"title0": "renamed"}), format="labels")
        api.rollback(named, 2)
        assert names_of(named) == FIRST
        api.rollback(named, 3)
        assert names_of(named) == {**FIRST, "title0": "renamed"}
        api.rollback(named, 1)
        assert names_of(named) == {}
        assert_sound(named)

    def test_clearing_keeps_the_names_that_are_current(self, named: Path, tmp_path: Path) -> None:
        for number in range(6):
            names = write_names(tmp_path / "n.tsv", {f"title{number}": f"again {number}" * 50})
            api.ingest(named, names, format="labels")
        expected = names_of(named)
        done = api.gc(named, keep=1, grace_hours=0)
        assert done["parts"] > 0
        assert names_of(named) == expected
        assert_sound(named)
        assert api.gc(named, keep=1, grace_hours=0)["parts"] == 0
        # What was cleared can be gone back to, with the names of today.
        api.rollback(named, 3)
        assert names_of(named) == expected
        assert_sound(named)

    def test_old_versions_are_asked_by_the_names_of_today(self, named: Path) -> None:
        store = Store.open(named)
        store.head()
        entities, relations = store.dictionaries(store.manifest(1))
        (found,) = entities.display_names.find("the matrix")
        assert (entities.label(found.row), relations.called(0)) == ("title0", "cast member")


class TestDamage:
    def test_a_wrong_bit_is_found_by_check_and_by_readers(self, named: Path) -> None:
        for part in parts_of(head(named).display_names):
            path = next((named / "parts").rglob(part.digest))
            for bit in (3, 8 * part.size // 2, 8 * part.size - 1):
                flipped(path, bit)
                (problem,) = api.check(named)["problems"]
                assert str(path) in problem["problem"]
                with pytest.raises(Exception, match="is damaged"):
                    names_of(named)
                flipped(path, bit)
        assert_sound(named)

    def test_check_looks_at_what_checksums_cannot_tell(self, named: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A writer that forgot to sort."""
        monkeypatch.setattr("dkge_dist.store.display_names.name_hashes", lambda names: names.start.astype("u8"))
        api.ingest(named, write_names(named.parent / "n.tsv", {"title1": "a", "title2": "b"}), format="labels")
        monkeypatch.undo()
        assert "names are not found by their hashes" in str(api.check(named)["problems"])
