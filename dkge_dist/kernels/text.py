"""From lines of delimited text to positions of fields, without copying.

In: a chunk of bytes that ends at a line end. Out: where each field starts and stops. Labels are never decoded, quoted
or unescaped here, so the bytes between two delimiters round-trip exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.jit import as_readonly, kernel
from dkge_dist.kernels.sets import runs
from dkge_dist.types import OFFSET, Array

NEWLINE = 10
CARRIAGE_RETURN = 13
QUOTE = 34
TEXT_AFTER_QUOTE, BLANK_BEFORE_QUOTE = 1, 2
ZERO, NINE = 48, 57
SPACE = 32
MAX_KEY_DIGITS = 9
"""Longer keys are refused: one of them would make an array indexed by slots too large."""

MAX_KEY_SLOTS = sum(10**digits for digits in range(1, MAX_KEY_DIGITS + 1))
MAX_DECIMAL_DIGITS = 18


def _count_lines(data: Array) -> int:
    return int(np.count_nonzero(data == NEWLINE))


@kernel
def _split(data, delimiter, start, stop, found):  # type: ignore[no-untyped-def]
    columns = start.shape[1]
    line = 0
    field = 0
    begin = 0
    for i in range(data.shape[0]):
        byte = data[i]
        if byte == delimiter:
            if field < columns:
                start[line, field] = begin
                stop[line, field] = i
            field += 1
            begin = i + 1
        elif byte == NEWLINE:
            if field < columns:
                start[line, field] = begin
                stop[line, field] = i
            found[line] = field + 1
            line += 1
            field = 0
            begin = i + 1


def split_fields(data: Array, columns: int, delimiter: str = "\t") -> tuple[Array, Array, Array]:
    """Split `data` (uint8, ending in a newline) into `columns` fields a line.

    Returns `start` and `stop` of shape (lines, columns) and `found`, the number of fields that each line really has;
    where that differs from `columns` the positions of the line are undefined.
    """
    lines = _count_lines(data)
    start = np.zeros((lines, columns), OFFSET)
    stop = np.zeros((lines, columns), OFFSET)
    found = np.empty(lines, np.int32)
    _split(data, ord(delimiter), start, stop, found)
    return start, stop, found


@kernel
def _split_quoted(data, delimiter, out, start, stop, found, begin, line, flaw):  # type: ignore[no-untyped-def]
    columns = start.shape[1]
    record = field = written = newlines = 0
    begin[0] = line[0] = flaw[0] = 0
    i = 0
    while i < data.shape[0]:
        field_begin = written
        quoted = data[i] == QUOTE
        if quoted:
            i += 1
            while i < data.shape[0]:
                if data[i] == QUOTE:
                    if i + 1 == data.shape[0] or data[i + 1] != QUOTE:
                        break
                    i += 1
                elif data[i] == NEWLINE:
                    newlines += 1
                out[written] = data[i]
                written += 1
                i += 1
            if i == data.shape[0]:
                return record, field
            i += 1
        rest, blank = i, True
        while data[i] != delimiter and data[i] != NEWLINE:
            if not quoted and data[i] == QUOTE and blank and i > rest:
                flaw[record] = BLANK_BEFORE_QUOTE
            blank = blank and data[i] == SPACE
            out[written] = data[i]
            written += 1
            i += 1
        if data[i] == NEWLINE and i > rest and data[i - 1] == CARRIAGE_RETURN:
            rest += 1
            written -= 1
        if quoted and i > rest:
            flaw[record] = TEXT_AFTER_QUOTE
        if field < columns:
            start[record, field] = field_begin
            stop[record, field] = written
        field += 1
        if data[i] == NEWLINE:
            found[record] = field
            record += 1
            newlines += 1
            field = 0
            begin[record] = i + 1
            line[record] = newlines
            flaw[record] = 0
        i += 1
    return record, -1


class QuotedFields(NamedTuple):
    """Records of a text with quoting. Field c of record i is `data[start[i, c]:stop[i, c]]`, without its quotes.

    Record i has `found[i]` fields; it begins at byte `begin[i]` of the text, in line `line[i]` of it (from 0). `flaw`
    is 0, TEXT_AFTER_QUOTE or BLANK_BEFORE_QUOTE. `begin` and `line` have one more, where the unfinished rest begins,
    and `open_field` is the field (from 0) of this rest whose quote is not closed; -1 if there is none.
    """

    data: Array
    start: Array
    stop: Array
    found: Array
    begin: Array
    line: Array
    flaw: Array
    open_field: int


def split_quoted(data: Array, columns: int, delimiter: str = ",") -> QuotedFields:
    """Split `data` (uint8, ending in a newline) as RFC 4180 says, into `columns` fields a record.

    A field that opens with a quote goes on to the next single quote; two of them are one. Elsewhere quotes are plain.
    A record ends in LF or CRLF. Where `found` differs from `columns` the positions of a record are undefined.
    """
    lines = _count_lines(data)
    out = np.empty(data.shape[0], np.uint8)
    start, stop = np.zeros((lines, columns), OFFSET), np.zeros((lines, columns), OFFSET)
    found, flaw = np.empty(lines, np.int32), np.empty(lines + 1, np.int8)
    begin, line = np.empty(lines + 1, OFFSET), np.empty(lines + 1, OFFSET)
    count, open_field = _split_quoted(data, ord(delimiter), out, start, stop, found, begin, line, flaw)
    records = slice(count)
    ends = slice(count + 1)
    return QuotedFields(
        out, start[records], stop[records], found[records], begin[ends], line[ends], flaw[records], open_field
    )


@kernel
def _split_statements(data, start, stop):  # type: ignore[no-untyped-def]
    line = 0
    field = 0
    begin = 0
    for i in range(data.shape[0]):
        byte = data[i]
        if byte == SPACE and field < 2:
            start[line, field] = begin
            stop[line, field] = i
            field += 1
            begin = i + 1
        elif byte == NEWLINE:
            start[line, 2] = begin
            stop[line, 2] = i - 2
            line += 1
            field = 0
            begin = i + 1


def split_statements(data: Array) -> tuple[Array, Array]:
    """Positions (lines, 3) of subject, predicate and object in *canonical* N-Triples, one statement a line.

    Canonical means one space between terms, ` .` and a newline at the end, and no empty line. Subject and predicate
    hold no space, so what follows the second space, up to the dot, is the object whatever it contains.
    """
    lines = _count_lines(data)
    start = np.empty((lines, 3), OFFSET)
    stop = np.empty((lines, 3), OFFSET)
    _split_statements(data, start, stop)
    return start, stop


@kernel
def _decimals(data, start, stop, values):  # type: ignore[no-untyped-def]
    for i in range(start.shape[0]):
        digits = stop[i] - start[i]
        good = digits >= 1 and digits <= MAX_DECIMAL_DIGITS
        value = 0
        if good:
            for j in range(start[i], stop[i]):
                byte = int(data[j])
                good = good and byte >= ZERO and byte <= NINE
                value = value * 10 + (byte - ZERO)
        values[i] = value if good else -1


def decimals(data: Array, start: Array, stop: Array) -> Array:
    """The non-negative decimal number of each field (at most 18 digits); -1 where the field is something else."""
    values = np.empty(start.shape[0], np.int64)
    _decimals(as_readonly(data), as_readonly(start), as_readonly(stop), values)
    return values


def key_slots(data: Array, start: Array, stop: Array, prefix: str) -> Array:
    """The slot of each key `prefix` + 1 to 9 digits, in 0 .. `MAX_KEY_SLOTS` - 1; -1 for any other field.

    Different digit strings have different slots (`tt1` and `tt0000001` too): shorter ones come first, equally long
    ones by their number. An array indexed by slots can therefore represent a set of keys.
    """
    begin = start + len(prefix.encode("ascii"))
    may_be = (stop > begin) & (stop - begin <= MAX_KEY_DIGITS)
    first, begin = np.where(may_be, start, stop), np.where(may_be, begin, stop)
    number = decimals(data, begin, stop)
    shorter_keys = np.array([(10**digits - 10) // 9 for digits in range(MAX_KEY_DIGITS + 1)])[stop - begin]
    is_key = may_be & (number >= 0) & equal_to(data, first, begin, prefix)
    return np.where(is_key, shorter_keys + number, -1)


def equal_to(data: Array, start: Array, stop: Array, constant: str) -> Array:
    """Which fields are exactly `constant`."""
    other = np.frombuffer(constant.encode("utf-8"), np.uint8)
    begin = np.zeros(start.shape[0], OFFSET)
    return same_fields(data, start, stop, other, begin, begin + other.shape[0])


def split_lists(data: Array, start: Array, stop: Array, separator: str = ",") -> tuple[Array, Array, Array]:
    """The items of fields that are lists: where each starts and stops, and the field that it belongs to.

    An empty field is an empty list; otherwise a field has one item more than separators, empty items included.
    """
    filled = np.flatnonzero(stop > start)
    between = np.flatnonzero(data == ord(separator))
    first = np.searchsorted(between, start[filled])
    inner = np.searchsorted(between, stop[filled]) - first
    ends = np.cumsum(inner + 1)
    is_last = np.zeros(ends[-1] if ends.shape[0] else 0, np.bool_)
    is_last[ends - 1] = True
    item_start, item_stop = np.empty(is_last.shape[0], OFFSET), np.empty(is_last.shape[0], OFFSET)
    item_stop[is_last], item_stop[~is_last] = stop[filled], between[runs(first, inner)]
    item_start[1:] = item_stop[:-1] + 1
    item_start[ends - inner - 1] = start[filled]
    return item_start, item_stop, np.repeat(filled, inner + 1)


@kernel
def _copy_fields(data, start, stop, out):  # type: ignore[no-untyped-def]
    at = 0
    for i in range(start.shape[0]):
        for j in range(start[i], stop[i]):
            out[at] = data[j]
            at += 1


def copy_fields(data: Array, start: Array, stop: Array, out: Array) -> None:
    """Concatenate the bytes of all fields in `out`."""
    needed = int((stop - start).sum())
    if needed > out.shape[0]:
        raise ValueError(f"{needed} bytes do not fit in {out.shape[0]}")
    _copy_fields(as_readonly(data), as_readonly(start), as_readonly(stop), out)


@kernel
def _last_byte(data, start, stop, low, high, place):  # type: ignore[no-untyped-def]
    for i in range(start.shape[0]):
        place[i] = -1
        for j in range(stop[i] - 1, start[i] - 1, -1):
            if data[j] >= low and data[j] <= high:
                place[i] = j
                break


def last_byte(data: Array, start: Array, stop: Array, low: int, high: int | None = None) -> Array:
    """Where each field holds a byte from `low` to `high` (`low` alone by default) for the last time; -1: nowhere."""
    place = np.empty(start.shape[0], OFFSET)
    high = low if high is None else high
    _last_byte(as_readonly(data), as_readonly(start), as_readonly(stop), low, high, place)
    return place


@kernel
def _same_fields(data, start, stop, other_data, other_start, other_stop, result):  # type: ignore[no-untyped-def]
    for i in range(start.shape[0]):
        same = stop[i] - start[i] == other_stop[i] - other_start[i]
        if same:
            for j in range(stop[i] - start[i]):
                same = same and data[start[i] + j] == other_data[other_start[i] + j]
        result[i] = same


def same_fields(
    data: Array, start: Array, stop: Array, other_data: Array, other_start: Array, other_stop: Array
) -> Array:
    """Which fields have the same bytes as the others, one by one."""
    result = np.empty(start.shape[0], np.bool_)
    data, start, stop = as_readonly(data), as_readonly(start), as_readonly(stop)
    others = as_readonly(other_data), as_readonly(other_start), as_readonly(other_stop)
    _same_fields(data, start, stop, *others, result)
    return result
