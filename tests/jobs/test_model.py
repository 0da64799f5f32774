"""An opened model: with its own snapshot, labels and joint vectors; its stored lists say what those made anew do."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dkge_dist
from dkge_dist.ask.answers import AnswerOptions, answer
from dkge_dist.ask.batches import Line
from dkge_dist.ask.model import Model, open_model
from dkge_dist.ask.scores import ScoreOptions, score
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.jobs.train import TrainRequest, trained
from dkge_dist.jobs.update import load_change, updated
from dkge_dist.runtime import LocalRuntime, Monitor
from dkge_dist.settings import settings_of_model
from dkge_dist.store.models import map_arrays
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError, Field, Split
from tests.jobs.building import ADDED, SMALL, ingest_night, some_train, write_night
from tests.jobs.reads import counted_reads
from tests.models import vectors_of

pytestmark = pytest.mark.usefixtures("one_thread")

QUESTIONS = [Line(1, ("e4", "r2", None)), Line(2, (None, "r0", "e9")), Line(3, ("e4", None, "e9"))]


def said(model: Model) -> list[object]:
    triples = [Line(1, ("e4", "r2", "e9"))]
    return [*answer(model, QUESTIONS, AnswerOptions(5, why=True)), *score(model, triples, ScoreOptions())]


@pytest.fixture
def two_models(store: Path, tmp_path: Path) -> Path:
    """Snapshots 1 and 3 with models 2 and 4; `e8 r9 e3` and others came in the second."""
    ingest_night(tmp_path / "night.changes", store, ADDED, some_train(store, 3))
    dkge_dist.update(store)
    return store


@pytest.mark.parametrize(
    ("version", "model", "snapshot"),
    [(None, 4, "night"), ("4", 4, "night"), ("2", 2, "base"), ("base", 2, "base"), ("3", 2, "base")],
)
def test_the_current_model_or_that_of_a_version_or_snapshot(
    two_models: Path, version: str | None, model: int, snapshot: str
) -> None:
    """With the snapshot that it was learnt from, which need not be the current one."""
    opened = open_model(Store.open(two_models), version)
    assert (opened.version, opened.snapshot_name) == (model, snapshot)
    assert len(opened.names[0]) == opened.snapshot.entity_rows


def test_candidates_are_the_entities_alive(two_models: Path, tmp_path: Path) -> None:
    ingest_night(tmp_path / "gone.changes", two_models, [], ["e1\tr0\tnew1", "new1\tr1\te7", "new2\tr3\tnew1"])
    dkge_dist.update(two_models)
    opened = open_model(Store.open(two_models))
    candidates, vectors = opened.embedding.candidates, vectors_of(two_models)
    labels = set(opened.names[0].labels(candidates))
    assert not {"new1", "new2"} & labels
    assert len(labels) == opened.snapshot.alive_entities.shape[0]
    assert np.array_equal(opened.embedding.vectors(candidates), vectors.entities[Field.JOINT][candidates])
    assert np.array_equal(opened.embedding.relations, vectors.relations[Field.JOINT])


def test_only_joint_vectors_are_read_and_no_part_twice(two_models: Path) -> None:
    store = Store.open(two_models)
    entry = store.find_model().model
    others = {
        table[field].base.digest
        for table in (entry.entities, entry.relations)
        for field in (Field.KNOWLEDGE, Field.CONTEXT)
    }
    with counted_reads(two_models) as reads:
        assert open_model(store).embedding.candidates.shape[0]
    assert not others & set(reads.parts)
    assert entry.dense.digest not in reads.parts
    assert set(reads.parts.values()) == {1}


def test_a_store_without_a_model(tmp_path: Path) -> None:
    source = tmp_path / "base.tsv"
    source.write_text("a\tr\tb\n", encoding="utf-8")
    dkge_dist.ingest(tmp_path / "store", source)
    with pytest.raises(DkgeError, match="there is no model yet"):
        open_model(Store.open(tmp_path / "store"))


def test_a_night_names_the_lists_of_its_parent_and_says_what_the_whole_snapshot_says(two_models: Path) -> None:
    """The base is not joined with its change: lists are patched."""
    store = Store.open(two_models)
    before, model = (open_model(store, version) for version in ("2", "4"))
    assert model.entry.lists == before.entry.lists is not None
    found, snapshot = said(model), model.snapshot
    assert snapshot.diff.train.added.count and snapshot.diff.train.deleted.count
    assert Split.TRAIN not in snapshot._triples
    train, valid, test = (snapshot.triples(split) for split in Split)
    rebuilt = Snapshot.full((train, valid, test), snapshot.entity_rows, snapshot.relation_rows)
    without = model.manifest.model_copy(update={"model": model.entry.model_copy(update={"lists": None})})
    for anew in (Model(store, without), Model(store, without, snapshot=rebuilt)):
        assert said(anew) == found


def test_a_night_on_another_base_has_lists_of_its_own(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dkge_dist.store.ingest.FOLD_AFTER_NIGHTS", 0)
    ingest_night(tmp_path / "night.changes", store, ADDED, some_train(store, 3))
    dkge_dist.update(store)
    opened = Store.open(store)
    before, model = (open_model(opened, version) for version in ("2", "4"))
    assert before.entry.lists is not None and model.entry.lists is not None
    assert model.entry.lists.base == model.snapshot_manifest.snapshot.base.train.digest != before.entry.lists.base
    without = model.manifest.model_copy(update={"model": model.entry.model_copy(update={"lists": None})})
    stale = model.manifest.model_copy(update={"model": model.entry.model_copy(update={"lists": before.entry.lists})})
    assert said(model) == said(Model(opened, without)) == said(Model(opened, stale))


@pytest.fixture(scope="module")
def hubs(trained: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose current model walks thinned lists."""
    store = Path(shutil.copytree(trained("default"), tmp_path_factory.mktemp("hubs") / "store"))
    dkge_dist.train(store, settings=[*SMALL, "evidence.max_neighbours=4", "train.max_epochs=1"])
    return store


def test_stored_thinned_lists_say_what_those_made_anew_do(hubs: Path) -> None:
    store = Store.open(hubs)
    model = open_model(store, "3")
    without = model.manifest.model_copy(update={"model": model.entry.model_copy(update={"lists": None})})
    assert model._graph.thinned is not None and model._graph.thinned.hubs.rows.shape[0]
    assert said(Model(store, without)) == said(model)


@pytest.mark.parametrize(
    ("name", "place", "value"),
    [
        ("outgoing.indptr", 3, 1 << 40),
        ("incoming.entries", 5, 60 << 32),
        ("incoming.entries", 5, 4),
        ("neighbours.entries", 0, -1),
        ("thin.outgoing.indptr", -1, 0),
        ("thin.neighbours.entries", 0, 60),
        ("hubs.rows", 0, 60),
        ("hubs.codes", 0, 8 << 32),
    ],
)
def test_stored_lists_that_no_kernel_may_walk_are_refused(
    hubs: Path, monkeypatch: pytest.MonkeyPatch, name: str, place: int, value: int
) -> None:
    """Though their checksum is right."""

    def altered(*given: Any) -> dict[str, np.ndarray]:
        arrays = {key: array.copy() for key, array in map_arrays(*given).items()}
        arrays[name][place] = value
        return arrays

    monkeypatch.setattr("dkge_dist.evidence.stored.map_arrays", altered)
    with pytest.raises(DkgeError, match="is damaged"):
        said(open_model(Store.open(hubs), "3"))


def test_check_names_lists_of_another_graph(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not dkge_dist.check(store)["problems"]

    def altered(*given: Any) -> dict[str, np.ndarray]:
        arrays = dict(map_arrays(*given))
        return {**arrays, "incoming.entries": arrays["incoming.entries"][::-1]}

    monkeypatch.setattr("dkge_dist.store.models.map_arrays", altered)
    (problem,) = dkge_dist.check(store)["problems"]
    assert "its incoming lists are not those of the snapshot" in problem["problem"]


def test_known_facts_may_be_limited(store: Path) -> None:
    model = open_model(Store.open(store), suggests=False)
    every = answer(model, QUESTIONS, AnswerOptions(5))
    few = answer(model, QUESTIONS, AnswerOptions(5, known=1))
    for one, other in zip(every, few, strict=True):
        known = [some for some in one if some.known]
        assert other.known == one.known == len(known)
        assert list(other) == known[:1] + [some for some in one if not some.known]
    (failure,) = answer(model, [Line(1, ("e", "r2", None))], AnswerOptions())
    assert failure.error == "no entity 'e'", "no label is compared with all others"


def test_what_a_training_hands_on_says_what_the_store_does(store: Path) -> None:
    opened = Store.open(store)
    manifest = opened.find_snapshot("base")
    settings = settings_of_model(opened.find_model().model.settings, None, ["train.max_epochs=1"])
    names = opened.dictionaries(manifest)
    request = TrainRequest(manifest, opened.snapshot(manifest), names, settings, why="due")
    with trained(opened, LocalRuntime(), request, Monitor()) as (record, model):
        assert record.version == model.version == opened.versions()[-1]
        assert said(model) == said(open_model(opened))
    assert model.entry.record.why == "due"


@pytest.mark.parametrize("folds", [False, True])
def test_what_an_update_hands_on_says_what_the_store_does(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folds: bool
) -> None:
    """Also where deltas were folded: then the manifest is the one that is current."""
    if folds:
        monkeypatch.setattr("dkge_dist.store.models.COMPACT_FROM_ROWS", 0)
    dkge_dist.ingest(store, write_night(tmp_path / "night.changes", ADDED, []))
    opened = Store.open(store)
    before, target = opened.find_model(), opened.current_snapshot()
    assert target is not None
    change = load_change(opened, before, target)
    with updated(opened, LocalRuntime(), change, settings_of_model(before.model.settings), Monitor()) as (_, model):
        assert (model.entry.record.origin == "compact") == folds
        assert said(model) == said(open_model(opened))
