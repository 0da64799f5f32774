"""A stored model read whole, for tests that compare every number of it."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import numpy as np

from dkge_dist.store.manifest import ModelEntry
from dkge_dist.store.models import load_dense
from dkge_dist.store.store import Store
from dkge_dist.store.tables import load_table
from dkge_dist.types import Field


class Weights(NamedTuple):
    """Tables of entities and relations, dense parameters by name."""

    entities: dict[Field, np.ndarray]
    relations: dict[Field, np.ndarray]
    dense: dict[str, np.ndarray]


def load_weights(store: Store, entry: ModelEntry) -> Weights:
    entities, relations = (
        {field: load_table(store.storage, tables[field]) for field in Field}
        for tables in (entry.entities, entry.relations)
    )
    return Weights(entities, relations, load_dense(store, entry.dense))


def load_history(store: Store, entry: ModelEntry) -> list[dict[str, Any]]:
    """Metrics over time, as they were logged."""
    return [json.loads(line) for line in store.storage.part_path(entry.history.part).read_bytes().splitlines()]
