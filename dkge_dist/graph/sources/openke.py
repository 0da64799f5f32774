"""OpenKE folders: `entity2id.txt`, `relation2id.txt` and `train2id.txt` (and valid, test), each opening with its count.

Triples stand as **head tail relation** ids. Ids belong to this folder alone and are gone once the labels are looked up.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import Rejects, Source, SourceError, TripleBatch
from dkge_dist.graph.sources.files import read_line_chunks
from dkge_dist.types import OFFSET, Array, Split


class OpenKeSource(Source):
    """The folder's own splits are taken as they are; a missing valid or test file is an empty split."""

    format = "openke"

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.files = {split: path / f"{split.label}2id.txt" for split in Split}
        used = [path / "entity2id.txt", path / "relation2id.txt", *self.files.values()]
        self.bytes_total = sum(file.stat().st_size for file in used if file.exists())
        self.brings_splits = any(self.files[split].exists() for split in (Split.VALID, Split.TEST))

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        entities = self._vocabulary(self.path / "entity2id.txt", rejects)
        relations = self._vocabulary(self.path / "relation2id.txt", rejects)
        seen = np.zeros(len(entities), bool)
        for split, path in self.files.items():
            if split is not Split.TRAIN and not path.exists():
                continue
            ids = self._triples(path, len(entities), len(relations), rejects)
            head, tail, relation = ids.T
            seen[head] = seen[tail] = True
            yield TripleBatch(entities.take(head), relations.take(relation), entities.take(tail), split)
        self.counts["entities in no triple"] += int((~seen).sum())

    def _lines(self, path: Path, rejects: Rejects) -> tuple[int, list[tuple[int, str]]]:
        """The count that a file opens with, and its other lines with their numbers."""
        text = "".join(chunk.data.tobytes().decode() for chunk in read_line_chunks(path, self, rejects))
        # Split at newlines only: labels may hold U+2028 and other characters that `splitlines` takes for line ends.
        first, *others = [line.removesuffix("\r") for line in text.split("\n")]
        if not first.strip().isdecimal():
            raise SourceError(f"{path}:1: expected a count, found {first[:80]!r}")
        return int(first), [(number, line) for number, line in enumerate(others, 2) if line.strip()]

    def _vocabulary(self, path: Path, rejects: Rejects) -> Labels:
        count, lines = self._lines(path, rejects)
        if count != len(lines):
            raise SourceError(f"{path}:1: the header says {count} labels, the file has {len(lines)}")
        labels: list[str | None] = [None] * count
        for number, line in lines:
            label, _, key = line.rpartition("\t")
            if not label or not key.strip().isdecimal():
                raise SourceError(f"{path}:{number}: expected `label<TAB>id`, found {line[:200]!r}")
            if int(key) >= count:
                raise SourceError(f"{path}:{number}: id {int(key)} is out of range, there are {count}")
            if labels[int(key)] is not None:
                raise SourceError(f"{path}:{number}: id {int(key)} is given a second time ({line[:200]!r})")
            labels[int(key)] = label
        if len(set(labels)) != count:
            repeated = next(label for label in labels if labels.count(label) > 1)
            raise SourceError(f"{path}: label {repeated!r} stands there more than once")
        return Labels.from_strings([label for label in labels if label is not None])

    def _triples(self, path: Path, entities: int, relations: int, rejects: Rejects) -> Array:
        """Rows of (head, tail, relation) ids, checked."""
        count, lines = self._lines(path, rejects)
        if count != len(lines):
            raise SourceError(f"{path}:1: the header says {count} triples, the file has {len(lines)}")
        rows = []
        for number, line in lines:
            ids = line.split()
            if len(ids) != 3 or not all(key.isdecimal() for key in ids):
                rejects.add(path, number, "expected three ids: head tail relation", line)
                continue
            rows.append((int(ids[0]), int(ids[1]), int(ids[2]), number))
        table = np.array(rows, OFFSET).reshape(-1, 4)
        limits = (entities, entities, relations)
        wrong = np.any([table[:, c] >= limit for c, limit in enumerate(limits)], axis=0)
        if wrong.any():
            swapped = bool((table[:, 1] < relations).all() and (table[:, 2] < entities).all())
            hint = "; the columns look like head relation tail" if swapped else ""
            for row in table[wrong]:
                column = next(c for c, limit in enumerate(limits) if row[c] >= limit)
                kind = ("head", "tail", "relation")[column]
                text = " ".join(str(key) for key in row[:3])
                reason = f"{kind} id {row[column]} is out of range, there are {limits[column]}{hint}"
                rejects.add(path, int(row[3]), reason, text)
        return table[~wrong, :3]
