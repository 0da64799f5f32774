"""Sums over vectors and over rows, and what softmaxes are made of: float32, in loops that LLVM turns into registers.

Sums along a vector may be added in any order. Sums of rows, number by number, keep the order of the rows and round
every product: then both vertices of a context of two are equal to the bit, and where slopes of equal rows cancel out
nothing is left, which Adagrad would blow up.

A loop that adds one row after the other to a row in memory reads and writes that row each time. So rows are summed by
strips of `STRIP` numbers, in a scratch on the stack whose loops have a constant length: LLVM keeps it in registers, as
instructions that are written out do (124,000 rows of 128 numbers: 2.0 ms in memory, 1.0 ms either way). Indices are
unsigned: at those with a sign numba looks, which takes another .4 ms.

All arrays are contiguous. Rows may be bfloat16, in arrays of uint16; what is added up in between is float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic, overload

from dkge_dist.kernels.jit import estimate, inlined, subkernel

STRIP = 64
NO_NUMBER = 0x7FC0
"""In bfloat16."""

compiled = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]


@estimate
def dot(x, y):  # type: ignore[no-untyped-def]
    """Σ x y."""
    found = np.float32(0)
    for d in range(x.shape[0]):
        found += x[d] * y[d]
    return found


@estimate
def distance(x, y):  # type: ignore[no-untyped-def]
    """‖x − y‖₁."""
    found = np.float32(0)
    for d in range(x.shape[0]):
        found += abs(x[d] - y[d])
    return found


@estimate
def total(x):  # type: ignore[no-untyped-def]
    """Σ x."""
    found = np.float32(0)
    for d in range(x.shape[0]):
        found += x[d]
    return found


_LEAST = np.float32(-87)
_LOG2_E = np.float32(1.44269504)
# ln 2 in two parts: k times the first one is exact.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_HALF, _ONE, _ZERO = np.float32(0.5), np.float32(1), np.float32(0)
_C0, _C1, _C2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_C3, _C4, _C5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_BIAS, _MANTISSA_BITS = np.int32(127), np.int32(23)


@subkernel
def exponentials(x_N, top):  # type: ignore[no-untyped-def]
    """x[n] = e^(x[n] − top) in place, where no x is larger than `top`; below e^−87 it is 0, and NaN stays NaN.

    Numba calls the C library for every number. This is the usual method, of which LLVM makes registers: x = k ln 2 + r
    with |r| <= ln 2 / 2, the polynomial of the Cephes library for e^r, and k added to the exponent's bits.
    """
    for n in range(x_N.shape[0]):
        z = x_N[n] - top
        # Compared this way round, NaN is not replaced.
        bounded = _LEAST if z < _LEAST else z
        k = np.floor(bounded * _LOG2_E + _HALF)
        r = (bounded - k * _LN2_HIGH) - k * _LN2_LOW
        p = ((((_C0 * r + _C1) * r + _C2) * r + _C3) * r + _C4) * r + _C5
        value = (p * r * r + r) + _ONE
        power = np.int32((np.int32(k) + _BIAS) << _MANTISSA_BITS).view(np.float32)
        x_N[n] = _ZERO if z < _LEAST else value * power


def _widened(x):  # type: ignore[no-untyped-def]
    """A number as float32; uint16 is bfloat16."""
    return (np.uint32(x) << np.uint32(16)).view(np.float32) if isinstance(x, np.uint16) else x


@inlined
def _halved(x):  # type: ignore[no-untyped-def]
    """A number in bfloat16: rounded to the nearest, of two as near to the even one."""
    bits = np.float32(x).view(np.uint32)
    odd = (bits >> np.uint32(16)) & np.uint32(1)
    half = np.uint16((bits + np.uint32(0x7FFF) + odd) >> np.uint32(16))
    return half if x == x else np.uint16(NO_NUMBER)


@overload(_widened)
def _compile_widened(x):  # type: ignore[no-untyped-def]
    if x == types.uint16:
        return lambda x: np.uint32(np.uint32(x) << np.uint32(16)).view(np.float32)
    return lambda x: x


def _as_in(out, x):  # type: ignore[no-untyped-def]
    """A number as `out` holds them: in uint16 as bfloat16."""
    return _halved(x) if out.dtype == np.uint16 else x


@overload(_as_in)
def _compile_as_in(out, x):  # type: ignore[no-untyped-def]
    if out.dtype == types.uint16:
        return lambda out, x: _halved(x)
    return lambda out, x: x


@intrinsic
def _on_stack(typing):  # type: ignore[no-untyped-def]
    """`STRIP` numbers on the stack, or in registers if all loops over them have a constant length."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        numbers = cgutils.alloca_once(builder, ir.ArrayType(ir.FloatType(), STRIP))
        return builder.bitcast(numbers, ir.FloatType().as_pointer())

    return types.CPointer(types.float32)(), generate


scratch: Any = _on_stack if compiled else lambda: np.empty(STRIP, np.float32)


@inlined
def _row_at(entry, index, via, offset):  # type: ignore[no-untyped-def]
    row = np.uint64(entry)
    if index is not None:
        row = np.uint64(index[row])
    if via is not None:
        row = np.uint64(via[row])
    return np.uint64(row - np.uint64(offset))


@inlined
def _weight_at(entry, weight):  # type: ignore[no-untyped-def]
    return _ONE if weight is None else weight[np.uint64(entry)]


def _sum_of_strip(constant: int) -> Callable[..., Any]:
    """Of so many numbers, or of what is left of the rows."""

    @inlined
    def add(out_D, rows_RD, index, via, weight, first, last, offset, relu, at):  # type: ignore[no-untyped-def]
        width = constant or out_D.shape[0] - at
        sums = scratch()
        for d in range(width):
            sums[d] = _ZERO
        for entry in range(first, last):
            row, scale = _row_at(entry, index, via, offset), _weight_at(entry, weight)
            for d in range(width):
                sums[d] += scale * _widened(rows_RD[row, np.uint64(at + d)])
        for d in range(width):
            # Compared this way round, NaN shows.
            out_D[np.uint64(at + d)] = _as_in(out_D, _ZERO if relu and sums[d] < _ZERO else sums[d])

    return add


_sum_strip, _sum_rest = _sum_of_strip(STRIP), _sum_of_strip(0)


@inlined
def sum_rows(out_D, rows_RD, index, via, weight, first, last, offset, relu):  # type: ignore[no-untyped-def]
    """out = Σ weight[e] · rows[via[index[e]] − offset] over the entries e in first:last, with `relu` through a ReLU.

    Index, via and weight may be None.
    """
    whole = out_D.shape[0] // STRIP * STRIP
    for at in range(0, whole, STRIP):
        _sum_strip(out_D, rows_RD, index, via, weight, first, last, offset, relu, at)
    if whole < out_D.shape[0]:
        _sum_rest(out_D, rows_RD, index, via, weight, first, last, offset, relu, whole)


def _slopes_of_strip(constant: int) -> Callable[..., Any]:
    @inlined
    def add(query_D, candidate_ND, near, weight, count, by_query_D, by_candidate_ND, at):  # type: ignore[no-untyped-def]
        width = constant or query_D.shape[0] - at
        query, sums, slope = scratch(), scratch(), scratch()
        for d in range(width):
            query[d], sums[d] = query_D[np.uint64(at + d)], by_query_D[np.uint64(at + d)]
        for i in range(count):
            n, away = np.uint64(near[np.uint64(i)]), weight[np.uint64(i)]
            for d in range(width):
                slope[d] = away if query[d] > candidate_ND[n, np.uint64(at + d)] else -away
            for d in range(width):
                sums[d] -= slope[d]
            for d in range(width):
                by_candidate_ND[n, np.uint64(at + d)] += slope[d]
        for d in range(width):
            by_query_D[np.uint64(at + d)] = sums[d]

    return add


_slopes_strip, _slopes_rest = _slopes_of_strip(STRIP), _slopes_of_strip(0)


@inlined
def add_slopes(query_D, candidate_ND, near, weight, count, by_query_D, by_candidate_ND):  # type: ignore[no-untyped-def]
    """Add the gradients of −Σ weight · ‖query − candidate‖₁ over the first `count` of the candidates `near`."""
    whole = query_D.shape[0] // STRIP * STRIP
    for at in range(0, whole, STRIP):
        _slopes_strip(query_D, candidate_ND, near, weight, count, by_query_D, by_candidate_ND, at)
    if whole < query_D.shape[0]:
        _slopes_rest(query_D, candidate_ND, near, weight, count, by_query_D, by_candidate_ND, whole)


def _attention_slopes_of_strip(constant: int) -> Callable[..., Any]:
    @inlined
    def back(hidden_nD, count, begin, by_sum, by_score, grad_D, query_D, by_query_D, at):  # type: ignore[no-untyped-def]
        width = constant or query_D.shape[0] - at
        grad, query, sums = scratch(), scratch(), scratch()
        for d in range(width):
            grad[d], query[d], sums[d] = grad_D[np.uint64(at + d)], query_D[np.uint64(at + d)], _ZERO
        for i in range(count):
            share, slope = by_sum[np.uint64(begin + i)], by_score[np.uint64(i)]
            for d in range(width):
                here = hidden_nD[np.uint64(i), np.uint64(at + d)]
                sums[d] += slope * here
                hidden_nD[np.uint64(i), np.uint64(at + d)] = share * grad[d] + slope * query[d] if here > 0 else _ZERO
        for d in range(width):
            by_query_D[np.uint64(at + d)] = sums[d]

    return back


_attention_slopes_strip, _attention_slopes_rest = _attention_slopes_of_strip(STRIP), _attention_slopes_of_strip(0)


@inlined
def slopes_of_attention(hidden_nD, count, begin, by_sum, by_score, grad_D, query_D, by_query_D):  # type: ignore[no-untyped-def]
    """Of the first `count` rows of `hidden`: by query = Σ by score · hidden; then each row becomes its own gradient.

    That is by sum · grad + by score · query where it was over 0. `begin` is where `by sum` begins.
    """
    whole = query_D.shape[0] // STRIP * STRIP
    for at in range(0, whole, STRIP):
        _attention_slopes_strip(hidden_nD, count, begin, by_sum, by_score, grad_D, query_D, by_query_D, at)
    if whole < query_D.shape[0]:
        _attention_slopes_rest(hidden_nD, count, begin, by_sum, by_score, grad_D, query_D, by_query_D, whole)
