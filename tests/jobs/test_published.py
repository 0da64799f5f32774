"""A model that was just published: its tables are still open and hold what the store does."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import pytest

import dkge_dist
from dkge_dist.jobs.published import PublishedModel
from dkge_dist.jobs.train import TrainRequest, trained
from dkge_dist.jobs.update import load_change, updated
from dkge_dist.runtime import LocalRuntime, Monitor
from dkge_dist.settings import settings_of_model
from dkge_dist.store.store import Store
from dkge_dist.types import ROW, Field
from tests.jobs.building import ADDED, write_night
from tests.models import vectors_of

pytestmark = pytest.mark.usefixtures("one_thread")


def assert_holds_what_was_published(done: PublishedModel, store: Path) -> None:
    assert done.record.version == done.manifest.version == Store.open(store).versions()[-1]
    vectors = vectors_of(store, done.manifest.version)
    for table, stored in zip(done.tables, (vectors.entities, vectors.relations), strict=True):
        found = table.pull({field: np.arange(table.rows, dtype=ROW) for field in Field})
        for field, values in stored.items():
            assert np.array_equal(found[field], values)


def test_of_a_training(store: Path) -> None:
    opened = Store.open(store)
    manifest = opened.find_snapshot("base")
    settings = settings_of_model(opened.find_model().model.settings, None, ["train.max_epochs=1"])
    request = TrainRequest(manifest, opened.snapshot(manifest), opened.dictionaries(manifest), settings, why="due")
    with trained(opened, LocalRuntime(), request, Monitor()) as done:
        assert_holds_what_was_published(done, store)
    assert done.manifest.model.record.why == "due"


def updated_by_a_night(store: Path, folder: Path) -> AbstractContextManager[PublishedModel]:
    dkge_dist.ingest(store, write_night(folder / "night.changes", ADDED, []))
    opened = Store.open(store)
    model, target = opened.find_model(), opened.current_snapshot()
    assert target is not None
    settings = settings_of_model(model.model.settings)
    return updated(opened, LocalRuntime(), load_change(opened, model, target), settings, Monitor())


def test_of_an_update(store: Path, tmp_path: Path) -> None:
    with updated_by_a_night(store, tmp_path) as done:
        assert_holds_what_was_published(done, store)


def test_of_an_update_whose_deltas_were_folded(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The manifest is the one that is current."""
    monkeypatch.setattr("dkge_dist.store.models.COMPACT_FROM_ROWS", 0)
    with updated_by_a_night(store, tmp_path) as done:
        assert done.manifest.model.record.origin == "compact"
        assert_holds_what_was_published(done, store)
