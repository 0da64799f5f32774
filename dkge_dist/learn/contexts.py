"""Distinct objects with their contexts, made of the graph alone, in the form that an encoder reads.

Ragged for CPU; padded blocks for everything else. Both show the same contexts, and a test says that they give the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch

from dkge_dist.graph.topology import PathCounts, Topology
from dkge_dist.kernels.adjacency import padded_blocks, ragged
from dkge_dist.kernels.batches import RowNumbering
from dkge_dist.kernels.contexts import (
    Contexts,
    KeptContexts,
    Sampling,
    build_contexts,
    drop_vertices,
    keep_contexts,
    kept_contexts,
)
from dkge_dist.kernels.csr import list_sizes
from dkge_dist.kernels.ragged import RaggedBatch, ragged_batch
from dkge_dist.model.attentive_gcn import PaddedBlock
from dkge_dist.types import OFFSET, ROW, Array

Form = Literal["ragged", "padded"]

KEPT_BYTES = 1 << 30
"""Of contexts that are kept, at most; larger graphs build them batch by batch."""


@dataclass(frozen=True)
class ObjectBatch:
    """Distinct objects to encode: their rows, the distinct rows whose `^c` their contexts need, and the contexts.

    Vertices of relation contexts are paths: `bag` lists the numbers (into `vertex_rows`) of each path's relations, from
    `bag_offsets` on. A vertex of an entity context is one row, and there is no bag.
    """

    rows: Array
    vertex_rows: Array
    contexts: RaggedBatch | list[PaddedBlock]
    bag: Array | None = None
    bag_offsets: Array | None = None


@dataclass(frozen=True)
class HiddenPairs:
    """Pairs of entities whose link is not to be seen: each end is left out of the other's context.

    They need not be in the batch.
    """

    one: Array
    other: Array


class EntityContexts:
    """Entity batches, with contexts built on demand, or once for those that are asked for again and again (`keep`)."""

    def __init__(self, topology: Topology, digest: Array, sampling: Sampling, form: Form = "ragged") -> None:
        self.topology, self.digest, self.sampling, self.form = topology, digest, sampling, form
        self.count = int(digest.shape[0])
        self._kept: KeptContexts | None = None
        self._kept_number = np.empty(0, ROW)
        self._vertices = RowNumbering(digest.shape[0])
        self._objects = RowNumbering(digest.shape[0])

    def keep(self, rows: Array) -> None:
        """Build the contexts of distinct `rows` now, if memory allows, and only copy them from then on.

        The graph does not change while it is learnt, and building takes most of the time of a batch.
        """
        words = (self.sampling.cap >> 6) + 1
        vertices = np.minimum(list_sizes(self.topology.neighbours, rows), self.sampling.cap).sum() + rows.shape[0]
        if self.sampling.hops > 1:
            vertices = rows.shape[0] * (self.sampling.cap + 1)
        if vertices * (ROW().itemsize + 8 * words) > KEPT_BYTES:
            return
        self._kept = keep_contexts(self.topology.neighbours, self.digest, self.sampling, rows)
        self._kept_number = np.full(self.count, -1, ROW)
        self._kept_number[rows] = np.arange(rows.shape[0])

    def _contexts(self, rows: Array) -> Contexts:
        if self._kept is not None:
            numbers = self._kept_number[rows]
            if not rows.shape[0] or numbers.min() >= 0:
                return kept_contexts(self._kept, numbers, self.sampling)
        return build_contexts(self.topology.neighbours, self.digest, self.sampling, rows)

    def batch(self, rows: Array, hidden: HiddenPairs | None = None) -> ObjectBatch:
        """Distinct entities with their contexts. Of hidden pairs, either end may stand outside of the batch."""
        contexts = self._contexts(rows)
        if hidden is not None:
            self._objects.number(rows)
            for here, there in ((hidden.one, hidden.other), (hidden.other, hidden.one)):
                mine = self._objects.holds(here)
                drop_vertices(contexts, self._objects.numbers[here[mine]], there[mine])
        if self.form == "padded":
            return self._padded(rows, contexts)
        flat = ragged(contexts)
        vertex_rows, slot_row = self._vertices.number(flat.vertices)
        return ObjectBatch(rows, vertex_rows, ragged_batch(flat, slot_row, vertex_rows.shape[0]))

    def _padded(self, rows: Array, contexts: Contexts) -> ObjectBatch:
        places, vertices = pad(contexts)
        vertex_rows, number = self._vertices.number(vertices)
        numbers = torch.from_numpy(number.astype(OFFSET))
        placed = [block._replace(rows_Bn=numbers[block.rows_Bn]) for block in places]
        return ObjectBatch(rows, vertex_rows, placed)


class RelationContexts:
    """Relation batches; the contexts of all relations are few and built once."""

    def __init__(self, paths: PathCounts, digest: Array, sampling: Sampling, form: Form = "ragged") -> None:
        rows = np.arange(digest.shape[0], dtype=ROW)
        self.contexts = paths.contexts(digest, sampling, rows)
        self.bits, self.form, self.count = paths.bits, form, int(digest.shape[0])
        self._relations = RowNumbering(digest.shape[0])

    def batch(self, rows: Array) -> ObjectBatch:
        """Distinct relations with their contexts."""
        contexts = Contexts(*(np.ascontiguousarray(column[rows]) for column in self.contexts))
        places: RaggedBatch | list[PaddedBlock]
        if self.form == "padded":
            places, codes = pad(contexts)
        else:
            flat = ragged(contexts)
            codes = flat.vertices
            places = ragged_batch(flat, np.arange(codes.shape[0], dtype=ROW), codes.shape[0])
        relations, lengths = unpack_paths(codes, self.bits)
        vertex_rows, bag = self._relations.number(relations)
        offsets = np.zeros(lengths.shape[0], OFFSET)
        np.cumsum(lengths[:-1], out=offsets[1:])
        return ObjectBatch(rows, vertex_rows, places, bag.astype(OFFSET), offsets)


def pad(contexts: Contexts) -> tuple[list[PaddedBlock], Array]:
    """Contexts as padded blocks over their real places, counted through; (blocks, vertex at each real place).

    Padding shows place 0, which is masked out wherever it is read.
    """
    blocks, vertices, count = [], [], 0
    for block in padded_blocks(contexts):
        real = block.vertices >= 0
        shown = np.zeros(block.vertices.shape, OFFSET)
        shown[real] = np.arange(count, count + int(real.sum()))
        count += int(real.sum())
        vertices.append(block.vertices[real])
        blocks.append(PaddedBlock(*(torch.from_numpy(x) for x in (block.contexts, shown, block.adjacency, real))))
    return blocks, np.concatenate(vertices) if vertices else contexts.vertices[:0, 0]


def unpack_paths(codes: Array, bits: int) -> tuple[Array, Array]:
    """(the relations of all paths, one path after the other; how many each path has)."""
    columns = []
    rest = codes.copy()
    while rest.any():
        columns.append((rest & ((1 << bits) - 1)) - 1)
        rest >>= bits
    if not columns:
        return np.empty(0, ROW), np.empty(0, OFFSET)
    table = np.stack(columns, axis=1)
    return table[table >= 0].astype(ROW), (table >= 0).sum(1)
