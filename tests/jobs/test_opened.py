"""A model opened to be asked: with its own snapshot and labels, and nothing but joint vectors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import dkge_dist
from dkge_dist.ask.model import open_embedding, open_model, rows_of
from dkge_dist.runtime import LocalRuntime
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError, Field
from tests.jobs.building import ADDED, ingest_night
from tests.jobs.reads import counted_reads
from tests.models import vectors_of

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def two_models(store: Path, tmp_path: Path) -> Path:
    """Snapshots 1 and 3 with models 2 and 4; `e8 r9 e3` and others came in the second."""
    ingest_night(tmp_path / "night.changes", store, ADDED, [])
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
    assert (opened.model.version, opened.snapshot_name) == (model, snapshot)
    assert len(opened.names[0]) == opened.snapshot.entity_rows


def test_candidates_are_the_entities_alive(two_models: Path, tmp_path: Path) -> None:
    ingest_night(tmp_path / "gone.changes", two_models, [], ["e1\tr0\tnew1", "new1\tr1\te7", "new2\tr3\tnew1"])
    dkge_dist.update(two_models)
    opened = open_model(Store.open(two_models))
    with open_embedding(opened, LocalRuntime()) as embedding:
        labels = set(opened.names[0].labels(embedding.candidates))
        assert not {"new1", "new2"} & labels
        assert len(labels) == opened.snapshot.alive_entities.shape[0]
        vectors = vectors_of(two_models)
        assert np.array_equal(
            embedding.vectors(embedding.candidates), vectors.entities[Field.JOINT][embedding.candidates]
        )
        assert np.array_equal(embedding.relations, vectors.relations[Field.JOINT])


def test_only_joint_vectors_are_read_and_no_part_twice(two_models: Path) -> None:
    store = Store.open(two_models)
    model = store.find_model().model
    others = {
        table[field].base.digest
        for table in (model.entities, model.relations)
        for field in (Field.KNOWLEDGE, Field.CONTEXT)
    }
    with counted_reads(two_models) as reads, open_embedding(open_model(store), LocalRuntime()):
        pass
    assert not others & set(reads.parts)
    assert model.dense.digest not in reads.parts
    assert set(reads.parts.values()) == {1}


def test_rows_of_labels_in_their_order(store: Path) -> None:
    names = open_model(Store.open(store)).names[0]
    rows = rows_of(names, ["e7", "e1", "e7"], [""] * 3)
    assert names.labels(rows) == ["e7", "e1", "e7"]


def test_an_unknown_label_is_named_with_its_place_and_the_nearest_ones(store: Path) -> None:
    names = open_model(Store.open(store)).names
    with pytest.raises(DkgeError, match=r"^questions, line 2: no entity 'e77'; nearest: e7, ") as caught:
        rows_of(names[0], ["e1", "e77"], ["questions, line 1: ", "questions, line 2: "])
    assert str(caught.value).count(", ") == 5, "five at most"
    with pytest.raises(DkgeError, match=r"^no relation '中'$"):
        rows_of(names[1], ["中"], [""])


def test_a_store_without_a_model(tmp_path: Path) -> None:
    ingest_night_source = tmp_path / "base.tsv"
    ingest_night_source.write_text("a\tr\tb\n", encoding="utf-8")
    dkge_dist.ingest(tmp_path / "store", ingest_night_source)
    with pytest.raises(DkgeError, match="there is no model yet"):
        open_model(Store.open(tmp_path / "store"))
