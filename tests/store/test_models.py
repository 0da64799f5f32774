"""Model versions: saved and published among snapshots that come and go."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dkge_dist.store.manifest import BaselineEntry, ModelManifest
from dkge_dist.store.models import load_arrays, publish_model, save_update
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import Field
from tests.graphs import assert_sound, everything, head, movies
from tests.models import ModelVectors, load_history, load_vectors
from tests.store.small_models import ABOUT, HISTORY, night, publish, saved, some_weights


def assert_equal(one: ModelVectors, other: ModelVectors) -> None:
    for name in ("entities", "relations", "dense"):
        left, right = getattr(one, name), getattr(other, name)
        assert left.keys() == right.keys()
        assert all(np.array_equal(left[key], right[key]) for key in left)


def test_what_is_published_is_loaded(graph: Path) -> None:
    store = Store.open(graph)
    weights = some_weights(store)
    published = publish_model(store, saved(store, weights), 1.5)
    again = Store.open(graph)
    found = again.find_model()
    assert found == published == again.head()
    assert (found.version, found.model.snapshot, found.model.parent) == (2, 1, None)
    assert (found.current.snapshot, found.current.model) == (1, 2)
    assert_equal(load_vectors(again, found.model), weights)
    assert load_history(again, found.model) == HISTORY
    assert (found.model.settings, found.model.record) == (ABOUT.settings, ABOUT.record)
    assert everything(graph, "first") == set(movies(60))
    assert list((graph / "staging").iterdir()) == []
    assert_sound(graph)


def test_log_shows_models_among_snapshots(model: Path) -> None:
    night(model, 1)
    publish(model, snapshot=3)
    versions = api.log(model)["versions"]
    assert [(v["version"], v["kind"], v["name"], v["parent"]) for v in versions] == [
        (1, "snapshot", "first", None), (2, "model", "first", 1),
        (3, "snapshot", "night1", 1), (4, "model", "night1", 3),
    ]  # fmt: skip
    assert versions[1]["metrics"] == {"hits@10": 0.1}
    assert (versions[1]["epochs"], versions[1]["device"], versions[1]["seconds"]) == (2, "cpu", 1.5)
    json.dumps(versions, default=dict)


def test_an_ingest_after_training_keeps_the_current_model(model: Path) -> None:
    before = load_vectors(Store.open(model), Store.open(model).find_model().model)
    night(model, 1)
    store = Store.open(model)
    current = head(model).current
    assert (current.snapshot, current.model) == (3, 2)
    assert store.find_model().version == 2
    assert_equal(load_vectors(store, store.find_model().model), before)
    assert head(model).snapshot.parent == 1
    night(model, 2)
    assert head(model).snapshot.parent == 3
    assert head(model).current.model == 2
    assert_sound(model)


@pytest.mark.parametrize("others", [1, 3])
def test_a_model_is_published_on_top_of_what_came_meanwhile(
    graph: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """Other writers take the number right before it is asked for, several times in a row."""
    store = Store.open(graph)
    weights = some_weights(store)
    entry = saved(store, weights)
    real, came = Store.publish, []

    def late(self: Store, manifest: ModelManifest) -> None:
        if self is store and len(came) < others:
            came.append(night(graph, len(came))["version"])
        real(self, manifest)

    monkeypatch.setattr(Store, "publish", late)
    published = publish_model(store, entry, 1.0)
    assert came == list(range(2, 2 + others))
    assert published.version == 2 + others
    found = Store.open(graph).find_model()
    assert found == published
    assert (found.current.snapshot, found.model.snapshot) == (1 + others, 1)
    assert_equal(load_vectors(Store.open(graph), found.model), weights)
    # The dictionary of the version is that of the newest snapshot, not of the one that was learnt.
    assert len(Store.open(graph).dictionaries(found)[0]) > weights.entities[Field.JOINT].shape[0]
    assert_sound(graph)
    assert everything(graph, f"night{others - 1}") > set(movies(others, first=60))


def test_a_model_that_does_not_take_over_is_kept_and_can_be_asked_for(model: Path) -> None:
    store = Store.open(model)
    weights = some_weights(store, 5)
    kept_back = publish_model(store, saved(store, weights), 1.0, promoted=False)
    night(model, 1)
    again = Store.open(model)
    assert (kept_back.version, kept_back.current.model, head(model).current.model) == (3, 2, 2)
    assert again.find_model().version == 2
    assert again.find_model("first").version == 2
    assert again.find_model("4").version == 2
    assert again.find_model("3") == kept_back
    assert again.state_at(3).model == 3
    assert_equal(load_vectors(again, kept_back.model), weights)
    assert_sound(model)


def test_a_model_that_did_not_take_over_can_be_made_current(model: Path) -> None:
    store = Store.open(model)
    publish_model(store, saved(store, some_weights(store, 5)), 1.0, promoted=False)
    assert api.rollback(model, 3)["model"] == 3
    assert Store.open(model).find_model().version == 3
    assert api.rollback(model, 2)["model"] == 2
    assert_sound(model)


RANKS = {"hashes": np.array([3, 2**63 + 5], np.uint64), "reciprocal": np.array([0.5, 1.0], np.float32)}


def test_ranks_of_validation_triples_are_kept_and_checked(graph: Path) -> None:
    store = Store.open(graph)
    published = publish_model(store, saved(store, some_weights(store), about=replace(ABOUT, validation=RANKS)), 1.0)
    part = published.model.validation
    assert part is not None and part.size < 300
    found = load_arrays(Store.open(graph), part)
    assert found.keys() == RANKS.keys()
    assert all(np.array_equal(found[name], RANKS[name]) and found[name].dtype == RANKS[name].dtype for name in RANKS)
    api.gc(graph, keep=1, grace_hours=0)
    assert_sound(graph)
    store.storage.part_path(part.part).write_bytes(b"x" * part.size)
    (problem,) = api.check(graph)["problems"]
    assert part.digest in problem["problem"]


def test_an_update_keeps_the_ranks_of_the_training_that_was_cleared_away(graph: Path) -> None:
    store = Store.open(graph)
    trained = publish_model(store, saved(store, some_weights(store), about=replace(ABOUT, validation=RANKS)), 1.0)
    baseline = BaselineEntry(version=trained.version, validation=trained.model.validation)
    about = replace(ABOUT, baseline=baseline)
    night(graph, 1)
    with store.storage.staging() as staging:
        rows = (trained.model.entities[Field.JOINT].rows, trained.model.relations[Field.JOINT].rows)
        entry = save_update(staging, trained, 3, rows, ({}, {}), about)
        updated = publish_model(store, entry, 1.0, trained.version)
    assert updated.model.baseline == baseline
    assert trained.version in api.gc(graph, keep=1, grace_hours=0)["cleared_versions"]
    assert baseline.validation is not None
    assert load_arrays(Store.open(graph), baseline.validation).keys() == RANKS.keys()
    assert_sound(graph)


def test_an_update_is_refused_if_the_training_it_is_compared_with_was_cleared_away(model: Path) -> None:
    """One that did not take over: nothing else holds its ranks."""
    store = Store.open(model)
    kept_back = publish_model(store, saved(store, some_weights(store, 5)), 1.0, promoted=False)
    entry = store.model_manifest(2).model
    baseline = BaselineEntry(version=kept_back.version, validation=kept_back.model.dense)
    updated = entry.model_copy(update={"parent": 2, "baseline": baseline})
    night(model, 1)
    assert api.gc(model, keep=1, grace_hours=0)["cleared_versions"] == [3]
    with pytest.raises(StoreError, match="version 3, which this model stands on, was cleared away meanwhile"):
        publish_model(Store.open(model), updated, 1.0, 2)
    older = entry.model_copy(update={"parent": 2, "baseline": BaselineEntry(version=1, validation=entry.dense)})
    assert publish_model(Store.open(model), older, 1.0, 2).model.baseline is not None


def test_damaged_dense_parameters_are_named(model: Path) -> None:
    store = Store.open(model)
    part = store.find_model().model.dense
    path = store.storage.part_path(part.part)
    path.write_bytes(b"\xff" * part.size)
    with pytest.raises(StoreError, match=f"part {path} is damaged"):
        load_arrays(store, part)
