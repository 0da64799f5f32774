"""What every `Table` promises of joint vectors: distances, counts of closer rows, the nearest rows."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.kernels.ranks import FilteredCandidates
from dkge_dist.tables.table import Table
from dkge_dist.types import OFFSET, ROW, Array, Field
from tests.tables.rows import DIM, EVERY_ROW, ROWS, random_vectors, rows_of, whole_numbers


class RankContract:
    """A part of `TableContract`, which brings the fixture `table`."""

    def joint(self, table: Table, seed: int = 0) -> Array:
        """Fill the joint vectors with whole numbers."""
        values = whole_numbers(np.random.default_rng(seed), ROWS)
        table.write(Field.JOINT, EVERY_ROW, values)
        return values

    def test_distances_of_given_rows(self, table: Table) -> None:
        rng = np.random.default_rng(1)
        values = random_vectors(rng, ROWS)
        table.write(Field.JOINT, EVERY_ROW, values)
        queries = random_vectors(rng, 4)
        lists = [rows_of(149, 3, 3, 80), rows_of(), EVERY_ROW, rows_of(0)]
        indptr = np.cumsum([0, *(len(rows) for rows in lists)]).astype(OFFSET)
        found = table.distances(queries, indptr, np.concatenate(lists))
        expected = [np.abs(query - values[rows]).sum(1) for query, rows in zip(queries, lists, strict=True)]
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, np.concatenate(expected), rtol=1e-6)

    def test_distances_of_no_rows(self, table: Table) -> None:
        assert table.distances(np.zeros((2, DIM), np.float32), np.zeros(3, OFFSET), rows_of()).shape == (0,)

    @pytest.mark.parametrize("seed", range(4))
    def test_counts_of_closer_and_equal_rows(self, table: Table, seed: int) -> None:
        """Some candidates, some of them filtered, some filtered rows that are no candidates, and many ties."""
        rng = np.random.default_rng(seed)
        values = self.joint(table, seed)
        queries = whole_numbers(rng, 70)
        true = rng.integers(0, ROWS, 70)
        bound = np.abs(queries - values[true]).sum(1)
        candidates = np.flatnonzero(rng.random(ROWS) < 0.8).astype(ROW)
        lists = [np.flatnonzero(rng.random(ROWS) < rng.choice([0, 0.05, 0.5])).astype(ROW) for _ in true]
        indptr = np.cumsum([0, *(len(rows) for rows in lists)]).astype(OFFSET)
        closer, equal = table.count_closer(
            queries, bound, candidates, FilteredCandidates(indptr, np.concatenate(lists))
        )
        for number, removed in enumerate(lists):
            distances = np.abs(queries[number] - values[np.setdiff1d(candidates, removed)]).sum(1)
            assert closer[number] == (distances < bound[number]).sum()
            assert equal[number] == (distances == bound[number]).sum()
        assert equal.max() > 1, "there were ties"

    def test_a_row_is_exactly_as_close_as_its_own_distance(self, table: Table) -> None:
        """A bound that `distances` gives is met by its row, whatever the rounding: ties are told from near misses."""
        rng = np.random.default_rng(0)
        table.write(Field.JOINT, EVERY_ROW, random_vectors(rng, ROWS))
        queries = random_vectors(rng, ROWS)
        bound = table.distances(queries, np.arange(ROWS + 1, dtype=OFFSET), EVERY_ROW)
        unfiltered = FilteredCandidates(np.zeros(ROWS + 1, OFFSET), rows_of())
        for candidates in (EVERY_ROW, EVERY_ROW[::2].copy()):
            _, equal = table.count_closer(queries, bound, candidates, unfiltered)
            assert (equal[candidates] == 1).all()

    def test_no_candidates_are_never_closer(self, table: Table) -> None:
        queries, bound = np.zeros((2, DIM), np.float32), np.ones(2, np.float32)
        found = table.count_closer(queries, bound, rows_of(), FilteredCandidates(np.zeros(3, OFFSET), rows_of()))
        assert [counts.tolist() for counts in found] == [[0, 0], [0, 0]]

    @pytest.mark.parametrize("top", [1, 7, ROWS, ROWS + 9])
    def test_the_nearest_rows_best_first(self, table: Table, top: int) -> None:
        """Among equals the smaller row comes first."""
        rng = np.random.default_rng(top)
        values = self.joint(table)
        queries = whole_numbers(rng, 5)
        candidates = np.flatnonzero(rng.random(ROWS) < 0.7).astype(ROW)
        found = table.nearest(queries, candidates, top)
        for number, query in enumerate(queries):
            distances = np.abs(query - values[candidates]).sum(1)
            order = np.lexsort((candidates, distances))[:top]
            assert found.rows[number].tolist() == candidates[order].tolist()
            assert found.distances[number].tolist() == distances[order].tolist()

    def test_the_nearest_of_no_candidates(self, table: Table) -> None:
        found = table.nearest(np.zeros((3, DIM), np.float32), rows_of(), 5)
        assert found.rows.shape == found.distances.shape == (3, 0)
