"""Sources encoded as rows: splits, deletions, progress, and columns in another order."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.source_diff import SWAPPED_MINIMUM, Encoded, columns_look_swapped, encode
from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import Rejects, SourceError
from dkge_dist.graph.sources.delimited import ChangeSource, TsvSource
from dkge_dist.types import Split, Triples
from tests.graphs import labelled, lines, movies, write_changes, write_tsv
from tests.strategies import to_list, to_triples

A, B, C = ("a", "r", "b"), ("b", "s", "c"), ("c", "r", "a")


def names() -> tuple[Dictionary, Dictionary]:
    return Dictionary(noun="entity"), Dictionary(noun="relation")


def test_triples_of_every_split_in_file_order(tmp_path: Path) -> None:
    by_split = {Split.TRAIN: [A, B, A], Split.VALID: [C], Split.TEST: [B]}
    paths = {split: write_tsv(tmp_path / f"{split.label}.tsv", by_split[split]) for split in Split}
    known = names()
    encoded = encode(TsvSource(tmp_path, files=paths), *known, Rejects())
    assert encoded.count == 5
    assert encoded.deleted.tolist() == []
    for split in Split:
        assert labelled(encoded.splits[split].take(slice(2)), known) == set(by_split[split])
    assert to_list(encoded.splits[Split.TRAIN]) == [(0, 0, 1), (1, 1, 2), (0, 0, 1)]


@pytest.mark.parametrize("chunk", [8, 1 << 20])
def test_rows_do_not_depend_on_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Heads of a chunk come before its tails: labels get their rows in this order, and keep them."""
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
    known = names()
    triples = movies(60)
    encoded = encode(TsvSource(write_tsv(tmp_path / "graph.tsv", triples)), *known, Rejects())
    found = encoded.splits[Split.TRAIN]
    columns = known[0].labels(found.head), known[1].labels(found.relation), known[0].labels(found.tail)
    assert list(zip(*columns, strict=True)) == triples
    again = encode(TsvSource(tmp_path / "graph.tsv"), *known, Rejects())
    assert to_list(again.splits[Split.TRAIN]) == to_list(found)


def test_deleted_marks_the_lines_of_a_change_file(tmp_path: Path) -> None:
    change = write_changes(tmp_path / "night.changes", [A, B], [C])
    encoded = encode(ChangeSource(change), *names(), Rejects())
    assert encoded.deleted.tolist() == [False, False, True]
    assert encoded.splits[Split.TRAIN].count == 3


def test_progress_ends_at_the_size_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 64)
    path = write_tsv(tmp_path / "graph.tsv", movies(60))
    calls: list[tuple[int, int]] = []
    encode(TsvSource(path), *names(), Rejects(), lambda done, total: calls.append((done, total)))
    size = path.stat().st_size
    assert len(calls) > 5
    assert calls == sorted(calls)
    assert calls[-1] == (size, size)


def test_source_without_triples_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.tsv"
    path.write_text("\n\n")
    with pytest.raises(SourceError, match=r"graph\.tsv: no triples in it"):
        encode(TsvSource(path), *names(), Rejects())


def test_bad_lines_get_no_rows(tmp_path: Path) -> None:
    path = tmp_path / "graph.tsv"
    path.write_text(lines([A]) + "x\t\ty\n")
    known = names()
    rejects = Rejects(limit=1)
    assert encode(TsvSource(path), *known, rejects).count == 1
    assert len(rejects.lines) == 1
    assert (len(known[0]), len(known[1])) == (2, 1)


def encoded_of(triples: list[tuple[int, int, int]]) -> Encoded:
    return Encoded((to_triples(triples), Triples.empty(), Triples.empty()), np.empty(0, bool))


def test_many_relations_between_few_entities_look_swapped() -> None:
    """(head, tail, relation) read as (head, relation, tail): tails are taken for relations."""
    swapped = encoded_of([(i % 7, i, i % 3) for i in range(SWAPPED_MINIMUM)])
    assert columns_look_swapped(swapped, 0)
    right = encoded_of([(i % 7, i % 3, i) for i in range(SWAPPED_MINIMUM)])
    assert not columns_look_swapped(right, 0)


def test_few_triples_and_known_relations_do_not_look_swapped() -> None:
    few = encoded_of([(i % 7, i, i % 3) for i in range(SWAPPED_MINIMUM - 1)])
    assert not columns_look_swapped(few, 0)
    known = encoded_of([(i % 7, i, i % 3) for i in range(SWAPPED_MINIMUM)])
    assert not columns_look_swapped(known, relations_known=SWAPPED_MINIMUM)
