"""Small models with random weights, saved and published without any training."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from dkge_dist.records import Quality, TrainingRecord
from dkge_dist.store.manifest import ModelEntry, ModelManifest, TableEntry
from dkge_dist.store.models import ModelMetadata, publish_model, save_model
from dkge_dist.store.storage import Staging
from dkge_dist.store.store import Store
from dkge_dist.store.tables import block_rows, save_table
from dkge_dist.surfaces import api
from dkge_dist.types import Array, Field
from tests.graphs import movies, write_changes
from tests.models import ModelVectors

DIM, BLOCK = 3, 16
HISTORY = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25, "hits@10": 0.1}]
RECORD = TrainingRecord(valid=Quality(hits_at_10=0.1), preset="default", epochs=2, device="cpu")
ABOUT = ModelMetadata({"seed": 7}, RECORD, HISTORY)


def saved_tables(staging: Staging, values: Mapping[Field, Array]) -> dict[Field, TableEntry]:
    """Tables of relations: few rows, in blocks of a size that suits them."""
    return {field: save_table(staging, values[field], block_rows(values[field].shape[0])) for field in Field}


def some_weights(store: Store, seed: int = 0) -> ModelVectors:
    """For all labels that the store knows."""
    rng = np.random.default_rng(seed)
    counts = [len(names) for names in store.dictionaries(store.head())]
    kinds = [{field: rng.normal(size=(count, DIM)).astype(np.float32) for field in Field} for count in counts]
    dense = {"entity.gate.logits": rng.normal(size=DIM).astype(np.float32), "w": np.ones((DIM, DIM), np.float32)}
    return ModelVectors(kinds[0], kinds[1], dense)


def saved(store: Store, weights: ModelVectors, snapshot: int = 1, about: ModelMetadata = ABOUT) -> ModelEntry:
    with store.storage.staging() as staging:
        entities = {field: save_table(staging, values, BLOCK) for field, values in weights.entities.items()}
        tables = (entities, saved_tables(staging, weights.relations))
        return save_model(staging, snapshot, tables, weights.dense, about)


def publish(path: Path, snapshot: int = 1, seed: int = 0) -> ModelManifest:
    store = Store.open(path)
    return publish_model(store, saved(store, some_weights(store, seed), snapshot), 1.5)


def night(store: Path, number: int) -> dict:
    """Ingest a night on top of the store of the fixture `graph`."""
    source = write_changes(store.parent / f"{number}.changes", movies(4, first=60 + 4 * number), movies(1, number))
    return api.ingest(store, source, name=f"night{number}")
