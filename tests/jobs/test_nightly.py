"""A night as one job: the store is opened once, nothing is read twice, and what was done is not done again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import dkge_dist
from dkge_dist.jobs import nightly as job
from dkge_dist.jobs import update
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError, UsageError
from tests.graphs import assert_sound, listing
from tests.jobs.building import (
    ADDED,
    SMALL,
    assert_joint_is_fresh,
    base_triples,
    ingest_night,
    some_train,
    write_lines,
    write_night,
)
from tests.jobs.reads import counted_reads
from tests.models import assert_same_bits, model_of, vectors_of

pytestmark = pytest.mark.usefixtures("one_thread")

NEVER = ["online.retrain_when=never"]


@pytest.fixture
def source(store: Path, tmp_path: Path) -> Path:
    return write_night(tmp_path / "night.changes", ADDED, some_train(store, 4))


def test_a_night_is_ingested_learnt_and_evaluated(store: Path, source: Path) -> None:
    report = dkge_dist.nightly(store, source, settings=NEVER)
    assert (report["decision"], report["unchanged"], report["version"]) == ("updated online", False, 4)
    assert set(report) == {"ingest", "update", "evaluate", "decision", "version", "unchanged", "seconds"}
    assert report["ingest"]["added"] == len(ADDED)
    assert report["update"]["emerging_entities"] == 2
    for split in ("valid", "test"):
        alone = dkge_dist.evaluate(store, split=split)  # type: ignore[arg-type]
        timed = {"seconds"}
        assert {k: v for k, v in report["evaluate"][split].items() if k not in timed} == {
            key: value for key, value in alone.items() if key not in timed
        }
    assert_joint_is_fresh(store)
    assert_sound(store)


def test_it_equals_its_steps_one_by_one(store: Path, source: Path, tmp_path: Path) -> None:
    """What is handed on in memory is what the store holds."""
    apart = Path(shutil.copytree(store, tmp_path / "apart"))
    dkge_dist.nightly(store, source, settings=NEVER)
    dkge_dist.ingest(apart, source)
    dkge_dist.update(apart, settings=NEVER)
    assert_same_bits(vectors_of(store), vectors_of(apart))
    assert model_of(store).model.metrics == model_of(apart).model.metrics


@pytest.mark.parametrize("trains", [False, True])
def test_it_opens_the_store_once_and_reads_no_part_twice(store: Path, tmp_path: Path, trains: bool) -> None:
    """Neither the diff that ingest held in memory nor the tables that the update had open."""
    ingest_night(tmp_path / "n0.changes", store, ["e3\tr1\te9"], [])
    dkge_dist.update(store)
    source = write_night(tmp_path / "n1.changes", ADDED, some_train(store, 4))
    words = ["online.retrain_when=every 1 nights"] if trains else NEVER
    with counted_reads(store) as reads:
        report = dkge_dist.nightly(store, source, settings=words)
    assert ("train" in report) == trains
    assert ("update" in report) != trains
    assert reads.stores == 1
    assert len(reads.parts) > 5
    assert set(reads.parts.values()) == {1}


def test_a_night_that_is_done_is_not_done_again(store: Path, source: Path) -> None:
    dkge_dist.nightly(store, source, settings=NEVER)
    before = listing(store)
    report = dkge_dist.nightly(store, source, settings=NEVER)
    assert (report["unchanged"], report["decision"], report["version"]) == (True, "nothing new to learn", 4)
    assert set(report) == {"ingest", "decision", "version", "unchanged", "seconds"}
    assert report["ingest"]["unchanged"]
    assert listing(store) == before


def test_a_night_that_failed_after_its_ingest_is_taken_up_again(store: Path, source: Path) -> None:
    with pytest.raises(DkgeError, match="the update was stopped"):
        dkge_dist.nightly(store, source, settings=NEVER, stop=lambda: True)
    assert [line["kind"] for line in dkge_dist.log(store)["versions"]] == ["snapshot", "model", "snapshot"]
    report = dkge_dist.nightly(store, source, settings=NEVER)
    assert report["ingest"]["unchanged"]
    assert (report["decision"], report["unchanged"], report["version"]) == ("updated online", False, 4)
    assert report["update"]["added"] == len(ADDED)
    assert_joint_is_fresh(store)


def test_the_first_night_is_trained(tmp_path: Path) -> None:
    source = write_lines(tmp_path / "base.tsv", ["\t".join(triple) for triple in base_triples()])
    report = dkge_dist.nightly(tmp_path / "store", source, valid=10, settings=SMALL)
    assert report["decision"] == "there was no model yet"
    assert (report["train"]["version"], report["version"]) == (2, 2)
    assert set(report["evaluate"]) == {"valid"}
    assert model_of(tmp_path / "store").model.facts["origin"] == "scratch"
    assert dkge_dist.nightly(tmp_path / "store", source, settings=SMALL)["unchanged"]


def test_every_so_many_nights_it_trains_from_scratch(store: Path, tmp_path: Path) -> None:
    words = ["online.retrain_when=every 2 nights"]
    decisions = []
    for number in range(3):
        source = write_night(tmp_path / f"n{number}.changes", [f"e{number}\tr0\tnew{number}"], [])
        decisions.append(dkge_dist.nightly(store, source, settings=words)["decision"])
    why = "every 2 nights: this is night 2 since the last training"
    assert decisions == ["updated online", why, "updated online"]
    assert [line.get("why") for line in dkge_dist.log(store)["versions"] if line["kind"] == "model"] == [
        None, None, why, None,
    ]  # fmt: skip


def fallen(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an update measures is half of what the training did."""
    measured = model_of(store).model.metrics
    monkeypatch.setattr(update, "measure_validation", lambda *given: {**measured, "mrr": measured["mrr"] / 2})


def test_a_night_that_loses_too_much_is_trained_from_scratch(
    store: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fallen(store, monkeypatch)
    report = dkge_dist.nightly(store, source, settings=["online.retrain_when=mrr_drop > 30%"])
    assert report["decision"] == "mrr_drop > 30%: validation MRR fell by 50.0%"
    assert report["update"]["version"] == 4
    assert report["train"]["version"] == report["version"] == 5
    assert report["evaluate"]["test"]["version"] == 5
    assert dkge_dist.nightly(store, source)["unchanged"]


def test_a_training_that_drift_asked_for_and_that_was_stopped_is_taken_up_again(
    store: Path, source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fallen(store, monkeypatch)
    words = ["online.retrain_when=mrr_drop > 30%"]

    def stop() -> bool:
        """Once the update is published."""
        return len(dkge_dist.log(store)["versions"]) == 4

    with pytest.raises(DkgeError, match="stopped in epoch"):
        dkge_dist.nightly(store, source, settings=words, stop=stop)
    report = dkge_dist.nightly(store, source, settings=words)
    assert report["ingest"]["unchanged"]
    assert (report["train"]["resumed"], report["version"]) == (True, 5)
    assert "update" not in report


@pytest.mark.parametrize("trains", [False, True])
def test_another_ingest_in_between_is_learnt_too(
    store: Path, source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trains: bool
) -> None:
    """The night goes on from what is current then, not from what it holds in memory."""
    other = write_night(tmp_path / "other.changes", ["e2\tr2\tlate"], [])
    ingest = job.ingest

    def overtaken(*arguments: Any) -> Any:
        done = ingest(*arguments)
        dkge_dist.ingest(store, other)
        return done

    monkeypatch.setattr(job, "ingest", overtaken)
    report = dkge_dist.nightly(store, source, settings=["online.retrain_when=every 1 nights"] if trains else NEVER)
    if not trains:
        assert (report["update"]["added"], report["update"]["emerging_entities"]) == (len(ADDED) + 1, 3)
    assert model_of(store).model.snapshot == 4
    assert report["evaluate"]["test"]["candidates"] == dkge_dist.evaluate(store)["candidates"]
    assert_joint_is_fresh(store)


def test_nights_since_an_earlier_model_are_learnt_at_once(store: Path, tmp_path: Path) -> None:
    first = write_night(tmp_path / "n1.changes", ADDED[:2], [])
    dkge_dist.nightly(store, first, settings=NEVER)
    second = write_night(tmp_path / "n2.changes", ADDED[2:], [])
    report = dkge_dist.nightly(store, second, settings=NEVER, since_version="2")
    assert (report["update"]["parent"], report["update"]["added"]) == (2, len(ADDED))
    assert_joint_is_fresh(store)


def test_a_night_that_is_to_follow_another_snapshot_is_refused(store: Path, source: Path) -> None:
    dkge_dist.ingest(store, source, name="first")
    later = write_night(source.with_name("later.changes"), ["e2\tr2\tlate"], [])
    with pytest.raises(DkgeError, match="is to follow snapshot 'base'"):
        dkge_dist.nightly(store, later, onto="base")
    assert len(Store.open(store).versions()) == 3


def test_settings_of_the_model_may_not_change(store: Path, source: Path) -> None:
    with pytest.raises(UsageError, match="the model was learnt with 12"):
        dkge_dist.nightly(store, source, settings=["model.dim=9"])
