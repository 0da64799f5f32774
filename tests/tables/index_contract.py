"""What every `VectorIndex` promises: vectors, distances, counts of closer rows, the nearest rows."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import pytest

from dkge_dist.kernels.ranks import FilteredCandidates
from dkge_dist.tables.index import VectorIndex
from dkge_dist.types import OFFSET, ROW, Array
from tests.tables.rows import DIM, EVERY_ROW, ROWS, random_vectors, rows_of, whole_numbers


class IndexContract(ABC):
    """Inherit, implement the fixture, and call the class Test…"""

    @abstractmethod
    def index_of(self, values: Array) -> VectorIndex:
        """An index of `ROWS` vectors of dimension `DIM`."""

    def test_vectors_of_given_rows(self) -> None:
        values, rows = random_vectors(np.random.default_rng(0), ROWS), rows_of(149, 0, 77)
        index = self.index_of(values)
        assert (index.rows, index.dim) == (ROWS, DIM)
        for _ in range(2):
            found = index.vectors(rows)
            assert found.tobytes() == values[rows].tobytes()
            found[:] = 7

    def test_distances_of_given_rows(self) -> None:
        rng = np.random.default_rng(1)
        values = random_vectors(rng, ROWS)
        queries = random_vectors(rng, 4)
        lists = [rows_of(149, 3, 3, 80), rows_of(), EVERY_ROW, rows_of(0)]
        indptr = np.cumsum([0, *(len(rows) for rows in lists)]).astype(OFFSET)
        index = self.index_of(values)
        found = index.distances(queries, indptr, np.concatenate(lists))
        expected = [np.abs(query - values[rows]).sum(1) for query, rows in zip(queries, lists, strict=True)]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-6)
        assert index.distances(np.zeros((2, DIM), np.float32), np.zeros(3, OFFSET), rows_of()).shape == (0,)

    @pytest.mark.parametrize("seed", range(4))
    def test_counts_of_closer_and_equal_rows(self, seed: int) -> None:
        """Some candidates, some of them filtered, some filtered rows that are no candidates, and many ties."""
        rng = np.random.default_rng(seed)
        values = whole_numbers(np.random.default_rng(seed), ROWS)
        queries = whole_numbers(rng, 70)
        true = rng.integers(0, ROWS, 70)
        bound = np.abs(queries - values[true]).sum(1)
        candidates = np.flatnonzero(rng.random(ROWS) < 0.8).astype(ROW)
        lists = [np.flatnonzero(rng.random(ROWS) < rng.choice([0, 0.05, 0.5])).astype(ROW) for _ in true]
        indptr = np.cumsum([0, *(len(rows) for rows in lists)]).astype(OFFSET)
        filtered = FilteredCandidates(indptr, np.concatenate(lists))
        closer, equal = self.index_of(values).count_closer(queries, bound, candidates, filtered)
        for number, removed in enumerate(lists):
            distances = np.abs(queries[number] - values[np.setdiff1d(candidates, removed)]).sum(1)
            assert closer[number] == (distances < bound[number]).sum()
            assert equal[number] == (distances == bound[number]).sum()
        assert equal.max() > 1, "there were ties"

    def test_a_row_is_exactly_as_close_as_its_own_distance(self) -> None:
        """A bound that `distances` gives is met by its row, whatever the rounding: ties are told from near misses."""
        rng = np.random.default_rng(0)
        index = self.index_of(random_vectors(rng, ROWS))
        queries = random_vectors(rng, ROWS)
        bound = index.distances(queries, np.arange(ROWS + 1, dtype=OFFSET), EVERY_ROW)
        unfiltered = FilteredCandidates(np.zeros(ROWS + 1, OFFSET), rows_of())
        for candidates in (EVERY_ROW, EVERY_ROW[::2].copy()):
            _, equal = index.count_closer(queries, bound, candidates, unfiltered)
            assert (equal[candidates] == 1).all()

    @pytest.mark.parametrize("top", [1, 7, ROWS, ROWS + 9])
    def test_the_nearest_rows_best_first(self, top: int) -> None:
        """Among equals the smaller row comes first."""
        rng = np.random.default_rng(top)
        values = whole_numbers(np.random.default_rng(0), ROWS)
        queries = whole_numbers(rng, 5)
        candidates = np.flatnonzero(rng.random(ROWS) < 0.7).astype(ROW)
        found = self.index_of(values).nearest(queries, candidates, top)
        for number, query in enumerate(queries):
            distances = np.abs(query - values[candidates]).sum(1)
            order = np.lexsort((candidates, distances))[:top]
            assert found.rows[number].tolist() == candidates[order].tolist()
            assert found.distances[number].tolist() == distances[order].tolist()

    def test_without_candidates(self) -> None:
        index = self.index_of(np.zeros((ROWS, DIM), np.float32))
        queries, bound = np.zeros((2, DIM), np.float32), np.ones(2, np.float32)
        counts = index.count_closer(queries, bound, rows_of(), FilteredCandidates(np.zeros(3, OFFSET), rows_of()))
        assert [some.tolist() for some in counts] == [[0, 0], [0, 0]]
        found = index.nearest(queries, rows_of(), 5)
        assert found.rows.shape == found.distances.shape == (2, 0)
