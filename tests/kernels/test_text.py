"""Text kernels against what Python does with the same bytes."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels import text
from dkge_dist.types import OFFSET, Array
from tests import reference

FIELD_BYTES = st.binary(max_size=12).map(lambda field: field.replace(b"\t", b"").replace(b"\n", b""))


def spans(fields: list[bytes]) -> tuple[Array, Array, Array]:
    """The fields in one buffer, with a byte of something else around each of them."""
    data = b"#" + b"#".join(fields) + b"#"
    length = np.array([len(field) for field in fields], OFFSET)
    stop = np.cumsum(length + 1)
    return np.frombuffer(data, np.uint8), stop - length, stop


def cut(data: Array, start: Array, stop: Array) -> list[bytes]:
    return [data[a:b].tobytes() for a, b in zip(start.ravel(), stop.ravel(), strict=True)]


@given(lines=st.lists(st.lists(FIELD_BYTES, min_size=1, max_size=5)), columns=st.integers(1, 4))
def test_split_fields_is_what_split_does(lines: list[list[bytes]], columns: int) -> None:
    data = np.frombuffer(b"".join(b"\t".join(fields) + b"\n" for fields in lines), np.uint8)
    start, stop, found = text.split_fields(data, columns)
    assert found.tolist() == [len(fields) for fields in lines]
    for i, fields in enumerate(lines):
        if len(fields) == columns:
            assert cut(data, start[i], stop[i]) == fields


@given(
    st.lists(
        st.tuples(
            st.sampled_from([b"<http://a/1>", b"_:b", b"<x:>"]),
            st.sampled_from([b"<http://p>", b"<y:\xc3\xa9>"]),
            st.sampled_from([b'"a b  c ."@en', b"<http://o>", b'" "', b'""', b"<<( <a:> <b:> <c:> )>>", b'"\\n . "']),
        )
    )
)
def test_split_statements_finds_the_terms(statements: list[tuple[bytes, bytes, bytes]]) -> None:
    data = np.frombuffer(b"".join(b" ".join(terms) + b" .\n" for terms in statements), np.uint8)
    start, stop = text.split_statements(data)
    assert cut(data, start, stop) == list(itertools.chain.from_iterable(statements))


KEYS = st.one_of(
    st.from_regex(rb"(tt|nm|t|ttt)[0-9]{0,11}", fullmatch=True),
    st.from_regex(rb"tt[0-9]{1,9}", fullmatch=True),
    st.sampled_from([b"", b"tt", b"\\N", b"tt00000/1", b"tt0000:01", b"tt-000001", b"tt999999999", b"tt1234567890"]),
    FIELD_BYTES,
)


@given(st.lists(KEYS), st.sampled_from(["tt", "nm", ""]))
def test_key_slots_equal_the_reference(keys: list[bytes], prefix: str) -> None:
    slots = text.key_slots(*spans(keys), prefix)
    assert slots.tolist() == [reference.key_slot(key, prefix.encode()) for key in keys]


def test_every_digit_string_has_its_own_slot() -> None:
    keys = [f"tt{number:0{digits}d}".encode() for digits in range(1, 5) for number in range(10**digits)]
    assert text.key_slots(*spans(keys), "tt").tolist() == list(range(len(keys)))


def test_last_slot_is_that_of_nine_nines() -> None:
    assert text.key_slots(*spans([b"tt999999999"]), "tt").tolist() == [text.MAX_KEY_SLOTS - 1]


@given(st.lists(st.one_of(st.integers(0, 10**20).map(lambda number: str(number).encode()), FIELD_BYTES)))
def test_decimals_equal_int(fields: list[bytes]) -> None:
    expected = [int(field) if re.fullmatch(rb"[0-9]{1,18}", field) else -1 for field in fields]
    assert text.decimals(*spans(fields)).tolist() == expected


@given(
    st.lists(st.sampled_from([b"\\N", b"\\", b"N", b"", b"\\NN", b"\\n", b"\xc3\xa9"])),
    st.sampled_from(["\\N", "é", ""]),
)
def test_equal_to_compares_whole_fields(fields: list[bytes], constant: str) -> None:
    expected = [field == constant.encode() for field in fields]
    assert text.equal_to(*spans(fields), constant).tolist() == expected


@given(
    st.lists(st.one_of(FIELD_BYTES, st.sampled_from([b",", b"a,b", b",a,", b"a,,b", b"a;b"]))), st.sampled_from(",;")
)
def test_split_lists_is_what_split_does(fields: list[bytes], separator: str) -> None:
    data, start, stop = spans(fields)
    item_start, item_stop, owner = text.split_lists(data, start, stop, separator)
    expected = [(i, item) for i, field in enumerate(fields) if field for item in field.split(separator.encode())]
    assert list(zip(owner.tolist(), cut(data, item_start, item_stop), strict=True)) == expected


@given(st.lists(FIELD_BYTES), st.integers(0, 3))
def test_copy_fields_joins(fields: list[bytes], spare: int) -> None:
    joined = b"".join(fields)
    out = np.full(len(joined) + spare, 7, np.uint8)
    text.copy_fields(*spans(fields), out)
    assert out.tobytes() == joined + b"\x07" * spare


def test_copy_fields_refuses_a_short_buffer() -> None:
    with pytest.raises(ValueError, match="5 bytes do not fit in 4"):
        text.copy_fields(*spans([b"abc", b"de"]), np.zeros(4, np.uint8))


def test_kernels_take_columns_of_a_table() -> None:
    """Positions come as strided columns of a (lines, columns) array, not only as arrays of their own."""
    data = np.frombuffer(b"tt0000007\tnm0000001,nm0000002\t1999\ntt0000008\t\\N\t\\N\n", np.uint8)
    start, stop, _ = text.split_fields(data, 3)
    offset = 10 + 100 + 1000 + 10**4 + 10**5 + 10**6
    assert text.key_slots(data, start[:, 0], stop[:, 0], "tt").tolist() == [offset + 7, offset + 8]
    assert text.equal_to(data, start[:, 1], stop[:, 1], "\\N").tolist() == [False, True]
    assert text.split_lists(data, start[:, 1], stop[:, 1])[2].tolist() == [0, 0, 1]
    assert text.decimals(data, start[:, 2], stop[:, 2]).tolist() == [1999, -1]


def test_keys_of_ten_digits_are_refused() -> None:
    assert text.key_slots(*spans([b"tt0000000000", b"tt000000000"]), "tt").tolist() == [-1, 111_111_110]


@given(fields=st.lists(FIELD_BYTES), low=st.integers(0, 255), high=st.integers(0, 255) | st.none())
def test_the_last_byte_in_a_range(fields: list[bytes], low: int, high: int | None) -> None:
    data, start, stop = spans(fields)
    place = text.last_byte(data, start, stop, low, high)
    wanted = range(low, (low if high is None else high) + 1)
    expected = [max((i for i, byte in enumerate(field) if byte in wanted), default=-1) for field in fields]
    assert np.where(place < 0, -1, place - start).tolist() == expected


@given(pairs=st.lists(st.tuples(FIELD_BYTES, FIELD_BYTES, st.booleans())))
def test_the_same_fields(pairs: list[tuple[bytes, bytes, bool]]) -> None:
    ours = [one for one, _, _ in pairs]
    theirs = [one if same else other for one, other, same in pairs]
    found = text.same_fields(*spans(ours), *spans(theirs))
    assert found.tolist() == [one == other for one, other in zip(ours, theirs, strict=True)]


@given(st.text('ab,"\r\n ', max_size=40), st.integers(1, 4))
def test_split_quoted_is_what_the_slow_parser_does(content: str, columns: int) -> None:
    data = (content + "\n").encode()
    fields = text.split_quoted(np.frombuffer(data, np.uint8), columns)
    expected = reference.quoted_records(content + "\n", ",")
    if expected is None:
        assert fields.open_field >= 0 or fields.flaw.any()
        return
    assert fields.open_field == -1 and not fields.flaw.any() and fields.begin[-1] == len(data)
    bounds = list(itertools.pairwise(fields.begin.tolist()))
    filled = [i for i, (begin, end) in enumerate(bounds) if data[begin:end] not in (b"\n", b"\r\n")]
    assert fields.line.tolist() == [data[:begin].count(b"\n") for begin in fields.begin.tolist()]
    assert fields.found[filled].tolist() == [len(record) for record in expected]
    for i, record in zip(filled, expected, strict=True):
        if len(record) == columns:
            assert cut(fields.data, fields.start[i], fields.stop[i]) == [field.encode() for field in record]


def test_split_quoted_says_which_field_is_open() -> None:
    data = b'a,b\nc,"d\ne\n'
    fields = text.split_quoted(np.frombuffer(data, np.uint8), 2)
    assert (fields.found.tolist(), fields.open_field) == ([2], 1)
    assert (fields.begin.tolist(), fields.line.tolist()) == ([0, 4], [0, 1])
