"""Display names as arrays against plain dictionaries, and folding of many against folding of each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.dictionary import NameTable, fold, folded, name_hash, name_hashes, names_of_rows
from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import NameBatch
from dkge_dist.types import ROW

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
NAMES = st.lists(st.one_of(TEXT, st.sampled_from(["Straße", "STRASSE", "İstanbul", "ΑΣ", "The Matrix", "a\0b", "ﬁ"])))


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


@given(NAMES)
def test_many_names_are_folded_as_each_alone(names: list[str]) -> None:
    labels = Labels.from_strings(names)
    assert list(folded(labels)) == [fold(name) for name in names]
    assert name_hashes(labels).tolist() == [name_hash(name) for name in names]
    assert list(labels) == names, "what is folded is a copy"


def test_names_that_differ_in_case_alone_have_one_hash() -> None:
    for one, other in (("The Matrix", "the MATRIX"), ("Amélie", "AMÉLIE"), ("Straße", "STRASSE")):
        assert name_hash(one) == name_hash(other)
    assert name_hash("Amélie") != name_hash("Amelie")
