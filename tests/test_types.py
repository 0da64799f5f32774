"""Triples, splits and fields: the values that all layers exchange."""

from __future__ import annotations

import numpy as np

from dkge_dist.types import ROW, TRAINED, Field, Split, Triples


def triples(*rows: tuple[int, int, int]) -> Triples:
    return Triples(*(np.array(column, ROW) for column in zip(*rows, strict=True)))


def test_count_is_that_of_triples_and_not_of_columns() -> None:
    some = triples((1, 2, 3), (4, 5, 6))
    assert (some.count, len(some)) == (2, 3)
    assert Triples.empty().count == 0


def test_take_takes_by_position_mask_and_slice() -> None:
    some = triples((1, 2, 3), (4, 5, 6), (7, 8, 9))
    for where in (np.array([2]), np.array([False, False, True]), slice(2, None)):
        taken = some.take(where)
        assert (taken.head.tolist(), taken.relation.tolist(), taken.tail.tolist()) == ([7], [8], [9])


def test_concat_keeps_the_order_and_the_types() -> None:
    joined = Triples.concat([triples((1, 2, 3)), Triples.empty(), triples((4, 5, 6))])
    assert joined.head.tolist() == [1, 4]
    assert all(column.dtype == ROW for column in joined)
    assert Triples.concat([]).head.dtype == ROW


def test_names_in_files_are_fixed() -> None:
    """Stores and JSON hold them: they cannot change."""
    assert [split.label for split in Split] == ["train", "valid", "test"]
    assert [field.value for field in Field] == ["knowledge", "context", "joint"]
    assert set(TRAINED) == {Field.KNOWLEDGE, Field.CONTEXT}
