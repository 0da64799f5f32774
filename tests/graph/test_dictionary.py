"""The dictionary: permanent rows, found by label after any number of nights, stored in few segments."""

from __future__ import annotations

import itertools
import unicodedata
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph import dictionary as dictionary_module
from dkge_dist.graph.dictionary import Dictionary, NamedRow, NameTable, fold
from dkge_dist.graph.labels import Labels
from dkge_dist.kernels import labels as label_kernels
from dkge_dist.kernels.hashing import digests
from dkge_dist.types import Array, DkgeError
from tests.graphs import ODD_LABELS


def encode(names: Dictionary, labels: list[str]) -> list[int]:
    return names.encode(Labels.from_strings(labels)).tolist()


def lookup(names: Dictionary, labels: list[str]) -> list[int]:
    return names.lookup(Labels.from_strings(labels)).tolist()


def reopened(names: Dictionary) -> Dictionary:
    """What the next night sees."""
    return Dictionary(names.grown, names.noun)


def constant_digests(data: Array, start: Array, stop: Array) -> Array:
    return np.full(start.shape[0], 12345, np.uint64)


def test_rows_are_in_order_of_appearance() -> None:
    names = Dictionary()
    assert encode(names, ["b", "a", "b", "c", "a"]) == [0, 1, 0, 2, 1]
    assert encode(names, ["d", "a"]) == [3, 1]
    assert len(names) == 4
    assert names.labels(np.arange(4)) == ["b", "a", "c", "d"]


def test_lookup_gives_no_row() -> None:
    names = Dictionary()
    encode(names, ["a"])
    assert lookup(names, ["b", "a"]) == [-1, 0]
    assert len(names) == 1
    assert encode(names, ["c"]) == [1]


def test_rows_are_permanent() -> None:
    names = Dictionary()
    encode(names, ["a", "b"])
    names = reopened(names)
    assert encode(names, ["c", "b", "a"]) == [2, 1, 0]
    names = reopened(names)
    assert lookup(names, ["a", "b", "c", "d"]) == [0, 1, 2, -1]
    assert names.labels(np.array([2, 0, 1])) == ["c", "a", "b"]


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


def test_composed_and_decomposed_letters_are_different_labels() -> None:
    composed, decomposed = unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é")
    names = Dictionary()
    assert encode(names, [composed, decomposed, composed]) == [0, 1, 0]
    assert names.labels(np.array([1, 0])) == [decomposed, composed]


def test_odd_labels_keep_every_byte() -> None:
    names = Dictionary()
    assert encode(names, [*ODD_LABELS, ""]) == list(range(len(ODD_LABELS) + 1))
    names = reopened(names)
    assert names.labels(np.arange(len(names))) == [*ODD_LABELS, ""]
    assert lookup(names, ["", *ODD_LABELS]) == [len(ODD_LABELS), *range(len(ODD_LABELS))]


def test_very_long_labels_are_told_apart_by_their_last_byte() -> None:
    long = "x" * 1_000_000
    names = Dictionary()
    assert encode(names, [long + "a", long + "b", long, long + "b"]) == [0, 1, 2, 1]
    assert reopened(names).label(1) == long + "b"


def test_empty_dictionary() -> None:
    names = Dictionary()
    assert encode(names, []) == []
    assert len(names) == 0
    assert names.grown == []
    assert lookup(reopened(names), ["a"]) == [-1]
    assert names.digests.shape == (0,)


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


def test_segments_are_kept_without_new_labels() -> None:
    names = Dictionary()
    encode(names, ["a", "b"])
    names = reopened(names)
    encode(names, ["b", "a"])
    assert all(grown is segment for grown, segment in zip(names.grown, names.segments, strict=True))


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
