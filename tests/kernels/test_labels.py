"""Label tables against a Python dict, with digests that are equal or fall into the same slot."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.labels import Labels
from dkge_dist.kernels import labels as kernels
from dkge_dist.kernels.labels import GrowingTable, LabelTable, Queries, lookup, make_slots
from dkge_dist.types import ROW, Array

texts = st.lists(st.text("abé😀\t", max_size=4), max_size=40)


def queries(labels: list[str]) -> Queries:
    given = Labels.from_strings(labels)
    return Queries.of(given.data, given.start, given.stop)


def colliding(data: Array, start: Array, stop: Array) -> Array:
    """Digests of only three values: most labels share theirs with others."""
    return ((stop - start) % 3).astype(np.uint64)


def found(table: GrowingTable, labels: list[str]) -> list[int]:
    out = np.full(len(labels), -1, ROW)
    lookup(queries(labels), table.table, table.first_row, out)
    return out.tolist()


@pytest.mark.parametrize("collide", [False, True])
@given(batches=st.lists(texts, max_size=6), first_row=st.integers(0, 1000))
def test_growing_table_equals_a_dict(collide: bool, batches: list[list[str]], first_row: int) -> None:
    expected: dict[str, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        if collide:
            patch.setattr(kernels, "digests", colliding)
        table = GrowingTable(first_row)
        for batch in batches:
            unknown = [label for label in batch if label not in expected]
            assert found(table, unknown) == [-1] * len(unknown)
            for label in batch:
                expected.setdefault(label, first_row + len(expected))
            out = np.full(len(batch), -1, ROW)
            table.insert(queries(batch), out)
            assert out.tolist() == [expected[label] for label in batch]
        assert table.count == len(expected)
        assert found(table, list(expected)) == list(expected.values())


def test_rows_that_are_known_already_are_left_alone() -> None:
    table = GrowingTable(0)
    out = np.array([-1, 77, -1], ROW)
    table.insert(queries(["a", "b", "a"]), out)
    assert out.tolist() == [0, 77, 0]
    out = np.array([-1, 5], ROW)
    lookup(queries(["a", "a"]), table.table, 0, out)
    assert out.tolist() == [0, 5]


def test_table_holds_bytes_offsets_and_digests_in_row_order() -> None:
    table = GrowingTable(10)
    labels = ["first", "", "é", "x" * 300]
    table.insert(queries(labels), np.full(4, -1, ROW))
    data, offset, digest, _ = table.table
    assert [data[a:b].tobytes().decode() for a, b in itertools.pairwise(offset)] == labels
    assert digest.tolist() == queries(labels).digest.tolist()


@given(st.lists(st.integers(0, 2**64 - 1), unique=True, max_size=100), st.integers(0, 100))
def test_slots_are_a_power_of_two_at_least_half_free(digests: list[int], room: int) -> None:
    slots = make_slots(np.array(digests, np.uint64), room)
    assert slots.shape[0] & (slots.shape[0] - 1) == 0
    assert slots.shape[0] >= 2 * (len(digests) + room)
    assert sorted(slots[slots != kernels.EMPTY].tolist()) == list(range(1, len(digests) + 1))


def test_more_labels_than_a_block_of_look_ups() -> None:
    labels = [f"label {i}" for i in range(5 * kernels.BLOCK + 7)]
    table = GrowingTable(0)
    table.insert(queries(labels), np.full(len(labels), -1, ROW))
    assert found(table, labels[::-1]) == list(range(len(labels)))[::-1]


def test_empty_table_finds_nothing() -> None:
    empty = LabelTable(np.empty(0, np.uint8), np.zeros(1, np.int64), np.empty(0, np.uint64), np.zeros(16, np.uint32))
    out = np.full(2, -1, ROW)
    lookup(queries(["a", ""]), empty, 0, out)
    assert out.tolist() == [-1, -1]


@given(texts, st.data())
def test_tables_that_can_be_searched_are_sound(labels: list[str], data: st.DataObject) -> None:
    given = GrowingTable(0)
    given.insert(queries(labels), np.full(len(labels), -1, ROW))
    table = given.table
    assert kernels.is_sound(table)
    slots = table.slots.copy()
    where = data.draw(st.integers(0, slots.shape[0] - 1))
    slots[where] = data.draw(st.one_of(st.integers(0, given.count + 1), st.integers(0, 2**32 - 1)))
    # As many slots are taken as there are rows, and each leads to a row.
    sound = np.count_nonzero(slots) == given.count and slots.max(initial=0) <= given.count
    assert kernels.is_sound(table._replace(slots=slots)) == sound
    offset = table.offset.copy()
    where = data.draw(st.integers(0, given.count))
    offset[where] = data.draw(st.one_of(st.integers(-1, table.data.shape[0] + 1), st.integers(-(2**63), 2**63 - 1)))
    sound = offset[0] >= 0 and offset[-1] <= table.data.shape[0] and (offset[1:] >= offset[:-1]).all()
    assert kernels.is_sound(table._replace(offset=offset)) == sound


def test_tables_without_a_free_slot_are_not_sound() -> None:
    """A search would not end."""
    table = LabelTable(np.zeros(4, np.uint8), np.arange(5), np.zeros(4, np.uint64), np.arange(1, 5, dtype=np.uint32))
    assert not kernels.is_sound(table)
    assert not kernels.is_sound(table._replace(slots=np.zeros(16, np.uint32)))
    assert not kernels.is_sound(table._replace(offset=np.arange(4)))
