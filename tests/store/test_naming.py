"""Display names of a store over nights, rollbacks, clearing, damage and kills."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dkge_dist.graph.sources.base import SourceError
from dkge_dist.store.display_names import StoredNames
from dkge_dist.store.guards import SuspiciousSourceError
from dkge_dist.store.manifest import parts_of
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from tests.graphs import assert_sound, everything, head, listing, movies, write_changes, write_tsv
from tests.store.damage import flipped


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


KILLED_INGEST = """
import json, shutil, signal, sys
from pathlib import Path
from dkge_dist.surfaces import api
from tests.store.crash_points import die_at, in_child
from tests.store.test_naming import names_of
folder = Path(sys.argv[1])
crash, killed = 0, True
while killed:
    crash += 1
    shutil.rmtree(folder / "copy", ignore_errors=True)
    shutil.copytree(folder / "store", folder / "copy")
    def ingest():
        die_at(crash, folder / "step")
        api.ingest(folder / "copy", folder / "night.changes", labels=folder / "night.tsv")
    killed = in_child(ingest) == -signal.SIGKILL
    left, problems = names_of(folder / "copy"), api.check(folder / "copy")["problems"]
    api.ingest(folder / "copy", folder / "night.changes", labels=folder / "night.tsv")
    print(json.dumps([killed, left, problems, names_of(folder / "copy")]))
"""


def test_a_killed_ingest_leaves_names_as_before(named: Path, tmp_path: Path) -> None:
    """Killed before every call that changes the disk."""
    write_changes(tmp_path / "night.changes", [("new", "actor", "title0")])
    write_names(tmp_path / "night.tsv", {"new": "New", "title0": "renamed"})
    after = {**FIRST, "new": "New", "title0": "renamed"}
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore"}
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    script = [sys.executable, "-c", KILLED_INGEST, str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, env=environment, timeout=280, check=False)
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(killed for killed, *_ in reports) > 20
    for _, left, problems, again in reports:
        assert left in (FIRST, after)
        assert (problems, again) == ([], after)
    assert {json.dumps(left) for _, left, *_ in reports} >= {json.dumps(FIRST)}
    assert isinstance(Store.open(named).display_names(head(named).display_names)[0], StoredNames)
