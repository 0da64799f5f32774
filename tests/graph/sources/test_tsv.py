"""Plain triples: every byte of every label comes back, at any chunk border, and splits are those of the folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.delimited import TsvSource
from dkge_dist.types import Split
from tests.graph.sources.reading import GOOD, read, triples, written
from tests.graphs import Labelled, lines, odd_triples


def source(folder: Path, content: bytes | str) -> TsvSource:
    return TsvSource(written(folder / "graph.tsv", content))


def test_each_line_is_a_triple(tmp_path: Path) -> None:
    assert triples(source(tmp_path, lines(GOOD))) == GOOD


def test_odd_labels_keep_every_byte(tmp_path: Path) -> None:
    assert triples(source(tmp_path, lines(odd_triples()))) == odd_triples()


labels = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\t\n\r"), min_size=1, max_size=6)


@settings(max_examples=60)
@given(st.lists(st.tuples(labels, labels, labels), min_size=1, max_size=12), st.integers(1, 40), st.booleans())
def test_any_label_at_any_chunk_border(
    tmp_path_factory: pytest.TempPathFactory, given_triples: list[Labelled], chunk: int, crlf: bool
) -> None:
    content = lines(given_triples, end="\r\n" if crlf else "\n")
    path = written(tmp_path_factory.getbasetemp() / "any.tsv", "\n" + content)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK_BYTES", chunk)
        assert triples(TsvSource(path)) == given_triples


def test_splits_are_the_files_of_a_folder(tmp_path: Path) -> None:
    by_split = {Split.TRAIN: GOOD[:1], Split.VALID: GOOD[1:2], Split.TEST: GOOD[2:]}
    paths = {split: written(tmp_path / f"{split.label}.tsv", lines(by_split[split])) for split in Split}
    folder = TsvSource(tmp_path, files=paths)
    assert folder.brings_splits
    assert read(folder) == list(zip(Split, GOOD, strict=True))
    assert folder.bytes_read == folder.bytes_total == sum(path.stat().st_size for path in paths.values())
