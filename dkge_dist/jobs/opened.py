"""A model version opened to be asked: with its snapshot and its labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dkge_dist.evaluation.link_prediction import JointEmbedding
from dkge_dist.files import read_regular
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.labels import Labels
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.jobs.namesakes import row_named
from dkge_dist.jobs.report import Report
from dkge_dist.runtime import Runtime
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store
from dkge_dist.tables.table import Tables
from dkge_dist.types import ROW, Array, DkgeError, Field, UsageError


class OpenedModel(NamedTuple):
    """A model with the snapshot it was learnt from."""

    store: Store
    model: ModelManifest
    snapshot: Snapshot
    snapshot_name: str
    names: tuple[Dictionary, Dictionary]


def open_model(store: Store, version: str | None = None) -> OpenedModel:
    """The current model, or that of a version or snapshot."""
    model = store.find_model(version)
    manifest = store.snapshot_manifest(model.model.snapshot)
    snapshot = store.snapshot(manifest)
    for noun, tables, rows in (
        ("entities", model.model.entities, snapshot.entity_rows),
        ("relations", model.model.relations, snapshot.relation_rows),
    ):
        if tables[Field.JOINT].rows < rows:
            raise DkgeError(
                f"{store}: version {model.version} has vectors of {tables[Field.JOINT].rows} {noun}, "
                f"its snapshot {manifest.snapshot.name!r} has {rows}"
            )
    return OpenedModel(store, model, snapshot, manifest.snapshot.name, store.dictionaries(manifest))


@contextmanager
def open_embedding(opened: OpenedModel, runtime: Runtime) -> Iterator[JointEmbedding]:
    """The joint vectors of a model; all entities alive are candidates."""
    rows = (opened.model.model.entities[Field.JOINT].rows, opened.model.model.relations[Field.JOINT].rows)
    with runtime.open_tables(opened.store, opened.model, rows, (Field.JOINT,)) as tables:
        yield joint_embedding(tables, opened.snapshot)


def joint_embedding(tables: Tables, snapshot: Snapshot) -> JointEmbedding:
    """The joint vectors in some tables; all entities alive are candidates."""
    every = np.arange(tables.relations.rows, dtype=ROW)
    relations = tables.relations.pull({Field.JOINT: every})[Field.JOINT]
    return JointEmbedding(tables.entities, relations, snapshot.alive_entities)


def rows_of(names: Dictionary, labels: list[str], where: list[str], opened: OpenedModel | None = None) -> Array:
    """The rows of labels, or of display names where no label matches; what is neither is an error that begins `where`.

    With a model, namesakes that its snapshot does not have are left out, and the others are told apart by their facts.
    """
    rows = names.lookup(Labels.from_strings(labels))
    for missing in np.flatnonzero(rows < 0).tolist():
        rows[missing] = row_named(names, labels[missing], where[missing], opened)
    return rows


def labelled(names: Dictionary, rows: Array, key: str, name_key: str) -> list[Report]:
    """The label of each row under `key`, and beside it its display name under `name_key` where it has one."""
    return [
        {key: label} if name is None else {key: label, name_key: name}
        for label, name in zip(names.labels(rows), names.names(rows), strict=True)
    ]


def lines_of_three(path: Path, expected: str) -> Iterator[tuple[str, list[str]]]:
    """Lines of three fields between tabs, each with its place for errors. Empty lines are skipped."""
    try:
        # Lines end as in sources: labels may hold other characters that Python takes for line ends.
        lines = [line.removesuffix("\r") for line in read_regular(path).decode("utf-8").split("\n")]
    except OSError as error:
        raise DkgeError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8: {error}") from None
    for number, line in enumerate(lines, 1):
        where = f"{path}, line {number}: "
        fields = line.split("\t")
        if line and len(fields) != 3:
            raise UsageError(f"{where}expected {expected}")
        if line:
            yield where, fields


def check_alive(opened: OpenedModel, kind: str, rows: Array, labels: list[str], where: list[str]) -> None:
    """Refuse `entities` or `relations` that the model's snapshot does not have, though another one had them."""
    snapshot = opened.snapshot
    alive = snapshot.entities_alive if kind == "entities" else snapshot.relations_alive
    for number in np.flatnonzero(~alive[rows]).tolist():
        raise DkgeError(
            f"{where[number]}{labels[number]!r} is not in snapshot {opened.snapshot_name!r} (it was in another one)"
        )
