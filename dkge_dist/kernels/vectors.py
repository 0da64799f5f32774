"""Sums over vectors and additions to them, by whole vector registers, in an order that is fixed.

Left to itself LLVM vectorises no sum: it may not reorder one. With `fastmath` it may, but each compilation might do so
differently: numba optimises a kernel once when it is compiled and once more when it is read from the cache. And before
each loop that adds one row to another it asks whether the two overlap. So the registers are written out here: two of 16
numbers, then one of 8, one of 4, then number by number. The results are the same on processors with shorter registers.

All arrays are contiguous, float32, and of the length of the first one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dkge_dist.kernels.registers import (
    I32,
    I64,
    LANES,
    WIDTHS,
    arrays_of,
    called,
    each,
    in_all_lanes,
    lanes_of,
    larger,
    load,
    register_type,
    require_vectors,
    store,
)
from dkge_dist.types import Array

GROUP = 4
"""Queries that `add_slopes` takes at once."""

Term = Callable[[Any, list[Any], Any], Any]
"""(builder, what was loaded of each array, sum so far) -> the sum with this part; for registers and single numbers."""


def _halves(builder: Any, value: Any) -> tuple[Any, Any]:
    lanes = lanes_of(value)
    if lanes == 2:
        return builder.extract_element(value, I32(0)), builder.extract_element(value, I32(1))
    half = lanes // 2
    masks = (ir.Constant(ir.VectorType(I32, half), list(range(first, first + half))) for first in (0, half))
    low, high = (builder.shuffle_vector(value, value, mask) for mask in masks)
    return low, high


def _reduction(term: Term, join: Callable[[Any, Any, Any], Any], start: float) -> Callable[..., Any]:
    """Code that reduces arrays to one number: registers by `term`, what they end with by `join`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data, count = arrays_of(context, builder, signature.args, values)
        kept = [(LANES, 0), (LANES, 1), *((lanes, 0) for lanes in WIDTHS[1:])]
        sums = {
            key: cgutils.alloca_once_value(
                builder, ir.Constant(register_type(key[0]), [start] * key[0] if key[0] > 1 else start)
            )
            for key in kept
        }

        def body(at: Any, lanes: int, turn: int) -> None:
            total = sums[lanes, turn]
            loaded = [load(builder, pointer, at, lanes) for pointer in data]
            builder.store(term(builder, loaded, builder.load(total)), total)

        each(builder, count, body)
        value = join(builder, builder.load(sums[LANES, 0]), builder.load(sums[LANES, 1]))
        for lanes in WIDTHS[1:]:
            while lanes_of(value) > lanes:
                value = join(builder, *_halves(builder, value))
            value = join(builder, value, builder.load(sums[lanes, 0]))
        return value

    return generate


def _add(builder: Any, one: Any, other: Any) -> Any:
    return builder.fadd(one, other)


def _absolute(builder: Any, value: Any) -> Any:
    return called(builder, "fabs", [value])


def _dot_term(builder: Any, loaded: list[Any], total: Any) -> Any:
    return called(builder, "fma", [*loaded, total])


def _distance_term(builder: Any, loaded: list[Any], total: Any) -> Any:
    return builder.fadd(total, _absolute(builder, builder.fsub(*loaded)))


def _translated_term(builder: Any, loaded: list[Any], total: Any) -> Any:
    head, relation, tail = loaded
    return builder.fadd(total, _absolute(builder, builder.fsub(builder.fadd(head, relation), tail)))


def _total_term(builder: Any, loaded: list[Any], total: Any) -> Any:
    return builder.fadd(total, loaded[0])


def _largest_term(builder: Any, loaded: list[Any], total: Any) -> Any:
    return larger(builder, total, loaded[0])


def _reduced(generate: Callable[..., Any], arrays: int) -> Any:
    """An intrinsic of so many vectors that gives a number."""

    def typed(*kinds: Any) -> Any:
        require_vectors(kinds)
        return types.float32(*kinds), generate

    if arrays == 1:
        return intrinsic(lambda typing, x: typed(x))
    if arrays == 2:
        return intrinsic(lambda typing, x, y: typed(x, y))
    return intrinsic(lambda typing, x, y, z: typed(x, y, z))


@intrinsic
def _add_scaled_vectors(typing: Any, out: Any, weight: Any, x: Any) -> Any:
    require_vectors((out, x))

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        (to, of), count = arrays_of(context, builder, (signature.args[0], signature.args[2]), (values[0], values[2]))
        scale = {lanes: in_all_lanes(builder, values[1], lanes) for lanes in WIDTHS}

        def body(at: Any, lanes: int, turn: int) -> None:
            loaded = [scale[lanes], load(builder, of, at, lanes), load(builder, to, at, lanes)]
            store(builder, called(builder, "fma", loaded), to, at)

        each(builder, count, body)
        return context.get_dummy_value()

    return types.void(out, types.float32, x), generate


@intrinsic
def _add_slope_vectors(typing: Any, query: Any, candidate: Any, weight: Any, by_query: Any, by_candidate: Any) -> Any:
    require_vectors((query, candidate, by_query, by_candidate))

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        q, c, weight, by_q, by_c = values
        kinds = [signature.args[number] for number in (0, 1, 3, 4)]
        (q, c, by_q, by_c), count = arrays_of(context, builder, kinds, (q, c, by_q, by_c))
        away = {lanes: in_all_lanes(builder, weight, lanes) for lanes in WIDTHS}
        toward = {lanes: builder.fneg(value) for lanes, value in away.items()}

        def body(at: Any, lanes: int, turn: int) -> None:
            is_more = builder.fcmp_ordered(">", load(builder, q, at, lanes), load(builder, c, at, lanes))
            slope = builder.select(is_more, away[lanes], toward[lanes])
            store(builder, builder.fsub(load(builder, by_q, at, lanes), slope), by_q, at)
            store(builder, builder.fadd(load(builder, by_c, at, lanes), slope), by_c, at)

        each(builder, count, body)
        return context.get_dummy_value()

    return types.void(query, candidate, types.float32, by_query, by_candidate), generate


@intrinsic
def _add_slopes_vectors(
    typing: Any, queries: Any, candidate: Any, weights: Any, number: Any, by_queries: Any, by_candidate: Any
) -> Any:
    require_vectors((candidate, by_candidate))

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        q, c, w, number, by_q, by_c = values
        kinds = [signature.args[place] for place in (1, 0, 2, 4, 5)]
        (c, q, w, by_q, by_c), count = arrays_of(context, builder, kinds, (c, q, w, by_q, by_c))
        table = context.make_array(signature.args[2])(context, builder, values[2])
        across = builder.extract_value(table.shape, 1)
        weight = [
            builder.load(builder.gep(w, [builder.add(builder.mul(I64(k), across), number)])) for k in range(GROUP)
        ]
        away = [{lanes: in_all_lanes(builder, one, lanes) for lanes in WIDTHS} for one in weight]
        toward = [{lanes: builder.fneg(value) for lanes, value in one.items()} for one in away]

        def body(at: Any, lanes: int, turn: int) -> None:
            here, total = load(builder, c, at, lanes), load(builder, by_c, at, lanes)
            for k in range(GROUP):
                place = builder.add(builder.mul(I64(k), count), at)
                is_more = builder.fcmp_ordered(">", load(builder, q, place, lanes), here)
                slope = builder.select(is_more, away[k][lanes], toward[k][lanes])
                store(builder, builder.fsub(load(builder, by_q, place, lanes), slope), by_q, place)
                total = builder.fadd(total, slope)
            store(builder, total, by_c, at)

        each(builder, count, body)
        return context.get_dummy_value()

    numbers = types.int64
    return types.void(queries, candidate, weights, numbers, by_queries, by_candidate), generate


def _add_scaled(out: Array, weight: float, x: Array) -> None:
    out += np.float32(weight) * x


def _add_slope(query: Array, candidate: Array, weight: float, by_query: Array, by_candidate: Array) -> None:
    slope = np.where(query > candidate, np.float32(weight), -np.float32(weight))
    by_query -= slope
    by_candidate += slope


def _add_slopes(
    queries: Array, candidate: Array, weights: Array, number: int, by_queries: Array, by_candidate: Array
) -> None:
    for k in range(GROUP):
        _add_slope(queries[k], candidate, weights[k, number], by_queries[k], by_candidate)


compiled = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]

dot: Any = _reduced(_reduction(_dot_term, _add, 0.0), 2) if compiled else (lambda x, y: np.float32((x * y).sum()))
"""(x, y): Σ x y."""

distance: Any = _reduced(_reduction(_distance_term, _add, 0.0), 2) if compiled else (lambda x, y: np.abs(x - y).sum())
"""(x, y): ‖x − y‖₁."""

translated_distance: Any = (
    _reduced(_reduction(_translated_term, _add, 0.0), 3) if compiled else (lambda h, r, t: np.abs(h + r - t).sum())
)
"""(head, relation, tail): ‖head + relation − tail‖₁."""

total: Any = _reduced(_reduction(_total_term, _add, 0.0), 1) if compiled else (lambda x: x.sum())
"""(x): Σ x."""

largest: Any = (
    _reduced(_reduction(_largest_term, larger, -np.inf), 1) if compiled else (lambda x: np.max(x, initial=-np.inf))
)
"""(x): the maximum; −∞ of an empty vector."""

add_scaled: Any = _add_scaled_vectors if compiled else _add_scaled
"""(out, weight, x): out += weight · x."""

add_slope: Any = _add_slope_vectors if compiled else _add_slope
"""(query, candidate, weight, by query, by candidate): the gradients of −weight · ‖query − candidate‖₁, added."""

add_slopes: Any = _add_slopes_vectors if compiled else _add_slopes
"""(`GROUP` queries, candidate, weights of queries by candidates, number of the candidate, by queries, by candidate):
`add_slope` of all queries, one after the other; the candidate is read and written once for them."""
