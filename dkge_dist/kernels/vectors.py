"""Sums over vectors and additions to them, by whole vector registers, in an order that is fixed.

Left to itself LLVM vectorises no sum: it may not reorder one. With `fastmath` it may, but each compilation might do so
differently: numba optimises a kernel once when it is compiled and once more when it is read from the cache. And before
each loop that adds one row to another it asks whether the two overlap. So the registers are written out here: two of 16
numbers, then one of 8, one of 4, then number by number. The results are the same on processors with shorter registers.

All arrays are contiguous, float32, and of the length of the first one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError
from numba.extending import intrinsic

from dkge_dist.types import Array

LANES = 16
WIDTHS = (LANES, 8, 4, 1)
"""Numbers of the registers of a loop after the other; the first one takes two at a time."""

GROUP = 4
"""Queries that `add_slopes` takes at once."""

_F32, _I1, _I32, _I64 = ir.FloatType(), ir.IntType(1), ir.IntType(32), ir.IntType(64)

Term = Callable[[Any, list[Any], Any], Any]
"""(builder, what was loaded of each array, sum so far) -> the sum with this part; for registers and single numbers."""


def _type(lanes: int) -> Any:
    return ir.VectorType(_F32, lanes) if lanes > 1 else _F32


def _same(builder: Any, value: Any, lanes: int) -> Any:
    """A register with `value` in all lanes."""
    if lanes == 1:
        return value
    one = builder.insert_element(ir.Constant(_type(lanes), ir.Undefined), value, _I32(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, lanes), [0] * lanes))


def _lanes_of(value: Any) -> int:
    return value.type.count if isinstance(value.type, ir.VectorType) else 1


def _called(builder: Any, name: str, values: Sequence[Any]) -> Any:
    """An operation of LLVM on registers or numbers, of the type of its operands."""
    kind = values[0].type
    lanes = _lanes_of(values[0])
    suffix = f"v{lanes}f32" if lanes > 1 else "f32"
    function = ir.FunctionType(kind, [kind] * len(values))
    return builder.call(cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}.{suffix}"), values)


def _load(builder: Any, data: Any, at: Any, lanes: int) -> Any:
    return builder.load(_place(builder, data, at, lanes), align=4)


def _store(builder: Any, value: Any, data: Any, at: Any) -> None:
    builder.store(value, _place(builder, data, at, _lanes_of(value)), align=4)


def _place(builder: Any, data: Any, at: Any, lanes: int) -> Any:
    here = builder.gep(data, [at])
    return builder.bitcast(here, _type(lanes).as_pointer()) if lanes > 1 else here


def _steps(builder: Any, count: Any) -> list[tuple[Any, Any, int]]:
    """(begin, end, numbers of a register) of the loops over `count` numbers."""
    ends = [builder.and_(count, _I64(-width)) for width in (2 * LANES, *WIDTHS[1:])]
    return list(zip([_I64(0), *ends], ends, WIDTHS, strict=False))


def _each(builder: Any, count: Any, body: Callable[[Any, int, int], None]) -> None:
    """`body(at, lanes, turn)` for registers that together hold `count` numbers; the first loop has two turns."""
    for begin, end, lanes in _steps(builder, count):
        turns = 2 if lanes == LANES else 1
        with cgutils.for_range_slice(builder, begin, end, _I64(turns * lanes)) as (at, _):
            for turn in range(turns):
                body(builder.add(at, _I64(turn * lanes)), lanes, turn)


def _arrays(context: Any, builder: Any, kinds: Sequence[Any], values: Sequence[Any]) -> tuple[list[Any], Any]:
    """(pointers to the numbers of some arrays, how many the first one has)."""
    opened = [context.make_array(kind)(context, builder, value) for kind, value in zip(kinds, values, strict=True)]
    return [array.data for array in opened], builder.extract_value(opened[0].shape, 0)


def _require_vectors(arrays: Sequence[Any]) -> None:
    for kind in arrays:
        if not (
            isinstance(kind, types.Array) and kind.ndim == 1 and kind.layout == "C" and kind.dtype == types.float32
        ):
            raise TypingError(f"expected a contiguous vector of float32, not {kind}")


def _halves(builder: Any, value: Any) -> tuple[Any, Any]:
    lanes = _lanes_of(value)
    if lanes == 2:
        return builder.extract_element(value, _I32(0)), builder.extract_element(value, _I32(1))
    half = lanes // 2
    masks = (ir.Constant(ir.VectorType(_I32, half), list(range(first, first + half))) for first in (0, half))
    low, high = (builder.shuffle_vector(value, value, mask) for mask in masks)
    return low, high


def _reduction(term: Term, join: Callable[[Any, Any, Any], Any], start: float) -> Callable[..., Any]:
    """Code that reduces arrays to one number: registers by `term`, what they end with by `join`."""

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        data, count = _arrays(context, builder, signature.args, values)
        kept = [(LANES, 0), (LANES, 1), *((lanes, 0) for lanes in WIDTHS[1:])]
        sums = {
            key: cgutils.alloca_once_value(
                builder, ir.Constant(_type(key[0]), [start] * key[0] if key[0] > 1 else start)
            )
            for key in kept
        }

        def body(at: Any, lanes: int, turn: int) -> None:
            total = sums[lanes, turn]
            loaded = [_load(builder, pointer, at, lanes) for pointer in data]
            builder.store(term(builder, loaded, builder.load(total)), total)

        _each(builder, count, body)
        value = join(builder, builder.load(sums[LANES, 0]), builder.load(sums[LANES, 1]))
        for lanes in WIDTHS[1:]:
            while _lanes_of(value) > lanes:
                value = join(builder, *_halves(builder, value))
            value = join(builder, value, builder.load(sums[lanes, 0]))
        return value

    return generate


def _add(builder: Any, one: Any, other: Any) -> Any:
    return builder.fadd(one, other)


def _absolute(builder: Any, value: Any) -> Any:
    return _called(builder, "fabs", [value])


def _dot_term(builder: Any, loaded: list[Any], total: Any) -> Any:
    return _called(builder, "fma", [*loaded, total])


def _distance_term(builder: Any, loaded: list[Any], total: Any) -> Any:
    return builder.fadd(total, _absolute(builder, builder.fsub(*loaded)))


def _translated_term(builder: Any, loaded: list[Any], total: Any) -> Any:
    head, relation, tail = loaded
    return builder.fadd(total, _absolute(builder, builder.fsub(builder.fadd(head, relation), tail)))


def _total_term(builder: Any, loaded: list[Any], total: Any) -> Any:
    return builder.fadd(total, loaded[0])


def _larger(builder: Any, one: Any, other: Any) -> Any:
    return builder.select(builder.fcmp_ordered(">", other, one), other, one)


def _largest_term(builder: Any, loaded: list[Any], total: Any) -> Any:
    return _larger(builder, total, loaded[0])


def _reduced(generate: Callable[..., Any], arrays: int) -> Any:
    """An intrinsic of so many vectors that gives a number."""

    def typed(*kinds: Any) -> Any:
        _require_vectors(kinds)
        return types.float32(*kinds), generate

    if arrays == 1:
        return intrinsic(lambda typing, x: typed(x))
    if arrays == 2:
        return intrinsic(lambda typing, x, y: typed(x, y))
    return intrinsic(lambda typing, x, y, z: typed(x, y, z))


@intrinsic
def _add_scaled_vectors(typing: Any, out: Any, weight: Any, x: Any) -> Any:
    _require_vectors((out, x))

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        (to, of), count = _arrays(context, builder, (signature.args[0], signature.args[2]), (values[0], values[2]))
        scale = {lanes: _same(builder, values[1], lanes) for lanes in WIDTHS}

        def body(at: Any, lanes: int, turn: int) -> None:
            loaded = [scale[lanes], _load(builder, of, at, lanes), _load(builder, to, at, lanes)]
            _store(builder, _called(builder, "fma", loaded), to, at)

        _each(builder, count, body)
        return context.get_dummy_value()

    return types.void(out, types.float32, x), generate


@intrinsic
def _add_slope_vectors(typing: Any, query: Any, candidate: Any, weight: Any, by_query: Any, by_candidate: Any) -> Any:
    _require_vectors((query, candidate, by_query, by_candidate))

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        q, c, weight, by_q, by_c = values
        kinds = [signature.args[number] for number in (0, 1, 3, 4)]
        (q, c, by_q, by_c), count = _arrays(context, builder, kinds, (q, c, by_q, by_c))
        away = {lanes: _same(builder, weight, lanes) for lanes in WIDTHS}
        toward = {lanes: builder.fneg(value) for lanes, value in away.items()}

        def body(at: Any, lanes: int, turn: int) -> None:
            is_more = builder.fcmp_ordered(">", _load(builder, q, at, lanes), _load(builder, c, at, lanes))
            slope = builder.select(is_more, away[lanes], toward[lanes])
            _store(builder, builder.fsub(_load(builder, by_q, at, lanes), slope), by_q, at)
            _store(builder, builder.fadd(_load(builder, by_c, at, lanes), slope), by_c, at)

        _each(builder, count, body)
        return context.get_dummy_value()

    return types.void(query, candidate, types.float32, by_query, by_candidate), generate


@intrinsic
def _add_slopes_vectors(
    typing: Any, queries: Any, candidate: Any, weights: Any, number: Any, by_queries: Any, by_candidate: Any
) -> Any:
    _require_vectors((candidate, by_candidate))

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        q, c, w, number, by_q, by_c = values
        kinds = [signature.args[place] for place in (1, 0, 2, 4, 5)]
        (c, q, w, by_q, by_c), count = _arrays(context, builder, kinds, (c, q, w, by_q, by_c))
        table = context.make_array(signature.args[2])(context, builder, values[2])
        across = builder.extract_value(table.shape, 1)
        weight = [
            builder.load(builder.gep(w, [builder.add(builder.mul(_I64(k), across), number)])) for k in range(GROUP)
        ]
        away = [{lanes: _same(builder, one, lanes) for lanes in WIDTHS} for one in weight]
        toward = [{lanes: builder.fneg(value) for lanes, value in one.items()} for one in away]

        def body(at: Any, lanes: int, turn: int) -> None:
            here, total = _load(builder, c, at, lanes), _load(builder, by_c, at, lanes)
            for k in range(GROUP):
                place = builder.add(builder.mul(_I64(k), count), at)
                is_more = builder.fcmp_ordered(">", _load(builder, q, place, lanes), here)
                slope = builder.select(is_more, away[k][lanes], toward[k][lanes])
                _store(builder, builder.fsub(_load(builder, by_q, place, lanes), slope), by_q, place)
                total = builder.fadd(total, slope)
            _store(builder, total, by_c, at)

        _each(builder, count, body)
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
    _reduced(_reduction(_largest_term, _larger, -np.inf), 1) if compiled else (lambda x: np.max(x, initial=-np.inf))
)
"""(x): the maximum; −∞ of an empty vector."""

add_scaled: Any = _add_scaled_vectors if compiled else _add_scaled
"""(out, weight, x): out += weight · x."""

add_slope: Any = _add_slope_vectors if compiled else _add_slope
"""(query, candidate, weight, by query, by candidate): the gradients of −weight · ‖query − candidate‖₁, added."""

add_slopes: Any = _add_slopes_vectors if compiled else _add_slopes
"""(`GROUP` queries, candidate, weights of queries by candidates, number of the candidate, by queries, by candidate):
`add_slope` of all queries, one after the other; the candidate is read and written once for them."""
