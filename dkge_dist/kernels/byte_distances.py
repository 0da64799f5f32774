"""L1 distances of 8-bit codes, 64 numbers an instruction: what rows of a tile may be near a query.

A tile is 64 rows as words of 64 bits: word (g, t) holds the codes of the dimensions 8g to 8g + 7 of row t. One
instruction (PSADBW) sums the differences of 8 such words, with those of a query in all of them, and leaves a sum for
each row: nothing is summed across a register. LLVM does not find it in loops, so it is written out here: a query and
a tile of dimension 128 take 38 ns, 97 by arithmetic for processors that have no such instruction, and 243 in a plain
loop. Ranks by codes do little else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from dkge_dist.kernels.ranks import TILE
from dkge_dist.types import Array

ERROR_BITS = 32
"""The last word of a row holds, in its lower half, how far the row may be from its codes."""

_LANES = 8
_I8, _I32, _I64 = ir.IntType(8), ir.IntType(32), ir.IntType(64)
_WORDS, _BYTES = ir.VectorType(_I64, _LANES), ir.VectorType(_I8, 8 * _LANES)

Sums = Callable[[Any, Any, Any], Any]


def _same(value: int) -> Any:
    return ir.Constant(_WORDS, [value] * _LANES)


def _everywhere(builder: Any, word: Any) -> Any:
    one = builder.insert_element(ir.Constant(_WORDS, ir.Undefined), word, _I32(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(_I32, _LANES), [0] * _LANES))


def _sums_by_instruction(builder: Any, left: Any, right: Any) -> Any:
    instruction = ir.FunctionType(_WORDS, [_BYTES, _BYTES])
    function = cgutils.get_or_insert_function(builder.module, instruction, "llvm.x86.avx512.psad.bw.512")
    return builder.call(function, [left, right])


def _sums_by_arithmetic(builder: Any, left: Any, right: Any) -> Any:
    """Differences of bytes, added up in pairs to 16 bits, and these to the uppermost 16 by one multiplication."""
    is_more = builder.icmp_unsigned(">", left, right)
    apart = builder.select(is_more, builder.sub(left, right), builder.sub(right, left))
    words, every_other = builder.bitcast(apart, _WORDS), _same(0x00FF00FF00FF00FF)
    odd = builder.and_(builder.lshr(words, _same(8)), every_other)
    pairs = builder.add(builder.and_(words, every_other), odd)
    return builder.lshr(builder.mul(pairs, _same(0x0001000100010001)), _same(48))


def _for_processor(context: Any) -> Sums:
    has_instruction = "+avx512bw" in str(context.codegen()._tm_features)
    return _sums_by_instruction if has_instruction else _sums_by_arithmetic


def rows_within_by(sums_for: Callable[[Any], Sums]) -> Any:
    """`rows_within` with a way to sum that `sums_for` chooses by the compilation target."""

    @intrinsic
    def within(typing: Any, tiles: Any, tile: Any, codes: Any, query: Any, limit: Any, sure: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            add = sums_for(context)
            all_tiles, number, all_codes, row, limit, sure = arguments
            tile_array = context.make_array(signature.args[0])(context, builder, all_tiles)
            code_array = context.make_array(signature.args[2])(context, builder, all_codes)
            groups = builder.extract_value(code_array.shape, 1)
            words = builder.mul(builder.add(groups, _I64(1)), _I64(TILE))
            here = builder.gep(tile_array.data, [builder.mul(number, words)])
            own = builder.gep(code_array.data, [builder.mul(row, groups)])

            def load(group: Any, part: int) -> Any:
                at = builder.add(builder.mul(group, _I64(TILE)), _I64(part * _LANES))
                return builder.load(builder.bitcast(builder.gep(here, [at]), _WORDS.as_pointer()), align=8)

            def bits(values: list[Any], limit: Any) -> Any:
                found, limits = _I64(0), _everywhere(builder, limit)
                for part, value in enumerate(values):
                    is_within = builder.bitcast(builder.icmp_signed("<=", value, limits), _I8)
                    found = builder.or_(found, builder.shl(builder.zext(is_within, _I64), _I64(part * _LANES)))
                return found

            totals = [cgutils.alloca_once_value(builder, _same(0)) for _ in range(TILE // _LANES)]
            with cgutils.for_range(builder, groups) as loop:
                asked = builder.bitcast(_everywhere(builder, builder.load(builder.gep(own, [loop.index]))), _BYTES)
                for part, total in enumerate(totals):
                    apart = add(builder, builder.bitcast(load(loop.index, part), _BYTES), asked)
                    builder.store(builder.add(builder.load(total), apart), total)
            errors = [builder.and_(load(groups, part), _same((1 << ERROR_BITS) - 1)) for part in range(len(totals))]
            distances = [builder.load(total) for total in totals]
            near = bits([builder.sub(*pair) for pair in zip(distances, errors, strict=True)], limit)
            surely = cgutils.alloca_once_value(builder, _I64(0))
            # Seldom is any row of a tile near.
            with builder.if_then(cgutils.is_not_null(builder, near), likely=False):
                farthest = [builder.add(*pair) for pair in zip(distances, errors, strict=True)]
                builder.store(bits(farthest, sure), surely)
            return context.make_tuple(builder, signature.return_type, (near, builder.load(surely)))

        numbers = (types.int64,) * 3
        masks = types.UniTuple(types.uint64, 2)
        return masks(tiles, types.int64, codes, *numbers), generate

    return within


def _rows_within(tiles_TGW: Array, tile: int, codes_QG: Array, query: int, limit: int, sure: int) -> Any:
    """The same without the compiler."""
    rows = np.ascontiguousarray(tiles_TGW[tile].T)
    codes = rows[:, :-1].copy().view(np.uint8).astype(np.int64)
    apart = np.abs(codes - codes_QG[query].view(np.uint8).astype(np.int64)).sum(1)
    error = (rows[:, -1] & np.uint64((1 << ERROR_BITS) - 1)).astype(np.int64)
    masks = (apart - error <= limit, apart + error <= sure)
    return tuple(np.packbits(mask, bitorder="little").view(np.uint64)[0] for mask in masks)


compiled = not numba.config.DISABLE_JIT  # type: ignore[attr-defined]
rows_within: Any = rows_within_by(_for_processor) if compiled else _rows_within
"""(tiles, tile, codes of queries, query, limit, sure): a bit for each row of the tile whose distance by codes, less its
error, is at most `limit`; and where there are any, a bit for each whose distance and error are together at most `sure`.
"""
