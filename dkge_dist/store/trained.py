"""Triples that were in a train split once and are not now: what was ever trained on is never held out later.

Every version carries their hashes, of all snapshots before it on whatever branch: a model may be updated from one
branch to another. So clearing takes nothing from that, and nobody has to walk through the history.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dkge_dist.graph.content import hash_triples
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.store.manifest import Manifest, PartEntry
from dkge_dist.store.runs import add_run, has_hashes, load_hashes
from dkge_dist.store.storage import Staging
from dkge_dist.store.store import Store
from dkge_dist.types import Array, Triples

_SEED = 0x747261696E6564

Names = tuple[Dictionary, Dictionary]


class PastTriples:
    """The hashes that one version carries, opened once to be asked often. Without a version there are none."""

    def __init__(self, store: Store, head: Manifest | None, names: Names) -> None:
        self._names = names
        self._runs: list[Array] = []
        if head is not None and head.trained_runs is None:
            self._runs = [run for run in (np.sort(_walked(store, head, names)),) if run.shape[0]]
        elif head is not None:
            self._runs = load_hashes(store.storage, head.trained_runs or [])

    def has(self, triples: Triples) -> Array:
        """For each triple, none of them in train now: was it ever? Of two with the same hash (never yet) both count."""
        if not self._runs:
            return np.zeros(triples.count, bool)
        return has_hashes(self._runs, hash_triples(triples, _SEED, *self._names))


def was_trained(store: Store, head: Manifest | None, names: Names, triples: Triples) -> Array:
    """For each triple, none of them in train at a version: was it ever before?"""
    return PastTriples(store, head, names).has(triples)


def remember(store: Store, staging: Staging, head: Manifest | None, names: Names, lost: Triples) -> list[PartEntry]:
    """What a version on top of `head` carries, which takes the triples `lost` out of train."""
    hashes = hash_triples(lost, _SEED, *names)
    if head is not None and head.trained_runs is None:
        hashes = np.concatenate([_walked(store, head, names), hashes])
    return add_run(staging, (head and head.trained_runs) or [], {"hash": hashes})


def _walked(store: Store, head: Manifest, names: Names) -> Array:
    """The same from the history, as far as it was not cleared away: older programs did not keep it."""

    def lost() -> Iterator[Triples]:
        for ancestor in store.ancestry(store.snapshot_manifest(head.current.snapshot)):
            if ancestor.snapshot.change is not None:
                yield store.change(ancestor).deleted

    return hash_triples(Triples.concat([Triples.empty(), *lost()]), _SEED, *names)
