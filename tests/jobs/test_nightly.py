"""A night as one job: the store is opened once, nothing is read twice, and what was done is not done again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import dkge_dist
from dkge_dist import night as job
from dkge_dist.night import bare
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError, UsageError
from tests.graphs import assert_sound, listing
from tests.jobs.building import (
    ADDED,
    GENTLE,
    RING,
    SMALL,
    SPOILT,
    assert_joint_is_fresh,
    base_triples,
    ingest_night,
    ring_night,
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
    assert set(report) == {
        "ingest", "update", "evaluate", "decision", "drift", "version", "unchanged", "seconds", "headline",
    }  # fmt: skip
    before, now = (model_of(store, version).model.record.valid["mrr"] for version in (2, 4))
    said = (
        f"night: +{len(ADDED)} −4 learnt in {bare(report['update']['learn_seconds'], '.1f')} s; added facts believed "
    )
    assert report["headline"].startswith(said)
    assert report["headline"].endswith(f", MRR {bare(now, '.3f')} ({bare(now - before, '+.3f')})")
    assert report["drift"] == {"since": 2, "mrr_drop": None, "added_mrr": None, "due": None}, "too few triples"
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
    assert model_of(store).model.record.valid == model_of(apart).model.record.valid


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
    assert reads.stores == 1
    assert len(reads.parts) > 5
    # Names of snapshots are looked up, and their small runs then merged; neighbour lists are there when a training
    # writes those of the same base.
    opened = Store.open(store)
    again = {run.digest for version in opened.versions() for run in opened.manifest(version).name_runs}
    again.add(model_of(store).model.lists.part.digest)
    assert {count for digest, count in reads.parts.items() if digest not in again} == {1}


def test_a_night_that_is_done_is_not_done_again(store: Path, source: Path) -> None:
    dkge_dist.nightly(store, source, settings=NEVER)
    before = listing(store)
    report = dkge_dist.nightly(store, source, settings=NEVER)
    assert (report["unchanged"], report["decision"], report["version"]) == (True, "nothing new to learn", 4)
    assert set(report) == {"ingest", "decision", "drift", "version", "unchanged", "seconds", "headline"}
    assert report["headline"] == "night: nothing new to learn"
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
    assert model_of(tmp_path / "store").model.record["origin"] == "scratch"
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
        None, None, None, why, None,
    ]  # fmt: skip


DROP = "mrr_drop > 3%: validation MRR fell by "


def test_one_night_that_loses_much_is_no_drift_yet(ring: Path, tmp_path: Path) -> None:
    report = dkge_dist.nightly(ring, ring_night(tmp_path, 1), settings=SPOILT)
    assert report["decision"] == "updated online"
    drop = report["drift"]["mrr_drop"]
    assert (report["drift"]["since"], report["drift"]["due"], drop["triples"]) == (2, None, 60)
    assert drop["percent"] > 3
    assert 0 < drop["low"] < drop["percent"] < drop["high"]
    assert report["update"]["drift"] == model_of(ring).model.record["drift"]
    assert "warning" not in report


def test_a_second_one_is_told_with_what_to_run_and_trains_nothing(ring: Path, tmp_path: Path) -> None:
    dkge_dist.nightly(ring, ring_night(tmp_path, 1), settings=SPOILT)
    report = dkge_dist.nightly(ring, ring_night(tmp_path, 2))
    why = report["drift"]["due"]
    assert why.startswith(DROP)
    assert "added_mrr < 0.7: the MRR of added triples is 0." in why
    assert report["decision"] == f"updated online; training from scratch is due: {why}"
    assert report["warning"] == f"{why}; `dkge train {ring}` trains from scratch"
    assert ("train" in report, report["version"]) == (False, 6)
    again = dkge_dist.nightly(ring, tmp_path / "n2.changes")
    assert (again["unchanged"], again["version"]) == (True, 6)
    assert again["warning"] == report["warning"]
    dkge_dist.train(ring, settings=RING)
    after = dkge_dist.nightly(ring, ring_night(tmp_path, 3))
    assert (after["decision"], after["drift"]["since"]) == ("updated online", 7)


@pytest.mark.parametrize("words", [["online.retrain_when=never"], ["online.retrain_when=mrr_drop > 99%"]])
def test_drift_that_nobody_asked_for_is_only_reported(ring: Path, tmp_path: Path, words: list[str]) -> None:
    dkge_dist.nightly(ring, ring_night(tmp_path, 1), settings=[*SPOILT, *words])
    report = dkge_dist.nightly(ring, ring_night(tmp_path, 2), settings=words)
    assert (report["decision"], report["drift"]["due"]) == ("updated online", None)
    assert report["drift"]["mrr_drop"]["low"] > 0


def test_small_nights_do_not_drift(ring: Path, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        night = write_night(tmp_path / f"n{number}.changes", [f"e{number}\tr0\te{30 + number}"], [])
        report = dkge_dist.nightly(ring, night, settings=["online.on_drift=train"])
        assert (report["decision"], report["drift"]["since"]) == ("updated online", 2)
        assert report["drift"]["mrr_drop"]["low"] < 3
        assert report["drift"]["added_mrr"] is None, "nothing can be told from one triple"


def test_drift_trains_from_scratch_if_asked_to(ring: Path, tmp_path: Path) -> None:
    words = [*SPOILT, "online.on_drift=train"]
    dkge_dist.nightly(ring, ring_night(tmp_path, 1), settings=words)
    report = dkge_dist.nightly(ring, ring_night(tmp_path, 2))
    assert report["decision"].startswith(DROP)
    assert report["decision"] == report["drift"]["due"] == model_of(ring).model.record["why"]
    assert (report["update"]["version"], report["train"]["version"], report["version"]) == (6, 7, 7)
    comparison = report["train"]["comparison"]
    assert (comparison["incumbent"], comparison["worse"], comparison["promoted"]) == (6, [], True)
    assert comparison["validation"]["now"] > comparison["validation"]["before"]
    assert comparison["added"]["triples"] == 40
    assert report["evaluate"]["test"]["version"] == 7
    assert dkge_dist.nightly(ring, tmp_path / "n2.changes")["unchanged"]
    dkge_dist.rollback(ring, 6)
    again = dkge_dist.nightly(ring, tmp_path / "n2.changes")
    assert (again["unchanged"], again["version"], "warning" in again) == (True, 6, False), "it was rolled back"
    assert dkge_dist.nightly(ring, ring_night(tmp_path, 3), settings=GENTLE)["drift"]["since"] == 7
    assert_sound(ring)


def test_a_training_that_drift_asked_for_and_that_was_stopped_is_taken_up_again(drifted: Path, tmp_path: Path) -> None:
    source, words = ring_night(tmp_path, 2), ["online.on_drift=train"]
    asked = iter(range(99))
    with pytest.raises(DkgeError, match="stopped in epoch"):
        dkge_dist.nightly(drifted, source, settings=words, stop=lambda: next(asked) > 1)
    report = dkge_dist.nightly(drifted, source, settings=words)
    assert report["ingest"]["unchanged"]
    assert (report["train"]["resumed"], report["version"]) == (True, 7)
    assert report["train"]["comparison"]["added"]["triples"] == 40
    assert "update" not in report


POOR = ["train.max_epochs=1", "online.retrain_when=every 1 nights"]
"""Trains every night, and badly."""


def test_a_training_that_is_worse_is_not_promoted(ring: Path, tmp_path: Path) -> None:
    report = dkge_dist.nightly(ring, ring_night(tmp_path, 1), settings=[*GENTLE, *POOR])
    comparison = report["train"]["comparison"]
    assert (comparison["incumbent"], comparison["promoted"]) == (4, False)
    assert comparison["validation"]["high"] < 0
    (worse,) = comparison["worse"]
    assert (report["update"]["version"], report["train"]["version"], report["version"]) == (4, 5, 4)
    assert report["evaluate"]["test"]["version"] == 4
    why = f"every 1 nights: this is night 1 since the last training; is not promoted: {worse}"
    assert report["decision"] == f"{why}; version 4 stays current"
    assert report["warning"] == (
        f"version 5 was trained from scratch and does not replace version 4: {worse}; "
        f"`dkge rollback {ring} 5` makes it current"
    )
    store = Store.open(ring)
    assert [store.manifest(number).current.model for number in range(1, 6)] == [None, 2, 2, 4, 4]
    assert (model_of(ring).version, model_of(ring, 5).model.record["why"]) == (4, why)
    assert dkge_dist.evaluate(ring, version="5")["version"] == 5
    assert dkge_dist.evaluate(ring)["version"] == dkge_dist.evaluate(ring, version="n1")["version"] == 4
    dkge_dist.rollback(ring, 5)
    assert model_of(ring).version == 5
    dkge_dist.rollback(ring, 4)
    assert model_of(ring).version == 4
    assert_sound(ring)


def test_a_training_that_did_not_take_over_is_not_repeated(ring: Path, tmp_path: Path) -> None:
    words = [*GENTLE, *POOR]
    dkge_dist.nightly(ring, ring_night(tmp_path, 1), settings=words)
    before = listing(ring)
    again = dkge_dist.nightly(ring, tmp_path / "n1.changes", settings=words)
    assert (again["unchanged"], again["decision"], again["version"]) == (True, "nothing new to learn", 4)
    assert listing(ring) == before
    every_other = ["online.retrain_when=every 2 nights"]
    second = dkge_dist.nightly(ring, ring_night(tmp_path, 2), settings=every_other)
    assert (second["decision"], second["update"]["parent"], second["drift"]["since"]) == ("updated online", 4, 5)
    third = dkge_dist.nightly(ring, ring_night(tmp_path, 3), settings=every_other)
    assert third["decision"].startswith("every 2 nights: this is night 2 since the last training")


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
    assert ("train" in report) == trains
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
