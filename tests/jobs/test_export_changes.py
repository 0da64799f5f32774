"""What changed between two models, for copies of their vectors: as if all rows were compared, whatever lies between."""

from __future__ import annotations

import json
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import dkge_dist
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.models import publish_model, save_compact, save_update
from dkge_dist.store.store import Store
from dkge_dist.store.tables import load_table, save_delta
from dkge_dist.types import DkgeError, Field
from tests.graphs import Labelled, everything, write_changes, write_tsv
from tests.jobs.building import ADDED, ingest_night, some_train
from tests.jobs.reads import counted_reads
from tests.store.small_models import ABOUT, DIM, publish, saved, some_weights

Objects = dict[str, tuple[int, bytes]]
"""By label: the row, and the bits of the vector."""
Copy = dict[str, Objects]
"""Of entities and of relations."""

POOL = [(f"e{h}", f"r{(h + t) % 3}", f"e{t}") for h in range(7) for t in range(7) if h != t]
FORMATS = ["parquet", "npy", "safetensors", "zarr"]


def all_vectors(path: Path, version: int, field: Field) -> Copy:
    """Everything that is alive under a model, from whole tables."""
    store = Store.open(path)
    model = store.model_manifest(version)
    manifest = store.snapshot_manifest(model.model.snapshot)
    snapshot, names = store.snapshot(manifest), store.dictionaries(manifest)
    found = {}
    for noun, tables, alive, known in (
        ("entities", model.model.entities, snapshot.alive_entities, names[0]),
        ("relations", model.model.relations, snapshot.alive_relations, names[1]),
    ):
        values = load_table(store.storage, tables[field])
        found[noun] = {known.label(row): (int(row), values[row].tobytes()) for row in alive}
    return found


def read(out: Path, format: str, noun: str) -> Objects:
    if format == "parquet":
        table = pq.read_table(out / f"{noun}.parquet")
        values: Any = np.array(table["vector"].to_pylist(), np.float32)
        labels, rows = table["label"].to_pylist(), table["row"].to_pylist()
    else:
        labels, rows = labels_and_rows(out, format, noun)
        if format == "npy":
            values = np.load(out / f"{noun}.npy", allow_pickle=False)
        elif format == "safetensors":
            values = safetensors.numpy.load_file(out / "vectors.safetensors")[noun]
        else:
            values = zarr.open_array(out / noun, mode="r")[:]
    assert len(set(labels)) == len(labels)
    return {label: (row, values[i].tobytes()) for i, (label, row) in enumerate(zip(labels, rows, strict=True))}


def labels_and_rows(out: Path, format: str, noun: str) -> tuple[list[str], list[int]]:
    if format == "parquet":
        table = pq.read_table(out / f"{noun}.parquet")
        return table["label"].to_pylist(), table["row"].to_pylist()
    labels = json.loads((out / f"{noun}.json").read_text(encoding="utf-8"))
    if format == "npy":
        rows = np.load(out / f"{noun}_rows.npy", allow_pickle=False)
    elif format == "safetensors":
        rows = safetensors.numpy.load_file(out / "vectors.safetensors")[f"{noun}_rows"]
    else:
        rows = zarr.open_array(out / f"{noun}_rows", mode="r")[:]
    return labels, rows.tolist()


def apply(copy: Copy, out: Path, format: str) -> Copy:
    """A copy after an export, as a vector database does it: by rows."""
    after = {}
    for noun, objects in copy.items():
        labels, rows = labels_and_rows(out, format, f"deleted_{noun}")
        by_row = {row: (label, bits) for label, (row, bits) in objects.items()}
        for label, row in zip(labels, rows, strict=True):
            assert by_row.pop(row)[0] == label, "only what the copy has is deleted"
        by_row |= {row: (label, bits) for label, (row, bits) in read(out, format, noun).items()}
        after[noun] = {label: (row, bits) for row, (label, bits) in by_row.items()}
    return after


def synced(path: Path, copy: Copy, since: int, version: int, field: Field, format: str = "parquet") -> Copy:
    """A copy of the model `since` after an export. Upserts and deletes have to be those of comparing all rows."""
    old, new = (all_vectors(path, number, field) for number in (since, version))
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out"
        report = dkge_dist.export(path, out, format=format, since=since, version=version, what=field.value)  # type: ignore[arg-type]
        assert (report["since"], report["version"], report["what"]) == (since, version, field.value)
        for noun in old:
            upserted = {label: found for label, found in new[noun].items() if old[noun].get(label) != found}
            deleted = {label: row for label, (row, _) in old[noun].items() if label not in new[noun]}
            assert read(out, format, noun) == upserted
            assert dict(zip(*labels_and_rows(out, format, f"deleted_{noun}"), strict=True)) == deleted
            assert (report[f"upserted_{noun}"], report[f"deleted_{noun}"]) == (len(upserted), len(deleted))
        return apply(copy, out, format)


class History:
    """A store with models of random vectors, and what may happen to it: nights, folds, trainings, rollbacks."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.path, self.rng = folder, folder / "store", np.random.default_rng(seed)
        dkge_dist.ingest(self.path, write_tsv(folder / "base.tsv", self.graph()), name="base")
        self.models = [publish(self.path, 1, seed).version]

    def graph(self) -> list[Labelled]:
        """A few triples: most nights remove some entities, and bring some back."""
        return [POOL[i] for i in self.rng.choice(len(POOL), 7, replace=False)]

    def step(self, kind: str) -> None:
        getattr(self, kind)()
        self.models.append(Store.open(self.path).find_model().version)

    def night(self) -> None:
        store = Store.open(self.path)
        snapshot = store.current_snapshot()
        assert snapshot is not None
        before, after = everything(self.path, snapshot), set(self.graph())
        source = write_changes(self.folder / "night.changes", sorted(after - before), sorted(before - after))
        dkge_dist.ingest(self.path, source, name=f"night{len(self.models)}", force=True)
        store = Store.open(self.path)
        parent = store.find_model()
        target = store.current_snapshot()
        assert target is not None
        emerging = store.diff(store.snapshot_manifest(parent.model.snapshot), target)
        counts = [len(names) for names in store.dictionaries(store.head())]
        rows = ({*emerging.emerging_entities.tolist()}, {*emerging.emerging_relations.tolist()})
        with store.storage.staging() as staging:
            deltas = tuple(
                {field: [save_delta(staging, *self.written(parent, k, field, some, counts[k]))] for field in Field}
                for k, some in enumerate(rows)
            )
            entry = save_update(staging, parent, target.version, (counts[0], counts[1]), deltas, ABOUT)  # type: ignore[arg-type]
        publish_model(store, entry, 0.0)

    def written(
        self, parent: ModelManifest, kind: int, field: Field, emerging: set[int], count: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Rows of a delta: all that emerge and some others, of which some keep what they had."""
        table = (parent.model.entities, parent.model.relations)[kind][field]
        values = np.zeros((count, DIM), np.float32)
        values[: table.rows] = load_table(Store.open(self.path).storage, table)[:count]
        rows = np.array(sorted(emerging | set(np.flatnonzero(self.rng.random(count) < 0.3).tolist())), np.int64)
        moved = np.isin(rows, sorted(emerging)) | (self.rng.random(len(rows)) < 0.6)
        values[rows[moved]] = self.rng.normal(size=(int(moved.sum()), DIM))
        return rows, values[rows]

    def fold(self) -> None:
        store = Store.open(self.path)
        with store.storage.staging() as staging:
            publish_model(store, save_compact(store, staging, store.find_model()), 0.0)

    def train(self) -> None:
        store = Store.open(self.path)
        snapshot = store.current_snapshot()
        assert snapshot is not None
        publish_model(store, saved(store, some_weights(store, int(self.rng.integers(99))), snapshot.version), 0.0)

    def back(self) -> None:
        dkge_dist.rollback(self.path, int(self.rng.choice(self.models)))


KINDS = st.lists(st.sampled_from(["night", "night", "night", "fold", "train", "back"]), min_size=2, max_size=6)


@settings(max_examples=12)
@given(st.integers(0, 2**32 - 1), KINDS, st.sampled_from(FORMATS), st.sampled_from(list(Field)))
def test_exports_of_all_nights_in_turn_give_what_a_whole_export_gives(
    seed: int, kinds: list[str], format: str, field: Field
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder), seed)
        for kind in kinds:
            history.step(kind)
        models = history.models
        copy = all_vectors(history.path, models[0], field)
        for since, version in pairwise(models):
            copy = synced(history.path, copy, since, version, field, format)
            assert copy == all_vectors(history.path, version, field)
        out = Path(folder) / "whole"
        dkge_dist.export(history.path, out, format=format, version=models[-1], what=field.value)  # type: ignore[arg-type]
        assert copy == {noun: read(out, format, noun) for noun in copy}
        # Several nights at once, and back again.
        for since, version in history.rng.choice(models, (3, 2)).tolist():
            synced(history.path, all_vectors(history.path, since, field), since, version, field)


pytestmark = pytest.mark.usefixtures("one_thread")


def test_nights_that_were_learnt(store: Path, tmp_path: Path) -> None:
    """Model 2 of the base, 4 after a night that brings objects, 6 after one that removes them."""
    gone = some_train(store, 5)
    ingest_night(tmp_path / "n1.changes", store, ADDED, gone)
    dkge_dist.update(store)
    ingest_night(tmp_path / "n2.changes", store, gone, ADDED)
    dkge_dist.update(store)
    for field in Field:
        for since, version in ((2, 4), (4, 6), (2, 6), (6, 2)):
            copy = synced(store, all_vectors(store, since, field), since, version, field, "npy")
            assert copy == all_vectors(store, version, field)
    report = dkge_dist.export(store, tmp_path / "night", since=2, version=4)
    assert report["upserted_entities"] > 2, "o* of affected entities changes too"
    assert (report["since_snapshot"], report["snapshot"]) == ("base", "n1")
    assert set(read(tmp_path / "night", "parquet", "entities")) >= {"new1", "new2", "e1", "e5", "e9"}
    assert "r9" in read(tmp_path / "night", "parquet", "relations")


def test_a_model_is_no_change_to_itself(store: Path, tmp_path: Path) -> None:
    report = dkge_dist.export(store, tmp_path / "out", since="base")
    counts = {name: value for name, value in report.items() if name.startswith(("upserted", "deleted"))}
    assert counts == dict.fromkeys(counts, 0) and len(counts) == 4
    assert report["files"] == [
        "deleted_entities.parquet", "deleted_relations.parquet", "entities.parquet", "relations.parquet",
    ]  # fmt: skip


def test_only_what_an_update_wrote_is_read(store: Path, tmp_path: Path) -> None:
    ingest_night(tmp_path / "n1.changes", store, ADDED, [])
    dkge_dist.update(store)
    opened = Store.open(store)
    model = opened.find_model().model
    with counted_reads(store) as reads:
        dkge_dist.export(store, tmp_path / "out", since=2, what="context")
    assert reads.stores == 1
    blocks = json.loads(opened.storage.part_path(model.entities[Field.CONTEXT].base.part).read_bytes())
    parts = {part[0] for part in blocks["attributes"]["parts"]}
    assert not parts & set(reads.parts), "of contexts, an update writes only those of new objects"
    assert model.entities[Field.CONTEXT].deltas[-1].digest in reads.parts


def test_vectors_of_another_dimension_are_refused(store: Path, tmp_path: Path) -> None:
    dkge_dist.train(store, settings=["model.dim=8", "train.max_epochs=1", "train.batch_size=200"])
    with pytest.raises(DkgeError, match=r"version 3 has vectors of dimension 8, version 2 of 12: .*without --since"):
        dkge_dist.export(store, tmp_path / "out", since=2)
    assert not (tmp_path / "out").exists()
