"""Drift: which nights call for a training from scratch."""

from __future__ import annotations

from pathlib import Path

import pytest

import dkge_dist
from dkge_dist.config import settings_of_model
from dkge_dist.jobs.drift import due_by_count, due_by_drop, lineage
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store
from tests.jobs.building import write_night

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def nights(store: Path, tmp_path: Path) -> Store:
    """A model and two nights on top of it: versions 2, 4 and 6."""
    for number in range(2):
        dkge_dist.ingest(store, write_night(tmp_path / f"n{number}.changes", [f"e{number}\tr0\tnew{number}"], []))
        dkge_dist.update(store)
    return Store.open(store)


def changed(model: ModelManifest, mrr: float | None, retrain_when: str) -> ModelManifest:
    """The same model with another validation and another policy."""
    settings = settings_of_model(model.model.settings, None, [f"online.retrain_when={retrain_when}"])
    metrics = {**model.model.metrics, "mrr": mrr} if mrr is not None else {}
    update = {"settings": settings.model_dump(mode="json"), "metrics": metrics}
    return model.model_copy(update={"model": model.model.model_copy(update=update)})


def test_the_lineage_goes_back_to_the_training(nights: Store) -> None:
    assert [model.version for model in lineage(nights, nights.find_model())] == [6, 4, 2]
    assert [model.version for model in lineage(nights, nights.find_model("2"))] == [2]


@pytest.mark.parametrize(("every", "due"), [(None, False), (1, True), (3, True), (4, False), (30, False)])
def test_after_so_many_nights_since_the_training(nights: Store, every: int | None, due: bool) -> None:
    """The coming night is the third."""
    why = due_by_count(nights, nights.find_model(), f"every {every} nights", every)
    assert why == (f"every {every} nights: this is night 3 since the last training" if due else None)


@pytest.mark.usefixtures("nights")
def test_versions_that_only_fold_deltas_are_no_nights(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dkge_dist.store.models.COMPACT_FROM_ROWS", 0)
    dkge_dist.ingest(store, write_night(tmp_path / "n9.changes", ["e9\tr0\tnew9"], []))
    dkge_dist.update(store)
    opened = Store.open(store)
    assert opened.find_model().model.facts == {"origin": "compact"}
    assert due_by_count(opened, opened.find_model(), "every 4 nights", 4) is not None
    assert due_by_count(opened, opened.find_model(), "every 5 nights", 5) is None


@pytest.mark.parametrize(("share", "due"), [(1.1, False), (1.0, False), (0.98, False), (0.96, True), (0.5, True)])
def test_after_a_drop_of_mrr_since_the_training(nights: Store, share: float, due: bool) -> None:
    before = nights.find_model("2").model.metrics["mrr"]
    why = due_by_drop(nights, changed(nights.find_model(), share * before, "mrr_drop > 3%"))
    assert why == (f"mrr_drop > 3%: validation MRR fell by {100 - 100 * share:.1f}%" if due else None)


def test_a_drop_is_measured_from_the_training_and_not_from_the_night_before(nights: Store) -> None:
    before = nights.find_model("2").model.metrics["mrr"]
    model = nights.find_model()
    assert model.model.parent == 4
    assert due_by_drop(nights, changed(model, 0.9 * before, "mrr_drop > 8.5%")) is not None


@pytest.mark.parametrize("policy", ["never", "every 2 nights"])
def test_other_policies_know_no_drop(nights: Store, policy: str) -> None:
    assert due_by_drop(nights, changed(nights.find_model(), 0.0001, policy)) is None


def test_what_was_not_measured_did_not_drop(nights: Store) -> None:
    assert due_by_drop(nights, changed(nights.find_model(), None, "mrr_drop > 3%")) is None
