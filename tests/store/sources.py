"""Sources of some shape, out of labelled triples."""

from __future__ import annotations

from pathlib import Path

from tests.graphs import Labelled, write_tsv


def write_splits(path: Path, **by_split: list[Labelled]) -> Path:
    """A folder with a file for each split."""
    for name, triples in by_split.items():
        write_tsv(path / f"{name}.tsv", triples)
    return path


def swapped(triples: list[Labelled]) -> list[Labelled]:
    """Head, tail, relation."""
    return [(head, tail, relation) for head, relation, tail in triples]
