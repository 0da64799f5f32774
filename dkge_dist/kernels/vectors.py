"""Sums over vectors, by whole vector registers, in an order that is fixed.

Left to itself LLVM vectorises no sum: it may not reorder one. With `fastmath` it may, but each compilation might do so
differently: numba optimises a kernel once when it is compiled and once more when it is read from the cache. So the
registers are written out here: two of 16 numbers, then one of 8, one of 4, then number by number. The results are the
same on processors with shorter registers.

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
    LANES,
    WIDTHS,
    arrays_of,
    called,
    each,
    lanes_of,
    larger,
    load,
    register_type,
    require_vectors,
)

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
