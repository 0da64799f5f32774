"""A model version opened to be asked: with its snapshot and its labels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from dkge_dist.ask.lookup import row_named
from dkge_dist.ask.ranks import JointEmbedding
from dkge_dist.files import read_regular
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.labels import Labels
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.runtime import Runtime
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store
from dkge_dist.store.tables import load_table
from dkge_dist.tables.table import Tables
from dkge_dist.types import ROW, Array, DkgeError, Field, Report, UsageError

SUGGESTED_FOR = 3
"""Unknown labels of a batch that near ones are looked for: every time all labels are compared."""

Kind = Literal["entities", "relations"]


class OpenedModel(NamedTuple):
    """A model with the snapshot it was learnt from.

    `suggests`: errors about unknown labels name the nearest that there are, for which all labels are compared.
    """

    store: Store
    model: ModelManifest
    snapshot: Snapshot
    snapshot_name: str
    names: tuple[Dictionary, Dictionary]
    suggests: bool = True

    def of_kind(self, kind: Kind) -> tuple[Dictionary, Array]:
        """The labels of entities or relations, and which of them are alive."""
        snapshot = self.snapshot
        return (self.names[0], snapshot.entities_alive) if kind == "entities" else (
            self.names[1], snapshot.relations_alive
        )  # fmt: skip


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
    relations = load_table(opened.store.storage, opened.model.model.relations[Field.JOINT])
    with runtime.open_index(opened.store, opened.model) as entities:
        yield JointEmbedding(entities, relations, opened.snapshot.alive_entities)


def joint_embedding(tables: Tables, snapshot: Snapshot) -> JointEmbedding:
    """The joint vectors in some tables; all entities alive are candidates."""
    return JointEmbedding(
        tables.entities.index,
        tables.relations.index.vectors(np.arange(tables.relations.rows, dtype=ROW)),
        snapshot.alive_entities,
    )


class LookedUp(NamedTuple):
    """The rows of labels, and by their number what is wrong with those that have none."""

    rows: Array
    problems: dict[int, str]


def look_up(names: Dictionary, labels: list[str], opened: OpenedModel | None = None) -> LookedUp:
    """The rows of labels, or of display names where no label matches; -1 for what is neither.

    The first of these are told with the nearest that there are. With a model, namesakes that its snapshot does not have
    are left out, and the others are told apart by their facts.
    """
    rows = names.lookup(Labels.from_strings(label.encode("utf-8", "replace").decode() for label in labels))
    # What is no text is no label; else another label might be found in its place.
    odd = [number for number, label in enumerate(labels) if not _is_text(label)]
    rows[odd] = -1
    problems: dict[int, str] = {}
    suggests = opened is None or opened.suggests
    for missing in np.flatnonzero(rows < 0).tolist():
        try:
            rows[missing] = row_named(names, labels[missing], opened, suggests and len(problems) < SUGGESTED_FOR)
        except DkgeError as error:
            problems[missing] = str(error)
    return LookedUp(rows, problems)


def rows_of(names: Dictionary, labels: list[str], where: list[str], opened: OpenedModel | None = None) -> Array:
    """As `look_up`; what has no row is an error that begins with its `where`."""
    found = look_up(names, labels, opened)
    for number, problem in found.problems.items():
        raise DkgeError(f"{where[number]}{problem}")
    return found.rows


def find_alive(opened: OpenedModel, kind: Kind, labels: list[str]) -> LookedUp:
    """The rows of labels of objects that the model's snapshot has."""
    names, alive = opened.of_kind(kind)
    rows, problems = look_up(names, labels, opened)
    for number in np.flatnonzero((rows >= 0) & ~alive[rows]).tolist():
        problems[number] = _not_alive(opened, labels[number])
    return LookedUp(rows, problems)


def labelled(names: Dictionary, rows: Array, key: str, name_key: str) -> list[Report]:
    """The label of each row under `key`, and beside it its display name under `name_key` where it has one."""
    return [
        {key: label} if name is None else {key: label, name_key: name}
        for label, name in zip(names.labels(rows), names.names(rows), strict=True)
    ]


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """The lines of a text file that are not empty, numbered from 1."""
    try:
        # Lines end as in sources: labels may hold other characters that Python takes for line ends.
        lines = [line.removesuffix("\r") for line in read_regular(path).decode("utf-8").split("\n")]
    except OSError as error:
        raise DkgeError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UsageError(f"{path}: not UTF-8: {error}") from None
    return ((number, line) for number, line in enumerate(lines, 1) if line)


def lines_of_three(path: Path, expected: str) -> Iterator[tuple[str, list[str]]]:
    """Lines of three fields between tabs, each with its place for errors. Empty lines are skipped."""
    for number, line in lines_of(path):
        where = f"{path}, line {number}: "
        fields = line.split("\t")
        if len(fields) != 3:
            raise UsageError(f"{where}expected {expected}")
        yield where, fields


def check_alive(opened: OpenedModel, kind: Kind, rows: Array, labels: list[str], where: list[str]) -> None:
    """Refuse `entities` or `relations` that the model's snapshot does not have, though another one had them."""
    _, alive = opened.of_kind(kind)
    for number in np.flatnonzero(~alive[rows]).tolist():
        raise DkgeError(f"{where[number]}{_not_alive(opened, labels[number])}")


def _not_alive(opened: OpenedModel, label: str) -> str:
    return f"{label!r} is not in snapshot {opened.snapshot_name!r} (it was in another one)"


def _is_text(label: str) -> bool:
    try:
        label.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True
