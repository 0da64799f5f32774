"""A model version opened for questions: all that an answer needs, each opened when it is first needed and then kept.

One process may ask from many threads: what is opened does not change, and is opened under a lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from itertools import islice
from threading import RLock
from typing import NamedTuple

import numpy as np

from dkge_dist.ask.answers import KnownLists, known_answers
from dkge_dist.ask.calibration import Calibration, load_calibration
from dkge_dist.ask.evidence import open_evidence
from dkge_dist.ask.model import OpenedModel, open_embedding, open_model
from dkge_dist.ask.ranks import JointEmbedding
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.scores import Evidence
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.triples import canonical, contains
from dkge_dist.runtime import Runtime
from dkge_dist.store.manifest import SnapshotManifest
from dkge_dist.store.store import PastTriples, Store
from dkge_dist.types import ROW, Array, Split, Triples

NIGHTS_BACK = 32
"""Changes that are looked through for the night that deleted a triple. Before, it is deleted, and nobody says when."""


class Deletion(NamedTuple):
    """A train triple of an earlier snapshot that is in none now; `snapshot` deleted it, if it is recent."""

    snapshot: str | None


class Session:
    """A model with its vectors, labels, graph and evidence. `keep`: many questions will be asked.

    For one question the surroundings of its entities are read off the snapshot; for many, neighbour lists of the whole
    graph are made once.
    """

    def __init__(self, opened: OpenedModel, embedding: JointEmbedding, notice: str | None, keep: bool) -> None:
        self.opened, self.embedding, self.notice, self.keep = opened, embedding, notice, keep
        self._lock = RLock()

    def evidence(self, asked: Questions | None = None) -> Evidence | None:
        """The evidence of the graph, None if the model has none. `asked`: for these questions at least."""
        if asked is not None and not self.keep:
            return open_evidence(self.opened, asked)
        with self._lock:
            return self._evidence

    @cached_property
    def _evidence(self) -> Evidence | None:
        return open_evidence(self.opened, topology=self._topology)

    @cached_property
    def _topology(self) -> Topology:
        return Topology.of_snapshot(self.opened.snapshot)

    def prepare(self, base: Topology | None = None) -> None:
        """Make what many questions need, and open what was not asked for yet; `base` has the lists of the stored base.

        Others may ask meanwhile: until it is there, each question reads for itself what it needs.
        """
        snapshot = self.opened.snapshot
        topology = Topology.of_snapshot(snapshot, base)
        evidence, known = open_evidence(self.opened, topology=topology), KnownLists.of(topology, snapshot)
        with self._lock:
            self._topology, self._evidence, self._known_lists = topology, evidence, known
            self.keep = True
            _ = self._calibrations, self._past, self._deleted

    def facts(self, entity: int) -> Triples:
        """The triples of an entity, in whatever split: those that it begins, then those that it only ends."""
        with self._lock:
            lists = self._known_lists if self.keep else None
        if lists is not None:
            return lists.facts(entity)
        snapshot, row = self.opened.snapshot, np.array([entity], ROW)
        triples = canonical(Triples.concat([snapshot.touching(split, row) for split in Split]))
        begun = triples.head == entity
        return Triples.concat([triples.take(begun), triples.take(~begun)])

    def known(self, asked: Questions) -> list[Array]:
        """The answers to each question that stand in the graph already, in whatever split; ascending rows."""
        if not self.keep:
            return known_answers(self.opened.snapshot, asked)
        with self._lock:
            lists = self._known_lists
        return lists.answers(asked)

    @cached_property
    def _known_lists(self) -> KnownLists:
        return KnownLists.of(self._topology, self.opened.snapshot)

    def in_graph(self, triples: Triples) -> Array:
        """For each triple: does it stand in the graph, in whatever split?"""
        snapshot = self.opened.snapshot
        found: Array = np.any([snapshot.contains(split, triples) for split in Split], axis=0)
        return found

    def calibration(self, with_evidence: bool) -> Calibration | None:
        """From scores to probabilities; None if the training had no triples to fit that on."""
        with self._lock:
            return self._calibrations[with_evidence]

    @cached_property
    def _calibrations(self) -> tuple[Calibration | None, Calibration | None]:
        return load_calibration(self.opened.store, self.opened.model.model)

    def deletions(self, triples: Triples) -> list[Deletion | None]:
        """For each triple, none of them in the graph: was it deleted, and when?"""
        with self._lock:
            was_there = self._past.has(triples)
        found: list[Deletion | None] = [None] * triples.count
        for number in np.flatnonzero(was_there).tolist():
            found[number] = Deletion(self._deleted_by(triples.take(slice(number, number + 1))))
        return found

    @cached_property
    def _past(self) -> PastTriples:
        return PastTriples(self.opened.store, self._snapshot_manifest, self.opened.names)

    @property
    def _snapshot_manifest(self) -> SnapshotManifest:
        return self.opened.store.snapshot_manifest(self.opened.model.model.snapshot)

    def _deleted_by(self, triple: Triples) -> str | None:
        """The newest snapshot of the last nights that deleted a triple."""
        with self._lock:
            nights = self._deleted
        return next((name for name, deleted in nights if contains(deleted, triple)[0]), None)

    @cached_property
    def _deleted(self) -> list[tuple[str, Triples]]:
        """What the last nights deleted from train, newest first."""
        store = self.opened.store
        nights = islice(store.ancestry(self._snapshot_manifest), NIGHTS_BACK)
        return [(some.snapshot.name, store.change(some).deleted) for some in nights if some.snapshot.change is not None]


@contextmanager
def open_session(
    store: Store, runtime: Runtime, version: str | None = None, keep: bool = False, suggests: bool = True
) -> Iterator[Session]:
    """The current model, or that of a version or snapshot, opened for questions."""
    opened = open_model(store, version)._replace(suggests=suggests)
    with open_embedding(opened, runtime) as embedding:
        yield Session(opened, embedding, newer_snapshot(opened, version), keep)


def newer_snapshot(opened: OpenedModel, version: str | None) -> str | None:
    """What is newer than the answers of a model, unless that very version was asked for."""
    store = opened.store
    head = store.head()
    if version is not None or head is None or head.current.snapshot == opened.model.model.snapshot:
        return None
    name = store.snapshot_manifest(head.current.snapshot).snapshot.name
    return f"snapshot {name!r} is newer and not learnt yet: `dkge update {store}`"
