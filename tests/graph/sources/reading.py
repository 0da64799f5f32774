"""The triples of a source as plain Python values."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from dkge_dist.graph.sources.base import Rejects, Source, SourceError
from dkge_dist.types import Split
from tests.graphs import Labelled

Read = list[tuple[Split, Labelled]]

GOOD = [("a", "r", "b"), ("b", "s", "c"), ("c", "r", "a")]


def read(source: Source, rejects: Rejects | None = None) -> Read:
    """Every triple with its split, in order."""
    found: Read = []
    for batch in source.batches(rejects or Rejects()):
        found += [(batch.split, triple) for triple in zip(batch.head, batch.relation, batch.tail, strict=True)]
    return found


def triples(source: Source, rejects: Rejects | None = None) -> list[Labelled]:
    return [triple for _, triple in read(source, rejects)]


def signed(source: Source, rejects: Rejects | None = None) -> list[tuple[str, Labelled]]:
    """Every triple of a change file with its sign, in order."""
    found: list[tuple[str, Labelled]] = []
    for batch in source.batches(rejects or Rejects()):
        assert batch.deleted is not None
        columns = zip(batch.head, batch.relation, batch.tail, strict=True)
        found += [("-" if gone else "+", triple) for gone, triple in zip(batch.deleted, columns, strict=True)]
    return found


def names(source: Source, rejects: Rejects | None = None) -> dict[str, str]:
    """The display name that a source gives each label: of the lowest rank, then the last."""
    best: dict[str, tuple[int, str]] = {}
    for batch in source.batches(rejects or Rejects()):
        if batch.names is not None:
            columns = (batch.names.label, batch.names.name, batch.names.ranks.tolist())
            for label, name, rank in zip(*columns, strict=True):
                assert name or source.is_names
                if label not in best or rank <= best[label][0]:
                    best[label] = (rank, name)
    return {label: name for label, (_, name) in best.items()}


def refusal(source: Source, rejects: Rejects | None = None) -> str:
    """The error of a source that cannot be used."""
    with pytest.raises(SourceError) as caught:
        read(source, rejects)
    return str(caught.value)


def as_csv(rows: list[Labelled], end: str = "\n", delimiter: str = ",") -> str:
    """As Python's own writer writes it."""
    out = io.StringIO(newline="")
    csv.writer(out, delimiter=delimiter, lineterminator=end, quoting=csv.QUOTE_ALL).writerows(rows)
    return out.getvalue()


def written(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)
    return path
