"""The interface of all readers. In: a path. Out: a stream of `TripleBatch`.

A reader knows nothing of rows, stores or other formats. Lines that cannot be read go to `Rejects`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources import FORMATS
from dkge_dist.types import Array, DkgeError, Split

Columns = tuple[str | int, str | int, str | int]
"""Head, relation and tail as the user says them: names, or numbers from 1 on."""


class SourceError(DkgeError):
    """A source that cannot be used as it is; the message names the file, and the line where there is one."""


@dataclass(frozen=True)
class SourceOptions:
    """Options that belong to single formats."""

    released_after: int | None = None
    key: Literal["id", "name"] = "id"
    literals: bool = True
    label_language: str = "en"
    columns: Columns | None = None


@dataclass(frozen=True)
class NameBatch:
    """Display names of some labels, of entities or of relations; a label may come again.

    An empty name removes the name of a label; only files of names have such. Of several names of a label the one with
    the lowest `rank` (0 to 255, by default 0) counts, then the last.
    """

    label: Labels
    name: Labels
    rank: Array | None = None

    @property
    def ranks(self) -> Array:
        """The rank of each."""
        return np.zeros(len(self.label), np.uint8) if self.rank is None else self.rank

    def compacted(self) -> NameBatch:
        """The same in bytes of their own."""
        return NameBatch(self.label.compacted(), self.name.compacted(), self.rank)


@dataclass(frozen=True)
class TripleBatch:
    """Some triples as labels. `deleted` marks those to delete (change files only).

    `names` are display names that were read on the way. Their labels need not be in this batch, nor in any triple.
    """

    head: Labels
    relation: Labels
    tail: Labels
    split: Split = Split.TRAIN
    deleted: Array | None = None
    names: NameBatch | None = None

    @staticmethod
    def of_names(names: NameBatch) -> TripleBatch:
        """Display names alone."""
        none = Labels.from_strings([])
        return TripleBatch(none, none, none, names=names)


@dataclass
class Rejects:
    """Bad lines. Up to `limit` are kept, to be written to a file; one more is an error."""

    limit: int = 0
    lines: list[str] = field(default_factory=list)

    def add(self, path: Path, line: int, reason: str, text: str = "") -> None:
        """Note that `line` (counted from 1) of `path` cannot be read. Raises once there are more than `limit`."""
        shown = text if len(text) <= 200 else text[:200] + "…"
        if len(self.lines) >= self.limit:
            hint = f" ({self.limit} bad lines were allowed)" if self.limit else ""
            raise SourceError(f"{path}:{line}: {reason}{hint}" + (f": {shown!r}" if text else ""))
        self.lines.append(f"{path}:{line}\t{reason}\t{shown!r}")


def name_of(path: Path) -> str:
    """The name of a snapshot that is made from `path`."""
    if str(path) == "-":
        return "stdin"
    path = path if path.name not in ("", "..") else path.resolve()
    # Other dots belong to the name (`dump-2.1`).
    endings = {".gz", ".xz", ".lz4"}.union(*(format.endings for format in FORMATS.values()))
    while path.suffix.lower() in endings:
        path = path.with_suffix("")
    return "".join(c if c.isprintable() else "_" for c in path.name) or "snapshot"


class Source(ABC):
    """A file or folder of triples in one format; `files` are a train file with valid and test files beside it.

    `brings_splits`: the source has splits of its own, which are taken as given.
    `is_change`: the triples are additions to and deletions from the current snapshot, not a whole one.
    `is_names`: the source has display names alone, and no triples.
    `counts`: what a user should know but is no error (dangling keys, skipped literals), by a readable name.
    """

    format: ClassVar[str]
    is_change = False
    is_names = False

    def __init__(
        self, path: Path, options: SourceOptions | None = None, files: Mapping[Split, Path] | None = None
    ) -> None:
        self.path = path
        self.options = options or SourceOptions()
        self.files = files or {Split.TRAIN: path}
        self.brings_splits = len(self.files) > 1
        self.counts: Counter[str] = Counter()
        self.prepare()
        self.bytes_total = sum(file.stat().st_size for file in self.used_files() if file.exists())
        self.bytes_read = 0

    def prepare(self) -> None:  # noqa: B027
        """Check the options and find the files, before anything is read."""

    def used_files(self) -> list[Path]:
        """All files that will be read."""
        return list(self.files.values())

    def continue_from(self, first: Source) -> None:  # noqa: B027
        """Get ready to be read after `first`, as one source with it."""

    @property
    def name(self) -> str:
        """The default name of a snapshot made from this source."""
        return name_of(self.path)

    @abstractmethod
    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        """Read the whole source once, in bounded memory."""
