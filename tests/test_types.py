"""What every layer speaks of: triples by column, splits, fields, and the errors that a user sees."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dkge_dist.types import OFFSET, ROW, TRAINED, DkgeError, Field, Split, Triples, UsageError


def some_triples() -> Triples:
    return Triples(np.array([3, 1, 2], ROW), np.array([0, 0, 1], ROW), np.array([5, 6, 7], ROW))


def test_a_count_is_that_of_triples_and_not_of_columns() -> None:
    assert some_triples().count == 3
    assert len(some_triples()) == 3, "the columns"
    assert Triples.empty().count == 0


@pytest.mark.parametrize("where", [np.array([2, 0]), np.array([True, False, True]), slice(1, None), slice(2)])
def test_triples_are_taken_by_indices_masks_and_slices(where: object) -> None:
    found, triples = some_triples().take(where), some_triples()
    for column, whole in zip(found, triples, strict=True):
        assert np.array_equal(column, whole[where])  # type: ignore[index]


def test_triples_one_after_the_other_keep_their_order_and_types() -> None:
    both = Triples.concat([some_triples(), Triples.empty(), some_triples().take(slice(1))])
    assert both.head.tolist() == [3, 1, 2, 3]
    assert both.tail.tolist() == [5, 6, 7, 5]
    assert {column.dtype for column in both} == {np.dtype(ROW)}
    nothing = Triples.concat([])
    assert (nothing.count, nothing.head.dtype) == (0, np.dtype(ROW))


def test_splits_are_numbered_and_named_as_in_files() -> None:
    assert [(int(split), split.label) for split in Split] == [(0, "train"), (1, "valid"), (2, "test")]


def test_fields_have_the_names_of_tables_in_stores() -> None:
    assert [field.value for field in Field] == ["knowledge", "context", "joint"]
    assert Field("joint") is Field.JOINT
    assert {"joint": 1}[Field.JOINT] == 1, "a field serves as a key where its name does"
    assert Field.JOINT not in TRAINED
    assert set(TRAINED) | {Field.JOINT} == set(Field)


def test_rows_are_small_and_offsets_are_not() -> None:
    assert (np.dtype(ROW).itemsize, np.dtype(OFFSET).itemsize) == (4, 8)


def test_wrong_usage_is_an_error_that_a_user_sees() -> None:
    assert issubclass(UsageError, DkgeError)


def test_it_imports_nothing_but_numpy() -> None:
    script = (
        "import sys, numpy; before = set(sys.modules)\n"
        "import dkge_dist.types\n"
        "new = {name.partition('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - {'numpy', *sys.stdlib_module_names}))"
    )
    command = [sys.executable, "-c", script]
    root = Path(__file__).parents[1]
    done = subprocess.run(command, capture_output=True, text=True, cwd=root, timeout=60, check=True)
    assert done.stdout.strip() == "['dkge_dist']"
