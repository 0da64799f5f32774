"""The benchmarks of evidence, run on graphs that are learnt in a moment: they end, and tell what they promise."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_evidence, bench_no_signal, bench_quality
from benchmarks.movies import store_of
from dkge_dist.surfaces import api
from dkge_dist.types import ROW, Triples
from tests.benchmarks.small_data import run_benchmark, write_published

pytestmark = pytest.mark.usefixtures("one_thread")

Patch, Shown = pytest.MonkeyPatch, pytest.CaptureFixture[str]
QUICK = ["--set", "model.dim=8", "train.max_epochs=1", "train.negatives=32", "threads=1"]


def test_quality_of_published_data(tmp_path: Path, monkeypatch: Patch, capsys: Shown) -> None:
    yago, dbpedia = write_published(tmp_path / "YAGO-3SP"), write_published(tmp_path / "DBpedia-3SP", 3, seed=2)
    words = ["--source", yago, "--dbpedia", dbpedia, "--work", tmp_path / "work", "--seeds", "2", "--recall", "30"]
    report = run_benchmark(
        bench_quality.main, [*words, "--no-paper", "--parts", "yago", "dbpedia", *QUICK], monkeypatch, capsys
    )
    assert report["seeds"] == [1, 2]
    for part, group, triples in (("yago", "test", 40), ("dbpedia", "validation half B", None)):
        assert len(report[part]["default"]) == 2
        for run in report[part]["default"]:
            assert run["recall"]["triples"] == run["recall"]["leaked"] == 30
            assert triples in (None, run[group]["triples"])
            for way in ("with evidence", "vectors alone"):
                assert run[group][way]["filtered"]["mrr"] >= run[group][way]["paper"]["mrr"]
                assert f"{part} recall: mrr, {way}" in report["figures"]
        mrr = [run[group]["with evidence"]["paper"]["mrr"] for run in report[part]["default"]]
        assert report["figures"][f"{part} {group}: mrr, paper, with evidence"]["measured"] == pytest.approx(
            np.mean(mrr)
        )
    assert 0 < report["dbpedia"]["default"][0]["validation half B"]["triples"] < 40


def test_quality_is_that_of_an_evaluation(tmp_path: Path, monkeypatch: Patch, capsys: Shown) -> None:
    words = ["--work", tmp_path, "--seeds", "1", "--recall", "20", "--synth-entities", "400", "--synth-held-out", "30"]
    report = run_benchmark(bench_quality.main, [*words, "--parts", "synth", *QUICK], monkeypatch, capsys)
    store = store_of(tmp_path, "imdb-30", 0, 400, 30)
    measured = api.evaluate(store)
    (run,) = report["synth"]["default"]
    assert run["test"]["with evidence"]["filtered"]["mrr"] == measured["mrr"]
    assert run["test"]["vectors alone"]["paper"]["hits@1"] == measured["vectors"]["paper"]["hits@1"]


def test_a_shuffled_relation(tmp_path: Path, monkeypatch: Patch, capsys: Shown) -> None:
    words = ["--work", tmp_path, "--entities", "400", "--held-out", "60", "--seeds", "1"]
    report = run_benchmark(bench_no_signal.main, [*words, *QUICK], monkeypatch, capsys)
    (run,) = report["runs"]
    name = f"test triples of {report['relation']}, shuffled: mrr with evidence / by vectors alone"
    ratio = run["with evidence"]["relation"] / run["vectors alone"]["relation"]
    assert report["figures"][name]["measured"] == pytest.approx(ratio)
    assert "all test triples: mrr with evidence / by vectors alone" in report["figures"]


def test_shuffling_changes_the_tails_of_one_relation_alone() -> None:
    rng = np.random.default_rng(5)
    columns = rng.integers(0, [[30], [3], [30]], (3, 200)).astype(ROW)
    train, valid = Triples(*columns[:, :150]), Triples(*columns[:, 150:])
    mixed = bench_no_signal.shuffled_splits([train, valid, Triples.empty()], 1, 0)
    sets = [set(zip(*(column.tolist() for column in split), strict=True)) for split in (train, valid, *mixed)]
    before, after = (
        [{t for t in some if t[1] != 1} for some in sets[:2]],
        [{t for t in some if t[1] != 1} for some in sets[2:4]],
    )
    assert after == [before[0], before[1] - before[0]]
    for old, new in zip(sets[:2], sets[2:4], strict=True):
        shuffled = [{t for t in some if t[1] == 1} for some in (old, new)]
        assert shuffled[0] != shuffled[1]
        assert {t[2] for t in shuffled[1]} <= {t[2] for t in shuffled[0]}
        assert {t[0] for t in shuffled[1]} <= {t[0] for t in shuffled[0]}
    assert not sets[2] & sets[3]


@pytest.mark.slow
def test_costs_of_evidence(tmp_path: Path, monkeypatch: Patch, capsys: Shown) -> None:
    words = ["--work", tmp_path, "--entities", "600", "--questions", "20", "--dim", "8", "--times", "1"]
    report = run_benchmark(bench_evidence.main, words, monkeypatch, capsys)
    assert set(report["answers"]) == {"with evidence", "with --why", "vectors alone"}
    assert report["night"]["added"] > 0
    assert "evidence of 20 questions, s" in report["figures"]
    assert report["processes"]["with"]["peak_gb"] > 0
