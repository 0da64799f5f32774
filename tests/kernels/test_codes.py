"""Counts and lists by 8-bit codes, against the exact scan and against plain loops; and the sums that they stand on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.kernels import byte_distances
from dkge_dist.kernels import codes as module
from dkge_dist.kernels.byte_distances import rows_within, rows_within_by
from dkge_dist.kernels.codes import (
    Grid,
    checks_of,
    coded,
    count_closer_by_codes,
    count_closer_of_many,
    encode,
    grid_of,
    groups_of,
    list_near,
)
from dkge_dist.kernels.hashing import digests
from dkge_dist.kernels.jit import as_readonly, kernel
from dkge_dist.kernels.ranks import TILE, count_closer, distances_between, distances_to_all
from dkge_dist.types import ROW
from tests import reference
from tests.kernels.test_ranks import filtered_of

seeds = st.integers(0, 2**32 - 1)
KINDS = ("normal", "coarse", "equal", "constant", "outliers", "all_huge", "tiny", "denormal", "skewed")


def table_of(kind: str, rows: int, dim: int, rng: np.random.Generator) -> np.ndarray:
    """Vectors that are hard on codes in different ways."""
    values = rng.normal(size=(rows, dim))
    match kind:
        case "coarse":
            values = rng.integers(-1, 2, (rows, dim)).astype(float)
        case "equal":
            values = np.repeat(values[:1], rows, 0)
        case "constant":
            values[:, rng.integers(dim)] = 3
        case "outliers":
            values[rng.random((rows, dim)) < 0.02] *= 1e30
        case "all_huge":
            values *= 3e37
        case "tiny":
            values = 1 + 1e-7 * values
        case "denormal":
            values *= 1e-41
        case "skewed":
            values = np.exp(3 * values)
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def queries_of(table: np.ndarray, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Queries near rows or far away from all, with bounds of true rows, a little beside them, or anything."""
    rows = table.shape[0]
    with np.errstate(over="ignore", invalid="ignore"):
        shift = table[rng.integers(0, rows, count)] - table[rng.integers(0, rows, count)]
        query = table[rng.integers(0, rows, count)] + shift * (rng.random((count, 1)) < 0.5)
        query[rng.random(count) < 0.1] *= 100
        bound = distances_between(query, table[rng.integers(0, rows, count)])
        bound = np.where(rng.random(count) < 0.2, np.nextafter(bound, np.float32(rng.choice([-np.inf, np.inf]))), bound)
    special = np.array([0.0, -1.0, np.inf, np.finfo(np.float32).max], np.float32)
    return query, np.where(rng.random(count) < 0.15, rng.choice(special, count), bound).astype(np.float32)


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 20), st.integers(1, 70), st.integers(1, 200), seeds, st.data())
def test_counts_are_those_of_the_exact_scan(
    kind: str, queries: int, dim: int, rows: int, seed: int, data: st.DataObject
) -> None:
    """Ties, outliers that a grid leaves out, vectors that are all the same: to the last candidate."""
    rng = np.random.default_rng(seed)
    table = table_of(kind, rows, dim, rng)
    query, bound = queries_of(table, queries, rng)
    candidates = np.flatnonzero(rng.random(rows) < data.draw(st.sampled_from([0.1, 0.7, 1]))).astype(ROW)
    filtered = filtered_of([sorted(set(rng.integers(0, rows, rng.integers(0, 40)).tolist())) for _ in range(queries)])
    grid = data.draw(st.sampled_from([grid_of(table), Grid(0.0, 1.0), Grid(-1.0, 1e-3)]))
    with pytest.MonkeyPatch.context() as patch:
        if not byte_distances.compiled:
            patch.setattr(module, "QUERIES", 3)
        found = count_closer_by_codes(coded(query, bound, grid), table, encode(table, grid), candidates, filtered)
        patch.setattr(module, "PAYS", data.draw(st.sampled_from([0, 1 << 40])))
        of_many = count_closer_of_many(query, bound, table, candidates, filtered)
    expected = count_closer(query, bound, table, candidates, filtered)
    assert [some.tolist() for some in found] == [some.tolist() for some in expected]
    assert [some.tolist() for some in of_many] == [some.tolist() for some in expected]


@settings(max_examples=100, deadline=None)
@given(st.sampled_from(KINDS), st.integers(1, 6), st.integers(1, 70), st.integers(1, 300), seeds)
def test_no_candidate_within_the_bound_is_missing(kind: str, queries: int, dim: int, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = table_of(kind, rows, dim, rng)
    query, bound = queries_of(table, queries, rng)
    candidates = np.flatnonzero(rng.random(rows) < 0.8).astype(ROW)
    grid = grid_of(table)
    first = int(rng.integers(0, -(-rows // TILE)))
    lists = list_near(coded(query, bound, grid), encode(table, grid)[first:], first, candidates)
    here = candidates[candidates >= first * TILE]
    distances = distances_to_all(query, table, here)
    for q in range(queries):
        found = np.concatenate([np.empty(0, ROW), *lists[q]])
        assert np.array_equal(found, np.sort(found)) and np.isin(found, here).all()
        assert np.isin(here[distances[q] <= bound[q]], found).all()


def test_codes_leave_few_rows_over() -> None:
    """Else everything would be right, and as slow as without codes."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(20_000, 50)).astype(np.float32)
    table[::1000] = 1e30
    query = rng.normal(size=(4, 50)).astype(np.float32)
    distances = distances_to_all(query, table, np.arange(20_000, dtype=ROW))
    bound = np.partition(distances, 20, axis=1)[:, 20]
    grid = grid_of(table)
    lists = list_near(coded(query, bound, grid), encode(table, grid), 0, np.arange(20_000, dtype=ROW))
    assert max(sum(len(some) for some in lists[q]) for q in range(4)) < 500


@pytest.mark.parametrize("dim", [1, 7, 8, 9, 63, 64, 65, 100])
def test_codes_are_the_nearest_on_the_grid(dim: int) -> None:
    rng = np.random.default_rng(dim)
    table = rng.normal(size=(TILE + 5, dim)).astype(np.float32)
    table[3, 0], table[4, 0] = 1e9, -1e38
    grid = grid_of(table)
    tiles = encode(table, grid)
    assert tiles.shape == (2, groups_of(dim) + 1, TILE)
    place = (table.astype(np.float64) - grid.low) / grid.scale
    expected = np.rint(np.clip(place, 0, 255))
    for row in range(table.shape[0]):
        words = np.ascontiguousarray(tiles[row // TILE, :, row % TILE])
        codes = words[:-1].copy().view(np.uint8)
        assert codes[:dim].tolist() == expected[row].tolist()
        assert not codes[dim:].any()
        error, true = int(words[-1]) & 0xFFFFFFFF, np.abs(place[row] - expected[row]).sum()
        assert error == 0xFFFFFFFF if true > 2**32 else true <= error <= true * 1.001 + 1.1
    start = np.arange(table.shape[0]) * 4 * dim
    whole = digests(table.reshape(-1).view(np.uint8), start, start + 4 * dim)
    assert np.array_equal(checks_of(tiles, np.arange(table.shape[0])), whole & np.uint64(0xFFFFFFFF))
    assert not tiles[1, :, 5:].any(), "what is no row is zero"


def test_the_grid_of_strange_samples() -> None:
    assert grid_of(np.full((5, 3), 7, np.float32)) == Grid(7.0, 1.0)
    assert grid_of(np.empty((0, 3), np.float32)) == Grid(0.0, 1.0)
    assert grid_of(np.array([[np.nan, np.inf, 1.0]], np.float32)) == Grid(1.0, 1.0)


def test_a_row_or_query_that_is_not_finite_is_counted_as_ever() -> None:
    table = np.random.default_rng(0).normal(size=(70, 5)).astype(np.float32)
    grid = grid_of(table)
    table[3, 2], table[4, 0], table[5, 1] = np.nan, np.inf, -np.inf
    query = np.zeros((4, 5), np.float32)
    query[1, 0], query[2, 0] = np.nan, np.inf
    bound = np.array([3.0, 3.0, np.inf, np.nan], np.float32)
    every, none = np.arange(70, dtype=ROW), filtered_of([[]] * 4)
    found = count_closer_by_codes(coded(query, bound, grid), table, encode(table, grid), every, none)
    expected = count_closer(query, bound, table, every, none)
    assert [some.tolist() for some in found] == [some.tolist() for some in expected]


def arithmetic(context: Any) -> Any:
    return byte_distances._sums_by_arithmetic


@pytest.mark.skipif(not byte_distances.compiled, reason="nothing is compiled")
@pytest.mark.parametrize("within", ["this processor", "any processor"])
def test_sums_of_bytes(within: str) -> None:
    """With the instruction (where there is one) and without; the extremes are there."""
    chosen = rows_within if within == "this processor" else rows_within_by(arithmetic)

    @kernel
    def masks(tiles, codes, limit, sure, out):  # type: ignore[no-untyped-def]
        for t in range(tiles.shape[0]):
            for q in range(codes.shape[0]):
                out[t, q, 0], out[t, q, 1] = chosen(tiles, t, codes, q, limit[q], sure[q])

    rng = np.random.default_rng(0)
    for groups in (1, 3, 13):
        tiles = rng.integers(0, 2**64, (3, groups + 1, TILE), np.uint64)
        tiles[:, -1] &= np.uint64(0xFFFFFFFF00000FFF)
        tiles[0, :-1, 0], tiles[0, :-1, 1] = 0, 2**64 - 1
        codes = rng.integers(0, 2**64, (6, groups), np.uint64)
        codes[0], codes[1] = 0, 2**64 - 1
        limit = rng.integers(-500, 8 * groups * 130, 6)
        sure = limit + 600
        out = np.empty((3, 6, 2), np.uint64)
        masks(as_readonly(tiles), as_readonly(codes), as_readonly(limit), as_readonly(sure), out)
        for t in range(3):
            for q in range(6):
                near, surely = reference.rows_within(tiles[t], codes[q], int(limit[q]), int(sure[q]))
                assert out[t, q, 0] == near
                assert out[t, q, 1] == (surely if near else 0)


def test_the_instruction_is_what_is_compiled() -> None:
    """A row of 64 numbers an instruction: without it everything is right, and three times slower."""
    if not byte_distances.compiled or "+avx512bw" not in str(module._list_near.targetctx.codegen()._tm_features):  # type: ignore[attr-defined]
        pytest.skip("this processor has no such instruction, or nothing is compiled")
    from numba import njit

    @njit
    def once(tiles, codes):  # type: ignore[no-untyped-def]
        return rows_within(tiles, 0, codes, 0, 1, 1)

    once(np.zeros((1, 2, TILE), np.uint64), np.zeros((1, 1), np.uint64))
    (assembly,) = once.inspect_asm().values()
    assert any("vpsadbw" in line and "zmm" in line for line in assembly.splitlines())
