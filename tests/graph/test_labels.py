"""Labels: slices of bytes that read back as the strings they were made from."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.labels import Labels
from tests.graphs import ODD_LABELS

texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=20)


@given(texts)
def test_labels_of_strings_read_back(labels: list[str]) -> None:
    made = Labels.from_strings(labels)
    assert len(made) == len(labels)
    assert list(made) == labels


def test_odd_labels_read_back() -> None:
    assert list(Labels.from_strings(ODD_LABELS)) == ODD_LABELS


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


def test_arrow_column_of_empty_labels() -> None:
    assert list(Labels.from_arrow(pa.array(["", ""], pa.large_string()))) == ["", ""]


def test_nulls_are_refused() -> None:
    with pytest.raises(ValueError, match="1 null"):
        Labels.from_arrow(pa.array(["a", None], pa.string()))


def test_constant_label() -> None:
    assert list(Labels.constant("é", 3)) == ["é", "é", "é"]
    assert list(Labels.constant("é", 0)) == []


def test_slices_may_overlap_and_repeat() -> None:
    data = np.frombuffer(b"abcd", np.uint8)
    made = Labels(data, np.array([0, 1, 0, 4]), np.array([2, 4, 4, 4]))
    assert list(made) == ["ab", "bcd", "abcd", ""]


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
