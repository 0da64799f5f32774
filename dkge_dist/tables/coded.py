"""Joint vectors of a stored model to be asked: scanned by their codes, and read and verified only where these are near.

The base stays mapped as it is. What deltas wrote over it lies beside it, with codes that are made when the index is
opened: writing it into the mapped pages would copy a page for nearly every row.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from dkge_dist.kernels.codes import CodedQueries, checks_of, coded, count_closer_by_codes, encode, list_near
from dkge_dist.kernels.hashing import digests
from dkge_dist.kernels.ranks import TILE, FilteredCandidates, distances_to_rows
from dkge_dist.kernels.sets import among, distinct
from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.parts import DamagedPartError
from dkge_dist.store.storage import Storage, StoreError
from dkge_dist.store.tables import VALUE, BlockIndex, StoredCodes, load_delta, load_table
from dkge_dist.tables.index import ExactIndex, Nearest, VectorIndex
from dkge_dist.types import OFFSET, ROW, Array

QUERIES_AT_ONCE = 64
FIRST_TILES, GROWTH = 64, 8
"""The nearest are looked for in so many tiles first, and then in so many times more: what was found bounds the rest."""


def open_index(storage: Storage, entry: TableEntry) -> VectorIndex:
    """Stored vectors, to be asked. Without codes, or where nothing can be mapped, all of them in memory."""
    if entry.codes is not None:
        index = BlockIndex(storage, entry)
        values = index.map_all(ahead=False)  # By codes few of the rows are read.
        if values is not None:
            return CodedIndex(storage, entry, index, values)
    return ExactIndex(load_table(storage, entry, will_scan=True))


class CodedIndex:
    """Vectors of a store that are scanned by their codes."""

    def __init__(self, storage: Storage, entry: TableEntry, index: BlockIndex, values: Array) -> None:
        self.rows, self.dim = entry.rows, entry.dim
        self._base = _Base(index, values, StoredCodes(storage, entry))
        self._rows, self._written = written_rows(storage, entry, index.rows)
        self._tiles = encode(self._written, self._base.codes.index.grid)

    def vectors(self, rows: Array) -> Array:
        """Copies of the vectors of distinct rows, verified."""
        is_over = among(self._rows, rows)
        below, over = rows[~is_over], rows[is_over]
        values = np.empty((rows.shape[0], self.dim), np.float32)
        self._base.verify(below)
        values[~is_over] = self._base.values[below]
        values[is_over] = self._written[np.searchsorted(self._rows, over.astype(self._rows.dtype))]
        return values

    def distances(self, query_QD: Array, indptr: Array, rows: Array) -> Array:
        """L1 distances of each query to its own rows."""
        is_over = among(self._rows, rows)
        out = np.empty(rows.shape[0], np.float32)
        if not is_over.all() or not rows.shape[0]:
            below = rows[~is_over]
            self._base.verify(below)
            out[~is_over] = distances_to_rows(query_QD, self._base.values, _thinned(indptr, ~is_over), below)
        if is_over.any():
            over = np.searchsorted(self._rows, rows[is_over])
            out[is_over] = distances_to_rows(query_QD, self._written, _thinned(indptr, is_over), over)
        return out

    def count_closer(
        self, query_QD: Array, bound_Q: Array, candidates: Array, filtered: FilteredCandidates
    ) -> tuple[Array, Array]:
        """How many candidates are closer to each query than its bound, and how many just as close."""
        asking = coded(query_QD, bound_Q, self._base.codes.index.grid)
        below = candidates[~among(self._rows, candidates)]
        self._base.verify_blocks(below)
        closer, equal = count_closer_by_codes(asking, self._base.values, self._base.codes.tiles, below, filtered)
        if self._rows.shape[0]:
            over = np.flatnonzero(among(candidates, self._rows))
            is_over = among(self._rows, filtered.rows)
            places = np.searchsorted(self._rows, filtered.rows[is_over]).astype(ROW)
            removed = FilteredCandidates(_thinned(filtered.indptr, is_over), places)
            more = count_closer_by_codes(asking, self._written, self._tiles, over, removed)
            closer, equal = closer + more[0], equal + more[1]
        return closer, equal

    def nearest(self, query_QD: Array, candidates: Array, top: int) -> Nearest:
        """The `top` candidates nearest to each query."""
        queries = query_QD.shape[0]
        parts = [
            self._nearest(query_QD[begin : begin + QUERIES_AT_ONCE], candidates, min(top, candidates.shape[0]))
            for begin in range(0, queries, QUERIES_AT_ONCE)
        ]
        empty = Nearest(np.empty((0, min(top, candidates.shape[0])), OFFSET), np.empty((0, 0), np.float32))
        return Nearest(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True))) if parts else empty

    def _nearest(self, query_QD: Array, candidates: Array, top: int) -> Nearest:
        best = [_Best(top) for _ in query_QD]
        begin, end, tiles = 0, FIRST_TILES + top // TILE, self._base.codes.tiles.shape[0]
        while begin < tiles:
            self._add_near(best, query_QD, candidates, begin, min(end, tiles))
            begin, end = end, end * GROWTH
        if self._rows.shape[0]:
            asking = self._asking(best, query_QD)
            for q, lists in enumerate(list_near(asking, self._tiles, 0, np.arange(self._rows.shape[0], dtype=ROW))):
                rows = self._rows[np.concatenate([np.empty(0, ROW), *lists])]
                self._add(best[q], query_QD[q], rows[among(candidates, rows)])
        return Nearest(np.stack([some.rows for some in best]), np.stack([some.distances for some in best]))

    def _asking(self, best: list[_Best], query_QD: Array) -> CodedQueries:
        bounds = np.array([some.bound for some in best], np.float32)
        return coded(query_QD, bounds, self._base.codes.index.grid)

    def _add_near(self, best: list[_Best], query_QD: Array, candidates: Array, begin: int, end: int) -> None:
        """Look in some tiles of the base."""
        asking, codes = self._asking(best, query_QD), self._base.codes
        found: list[list[Array]] = [[np.empty(0, ROW)] for _ in best]
        for first, last in codes.spans(begin, end):
            codes.verify(first, last)
            limits = np.array([first * TILE, last * TILE], candidates.dtype)
            asked = candidates[slice(*np.searchsorted(candidates, limits))]
            for lists, more in zip(found, list_near(asking, codes.tiles[first:last], first, asked), strict=True):
                lists += more
        for q, lists in enumerate(found):
            rows = np.concatenate(lists)
            self._add(best[q], query_QD[q], rows[~among(self._rows, rows)])

    def _add(self, best: _Best, query_D: Array, rows: Array) -> None:
        best.add(rows, self.distances(query_D[None], np.array([0, rows.shape[0]], OFFSET), rows))


class _Best:
    """The nearest rows of one query so far, and the distance that another one must not exceed."""

    def __init__(self, top: int) -> None:
        self.top = top
        self.rows, self.distances = np.empty(0, OFFSET), np.empty(0, np.float32)

    @property
    def bound(self) -> float:
        return float(self.distances[-1]) if self.rows.shape[0] == self.top > 0 else np.inf

    def add(self, rows: Array, distances: Array) -> None:
        """Take these into account, too. Among equals the smaller row comes first."""
        rows, distances = np.concatenate([self.rows, rows]), np.concatenate([self.distances, distances])
        order = np.lexsort((rows, distances))[: self.top]
        self.rows, self.distances = rows[order], distances[order]


class _Base:
    """The vectors of a base, mapped, and their codes. A row is verified when it is first read."""

    def __init__(self, index: BlockIndex, values: Array, codes: StoredCodes) -> None:
        if (codes.index.rows, codes.index.block) != (index.rows, index.block):
            raise StoreError(f"codes of {codes.index.rows} rows stand beside a table of {index.rows}")
        self.index, self.values, self.codes = index, values, codes
        self._is_sound = np.full(values.shape[0], not index.verifies)

    def verify(self, rows: Array) -> None:
        """Compare rows with the checksums beside their codes, unless that was done."""
        new = distinct(rows[~self._is_sound[rows]])
        if not new.shape[0]:
            return
        blocks = distinct(new // self.index.block)
        for number in blocks.tolist():
            self.codes.verify(number * self.codes.block_tiles, (number + 1) * self.codes.block_tiles)
        for number in distinct(new[self._is_other(new)] // self.index.block).tolist():
            self._mend(number)
        still = new[self._is_other(new)]
        if still.shape[0]:
            raise StoreError(f"codes of row {still[0]} are not those of its vector; `dkge check` names what is damaged")
        self._is_sound[new] = True

    def _is_other(self, rows: Array) -> Array:
        """Which rows have not the checksum that stands beside their codes."""
        size = self.index.dim * VALUE.itemsize
        start = rows.astype(np.int64) * size
        found = digests(self.values.reshape(-1).view(np.uint8), start, start + size)
        other: Array = (found & np.uint64(0xFFFFFFFF)) != checks_of(self.codes.tiles, rows)
        return other

    def _mend(self, number: int) -> None:
        """Read a block that is damaged again: where it was a copy it is fetched anew, else refused."""
        rows = self.index.map(number)
        self.values[number * self.index.block : (number + 1) * self.index.block] = rows

    def verify_blocks(self, rows: Array) -> None:
        """Verify all blocks that hold any of some rows (ascending), and their codes."""
        for number in distinct(rows // self.index.block).tolist():
            self.codes.verify(number * self.codes.block_tiles, (number + 1) * self.codes.block_tiles)
            here = slice(number * self.index.block, (number + 1) * self.index.block)
            if self._is_sound[here].all():
                continue
            try:
                self.index.verify(number, self.values[here])
            except DamagedPartError:
                self._mend(number)
            self._is_sound[here] = True


def written_rows(storage: Storage, entry: TableEntry, base_rows: int) -> tuple[Array, Array]:
    """The rows (ascending) that a base does not have as they are now, and their values: of deltas, or new and zero."""
    new = np.arange(base_rows, entry.rows, dtype=ROW)
    deltas = [load_delta(storage, entry, part) for part in entry.deltas]
    rows = reduce(distinct, [some for some, _ in deltas], new)
    if len(deltas) == 1 and rows.shape == deltas[0][0].shape:
        return deltas[0]
    values = np.zeros((rows.shape[0], entry.dim), np.float32)
    for some, their in deltas:
        values[np.searchsorted(rows, some)] = their
    return rows, values


def _thinned(indptr: Array, chosen: Array) -> Array:
    """The ends of lists of which some elements were chosen."""
    before = np.zeros(chosen.shape[0] + 1, OFFSET)
    np.cumsum(chosen, out=before[1:])
    thinned: Array = before[indptr]
    return thinned
