"""Vectors and metrics of model versions in stores, read through the store's public functions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dkge_dist.store.manifest import ModelEntry, ModelManifest
from dkge_dist.store.models import load_arrays
from dkge_dist.store.store import Store
from dkge_dist.store.tables import load_table
from dkge_dist.types import Array, Field


@dataclass(frozen=True)
class ModelVectors:
    """The tables of a model version by field, and its dense parameters by name."""

    entities: dict[Field, Array]
    relations: dict[Field, Array]
    dense: dict[str, Array]

    def by_name(self) -> dict[str, Array]:
        """Everything under one name each."""
        tables = {
            f"{kind}/{field}": values
            for kind, fields in (("entities", self.entities), ("relations", self.relations))
            for field, values in fields.items()
        }
        return {**tables, **self.dense}


def model_of(path: Path, version: int | None = None) -> ModelManifest:
    """The manifest of a model version: the current one by default."""
    store = Store.open(path)
    return store.find_model() if version is None else store.model_manifest(version)


def load_vectors(store: Store, entry: ModelEntry) -> ModelVectors:
    """All vectors of a model."""
    entities, relations = (
        {field: load_table(store.storage, tables[field]) for field in Field}
        for tables in (entry.entities, entry.relations)
    )
    return ModelVectors(entities, relations, load_arrays(store, entry.dense))


def vectors_of(path: Path, version: int | None = None) -> ModelVectors:
    """All vectors of a model version: the current one by default."""
    return load_vectors(Store.open(path), model_of(path, version).model)


def load_history(store: Store, entry: ModelEntry) -> list[dict[str, Any]]:
    """The metrics of every epoch of a model."""
    return [json.loads(line) for line in store.storage.part_path(entry.history.part).read_bytes().splitlines()]


def history_of(path: Path, version: int | None = None) -> list[dict[str, Any]]:
    """The metrics of every epoch of a model version."""
    return load_history(Store.open(path), model_of(path, version).model)


def assert_same_bits(one: ModelVectors, other: ModelVectors) -> None:
    """In every table and dense parameter."""
    mine, theirs = one.by_name(), other.by_name()
    assert mine.keys() == theirs.keys()
    for name, values in mine.items():
        assert values.shape == theirs[name].shape, name
        assert values.tobytes() == theirs[name].tobytes(), name


def moved_rows(before: Array, after: Array) -> Array:
    """Which rows of a table differ from those before; rows that were not there yet count as zeros."""
    grown = np.zeros_like(after)
    grown[: before.shape[0]] = before
    changed: Array = np.flatnonzero((grown != after).any(1))
    return changed
