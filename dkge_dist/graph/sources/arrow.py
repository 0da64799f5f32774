"""Arrow columns as labels, for Parquet files and tables in memory. Rows that hold no label go to `Rejects`.

Labels are strings in any Arrow form, or integers, which become decimals. Rows are counted from 1.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources import files as source_files
from dkge_dist.graph.sources.base import Rejects, SourceError
from dkge_dist.graph.sources.columns import Columns, columns_of
from dkge_dist.types import Array


def columns_of_schema(schema: pa.Schema, said: Columns | None, where: str) -> tuple[str, str, str]:
    """The names of the columns that hold heads, relations and tails; an error if one is of another type."""
    head, relation, tail = (schema.names[place] for place in columns_of(schema.names, said, where))
    for name in (head, relation, tail):
        found = schema.names.count(name)
        if found != 1:
            raise SourceError(f"{where}: {found} columns named {name!r}; the columns are {', '.join(schema.names)}")
        kind = schema.field(name).type
        if not _is_label_type(kind):
            hint = " (a column of integers with gaps?)" if pa.types.is_floating(kind) else ""
            raise SourceError(f"{where}: column {name!r} is of type {kind}{hint}; labels are strings or integers")
    return head, relation, tail


def _is_label_type(kind: pa.DataType) -> bool:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
        or pa.types.is_integer(kind)
    )


def labels_of(
    batch: pa.RecordBatch, names: tuple[str, str, str], path: Path, first_row: int, rejects: Rejects
) -> list[Labels]:
    """Heads, relations and tails of the rows that can be used; the others go to `rejects`."""
    columns = [_column(batch.column(name)) for name in names]
    problems: dict[int, str] = {}
    for name, column in zip(names, columns, strict=True):
        for row, problem in _bad_rows(column):
            problems.setdefault(row, f"{problem} in column {name!r} of this row")
    for row in sorted(problems):
        rejects.add(path, first_row + row, problems[row])
    good = np.ones(batch.num_rows, np.bool_)
    good[list(problems)] = False
    return [Labels.from_arrow(column.values.fill_null("")).take(column.places[good]) for column in columns]


class _Column(NamedTuple):
    """A column as its different labels, and the place of each row's among them; -1 for null."""

    values: pa.LargeStringArray
    places: Array


def _column(column: pa.Array) -> _Column:
    if pa.types.is_dictionary(column.type):
        places = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)
        return _Column(column.dictionary.cast(pa.large_string()), places)
    return _Column(column.cast(pa.large_string()), np.arange(len(column)))


def _bad_rows(column: _Column) -> Iterator[tuple[int, str]]:
    """Rows that hold no label, and what is wrong with them."""
    values, places = column
    for row in np.flatnonzero(places < 0).tolist():
        yield row, "null"
    # A damaged file may refer to what its dictionary does not have.
    for row in np.flatnonzero(places >= len(values)).tolist():
        yield row, "a value that is not in its dictionary"
    for place, problem in _bad_values(values):
        for row in np.flatnonzero(places == place).tolist():
            yield row, problem


def _bad_values(values: pa.LargeStringArray) -> Iterator[tuple[int, str]]:
    """Places of what is no label, and what is wrong with it."""
    for place in _where(values.is_null()):
        yield int(place), "null"
    size = pc.binary_length(values)
    for place in _where(pc.equal(size, 0)):
        yield int(place), "empty label"
    for place in _where(pc.greater(size, source_files.MAX_LINE_BYTES)):
        yield int(place), f"a label of over {source_files.MAX_LINE_BYTES >> 20} MiB"
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        for place, value in enumerate(values.cast(pa.large_binary())):
            text = value.as_py()
            if text is not None and text.decode("utf-8", "ignore").encode("utf-8") != text:
                yield place, "broken UTF-8"


def _where(mask: pa.BooleanArray) -> Array:
    return np.flatnonzero(mask.fill_null(False).to_numpy(zero_copy_only=False))
