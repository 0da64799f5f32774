"""A version of a store opened to be asked, for one question or for a million. In: a version. Out: answers, metrics.

What a question needs lies in parts of the version (vectors with codes, neighbour lists, evidence, calibration), mapped
when it is first needed and kept. Nothing changes once it is opened, so many threads may ask at once. `OpenStore`
follows a store from model to model.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar

import numpy as np

from dkge_dist.ask.answers import AnswerOptions, KnownLists, answer, questions_of
from dkge_dist.ask.batches import Triplets
from dkge_dist.ask.calibration import Calibration, load_calibration
from dkge_dist.ask.lookup import Kind
from dkge_dist.ask.ranks import JointEmbedding, Protocol
from dkge_dist.ask.results import Answers, Batch, Evaluation, Failure, Neighbours, ScoredTriple, Vectors
from dkge_dist.ask.scores import ScoreOptions, score, triples_of
from dkge_dist.ask.similar import entities_of, similar
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.stored import WalkedGraph, evidence_of, open_graph
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.triples import contains
from dkge_dist.runtime import LocalRuntime, Runtime
from dkge_dist.settings import settings_of_model
from dkge_dist.store.manifest import ModelEntry, ModelManifest, SnapshotManifest
from dkge_dist.store.models import load_arrays
from dkge_dist.store.store import PastTriples, Store
from dkge_dist.store.tables import load_table
from dkge_dist.tables.index import ExactIndex, VectorIndex
from dkge_dist.tables.table import Tables
from dkge_dist.types import ROW, Array, DkgeError, Field, PathLike, Split, Triples

T = TypeVar("T")

NIGHTS_BACK = 32
"""Changes that are looked through for the night that deleted a triple; of older ones it is only known that they did."""

if TYPE_CHECKING:
    once = cached_property
else:

    class once(cached_property):  # noqa: N801
        """Opened by the first thread that needs it, under the lock of its model."""

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            with instance._lock:
                return super().__get__(instance, owner)


class Deletion(NamedTuple):
    """Was a triple in train in an earlier snapshot, and is in none now? Which snapshot deleted it, if it is recent."""

    deleted: bool = False
    deleted_in: str | None = None


class Asked(ABC):
    """What can be asked of a model, or of whatever model a store is at."""

    @property
    @abstractmethod
    def model(self) -> Model:
        """The model that answers."""

    def answer(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        *,
        batch: Triplets | None = None,
        top: int = 10,
        new_only: bool = False,
        why: bool = False,
        evidence: bool = True,
    ) -> Answers | Batch:
        """The best answers to (head, relation, ?), (?, relation, tail) or (head, ?, tail): known facts, predictions.

        What is asked is left out, None or `?`. `batch` is a file of questions or a list of tuples; it gives a `Batch`,
        in which a question that cannot be answered is a `Failure`.
        """
        lines = questions_of(head, relation, tail, batch)
        found = answer(self.model, lines, AnswerOptions(top, new_only, why, evidence))
        return found if batch is not None else _only(found, Answers)

    def score(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        *,
        batch: Triplets | None = None,
        ranks: bool = True,
        evidence: bool = True,
    ) -> ScoredTriple | Batch:
        """How plausible a triple is, or each of a `batch`. Ranks cost a pass over all entities."""
        found = score(self.model, triples_of(head, relation, tail, batch), ScoreOptions(evidence, ranks))
        return found if batch is not None else _only(found, ScoredTriple)

    def similar(
        self, entity: str | None = None, *, batch: PathLike | Iterable[str] | None = None, top: int = 10
    ) -> Neighbours | Batch:
        """The entities nearest to one, or to each of a `batch` (a list of labels, or a file with one a line)."""
        found = similar(self.model, entities_of(entity, batch), top)
        return found if batch is not None else _only(found, Neighbours)

    def vectors(self, kind: Kind = "entities", what: Literal["joint", "knowledge", "context"] = "joint") -> Vectors:
        """The labels of all entities (or relations) alive, and their vectors: a read-only array, a row each.

        Joint vectors of entities are not copied if all that the store ever had are alive.
        """
        model, field = self.model, Field(what)
        names, alive = model.of_kind(kind)
        rows = np.flatnonzero(alive)
        table = model.embedding.entities
        if kind == "entities" and field is Field.JOINT and isinstance(table, ExactIndex):
            values = table.values
        else:
            tables = model.entry.entities if kind == "entities" else model.entry.relations
            values = load_table(model.store.storage, tables[field])
        # A slice is a view; chosen rows are a copy.
        values = values[: rows.shape[0]] if rows.shape[0] == alive.shape[0] else values[rows]
        values.flags.writeable = False
        return Vectors(names.labels(rows), values)

    def evaluate(
        self,
        split: Literal["valid", "test"] = "test",
        *,
        triples: PathLike | None = None,
        protocol: Protocol = "filtered",
        evidence: bool = True,
        relations: bool = False,
        categories: bool = False,
        ranks: bool = False,
    ) -> Evaluation:
        """Link prediction on held-out triples, or on those of a file."""
        from dkge_dist.measure.link_prediction import EvaluateOptions, evaluate

        tables = tuple(name for name, wanted in (("relations", relations), ("categories", categories)) if wanted)
        path = Path(triples) if triples is not None else None
        return evaluate(self.model, EvaluateOptions(split, path, protocol, evidence, tables, ranks))


class Model(Asked):
    """One opened version. `notice`: a newer snapshot that is not learnt yet; None if this very version was asked for.

    `suggests`: errors about unknown labels name the nearest that there are, for which all labels are compared.
    """

    def __init__(
        self,
        store: Store,
        manifest: ModelManifest,
        snapshot: Snapshot | None = None,
        names: tuple[Dictionary, Dictionary] | None = None,
        embedding: JointEmbedding | None = None,
        evidence: Evidence | None = None,
        *,
        suggests: bool = True,
    ) -> None:
        """What the caller has open already is not opened again."""
        self.store, self.manifest, self.suggests = store, manifest, suggests
        self.notice: str | None = None
        self._lock = RLock()
        given = {"snapshot": snapshot, "names": names, "embedding": embedding, "evidence": evidence}
        self.__dict__ |= {name: value for name, value in given.items() if value is not None}

    @property
    def model(self) -> Model:
        """Itself."""
        return self

    @property
    def entry(self) -> ModelEntry:
        """What its manifest says about it."""
        return self.manifest.model

    @property
    def version(self) -> int:
        """The number of the version."""
        return self.manifest.version

    @property
    def snapshot_name(self) -> str:
        """The name of the snapshot that it was learnt from."""
        return self.snapshot_manifest.snapshot.name

    @once
    def snapshot_manifest(self) -> SnapshotManifest:
        """The version of that snapshot."""
        return self.store.snapshot_manifest(self.entry.snapshot)

    @once
    def snapshot(self) -> Snapshot:
        """The state of the graph that it was learnt from."""
        return self.store.snapshot(self.snapshot_manifest)

    @once
    def names(self) -> tuple[Dictionary, Dictionary]:
        """The labels of entities and relations."""
        return self.store.dictionaries(self.snapshot_manifest)

    def of_kind(self, kind: Kind) -> tuple[Dictionary, Array]:
        """The labels of entities or relations, and which of them are alive."""
        if kind == "entities":
            return self.names[0], self.snapshot.entities_alive
        return self.names[1], self.snapshot.relations_alive

    @once
    def embedding(self) -> JointEmbedding:
        """The joint vectors, mapped; all entities alive are candidates."""
        with LocalRuntime().open_index(self.store, self.manifest) as entities:
            return self.embedding_in(entities)

    def embedding_in(self, entities: VectorIndex) -> JointEmbedding:
        """The joint vectors, where those of entities are in an index."""
        relations = load_table(self.store.storage, self.entry.relations[Field.JOINT])
        return JointEmbedding(entities, relations, self.snapshot.alive_entities)

    @once
    def evidence(self) -> Evidence | None:
        """The evidence of the graph, None if it was learnt without."""
        part, graph = self.entry.evidence, self._graph
        if part is None or graph.thinned is None:
            return None
        evidence = evidence_of(load_arrays(self.store, part), graph.thinned, self.names[0].digests, self._limits)
        counted, rows = evidence.graph.counts.pairs.shape[0], self.snapshot.relation_rows
        if counted < rows:
            raise DkgeError(f"{self.store}: part {part.digest} counts {counted} relations, the snapshot has {rows}")
        return evidence

    def evidence_if(self, wanted: bool) -> Evidence | None:
        """The evidence, where it is `wanted` and there is any."""
        return self.evidence if wanted else None

    @property
    def _limits(self) -> WalkLimits:
        return WalkLimits.of(settings_of_model(self.entry.settings))

    @property
    def topology(self) -> Topology:
        """The train triples as neighbour lists."""
        # Whoever learnt has them in memory, with the evidence that walks them.
        evidence: Evidence | None = self.__dict__.get("evidence")
        return evidence.graph.graph.full if evidence is not None else self._graph.full

    @once
    def _graph(self) -> WalkedGraph:
        limits = self._limits if self.entry.evidence is not None else None
        digests = self.names[0].digests
        return open_graph(self.store, self.snapshot_manifest, self.snapshot, self.entry.lists, digests, limits)

    @once
    def known(self) -> KnownLists:
        """All triples of the graph, in whatever split, as neighbour lists."""
        return KnownLists.of(self.topology, self.snapshot)

    def in_graph(self, triples: Triples) -> Array:
        """For each triple: does it stand in the graph, in whatever split?"""
        found: Array = np.any([self.snapshot.contains(split, triples) for split in Split], axis=0)
        return found

    def calibration(self, with_evidence: bool) -> Calibration | None:
        """From scores to probabilities; None if the training had no triples to fit that on."""
        return self._calibrations[with_evidence]

    @once
    def _calibrations(self) -> tuple[Calibration | None, Calibration | None]:
        return load_calibration(self.store, self.entry)

    def deletions(self, triples: Triples, in_graph: Array) -> list[Deletion]:
        """For each triple that is not `in_graph`: was it deleted, and when?"""
        found = [Deletion()] * triples.count
        for number in np.flatnonzero(~in_graph & self._past.has(triples)).tolist():
            triple = triples.take(slice(number, number + 1))
            by = next((name for name, deleted in self._deleted if contains(deleted, triple)[0]), None)
            found[number] = Deletion(True, by)
        return found

    @once
    def _past(self) -> PastTriples:
        return PastTriples(self.store, self.snapshot_manifest, self.names)

    @once
    def _deleted(self) -> list[tuple[str, Triples]]:
        """What the last nights deleted from train, newest first."""
        nights = islice(self.store.ancestry(self.snapshot_manifest), NIGHTS_BACK)
        changed = [night for night in nights if night.snapshot.change is not None]
        return [(night.snapshot.name, self.store.change(night).deleted) for night in changed]

    def open_all(self) -> None:
        """Open now what the first questions would."""
        _ = self.embedding, self.evidence, self.known, self._calibrations, self._past, self._deleted

    def __repr__(self) -> str:
        entities, relations = self.snapshot.alive_entities.shape[0], self.snapshot.alive_relations.shape[0]
        sizes = f"{entities:,} entities, {relations:,} relations"
        return f"<store {self.store}, version {self.version} of {self.snapshot_name!r}: {sizes}>"


def open_model(store: Store, version: str | None = None, suggests: bool = True) -> Model:
    """The current model, or that of a version or snapshot, in this process."""
    model = Model(store, store.find_model(version), suggests=suggests)
    _refuse_short_tables(model)
    model.notice = newer_snapshot(model, version)
    return model


@contextmanager
def open_model_on(runtime: Runtime, store: Store, version: str | None = None) -> Iterator[Model]:
    """The same with its vectors wherever a runtime has them."""
    model = open_model(store, version)
    with runtime.open_index(store, model.manifest) as entities:
        model.__dict__["embedding"] = model.embedding_in(entities)
        yield model


def joint_embedding(tables: Tables, snapshot: Snapshot) -> JointEmbedding:
    """The joint vectors in some tables; all entities alive are candidates."""
    relations = tables.relations.index.vectors(np.arange(tables.relations.rows, dtype=ROW))
    return JointEmbedding(tables.entities.index, relations, snapshot.alive_entities)


def newer_snapshot(model: Model, version: str | None) -> str | None:
    """What is newer than the answers of a model, unless that very version was asked for."""
    store = model.store
    head = store.head()
    if version is not None or head is None or head.current.snapshot == model.entry.snapshot:
        return None
    name = store.snapshot_manifest(head.current.snapshot).snapshot.name
    return f"snapshot {name!r} is newer and not learnt yet: `dkge update {store}`"


def _refuse_short_tables(model: Model) -> None:
    entry, snapshot = model.entry, model.snapshot
    for noun, tables, rows in (
        ("entities", entry.entities, snapshot.entity_rows),
        ("relations", entry.relations, snapshot.relation_rows),
    ):
        if tables[Field.JOINT].rows < rows:
            raise DkgeError(
                f"{model.store}: version {model.version} has vectors of {tables[Field.JOINT].rows} {noun}, "
                f"its snapshot {model.snapshot_name!r} has {rows}"
            )


def _only(found: Batch, kind: type[T]) -> T:
    """The result of a single question; that it failed is an error."""
    (result,) = found
    if isinstance(result, Failure):
        raise DkgeError(result.error)
    assert isinstance(result, kind)
    return result
