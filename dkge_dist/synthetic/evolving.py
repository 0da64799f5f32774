"""The evolving movie graph. In: a `SynthSpec`. Out: the base graph, then one change a night, over local ids and labels.

All randomness comes from the seed, one stream a night: a run with more nights starts with the same ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.synthetic.casting import draw_base
from dkge_dist.synthetic.keys import union, unpack
from dkge_dist.synthetic.names import name_bytes
from dkge_dist.synthetic.nights import degrees, draw_additions, draw_deletions
from dkge_dist.synthetic.spec import SynthSpec
from dkge_dist.synthetic.world import PERSON, build_world
from dkge_dist.types import OFFSET, Array, Triples

ABSENCE = 2
"""Nights after which an entity returns that was removed for a while."""

LABEL_WIDTH = 10
"""Bytes of a label at most: two letters and eight digits."""


class Night(NamedTuple):
    """The change of one night: both sides canonical, no triple in both."""

    added: Triples
    deleted: Triples


class EvolvingGraph:
    """A synthetic movie graph in the shape of IMDB, as of some night.

    Entities are local ids, which never change: the base graph has the first `spec.entities`, later ones follow.
    Relations are indices into `RELATIONS`.
    """

    def __init__(self, spec: SynthSpec) -> None:
        self.spec = spec
        self.night = 0
        rng = self.generator(0)
        self._world = build_world(rng, spec.entities)
        self._state = draw_base(rng, self._world, spec.triples)
        self._returning: dict[int, Array] = {}

    def generator(self, *stream: int) -> np.random.Generator:
        """An independent generator for each `stream`, determined by the seed."""
        return np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.spec.seed, spawn_key=stream)))

    @property
    def triples(self) -> Triples:
        """The graph as of this night, canonical."""
        return unpack(self._state)

    @property
    def alive(self) -> Array:
        """Per local id, whether the entity is in the graph as of this night."""
        return np.asarray(self._world.alive)

    @property
    def kinds(self) -> Array:
        """Per local id, what the entity is: MOVIE, SERIES, EPISODE or PERSON."""
        return np.asarray(self._world.kind)

    def advance(self) -> Night:
        """Go to the next night; returns its change. `spec.nights` is no limit."""
        self.night += 1
        rng, world, before = self.generator(self.night), self._world, self._state
        deleted = draw_deletions(rng, world, before, self.spec.deleted)
        self._returning[self.night + ABSENCE] = deleted.returning
        remaining = np.delete(before, np.searchsorted(before, deleted.keys))
        world.alive = degrees(remaining, world.kind.size) > 0
        returning = self._returning.pop(self.night, np.empty(0, np.int64))
        added = draw_additions(rng, world, before, deleted, self.spec.added, returning)
        self._state = union(remaining, added)
        world.alive = degrees(self._state, world.kind.size) > 0
        return Night(unpack(added), unpack(deleted.keys))

    def nights(self) -> Iterator[Night]:
        """The nights that are left of `spec.nights`, one after the other."""
        while self.night < self.spec.nights:
            yield self.advance()

    def label_bytes(self, entities: Array) -> Array:
        """Labels as IMDB has them, tt0000001 for titles and nm0000001 for people: uint8 rows with zeros to skip."""
        number = self._world.number[entities]
        text = np.empty((entities.shape[0], LABEL_WIDTH), np.uint8)
        prefix = np.frombuffer(b"ttnm", np.uint8).reshape(2, 2)
        text[:, :2] = prefix[(self._world.kind[entities] == PERSON).astype(np.intp)]
        for column in range(LABEL_WIDTH - 1, 1, -1):
            number, digit = np.divmod(number, 10)
            text[:, column] = digit + ord("0")
        # IMDB pads to seven digits and went on to eight when they were used up.
        text[text[:, 2] == ord("0"), 2] = 0
        return text

    def labels(self, entities: Array) -> Labels:
        """The labels of local ids."""
        return _as_labels(self.label_bytes(entities))

    def name_bytes(self, entities: Array) -> Array:
        """Names for people to read, no two alike: uint8 rows with zeros to skip."""
        return name_bytes(self._world.kind[entities], self._world.number[entities], self.spec.seed)

    def names(self, entities: Array) -> Labels:
        """The names of local ids."""
        return _as_labels(self.name_bytes(entities))


def _as_labels(text: Array) -> Labels:
    """Rows of bytes without their zeros."""
    length = np.count_nonzero(text, axis=1)
    stop = np.cumsum(length, dtype=OFFSET)
    return Labels(text[text != 0], stop - length, stop)
