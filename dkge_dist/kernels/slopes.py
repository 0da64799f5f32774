"""Gradients of weighted L1 distances between queries and candidates: signs of differences, added up in registers.

Of a strip of the dimensions the queries and their gradients stay in registers, while one candidate after the other is
read and its gradient written. Whatever is added to a number is added in the order of the candidates or of the queries,
as if there were no strips. Where nothing is compiled, twins in numpy do the same.

All arrays are contiguous: numbers are float32, and those of candidates int32.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from dkge_dist.kernels.registers import I64, arrays_of, each_strip, load, number_at, require, require_vectors, store
from dkge_dist.types import Array

GROUP = 4
"""Queries that `slopes_of_group` takes at once."""


class _Queries:
    """A strip of some queries and of their gradients, in registers."""

    def __init__(self, builder: Any, query: Any, by_query: Any, rows: list[Any], places: list[Any], lanes: int) -> None:
        self.builder, self.lanes, self.by_query = builder, lanes, by_query
        self.at = [[builder.add(row, place) for place in places] for row in rows]
        self.query = [[load(builder, query, at, lanes) for at in row] for row in self.at]
        self.sums = [
            [cgutils.alloca_once_value(builder, load(builder, by_query, at, lanes)) for at in row] for row in self.at
        ]

    def go_back(self, candidate: Any, by_candidate: Any, at: list[Any], weights: list[Any]) -> None:
        """Add the slopes of one candidate, whose registers are `at`, by a weight a query."""
        builder = self.builder
        toward = [builder.fneg(weight) for weight in weights]
        for number, place in enumerate(at):
            here, by_here = (load(builder, data, place, self.lanes) for data in (candidate, by_candidate))
            for k, away in enumerate(weights):
                is_more = builder.fcmp_ordered(">", self.query[k][number], here)
                slope = builder.select(is_more, away, toward[k])
                total = self.sums[k][number]
                builder.store(builder.fsub(builder.load(total), slope), total)
                by_here = builder.fadd(by_here, slope)
            store(builder, by_here, by_candidate, place)

    def write(self) -> None:
        """Put the gradients of the queries where they belong."""
        for row, sums in zip(self.at, self.sums, strict=True):
            for at, total in zip(row, sums, strict=True):
                store(self.builder, self.builder.load(total), self.by_query, at)


@intrinsic
def _slopes_of_one(
    typing: Any, query: Any, candidate: Any, near: Any, weight: Any, count: Any, by_query: Any, by_candidate: Any
) -> Any:
    require_vectors((query, weight, by_query))
    for rows in (candidate, by_candidate):
        require(rows, 2, types.float32)
    require(near, 1, types.int32)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        kinds = [*signature.args[:4], *signature.args[5:]]
        opened, dim = arrays_of(context, builder, kinds, [*values[:4], *values[5:]])
        query, candidate, near, weight, by_query, by_candidate = opened

        def body(places: list[Any], lanes: int) -> None:
            queries = _Queries(builder, query, by_query, [I64(0)], places, lanes)
            with cgutils.for_range_slice(builder, I64(0), values[4], I64(1)) as (i, _):
                row = builder.mul(builder.sext(builder.load(builder.gep(near, [i])), I64), dim)
                at = [builder.add(row, place) for place in places]
                queries.go_back(candidate, by_candidate, at, [number_at(builder, weight, i, lanes)])
            queries.write()

        each_strip(builder, dim, body)
        return context.get_dummy_value()

    return types.void(query, candidate, near, weight, types.int64, by_query, by_candidate), generate


@intrinsic
def _slopes_of_group(typing: Any, queries: Any, candidate: Any, weight: Any, by_queries: Any, by_candidate: Any) -> Any:
    arguments = (queries, candidate, weight, by_queries, by_candidate)
    for rows in arguments:
        require(rows, 2, types.float32)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        (query, candidate, weight, by_query, by_candidate), _ = arrays_of(context, builder, signature.args, values)
        shape = context.make_array(signature.args[1])(context, builder, values[1]).shape
        count, dim = (builder.extract_value(shape, axis) for axis in range(2))
        rows = [builder.mul(I64(k), dim) for k in range(GROUP)]

        def body(places: list[Any], lanes: int) -> None:
            strip = _Queries(builder, query, by_query, rows, places, lanes)
            with cgutils.for_range_slice(builder, I64(0), count, I64(1)) as (n, _):
                row = builder.mul(n, dim)
                own = [builder.add(builder.mul(I64(k), count), n) for k in range(GROUP)]
                weights = [number_at(builder, weight, at, lanes) for at in own]
                strip.go_back(candidate, by_candidate, [builder.add(row, place) for place in places], weights)
            strip.write()

        each_strip(builder, dim, body, widest=2)
        return context.get_dummy_value()

    return types.void(*arguments), generate


def _plain_slopes_of_one(
    query: Array, candidate: Array, near: Array, weight: Array, count: int, by_query: Array, by_candidate: Array
) -> None:
    for n, one in zip(near[:count], weight[:count], strict=True):
        slope = np.where(query > candidate[n], one, -one)
        by_query -= slope
        by_candidate[n] += slope


def _plain_slopes_of_group(
    queries: Array, candidate: Array, weight: Array, by_queries: Array, by_candidate: Array
) -> None:
    every = np.arange(candidate.shape[0])
    for k in range(GROUP):
        _plain_slopes_of_one(queries[k], candidate, every, weight[k], every.shape[0], by_queries[k], by_candidate)


compiled = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]

slopes_of_one: Any = _slopes_of_one if compiled else _plain_slopes_of_one
"""(query, candidates, near, weight, count, by query, by candidates): the gradients of −Σ weight · ‖query − candidate‖₁
over the first `count` of those `near`, added."""

slopes_of_group: Any = _slopes_of_group if compiled else _plain_slopes_of_group
"""(`GROUP` queries, candidates, weights of queries by candidates, by queries, by candidates): the same for all of them
and every candidate."""
