"""Labels, their permanent rows in few segments, and display names of rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph import dictionary as dictionary_module
from dkge_dist.graph.dictionary import (
    Dictionary,
    NamedRow,
    NameTable,
    fold,
    folded,
    name_hash,
    name_hashes,
    names_of_rows,
)
from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import NameBatch
from dkge_dist.kernels import labels as label_kernels
from dkge_dist.kernels.hashing import digests
from dkge_dist.types import ROW, Array, DkgeError

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=20)


@given(texts, st.data())
def test_take_by_indices_mask_and_slice(labels: list[str], data: st.DataObject) -> None:
    made = Labels.from_strings(labels)
    flags = data.draw(st.lists(st.booleans(), min_size=len(labels), max_size=len(labels)))
    assert list(made.take(np.array(flags, bool))) == [x for x, flag in zip(labels, flags, strict=True) if flag]
    assert list(made.take(slice(1, None, 2))) == labels[1::2]
    if labels:
        picks = data.draw(st.lists(st.integers(0, len(labels) - 1), max_size=30))
        assert list(made.take(np.array(picks, np.int64))) == [labels[i] for i in picks]


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string()], ids=str)
@given(texts)
def test_labels_of_arrow_columns_read_back(kind: pa.DataType, labels: list[str]) -> None:
    column = pa.array(labels, kind)
    assert list(Labels.from_arrow(column)) == labels
    assert list(Labels.from_arrow(column[1:-1])) == labels[1:-1]
    assert list(Labels.from_arrow(pa.chunked_array([column, column[:1]], kind))) == labels + labels[:1]


def test_nulls_are_refused() -> None:
    with pytest.raises(ValueError, match="1 null"):
        Labels.from_arrow(pa.array(["a", None], pa.string()))


@given(st.lists(texts, max_size=4), st.data())
def test_compacted_and_joined_labels_are_the_same(parts: list[list[str]], data: st.DataObject) -> None:
    every = [label for part in parts for label in part]
    joined = Labels.concat([Labels.from_strings(part) for part in parts])
    assert list(joined) == every
    assert joined.to_arrow().to_pylist() == every
    order = data.draw(st.permutations(range(len(every))))[: len(every) // 2]
    some = joined.take(np.array(order, np.int64)).compacted()
    assert list(some) == [every[i] for i in order]
    assert some.data.shape[0] == sum(len(every[i].encode()) for i in order)


def encode(names: Dictionary, labels: list[str]) -> list[int]:
    return names.encode(Labels.from_strings(labels)).tolist()


def lookup(names: Dictionary, labels: list[str]) -> list[int]:
    return names.lookup(Labels.from_strings(labels)).tolist()


def reopened(names: Dictionary) -> Dictionary:
    """What the next night sees."""
    return Dictionary(names.grown, names.noun)


def constant_digests(data: Array, start: Array, stop: Array) -> Array:
    return np.full(start.shape[0], 12345, np.uint64)


steps = st.lists(
    st.one_of(st.just(None), st.lists(st.text("abé\u0301\t 😀", max_size=3), max_size=40)), min_size=1, max_size=12
)


@given(steps)
def test_encode_and_reopen_equal_a_python_dict(steps: list[list[str] | None]) -> None:
    names, expected = Dictionary(), dict[str, int]()
    for batch in steps:
        if batch is None:
            names = reopened(names)
            continue
        unknown = [label for label in batch if label not in expected]
        assert lookup(names, unknown) == [-1] * len(unknown)
        for label in batch:
            expected.setdefault(label, len(expected))
        assert encode(names, batch) == [expected[label] for label in batch]
        assert len(names) == len(expected)
    for known in (names, reopened(names)):
        assert lookup(known, list(expected)) == list(expected.values())
        assert known.labels(np.arange(len(expected))) == list(expected)


@given(steps)
def test_labels_with_equal_digests_are_told_apart(steps: list[list[str] | None]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(label_kernels, "digests", constant_digests)
        test_encode_and_reopen_equal_a_python_dict.hypothesis.inner_test(steps)  # type: ignore[attr-defined]


def test_unknown_rows_are_errors() -> None:
    names = Dictionary(noun="relation")
    encode(names, ["a"])
    for row in (1, -1):
        with pytest.raises(IndexError, match=f"relation row {row} of 1"):
            names.label(row)


def test_too_many_labels_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionary_module, "MAX_ROWS", 3)
    names = Dictionary(noun="relation")
    encode(names, ["a", "b"])
    with pytest.raises(DkgeError, match="over 3 different relation labels"):
        encode(names, ["c", "d"])
    assert len(names) == 2


def test_nights_of_few_labels_leave_few_segments() -> None:
    names = Dictionary()
    for night in range(100):
        encode(names, [f"{night}-{i}" for i in range(3)])
        names = reopened(names)
        sizes = [segment.count for segment in names.segments]
        assert sum(sizes) == 3 * (night + 1)
        assert all(size >= 2 * later for size, later in itertools.pairwise(sizes))
        assert [segment.first_row for segment in names.segments] == np.cumsum([0, *sizes[:-1]]).tolist()
    assert len(names.segments) <= 8
    assert names.labels(np.arange(300)) == [f"{night}-{i}" for night in range(100) for i in range(3)]


def test_large_segment_is_not_rewritten_for_a_small_one() -> None:
    names = Dictionary()
    encode(names, [f"old{i}" for i in range(1000)])
    names = reopened(names)
    large = names.segments[0]
    encode(names, ["new"])
    assert names.grown[0] is large
    assert [segment.count for segment in names.grown] == [1000, 1]


def test_slots_follow_the_number_of_labels_not_of_lines() -> None:
    few, many = Dictionary(), Dictionary()
    encode(few, ["a", "b"])
    encode(many, ["a", "b"] * 50_000)
    assert few.grown[0].table.slots.shape == many.grown[0].table.slots.shape
    assert np.array_equal(few.grown[0].table.slots, many.grown[0].table.slots)


def test_digests_are_those_of_the_labels_before_and_after_storing() -> None:
    first, second = ["a", "", "é"], ["b", "x" * 100]
    names = Dictionary()
    encode(names, first)
    names = reopened(names)
    encode(names, second)
    queries = Labels.from_strings(first + second)
    expected = digests(queries.data, queries.start, queries.stop)
    assert names.digests_of(np.array([4, 0, 2, 3, 1])).tolist() == expected[[4, 0, 2, 3, 1]].tolist()
    assert names.digests.tolist() == expected[:3].tolist()
    assert reopened(names).digests.tolist() == expected.tolist()


class NamesInMemory:
    """Display names of rows, as a store would give them."""

    def __init__(self, names: dict[int, str]) -> None:
        self.names = names

    def of(self, rows: Sequence[int]) -> list[str | None]:
        return [self.names.get(row) for row in rows]

    def find(self, name: str) -> list[NamedRow]:
        return [NamedRow(row, known) for row, known in self.names.items() if fold(known) == fold(name)]

    def table(self) -> NameTable:
        return NameTable.of(np.array([*self.names]), Labels.from_strings(self.names.values()))


def test_a_row_is_called_by_its_name_and_namesakes_by_their_labels_too() -> None:
    dictionary = Dictionary(display_names=NamesInMemory({0: "The Matrix", 2: "Hamlet", 3: "hamlet"}))
    dictionary.encode(Labels.from_strings(["tt0", "tt1", "tt2", "tt3"]))
    assert [dictionary.called(row) for row in range(4)] == ["The Matrix", "tt1", "Hamlet (tt2)", "hamlet (tt3)"]
    assert dictionary.names(np.arange(4)) == ["The Matrix", None, "Hamlet", "hamlet"]
    assert Dictionary().names(np.arange(2)) == [None, None]


TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
SOME_NAMES = st.lists(
    st.one_of(TEXT, st.sampled_from(["Straße", "STRASSE", "İstanbul", "ΑΣ", "The Matrix", "a\0b", "ﬁ"]))
)


def as_dict(table: NameTable) -> dict[int, str]:
    rows = table.rows.tolist()
    assert rows == sorted(set(rows))
    return dict(zip(rows, table.names, strict=True))


@given(st.lists(st.tuples(st.integers(0, 6), TEXT, st.integers(0, 3))))
def test_the_lowest_rank_counts_then_the_last(given_names: list[tuple[int, str, int]]) -> None:
    best: dict[int, tuple[int, str]] = {}
    for row, name, rank in given_names:
        if row not in best or rank <= best[row][0]:
            best[row] = (rank, name)
    rows, names, ranks = ([*column] for column in zip(*given_names, strict=True)) if given_names else ([], [], [])
    table = NameTable.of(np.array(rows, ROW), Labels.from_strings(names), np.array(ranks, np.uint8))
    assert as_dict(table) == {row: name for row, (_, name) in best.items()}


@given(st.lists(st.dictionaries(st.integers(0, 9), TEXT), max_size=4))
def test_newer_names_replace_older_ones(nights: list[dict[int, str]]) -> None:
    table, expected = NameTable.empty(), {}
    for night in nights:
        table = table.then(NameTable.of(np.array([*night], ROW), Labels.from_strings(night.values())))
        expected |= night
    assert as_dict(table) == expected


def test_labels_without_a_row_are_left_out() -> None:
    batches = [
        NameBatch(Labels.from_strings(["a", "b"]), Labels.from_strings(["A", "B"])),
        NameBatch(Labels.from_strings(["a", "c"]), Labels.from_strings(["other", "C"]), np.array([1, 0], np.uint8)),
    ]
    assert as_dict(names_of_rows(batches, np.array([5, -1, 5, 2], ROW))) == {5: "A", 2: "C"}
    assert as_dict(names_of_rows([], np.empty(0, ROW))) == {}


@given(SOME_NAMES)
def test_many_names_are_folded_as_each_alone(names: list[str]) -> None:
    labels = Labels.from_strings(names)
    assert list(folded(labels)) == [fold(name) for name in names]
    assert name_hashes(labels).tolist() == [name_hash(name) for name in names]
    assert list(labels) == names, "what is folded is a copy"


def test_names_that_differ_in_case_alone_have_one_hash() -> None:
    for one, other in (("The Matrix", "the MATRIX"), ("Amélie", "AMÉLIE"), ("Straße", "STRASSE")):
        assert name_hash(one) == name_hash(other)
    assert name_hash("Amélie") != name_hash("Amelie")
