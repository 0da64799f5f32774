"""OpenKE folders: `entity2id.txt`, `relation2id.txt` and `train2id.txt` (and valid, test), each opening with its count.

Triples are **head tail relation** ids. Ids are local to the folder: only labels leave this module.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import Rejects, Source, SourceError, TripleBatch
from dkge_dist.graph.sources.files import LineChunk, read_line_chunks
from dkge_dist.kernels.hashing import digests
from dkge_dist.kernels.text import CARRIAGE_RETURN, MAX_DECIMAL_DIGITS, NEWLINE, SPACE, decimals, split_fields
from dkge_dist.types import OFFSET, Array, Split

TAB = 9
BLANKS = " \t\r\v\f"
"""What may stand around ids. Python strips more, such as \\x1c, which belongs to no number."""


_TO_SPACES = str.maketrans(dict.fromkeys(BLANKS, " "))


class OpenKeSource(Source):
    """The splits of the folder are taken as given; a missing valid or test file is an empty split."""

    format = "openke"

    def prepare(self) -> None:
        self.files = {split: self.path / f"{split.label}2id.txt" for split in Split}
        self.brings_splits = any(self.files[split].exists() for split in (Split.VALID, Split.TEST))

    def used_files(self) -> list[Path]:
        return [self.path / "entity2id.txt", self.path / "relation2id.txt", *self.files.values()]

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        entities = self._vocabulary(self.path / "entity2id.txt")
        relations = self._vocabulary(self.path / "relation2id.txt")
        seen = np.zeros(len(entities), bool)
        for split, path in self.files.items():
            if split is not Split.TRAIN and not path.exists():
                continue
            for ids in self._triples(path, len(entities), len(relations), rejects):
                head, tail, relation = ids.T
                seen[head] = seen[tail] = True
                yield TripleBatch(entities.take(head), relations.take(relation), entities.take(tail), split)
        self.counts["entities in no triple"] += int((~seen).sum())

    def _vocabulary(self, path: Path) -> Labels:
        """The labels by id. No bad line is set aside here: the label of its id would be missing."""
        body = _Body(path)
        parts = [_read_labels(path, chunk) for chunk in body.chunks(self, Rejects())]
        labels = Labels.concat([part for part, _, _ in parts])
        none = np.empty(0, OFFSET)
        ids, lines = (np.concatenate([none, *(part[i] for part in parts)]) for i in (1, 2))
        body.lines = len(labels)
        body.check_count("labels")
        outside = np.flatnonzero(ids >= body.count)
        if outside.shape[0]:
            i = outside[0]
            raise SourceError(f"{path}:{lines[i]}: id {ids[i]} is out of range, there are {body.count}")
        for i in _repeated(ids)[:1]:
            raise SourceError(f"{path}:{lines[i]}: id {ids[i]} is given a second time")
        digest = digests(labels.data, labels.start, labels.stop)
        for i in _repeated(digest):
            if sum(label == labels[i] for label in labels.take(digest == digest[i])) > 1:
                raise SourceError(f"{path}:{lines[i]}: label {labels[i]!r} is given a second time")
        return labels.take(np.argsort(ids))

    def _triples(self, path: Path, entities: int, relations: int, rejects: Rejects) -> Iterator[Array]:
        """Rows of (head, tail, relation) ids, checked."""
        body = _Body(path)
        limits = np.array([entities, entities, relations])
        for chunk in body.chunks(self, rejects):
            ids, lines = _read_ids(body, chunk, rejects)
            wrong = (ids >= limits).any(axis=1)
            if wrong.any():
                swapped = bool((ids[:, 1] < relations).all() and (ids[:, 2] < entities).all())
                hint = "; the columns look like head relation tail" if swapped else ""
                for row, line in zip(ids[wrong].tolist(), lines[wrong].tolist(), strict=True):
                    column = next(c for c in range(3) if row[c] >= limits[c])
                    kind = ("head", "tail", "relation")[column]
                    reason = f"{kind} id {row[column]} is out of range, there are {limits[column]}{hint}"
                    rejects.add(path, line, reason, " ".join(map(str, row)))
            yield ids[~wrong]
        body.check_count("triples")


class _Body:
    """The lines of a file below the count in its first line; callers count them in `lines`, bad ones included."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.count = 0
        self.lines = 0

    def chunks(self, source: Source, rejects: Rejects) -> Iterator[LineChunk]:
        """The lines after the first, which is read as the count."""
        empty = True
        for chunk in read_line_chunks(self.path, source, rejects):
            if chunk.first_line == 1:
                end = int(np.argmax(chunk.data == NEWLINE)) + 1
                first = chunk.data[:end].tobytes().decode("utf-8").strip(BLANKS + "\n")
                if not _is_number(first):
                    raise SourceError(f"{self.path}:1: expected a count, found {first[:80]!r}")
                self.count = int(first)
                chunk = LineChunk(chunk.data[end:], 2, chunk.emptied)
            empty = False
            if chunk.data.shape[0]:
                yield chunk
        if empty:
            raise SourceError(f"{self.path}:1: expected a count, the file is empty")

    def check_count(self, noun: str) -> None:
        """Compare the count in the first line with the lines."""
        if self.count != self.lines:
            raise SourceError(f"{self.path}:1: the header says {self.count} {noun}, the file has {self.lines}")


def _read_labels(path: Path, chunk: LineChunk) -> tuple[Labels, Array, Array]:
    """Labels, their ids and the numbers of their lines."""
    start, stop, found = split_fields(chunk.data, 2)
    _cut_line_ends(chunk.data, start, stop)
    ids = decimals(chunk.data, start[:, 1], stop[:, 1])
    kept = (found == 2) & (ids >= 0) & (start[:, 0] < stop[:, 0])
    for i, begin, end in _lines_at(chunk, ~kept):
        # Rare: an empty line, blanks around the id, or tabs in the label.
        line = chunk.data[begin:end].tobytes().decode("utf-8").removesuffix("\r")
        label, _, key = line.rpartition("\t")
        key = key.strip(BLANKS)
        if line.strip(BLANKS):
            if not label or not _is_number(key):
                raise SourceError(f"{path}:{chunk.first_line + i}: expected `label<TAB>id`, found {line[:200]!r}")
            start[i, 0], stop[i, 0] = begin, begin + len(label.encode("utf-8"))
            ids[i] = int(key)
            kept[i] = True
    labels = Labels(chunk.data, start[kept, 0], stop[kept, 0])
    return labels, ids[kept], np.flatnonzero(kept) + chunk.first_line


def _read_ids(body: _Body, chunk: LineChunk, rejects: Rejects) -> tuple[Array, Array]:
    """Three ids a line, separated by tabs or blanks, and the numbers of these lines."""
    data = np.where(chunk.data == TAB, np.uint8(SPACE), chunk.data)
    start, stop, found = split_fields(data, 3, " ")
    _cut_line_ends(data, start, stop)
    ids = decimals(data, start.ravel(), stop.ravel()).reshape(-1, 3)
    kept = (found == 3) & (ids >= 0).all(axis=1)
    body.lines += int(kept.sum())
    for i, begin, end in _lines_at(chunk, ~kept):
        line = chunk.data[begin:end].tobytes().decode("utf-8").removesuffix("\r")
        keys = [key for key in line.translate(_TO_SPACES).split(" ") if key]
        number = chunk.first_line + i
        body.lines += bool(keys) or number in chunk.emptied
        if len(keys) == 3 and all(_is_number(key) for key in keys):
            ids[i] = [int(key) for key in keys]
            kept[i] = True
        elif keys:
            rejects.add(body.path, number, "expected three ids: head tail relation", line)
    return ids[kept], np.flatnonzero(kept) + chunk.first_line


def _lines_at(chunk: LineChunk, where: Array) -> Iterator[tuple[int, int, int]]:
    """Number, begin and end of some lines of a chunk."""
    if where.any():
        ends = np.flatnonzero(chunk.data == NEWLINE)
        for i in np.flatnonzero(where).tolist():
            yield i, int(ends[i - 1]) + 1 if i else 0, int(ends[i])


def _cut_line_ends(data: Array, start: Array, stop: Array) -> None:
    """Cut the CR of CRLF off the last column, which holds no label."""
    last = stop[:, -1]
    last -= (last > start[:, -1]) & (data[last - 1] == CARRIAGE_RETURN)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MAX_DECIMAL_DIGITS


def _repeated(values: Array) -> list[int]:
    """Where a value stands that stood before, in order."""
    order = np.argsort(values, kind="stable")
    return sorted(order[1:][values[order][1:] == values[order][:-1]].tolist())
