"""Python values as triples: what `test_jsonl` does not reach."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.graph.sources.rows import RowError, RowReader


def test_values_of_numpy_are_labels() -> None:
    assert RowReader(None).read(np.array(["a", "r", "b"])) == ["a", "r", "b"]
    assert RowReader(None).read((np.int64(7), "r", np.str_("b"))) == ["7", "r", "b"]
    with pytest.raises(RowError, match="null in place of the head"):
        RowReader(None).read((np.float64("nan"), "r", "b"))


def test_other_keys_than_strings_are_ignored() -> None:
    assert RowReader(None).read({1: "x", "s": "a", "p": "r", "o": "b"}) == ["a", "r", "b"]


@pytest.mark.parametrize("row", ["abc", b"abc", 7, None, {"a", "b"}])
def test_what_is_no_row_is_refused(row: object) -> None:
    with pytest.raises(RowError, match=r"expected \(head, relation, tail\)"):
        RowReader(None).read(row)
