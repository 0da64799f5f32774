"""The evolving movie graph. In: a `SynthSpec`. Out: the base graph, then one change a night; in memory, or as files.

All randomness comes from the seed, one stream a night: a run with more nights starts with the same ones. A file gets
its name when it is complete: an interrupted run leaves no partial file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.kernels.sets import distinct
from dkge_dist.synthetic.casting import degrees, draw_additions, draw_base, draw_deletions, unpack
from dkge_dist.synthetic.names import name_bytes
from dkge_dist.synthetic.world import PERSON, RELATIONS, build_world
from dkge_dist.types import OFFSET, Array, Triples, UsageError

MIN_ENTITIES, MAX_ENTITIES = 200, 50_000_000
MIN_TRIPLES = 500
# Below, triples do not suffice to touch every entity; above, people would work on a large part of all titles.
MIN_DENSITY, MAX_DENSITY = 1.2, 8.0


@dataclass(frozen=True)
class SynthSpec:
    """Sizes of the base graph and of each night's change (net: what is added was absent, what is deleted was there)."""

    entities: int
    triples: int
    nights: int
    added: int
    deleted: int
    seed: int = 0

    def __post_init__(self) -> None:
        density, final = self.triples / self.entities, self.triples + self.nights * (self.added - self.deleted)
        quarter = f"must be from 0 to a quarter of the {self.triples} triples"
        range_of_triples = f"must be {MIN_DENSITY} to {MAX_DENSITY} times entities={self.entities}"
        for is_sound, problem in (
            (
                MIN_ENTITIES <= self.entities <= MAX_ENTITIES,
                f"entities={self.entities}: must be from {MIN_ENTITIES} to {MAX_ENTITIES}",
            ),
            (self.triples >= MIN_TRIPLES, f"triples={self.triples}: must be at least {MIN_TRIPLES}"),
            (MIN_DENSITY <= density <= MAX_DENSITY, f"triples={self.triples}: {range_of_triples}"),
            (min(self.nights, self.seed) >= 0, f"nights={self.nights}, seed={self.seed}: must not be negative"),
            (0 <= self.added <= self.triples // 4, f"added={self.added}: {quarter}"),
            (0 <= self.deleted <= self.triples // 4, f"deleted={self.deleted}: {quarter}"),
            (
                final >= self.triples // 2,
                f"deleted={self.deleted}: {self.nights} nights would leave less than half of the graph",
            ),
        ):
            if not is_sound:
                raise ValueError(problem)

    def resized(
        self,
        entities: int | None = None,
        triples: int | None = None,
        nights: int | None = None,
        seed: int | None = None,
    ) -> SynthSpec:
        """The same graph in another size: what is not given keeps its proportion to what is."""
        if entities is None:
            entities = self.entities if triples is None else round(self.entities * triples / self.triples)
        if triples is None:
            triples = round(self.triples * entities / self.entities)
        return replace(
            self,
            entities=entities,
            triples=triples,
            nights=self.nights if nights is None else nights,
            added=round(self.added * triples / self.triples),
            deleted=round(self.deleted * triples / self.triples),
            seed=self.seed if seed is None else seed,
        )


PRESETS = {
    "demo": SynthSpec(entities=3_000, triples=7_500, nights=5, added=120, deleted=40),
    # The sizes of the published sets IMDB-30SP and IMDB-13.
    "imdb-30": SynthSpec(entities=243_000, triples=627_000, nights=30, added=9_400, deleted=2_400),
    "imdb-13": SynthSpec(entities=3_244_455, triples=7_923_773, nights=3, added=17_472, deleted=18_405),
}


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
        self._state = distinct(remaining, added)
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


Progress = Callable[[float, str], None]

NAMES = "names.tsv"
"""`label<TAB>name` lines of all entities of the snapshot and the nights: labels stay keys, names are for people."""

_CHUNK_LINES = 1 << 18


def write_synth(spec: SynthSpec, out: Path, full: bool = False, progress: Progress | None = None) -> dict[str, Any]:
    """Write `snapshot-000.tsv`, `night-001.changes`, ... and `names.tsv`; `full` adds the snapshot after each night."""
    report = progress or (lambda fraction, text: None)
    snapshots = [f"snapshot-{night:03}.tsv" for night in range(spec.nights + 1 if full else 1)]
    changes = [f"night-{night:03}.changes" for night in range(1, spec.nights + 1)]
    _refuse_leftovers(out, {*snapshots, *changes})
    out.mkdir(parents=True, exist_ok=True)
    report(0.0, "drawing the base graph")
    graph = EvolvingGraph(spec)
    files: list[str] = []

    def write(name: str, chunks: Iterator[Array]) -> None:
        report((len(files) + 1) / (len(snapshots) + len(changes) + 2), f"writing {name}")
        _write_chunks(out / name, chunks)
        files.append(name)

    write(snapshots[0], _snapshot_lines(graph))
    for name in changes:
        write(name, _change_lines(graph, graph.advance()))
        if full:
            write(snapshots[graph.night], _snapshot_lines(graph))
    write(NAMES, _name_lines(graph))
    report(1.0, f"wrote {len(files)} files")
    return {**asdict(spec), "relations": len(RELATIONS), "files": files}


def _refuse_leftovers(out: Path, names: set[str]) -> None:
    """A folder with the nights of two different graphs would be read as one."""
    for path in sorted([*out.glob("snapshot-*.tsv"), *out.glob("night-*.changes")]):
        if path.name not in names:
            raise UsageError(f"{path} is of another run and would be mixed with this one: choose another folder")


def _write_chunks(path: Path, chunks: Iterator[Array]) -> None:
    partial = path.with_name(f".{path.name}.partial")
    try:
        with partial.open("wb") as file:
            for chunk in chunks:
                file.write(chunk.data)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _snapshot_lines(graph: EvolvingGraph) -> Iterator[Array]:
    """In random order, so that rows and splits by position do not depend on how the graph was drawn."""
    triples = graph.triples
    yield from _triple_lines(graph, triples.take(graph.generator(graph.night, 1).permutation(triples.count)))


def _change_lines(graph: EvolvingGraph, night: Night) -> Iterator[Array]:
    yield from _triple_lines(graph, night.added, "+\t")
    yield from _triple_lines(graph, night.deleted, "-\t")


def _triple_lines(graph: EvolvingGraph, triples: Triples, sign: str = "") -> Iterator[Array]:
    relations = np.array([name.encode() for name in RELATIONS])
    relation_bytes = relations.view(np.uint8).reshape(len(RELATIONS), -1)
    for start in range(0, triples.count, _CHUNK_LINES):
        head, relation, tail = triples.take(slice(start, start + _CHUNK_LINES))
        head_bytes, tail_bytes = graph.label_bytes(head), graph.label_bytes(tail)
        yield _lines(sign, head_bytes, "\t", relation_bytes[relation], "\t", tail_bytes, "\n")


def _name_lines(graph: EvolvingGraph) -> Iterator[Array]:
    """All entities so far, removed ones included."""
    for start in range(0, graph.kinds.size, _CHUNK_LINES):
        entities = np.arange(start, min(start + _CHUNK_LINES, graph.kinds.size))
        yield _lines(graph.label_bytes(entities), "\t", graph.name_bytes(entities), "\n")


def _lines(*fields: Array | str) -> Array:
    """The bytes of lines: every field in columns of a fixed width, then the padding (zeros) is dropped."""
    count = next(field.shape[0] for field in fields if not isinstance(field, str))
    columns = [
        np.broadcast_to(np.frombuffer(field.encode(), np.uint8), (count, len(field)))
        if isinstance(field, str)
        else field
        for field in fields
    ]
    lines = np.column_stack(columns)
    return np.asarray(lines[lines != 0])
