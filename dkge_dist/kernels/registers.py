"""Vector registers in intrinsics of numba: types, loads, stores, loops. For the modules that write registers out.

A register has 16, 8 or 4 numbers, or is one plain number. Processors with shorter registers take several. In memory
numbers are float32, or bfloat16 in arrays of uint16: these are widened when they are loaded and rounded when stored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.core.errors import TypingError

LANES = 16
WIDTHS = (LANES, 8, 4, 1)
"""Numbers of the registers of a loop after the other; the first one takes two at a time."""

NARROW = ((LANES, 1), (4, 1), (1, 1))
"""(numbers of a register, registers of a strip) of the loops over strips that follow the widest."""

F32, I16, I32, I64 = ir.FloatType(), ir.IntType(16), ir.IntType(32), ir.IntType(64)
NO_NUMBER = 0x7FC0
"""In bfloat16."""


def register_type(lanes: int, kind: Any = F32) -> Any:
    """Of so many numbers."""
    return ir.VectorType(kind, lanes) if lanes > 1 else kind


def constant(kind: Any, value: int, lanes: int) -> Any:
    """A whole number, in all lanes."""
    return ir.Constant(register_type(lanes, kind), [value] * lanes if lanes > 1 else value)


def in_all_lanes(builder: Any, value: Any, lanes: int) -> Any:
    """A register with `value` in all lanes."""
    if lanes == 1:
        return value
    one = builder.insert_element(ir.Constant(register_type(lanes), ir.Undefined), value, I32(0))
    return builder.shuffle_vector(one, one, ir.Constant(ir.VectorType(I32, lanes), [0] * lanes))


def lanes_of(value: Any) -> int:
    """How many numbers a register has."""
    return value.type.count if isinstance(value.type, ir.VectorType) else 1


def called(builder: Any, name: str, values: Sequence[Any]) -> Any:
    """An operation of LLVM on registers or numbers, of the type of its operands."""
    kind = values[0].type
    lanes = lanes_of(values[0])
    suffix = f"v{lanes}f32" if lanes > 1 else "f32"
    function = ir.FunctionType(kind, [kind] * len(values))
    return builder.call(cgutils.get_or_insert_function(builder.module, function, f"llvm.{name}.{suffix}"), values)


def load(builder: Any, data: Any, at: Any, lanes: int) -> Any:
    """The numbers of `data` from `at` on, as a register."""
    found = builder.load(place_of(builder, data, at, lanes), align=2 if is_halved(data) else 4)
    if not is_halved(data):
        return found
    bits = builder.shl(builder.zext(found, register_type(lanes, I32)), constant(I32, 16, lanes))
    return builder.bitcast(bits, register_type(lanes))


def store(builder: Any, value: Any, data: Any, at: Any) -> None:
    """Write a register to `data` from `at` on."""
    lanes = lanes_of(value)
    here = place_of(builder, data, at, lanes)
    if not is_halved(data):
        builder.store(value, here, align=4)
        return
    # To the nearest, of two as near to the even one, as everybody rounds.
    bits = builder.bitcast(value, register_type(lanes, I32))
    by = constant(I32, 16, lanes)
    odd = builder.and_(builder.lshr(bits, by), constant(I32, 1, lanes))
    rounded = builder.lshr(builder.add(builder.add(bits, constant(I32, 0x7FFF, lanes)), odd), by)
    half = builder.trunc(rounded, register_type(lanes, I16))
    is_none = builder.fcmp_unordered("uno", value, value)
    builder.store(builder.select(is_none, constant(I16, NO_NUMBER, lanes), half), here, align=2)


def is_halved(data: Any) -> bool:
    """Are the numbers at a pointer bfloat16?"""
    return bool(data.type.pointee == I16)


def place_of(builder: Any, data: Any, at: Any, lanes: int) -> Any:
    """The address of a register."""
    here = builder.gep(data, [at])
    return builder.bitcast(here, register_type(lanes, data.type.pointee).as_pointer()) if lanes > 1 else here


def steps(builder: Any, count: Any) -> list[tuple[Any, Any, int]]:
    """(begin, end, numbers of a register) of the loops over `count` numbers."""
    ends = [builder.and_(count, I64(-width)) for width in (2 * LANES, *WIDTHS[1:])]
    return list(zip([I64(0), *ends], ends, WIDTHS, strict=False))


def each(builder: Any, count: Any, body: Callable[[Any, int, int], None]) -> None:
    """`body(at, lanes, turn)` for registers that together hold `count` numbers; the first loop has two turns."""
    for begin, end, lanes in steps(builder, count):
        turns = 2 if lanes == LANES else 1
        with cgutils.for_range_slice(builder, begin, end, I64(turns * lanes)) as (at, _):
            for turn in range(turns):
                body(builder.add(at, I64(turn * lanes)), lanes, turn)


def arrays_of(context: Any, builder: Any, kinds: Sequence[Any], values: Sequence[Any]) -> tuple[list[Any], Any]:
    """(pointers to the numbers of some arrays, how many the first one has)."""
    opened = [context.make_array(kind)(context, builder, value) for kind, value in zip(kinds, values, strict=True)]
    return [array.data for array in opened], builder.extract_value(opened[0].shape, 0)


def require_vectors(arrays: Sequence[Any]) -> None:
    """Refuse to compile for anything but vectors of float32."""
    for kind in arrays:
        require(kind, 1, types.float32)


def require(kind: Any, dimensions: int, *dtypes: Any) -> None:
    """Refuse to compile for anything but such an array, of one of the types."""
    if not (isinstance(kind, types.Array) and kind.ndim == dimensions and kind.layout == "C" and kind.dtype in dtypes):
        wanted = " or ".join(map(str, dtypes))
        raise TypingError(f"expected a contiguous array of {wanted} in {dimensions} dimensions, not {kind}")


def larger(builder: Any, one: Any, other: Any) -> Any:
    """The larger number of each lane; of `one`, what is no number."""
    return builder.select(builder.fcmp_ordered(">", other, one), other, one)


def each_strip(builder: Any, dim: Any, body: Callable[[list[Any], int], None], widest: int = 4) -> None:
    """`body(where each register begins, numbers of a register)` for strips that together are `dim` numbers wide.

    They are `widest` registers wide first, then one, then less.
    """
    begin = I64(0)
    for lanes, registers in ((LANES, widest), *NARROW):
        end = builder.and_(dim, I64(-lanes * registers))
        with cgutils.for_range_slice(builder, begin, end, I64(lanes * registers)) as (at, _):
            body([builder.add(at, I64(number * lanes)) for number in range(registers)], lanes)
        begin = end


def zeros(lanes: int) -> Any:
    """A register of zeros."""
    return ir.Constant(register_type(lanes), [0.0] * lanes if lanes > 1 else 0.0)


def sums_of(builder: Any, lanes: int, count: int) -> list[Any]:
    """So many registers of zeros, to be added to."""
    made = [cgutils.alloca_once(builder, register_type(lanes)) for _ in range(count)]
    for one in made:
        builder.store(zeros(lanes), one)
    return made


def number_at(builder: Any, data: Any, at: Any, lanes: int) -> Any:
    """One number, in all lanes."""
    return in_all_lanes(builder, builder.load(builder.gep(data, [at])), lanes)
