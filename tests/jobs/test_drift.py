"""Drift: which nights call for a training from scratch, by what they noted, and what they note."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dkge_dist
from dkge_dist.measure.comparison import RankedTriples
from dkge_dist.measure.drift import (
    added_mrr,
    baseline_after,
    decide,
    drift_of_nights,
    load_ranked,
    mrr_drop,
    nights_since_training,
)
from dkge_dist.records import MIN_SAMPLES, Drift, Estimate
from dkge_dist.settings import OnlineSettings
from dkge_dist.store.history import lineage
from dkge_dist.store.store import Store
from tests.jobs.building import write_night

pytestmark = pytest.mark.usefixtures("one_thread")


def ranked(values: np.ndarray) -> RankedTriples:
    return RankedTriples(np.arange(len(values), dtype=np.uint64), values.astype(np.float32), 100)


def night(before: np.ndarray, now: np.ndarray, added: np.ndarray | None = None) -> Drift:
    """What a night notes that ranked the same triples as the training, and then those that it added."""
    return Drift(
        since=2,
        mrr_drop=mrr_drop(ranked(now).since(ranked(before))),
        added_mrr=added_mrr(Estimate.of(added) if added is not None else None),
    )


TRAINED = np.random.default_rng(0).uniform(0.05, 1, 200)
NOISE = TRAINED * np.tile([0.6, 1.3], 100)
"""One half fell, the other rose a little less: a drop of 5%, which another sample might not show."""
FALLEN = 0.9 * TRAINED
BELIEVED, DENIED = np.full(60, 0.9), np.tile([0.2, 0.9], 30)


def due(*nights: Drift | None, drop: float | None = 3.0, added: float | None = 0.7) -> list[str]:
    """By this night and those before it."""
    return [reason.partition(":")[0] for reason in drift_of_nights(list(nights), drop, added)]


def test_noise_is_no_drift() -> None:
    found = night(TRAINED, NOISE)
    assert found["mrr_drop"]["low"] < 0 < 3 < found["mrr_drop"]["percent"]
    assert due(found, found) == []


def test_a_real_drop_counts_on_the_second_night() -> None:
    found, before = night(TRAINED, FALLEN), night(TRAINED, TRAINED)
    assert found["mrr_drop"]["percent"] == pytest.approx(10, abs=0.01)
    assert due(found) == due(found, before) == due(before, found) == due(found, None) == []
    assert due(found, found) == ["mrr_drop > 3%"]
    assert drift_of_nights([found, found], 3.0, None) == [
        "mrr_drop > 3%: validation MRR fell by 10.0% since version 2 "
        f"(99%: {found['mrr_drop']['low']:.1f}% to {found['mrr_drop']['high']:.1f}%, 200 triples), "
        "on two nights in succession"
    ]


@pytest.mark.parametrize(("limit", "counts"), [(9.9, True), (10.1, False), (0.0, True), (None, False)])
def test_limits_are_relative_and_those_of_now(limit: float | None, counts: bool) -> None:
    for scale in (1, 0.1):
        found = night(scale * TRAINED, scale * FALLEN)
        assert bool(due(found, found, drop=limit)) == counts


@given(st.integers(1, 60))
def test_nothing_is_told_by_few_triples(count: int) -> None:
    found = night(TRAINED[:count], 0.5 * TRAINED[:count], np.full(count, 0.01))
    assert (found["mrr_drop"] is None) == (found["added_mrr"] is None) == (count < MIN_SAMPLES)
    assert bool(due(found, found)) == (count >= MIN_SAMPLES)


@settings(max_examples=60)
@given(st.floats(-0.2, 0.2), st.floats(0.001, 0.5), st.integers(0, 99), st.floats(0, 10))
def test_a_drop_counts_if_it_is_above_the_limit_and_its_interval_above_zero(
    fall: float, spread: float, seed: int, limit: float
) -> None:
    now = TRAINED * (1 - fall + spread * np.random.default_rng(seed).normal(size=200))
    found = night(TRAINED, now)
    change = (now - TRAINED).astype(np.float64)
    percent = -100 * change.mean() / TRAINED.mean()
    error = change.std(ddof=1) / np.sqrt(200)
    assert found["mrr_drop"]["percent"] == pytest.approx(percent, abs=1e-3)
    if abs(percent - limit) > 1e-3 and abs(change.mean() + 2.576 * error) > 1e-6:
        assert bool(due(found, found, drop=limit)) == (percent > limit and change.mean() + 2.576 * error < 0)


def test_what_nights_add_has_to_be_believed() -> None:
    good, bad = night(TRAINED, TRAINED, BELIEVED), night(TRAINED, TRAINED, DENIED)
    assert due(good, good) == due(bad, good) == due(good, bad) == []
    assert due(bad, bad) == ["added_mrr < 0.7"]
    assert due(bad, bad, added=None) == []
    assert bad["added_mrr"]["mrr"] < 0.56 < bad["added_mrr"]["high"]
    assert due(bad, bad, added=0.56) == [], "its upper bound is not below"
    both = night(TRAINED, FALLEN, DENIED)
    assert due(both, both) == ["mrr_drop > 3%", "added_mrr < 0.7"]
    assert due(both, bad) == ["added_mrr < 0.7"]


@pytest.fixture
def nights(store: Path, tmp_path: Path) -> Store:
    """A model and two nights on top of it: versions 2, 4 and 6."""
    for number in range(2):
        dkge_dist.ingest(store, write_night(tmp_path / f"n{number}.changes", [f"e{number}\tr0\tnew{number}"], []))
        dkge_dist.update(store)
    return Store.open(store)


def note(store: Store, version: int, drift: Drift | None, **changed: Any) -> None:
    """As if that version had noted something else."""
    manifest = store.model_manifest(version)
    entry = manifest.model.model_copy(update={"record": manifest.model.record.with_(drift=drift), **changed})
    store._manifests[version] = manifest.model_copy(update={"model": entry})


def online(retrain_when: str = "mrr_drop > 3%", on_drift: str = "warn") -> OnlineSettings:
    return OnlineSettings(retrain_when=retrain_when, on_drift=on_drift)  # type: ignore[arg-type]


def test_the_lineage_goes_back_to_the_training(nights: Store) -> None:
    assert [model.version for model in lineage(nights, nights.find_model())] == [6, 4, 2]
    assert [model.version for model in lineage(nights, nights.find_model("2"))] == [2]
    assert [model.version for model in nights_since_training(nights, nights.find_model())] == [6, 4]
    assert list(nights_since_training(nights, nights.find_model("2"))) == []


def test_every_night_names_the_training_that_it_is_compared_with(nights: Store) -> None:
    trained = nights.model_manifest(2)
    for version in (4, 6):
        baseline = nights.model_manifest(version).model.baseline
        assert baseline is not None
        assert (baseline.version, baseline.validation) == (2, trained.model.validation)
        assert nights.model_manifest(version).model.record["drift"]["since"] == 2
    assert baseline_after(nights, trained) == baseline_after(nights, nights.find_model()) == baseline


@pytest.mark.parametrize(("every", "due"), [(1, True), (2, True), (3, False), (30, False)])
@pytest.mark.parametrize("on_drift", ["warn", "train"])
def test_after_so_many_nights_it_trains_whatever_drift_does(
    nights: Store, every: int, due: bool, on_drift: str
) -> None:
    decision = decide(nights, nights.find_model(), online(f"every {every} nights", on_drift))
    assert decision.why == (f"every {every} nights: this is night 2 since the last training" if due else None)
    assert decision.trains == due


@pytest.mark.usefixtures("nights")
def test_versions_that_only_fold_deltas_are_no_nights(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dkge_dist.store.models.COMPACT_FROM_ROWS", 0)
    dkge_dist.ingest(store, write_night(tmp_path / "n9.changes", ["e9\tr0\tnew9"], []))
    dkge_dist.update(store)
    opened = Store.open(store)
    model = opened.find_model()
    assert (model.version, model.model.record.origin) == (9, "compact")
    assert model.model.validation == opened.model_manifest(8).model.validation is not None
    assert decide(opened, model, online("every 3 nights")).trains
    assert not decide(opened, model, online("every 4 nights")).trains
    found = night(TRAINED, FALLEN)
    note(opened, 8, found)
    assert decide(opened, model, online()) == (found, None, False)
    note(opened, 6, found)
    assert decide(opened, model, online()).why is not None


@pytest.mark.parametrize(("on_drift", "trains"), [("warn", False), ("train", True)])
def test_what_two_nights_noted_decides(nights: Store, on_drift: str, trains: bool) -> None:
    found = night(TRAINED, FALLEN)
    note(nights, 6, found)
    assert decide(nights, nights.find_model(), online(on_drift=on_drift)) == (found, None, False)
    note(nights, 4, found)
    decision = decide(nights, nights.find_model(), online(on_drift=on_drift))
    assert decision.why is not None and decision.why.startswith("mrr_drop > 3%: ")
    assert (decision.found, decision.trains) == (found, trains)
    for policy in ("never", "every 30 nights", "added_mrr < 0.7"):
        assert decide(nights, nights.find_model(), online(policy, on_drift)) == (found, None, False)


def test_a_night_since_another_training_does_not_count(nights: Store) -> None:
    """As after a training that did not take over."""
    found = night(TRAINED, FALLEN)
    baseline = nights.model_manifest(4).model.baseline
    assert baseline is not None
    note(nights, 4, found)
    note(nights, 6, found, baseline=baseline.model_copy(update={"version": 5}))
    assert [model.version for model in nights_since_training(nights, nights.find_model())] == [6]
    assert decide(nights, nights.find_model(), online("mrr_drop > 3% or every 2 nights")).why is None


def test_versions_that_keep_no_ranks_cannot_be_compared(nights: Store, store: Path, tmp_path: Path) -> None:
    """Neither their nights nor those that follow; nights are counted all the same."""
    for version in (2, 4, 6):
        note(nights, version, None, validation=None, baseline=None)
    model = nights.find_model()
    assert load_ranked(nights, model.model.validation) is None
    assert decide(nights, model, online("mrr_drop > 3% or added_mrr < 0.7")) == (None, None, False)
    assert decide(nights, model, online("every 2 nights")).trains
    assert baseline_after(nights, model).model_dump() == {"version": 2, "validation": None}
    note(nights, 6, night(TRAINED, FALLEN))
    assert decide(nights, nights.find_model(), online()).why is None


def test_clearing_old_versions_keeps_what_nights_are_compared_with(nights: Store, store: Path, tmp_path: Path) -> None:
    cleared = dkge_dist.gc(store, keep=1, grace_hours=0)
    assert 2 in cleared["cleared_versions"]
    dkge_dist.ingest(store, write_night(tmp_path / "n9.changes", ["e9\tr0\tnew9"], []))
    assert dkge_dist.update(store)["drift"]["since"] == 2
    assert dkge_dist.check(store)["ok"]
