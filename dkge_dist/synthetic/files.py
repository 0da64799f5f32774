"""The synthetic graph as files. In: a `SynthSpec` and a folder. Out: a snapshot, a change file a night, and names.

A file gets its name when it is complete: an interrupted run leaves no partial file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from dkge_dist.synthetic.evolving import EvolvingGraph, Night
from dkge_dist.synthetic.spec import SynthSpec
from dkge_dist.synthetic.world import RELATIONS
from dkge_dist.types import Array, Triples, UsageError

Progress = Callable[[float, str], None]

NAMES = "names.tsv"
"""`label<TAB>name` lines of everybody in the snapshot or a night: labels stay keys, names are for people."""

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
    return {
        "entities": spec.entities,
        "triples": spec.triples,
        "relations": len(RELATIONS),
        "nights": spec.nights,
        "added": spec.added,
        "deleted": spec.deleted,
        "seed": spec.seed,
        "files": files,
    }


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
    order = graph.generator(graph.night, 1).permutation(triples.count)
    for start in range(0, triples.count, _CHUNK_LINES):
        yield _format(graph, triples.take(order[start : start + _CHUNK_LINES]))


def _change_lines(graph: EvolvingGraph, night: Night) -> Iterator[Array]:
    for sign, triples in (("+\t", night.added), ("-\t", night.deleted)):
        for start in range(0, triples.count, _CHUNK_LINES):
            yield _format(graph, triples.take(slice(start, start + _CHUNK_LINES)), sign)


def _name_lines(graph: EvolvingGraph) -> Iterator[Array]:
    """Everybody so far, also who is gone."""
    for start in range(0, graph.kinds.size, _CHUNK_LINES):
        entities = np.arange(start, min(start + _CHUNK_LINES, graph.kinds.size))
        tab, end = _repeat("\t", entities.size), _repeat("\n", entities.size)
        lines = np.column_stack([graph.label_bytes(entities), tab, graph.name_bytes(entities), end])
        yield np.asarray(lines[lines != 0])


def _format(graph: EvolvingGraph, triples: Triples, sign: str = "") -> Array:
    """The bytes of the lines: every field in columns of a fixed width, then the padding (zeros) is dropped."""
    relations = np.array([name.encode() for name in RELATIONS])
    names = relations.view(np.uint8).reshape(len(RELATIONS), -1)
    lines = np.column_stack(
        [
            _repeat(sign, triples.count),
            graph.label_bytes(triples.head),
            _repeat("\t", triples.count),
            names[triples.relation],
            _repeat("\t", triples.count),
            graph.label_bytes(triples.tail),
            _repeat("\n", triples.count),
        ]
    )
    return np.asarray(lines[lines != 0])


def _repeat(text: str, count: int) -> Array:
    return np.broadcast_to(np.frombuffer(text.encode(), np.uint8), (count, len(text)))
