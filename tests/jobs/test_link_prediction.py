"""Link prediction as a job: the splits, protocols and tables of its report."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dkge_dist
from dkge_dist.ask.model import open_model
from dkge_dist.ask.ranks import PROTOCOLS, Protocol, Ranks, known_triples, metrics, rank
from dkge_dist.measure.link_prediction import EvaluateOptions, by_category, evaluate, evaluate_splits, held_out
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError, Split
from tests.jobs.building import SMALL, base_triples, write_lines
from tests.jobs.reads import counted_reads

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("split", ["valid", "test"])
@pytest.mark.parametrize("protocol", ["paper", "filtered"])
@pytest.mark.parametrize("with_evidence", [True, False])
def test_it_ranks_the_split_by_the_protocol(store: Path, split: str, protocol: Protocol, with_evidence: bool) -> None:
    """What was asked for at the top, and everything else below its name."""
    options = EvaluateOptions(split, None, protocol, with_evidence, ("relations", "categories"))
    opened = open_model(Store.open(store))
    report = evaluate(opened, options, 1)
    splits = tuple(opened.snapshot.triples(some) for some in Split)
    asked = splits[Split[split.upper()]]
    evidence = opened.evidence
    found: dict[tuple[str, bool], Ranks] = {}
    for name in PROTOCOLS:
        known = known_triples(splits, name)  # type: ignore[arg-type]
        found[name, True] = rank(opened.embedding, asked, known, evidence)
        found[name, False] = rank(opened.embedding, asked, known)
    ranks = found[protocol, with_evidence]
    assert evidence is not None and not np.array_equal(found[protocol, True].both, found[protocol, False].both)
    assert report["evidence"] == with_evidence
    for name in PROTOCOLS:
        assert report[name].items() >= metrics(found[name, with_evidence].both).items()
        assert report["vectors"][name].items() >= metrics(found[name, False].both).items()
    assert report["vectors"].items() >= metrics(found[protocol, False].both).items()
    assert {name: report[name] for name in metrics(ranks.both)} == metrics(ranks.both)
    assert (report["head"], report["tail"]) == (metrics(ranks.head), metrics(ranks.tail))
    assert (report["triples"], report["split"], report["protocol"]) == (20, split, protocol)
    assert (report["version"], report["snapshot"], report["candidates"]) == (2, "base", 60)
    assert sum(line["triples"] for line in report["relations"]) == 20
    assert {line["relation"] for line in report["relations"]} <= {"r0", "r1", "r2", "r3"}
    assert report["categories"] == by_category(ranks, asked, splits[Split.TRAIN])


def test_tables_are_told_when_they_are_asked_for(store: Path) -> None:
    report = evaluate(open_model(Store.open(store)), EvaluateOptions())
    assert (report["split"], report["protocol"], report["evidence"]) == ("test", "filtered", True)
    assert not {"relations", "categories", "ranks"} & set(report)


def test_triples_that_are_in_train_too_are_counted_and_left_out(tmp_path: Path) -> None:
    """As in published splits."""
    folder = tmp_path / "given"
    folder.mkdir()
    triples = ["\t".join(triple) for triple in base_triples()]
    write_lines(folder / "train.txt", triples[:300])
    write_lines(folder / "valid.txt", triples[300:310])
    write_lines(folder / "test.txt", [*triples[310:320], *triples[:4]])
    dkge_dist.ingest(tmp_path / "store", folder)
    dkge_dist.train(tmp_path / "store", settings=SMALL)
    report = dkge_dist.evaluate(tmp_path / "store", protocol="paper")
    assert (report["triples"], report["leaked"]) == (14, 4)
    opened = open_model(Store.open(tmp_path / "store"))
    train, test = opened.snapshot.triples(Split.TRAIN), opened.snapshot.triples(Split.TEST)
    apart = test.take(~opened.snapshot.contains(Split.TRAIN, test))
    assert report["without_train"] == metrics(rank(opened.embedding, apart, train, opened.evidence).both)
    assert report["vectors"]["paper"]["without_train"] == metrics(rank(opened.embedding, apart, train).both)


def test_all_held_out_splits_of_vectors_that_are_open(store: Path) -> None:
    opened = open_model(Store.open(store))
    heard: list[tuple[float, str]] = []
    reports = evaluate_splits(opened, lambda *told: heard.append(told))
    sizes = [opened.snapshot.triples(split).count for split in (Split.VALID, Split.TEST)]
    assert heard == [(share, f"ranking {count} triples") for count in sizes for share in (0.5, 1.0)]
    assert list(reports) == ["valid", "test"]
    for split, report in reports.items():
        alone = evaluate(opened, EvaluateOptions(split))
        assert {**report, "seconds": 0} == {**alone, "seconds": 0}


def test_a_split_without_triples(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "base.tsv", ["\t".join(triple) for triple in base_triples()])
    dkge_dist.ingest(tmp_path / "store", source, valid=10)
    dkge_dist.train(tmp_path / "store", settings=SMALL)
    opened = open_model(Store.open(tmp_path / "store"))
    assert held_out(opened, "valid").count == 10
    with pytest.raises(DkgeError, match="snapshot 'base' has no test triples; ingest with --test N"):
        dkge_dist.evaluate(tmp_path / "store")
    assert list(evaluate_splits(opened)) == ["valid"]


def test_it_opens_the_store_once_and_reads_no_part_twice(store: Path) -> None:
    with counted_reads(store) as reads:
        dkge_dist.evaluate(store, relations=True, categories=True)
    assert reads.stores == 1
    assert set(reads.parts.values()) == {1}


def test_a_model_is_evaluated_on_its_own_snapshot(store: Path, tmp_path: Path) -> None:
    before = dkge_dist.evaluate(store)
    dkge_dist.ingest(store, write_lines(tmp_path / "night.changes", ["+\te1\tr1\tnewcomer"]))
    after = dkge_dist.evaluate(store)
    assert "'night' is newer and not learnt yet" in after.pop("notice")
    assert {**after, "seconds": 0} == {**before, "seconds": 0}
    assert np.isfinite(after["mrr"])
