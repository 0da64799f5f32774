"""Arrow columns as labels: what `test_parquet` and `test_memory` do not reach."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from dkge_dist.graph.sources.arrow import columns_of_schema, labels_of
from dkge_dist.graph.sources.base import Rejects, SourceError


def test_references_to_what_a_dictionary_does_not_have_are_bad_rows() -> None:
    """Arrow itself does not look when it reads a damaged file."""
    buffers = [None, pa.py_buffer(np.array([0, 5, 1], np.int32))]
    kind = pa.dictionary(pa.int32(), pa.string())
    damaged = pa.DictionaryArray.from_buffers(kind, 3, buffers, pa.array(["a", "b"]))
    plain = pa.array(["x", "y", "z"])
    batch = pa.RecordBatch.from_arrays([damaged, plain, plain], ["h", "r", "t"])
    with pytest.raises(SourceError, match=r"^f:12: a value that is not in its dictionary in column 'h' of this row$"):
        labels_of(batch, ("h", "r", "t"), Path("f"), 11, Rejects())
    head, _, tail = labels_of(batch, ("h", "r", "t"), Path("f"), 11, Rejects(limit=1))
    assert (list(head), list(tail)) == (["a", "b"], ["x", "z"])


def test_columns_by_name_and_type() -> None:
    schema = pa.schema([("Object", pa.string()), ("Subject", pa.int64()), ("Predicate", pa.large_string())])
    assert columns_of_schema(schema, None, "f") == ("Subject", "Predicate", "Object")
    with pytest.raises(SourceError, match=r"^f: column 'x' is of type bool; labels are strings or integers$"):
        columns_of_schema(pa.schema([("x", pa.bool_()), ("r", pa.string()), ("t", pa.string())]), (1, 2, 3), "f")
