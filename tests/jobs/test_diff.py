"""What changed between two snapshots, as a job."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import dkge_dist
from dkge_dist.jobs.diff import diff
from dkge_dist.settings import load_settings
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError, UsageError
from tests.graphs import Labelled, content, write_changes, write_tsv
from tests.jobs.building import ADDED, base_triples, ingest_night, write_lines
from tests.jobs.reads import counted_reads

pytestmark = pytest.mark.usefixtures("one_thread")

DELETED = ["\t".join(triple) for triple in base_triples()[:3]]


@pytest.fixture
def two(tmp_path: Path) -> Path:
    """Snapshots `base` and `night`."""
    dkge_dist.ingest(tmp_path / "store", write_tsv(tmp_path / "base.tsv", base_triples()))
    ingest_night(tmp_path / "night.changes", tmp_path / "store", ADDED, DELETED)
    return tmp_path / "store"


def as_triples(lines: list[str]) -> list[Labelled]:
    return [tuple(line.split("\t")) for line in lines]  # type: ignore[misc]


def test_the_counts_of_a_change_and_of_the_way_back(two: Path) -> None:
    there = diff(Store.open(two), "base", "night", None, 0, None)
    assert (there["from"], there["to"], there["added"], there["deleted"]) == ("base", "night", len(ADDED), 3)
    assert (there["emerging_entities"], there["emerging_relations"]) == (2, 1)
    back = diff(Store.open(two), "2", "1", None, 0, None)
    assert (back["from"], back["to"], back["added"], back["deleted"]) == ("night", "base", 3, len(ADDED))
    assert (back["removed_entities"], back["removed_relations"]) == (2, 1)
    assert "added_examples" not in there


def test_examples_are_triples_by_labels(two: Path) -> None:
    report = diff(Store.open(two), "base", "night", None, 2, None)
    assert len(report["added_examples"]) == len(report["deleted_examples"]) == 2
    assert all(tuple(triple) in as_triples(ADDED) for triple in report["added_examples"])
    assert all(tuple(triple) in as_triples(DELETED) for triple in report["deleted_examples"])
    every = diff(Store.open(two), "base", "night", None, 99, None)
    assert sorted(map(tuple, every["added_examples"])) == sorted(as_triples(ADDED))


def test_display_names_stand_beside_labels(two: Path, tmp_path: Path) -> None:
    """Of the examples and of those affected; who has no name has no entry."""
    unnamed = diff(Store.open(two), "base", "night", None, 99, load_settings(None, ["threads=1"]))
    assert unnamed["entity_names"] == unnamed["relation_names"] == {}
    head, relation, _ = unnamed["added_examples"][0]
    names = write_lines(tmp_path / "names.tsv", [f"{head}\tSomebody", f"{relation}\tis near", "e59\tNot changed"])
    dkge_dist.ingest(two, names, format="labels")
    report = diff(Store.open(two), "base", "night", None, 99, load_settings(None, ["threads=1"]))
    assert (report["entity_names"], report["relation_names"]) == ({head: "Somebody"}, {relation: "is near"})
    for key in ("added_examples", "deleted_examples"):
        assert report[key] == unnamed[key]
    (named,) = (line for line in report["affected_entity_examples"] if line["entity"] == head)
    assert named["name"] == "Somebody"
    others = [line for line in report["affected_entity_examples"] if line["entity"] not in (head, "e59")]
    assert others and all("name" not in line for line in others)


def test_affected_objects_are_those_that_an_update_plans(two: Path) -> None:
    settings = load_settings(None, ["threads=1"])
    report = diff(Store.open(two), "base", "night", None, 0, settings)
    dkge_dist.train(two, snapshot="base", settings=["model.dim=4", "train.max_epochs=1"])
    plan = dkge_dist.update(two, plan=True)
    assert report["affected_entities"] == plan["affected_entities"]
    assert report["affected_relations"] == plan["affected_relations"]
    literal = dkge_dist.update(two, plan=True, settings=["online.affected_by=context"])
    assert report["context_changed_entities"] == literal["affected_entities"]
    assert report["context_changed_relations"] == literal["affected_relations"]
    assert report["affected_entity_examples"] == report["affected_relation_examples"] == []


def test_affected_objects_by_name_those_in_most_changed_triples_first(two: Path) -> None:
    report = diff(Store.open(two), "base", "night", None, 999, load_settings(None, ["threads=1"]))
    triples = report["added_examples"] + report["deleted_examples"]
    for noun, ends in (("entity", lambda h, r, t: {h, t}), ("relation", lambda h, r, t: {r})):
        plural = "entities" if noun == "entity" else "relations"
        found = report[f"affected_{noun}_examples"]
        assert len(found) == len({line[noun] for line in found}) == report[f"affected_{plural}"]
        assert sum(line["context_changed"] for line in found) == report[f"context_changed_{plural}"]
        counts = [line["changed_triples"] for line in found]
        assert counts == [sum(line[noun] in ends(*triple) for triple in triples) for line in found]
        assert counts == sorted(counts, reverse=True)
    few = diff(Store.open(two), "base", "night", None, 2, load_settings(None, ["threads=1"]))
    assert few["affected_entity_examples"] == report["affected_entity_examples"][:2]


def test_a_change_file_leads_from_one_to_the_other(two: Path, tmp_path: Path) -> None:
    out = tmp_path / "written.changes"
    report = diff(Store.open(two), "base", "night", out, 0, None)
    assert report["out"] == str(out)
    assert [path.name for path in tmp_path.glob(".*")] == []
    dkge_dist.ingest(tmp_path / "again", tmp_path / "base.tsv")
    dkge_dist.ingest(tmp_path / "again", out, name="night")
    assert content(tmp_path / "again", "night") == content(two, "night")


@pytest.mark.parametrize("label", ["a\tb", "a\nb", "ends\r"])
def test_labels_that_a_change_file_cannot_hold(tmp_path: Path, label: str) -> None:
    for number, tails in enumerate((["x"], ["x", label])):
        columns = {"h": ["x"] * len(tails), "r": ["r"] * len(tails), "t": tails}
        pq.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
        dkge_dist.ingest(tmp_path / "store", tmp_path / f"{number}.parquet", name=f"n{number}")
    out = tmp_path / "out.changes"
    with pytest.raises(UsageError, match="a change file cannot hold the label"):
        diff(Store.open(tmp_path / "store"), "n0", "n1", out, 0, None)
    assert not out.exists()


def test_a_file_that_is_there_is_replaced_at_once(two: Path, tmp_path: Path) -> None:
    out = write_changes(tmp_path / "out.changes", [("old", "old", "old")])
    diff(Store.open(two), "base", "night", out, 0, None)
    assert "old" not in out.read_text(encoding="utf-8")


def test_it_opens_the_store_once(two: Path) -> None:
    with counted_reads(two) as reads:
        dkge_dist.diff(two, "base", "night", examples=3)
    assert reads.stores == 1
    # Both names are looked up among those of all snapshots.
    names = {run.digest for run in Store.open(two).head().name_runs}
    assert {count for digest, count in reads.parts.items() if digest not in names} == {1}


def test_a_snapshot_that_there_is_not(two: Path) -> None:
    with pytest.raises(DkgeError, match="no snapshot 'tomorrow'; the newest are base, night"):
        diff(Store.open(two), "base", "tomorrow", None, 0, None)
