"""Weighted sums of rows of a table, each kept in registers until it is whole.

A loop that adds one row after the other to a row in memory reads and writes that row each time. Here a strip of it,
four registers wide, stays where it is until all rows were added; then comes the next strip. Rows are added in their
order, their products rounded: then both vertices of a context of two are equal to the bit, and where slopes of equal
rows cancel out nothing is left, which Adagrad would blow up. Where nothing is compiled, twins in numpy do the same.

All arrays are contiguous: numbers are float32, and those of rows int32. What is summed and the sum may be bfloat16, as
uint16; what is added up in between is float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from numba.core import cgutils, types
from numba.extending import intrinsic

from dkge_dist.kernels.registers import (
    I64,
    NO_NUMBER,
    arrays_of,
    called,
    each_strip,
    larger,
    load,
    number_at,
    require,
    require_vectors,
    store,
    sums_of,
    zeros,
)
from dkge_dist.types import Array


def _generate_sum_rows(relu: bool) -> Callable[..., Any]:
    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        def opened(number: int) -> Any:
            if signature.args[number] is types.none:
                return None
            return arrays_of(context, builder, [signature.args[number]], [values[number]])[0][0]

        (out, rows), dim = arrays_of(context, builder, signature.args[:2], values[:2])
        columns, weight = [opened(number) for number in (2, 3)], opened(4)
        first, last, offset = values[5:]

        def body(places: list[Any], lanes: int) -> None:
            sums = sums_of(builder, lanes, len(places))
            with cgutils.for_range_slice(builder, first, last, I64(1)) as (entry, _):
                row = entry
                for column in columns:
                    if column is not None:
                        row = builder.sext(builder.load(builder.gep(column, [row])), I64)
                begin = builder.mul(builder.sub(row, offset), dim)
                scale = None if weight is None else number_at(builder, weight, entry, lanes)
                for place, total in zip(places, sums, strict=True):
                    some = load(builder, rows, builder.add(begin, place), lanes)
                    term = some if scale is None else builder.fmul(scale, some)
                    builder.store(builder.fadd(builder.load(total), term), total)
            for place, total in zip(places, sums, strict=True):
                whole = builder.load(total)
                store(builder, larger(builder, whole, zeros(lanes)) if relu else whole, out, place)

        each_strip(builder, dim, body)
        return context.get_dummy_value()

    return generate


def _typed_sum_rows(generate: Callable[..., Any]) -> Any:
    def typed(
        typing: Any, out: Any, rows: Any, index: Any, via: Any, weight: Any, first: Any, last: Any, offset: Any
    ) -> Any:
        require(out, 1, types.float32, types.uint16)
        require(rows, 2, types.float32, types.uint16)
        if weight is not types.none:
            require_vectors([weight])
        for column in (index, via):
            if column is not types.none:
                require(column, 1, types.int32)
        return types.void(out, rows, index, via, weight, types.int64, types.int64, types.int64), generate

    return intrinsic(typed)


@intrinsic
def _slopes_of_attention(
    typing: Any, hidden: Any, count: Any, begin: Any, by_sum: Any, by_score: Any, grad: Any, query: Any, by_query: Any
) -> Any:
    require_vectors((by_sum, by_score, grad, query, by_query))
    require(hidden, 2, types.float32)

    def generate(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        rows, count, begin, *vectors = values
        (rows,), _ = arrays_of(context, builder, signature.args[:1], [rows])
        opened, _ = arrays_of(context, builder, signature.args[3:], vectors)
        by_sum, by_score, grad, query, by_query = opened
        _, dim = arrays_of(context, builder, signature.args[5:6], vectors[2:3])

        def body(places: list[Any], lanes: int) -> None:
            zero, sums = zeros(lanes), sums_of(builder, lanes, len(places))
            of_grad, of_query = ([load(builder, data, place, lanes) for place in places] for data in (grad, query))
            with cgutils.for_range_slice(builder, I64(0), count, I64(1)) as (number, _):
                share = number_at(builder, by_sum, builder.add(begin, number), lanes)
                slope = number_at(builder, by_score, number, lanes)
                row = builder.mul(number, dim)
                for place, total, g, q in zip(places, sums, of_grad, of_query, strict=True):
                    here = builder.add(row, place)
                    some = load(builder, rows, here, lanes)
                    builder.store(builder.fadd(builder.load(total), builder.fmul(slope, some)), total)
                    back = called(builder, "fma", [slope, q, builder.fmul(share, g)])
                    store(builder, builder.select(builder.fcmp_ordered(">", some, zero), back, zero), rows, here)
            for place, total in zip(places, sums, strict=True):
                store(builder, builder.load(total), by_query, place)

        each_strip(builder, dim, body)
        return context.get_dummy_value()

    whole = types.int64
    return types.void(hidden, whole, whole, by_sum, by_score, grad, query, by_query), generate


def _plain_sum_rows(
    out: Array,
    rows: Array,
    index: Array | None,
    via: Array | None,
    weight: Array | None,
    first: int,
    last: int,
    offset: int,
) -> None:
    _write(_plain_sum(rows, index, via, weight, first, last, offset), out)


def _plain_sum_rows_relu(out: Array, *arguments: Any) -> None:
    _write(np.maximum(_plain_sum(*arguments), 0), out)


def _plain_sum(
    rows: Array, index: Array | None, via: Array | None, weight: Array | None, first: int, last: int, offset: int
) -> Array:
    which = np.arange(first, last) if index is None else index[first:last]
    some = rows[(which if via is None else via[which]) - offset]
    scale = np.ones(last - first, np.float32) if weight is None else weight[first:last]
    total: Array = scale @ (some if some.dtype == np.float32 else widened(some))
    return total


def widened(halves: Array) -> Array:
    """Numbers in bfloat16 as float32."""
    values: Array = (halves.astype(np.uint32) << 16).view(np.float32)
    return values


def halved(values: Array) -> Array:
    """Numbers in float32 rounded to bfloat16: to the nearest, of two as near to the even one."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), NO_NUMBER, rounded).astype(np.uint16)


def _write(values: Array, out: Array) -> None:
    out[:] = values if out.dtype == np.float32 else halved(values)


def _plain_slopes(
    hidden: Array, count: int, begin: int, by_sum: Array, by_score: Array, grad: Array, query: Array, by_query: Array
) -> None:
    some, slope = hidden[:count], by_score[:count]
    by_query[:] = slope @ some
    back = np.outer(by_sum[begin : begin + count], grad) + np.outer(slope, query)
    some[:] = np.where(some > 0, back, 0)


compiled = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]

sum_rows: Any = _typed_sum_rows(_generate_sum_rows(relu=False)) if compiled else _plain_sum_rows
"""(out, rows, index, via, weight, first, last, offset): out = Σ weight[e] · rows[via[index[e]] − offset] over the
entries e in first:last. Index, via and weight may be None."""

sum_rows_relu: Any = _typed_sum_rows(_generate_sum_rows(relu=True)) if compiled else _plain_sum_rows_relu
"""The same through a ReLU; what is no number stays none."""

slopes_of_attention: Any = _slopes_of_attention if compiled else _plain_slopes
"""(hidden, count, begin, by sum, by score, grad, query, by query): of the first `count` rows of `hidden`, by query = Σ
by score · hidden; then each row becomes its own gradient, by sum · grad + by score · query where it was over 0. `begin`
is where `by sum` begins."""
