"""Package metadata of Debian and its relatives. In: `Packages` files, plain or compressed. Out: 15 kinds of triples.

A package is identified by its name alone, so its versions and architectures become one entity, across files too. Values
of another kind carry a prefix that no package name can have (`section:libs`, `tag:role::program`).
Relations are the lower-case names of the fields. Nothing is inferred: a package without a Source field gets no source.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import Rejects, Source, SourceError, TripleBatch
from dkge_dist.graph.sources.files import LineChunk, read_line_chunks
from dkge_dist.types import OFFSET

PACKAGE_FIELDS = (
    "depends", "pre-depends", "recommends", "suggests", "enhances", "breaks", "conflicts", "provides", "replaces",
)  # fmt: skip
"""Their values are lists of packages."""

VALUE_FIELDS = ("section", "maintainer", "source", "tag", "architecture", "priority")

RELATIONS = PACKAGE_FIELDS + VALUE_FIELDS
_RELATION_NUMBER = {name: number for number, name in enumerate(RELATIONS)}
_READ_FIELDS = frozenset(RELATIONS) | {"package"}

# `name`, with a path before it and a compression after it; indexes, signatures and failed downloads end otherwise.
_LIST_FILE = re.compile(r"((?:.*_)?Packages[^.]*)(\.lz4|\.gz|\.xz)?")
_FASTEST_FIRST = (None, ".lz4", ".gz", ".xz")

_FIELD_NAME = re.compile(r"[!-9;-~]+")
_PACKAGE_NAME = re.compile(r"[^\s,|:()\[\]<>]+")
# The name at the start of each item; what may follow it: `:any`, `(>= 1.2)`, `[amd64]`, `<profile>`.
_TARGET = re.compile(r"(?:^|[,|])\s*([^\s,|:()\[\]<>]+)")
_SEPARATOR = re.compile(r"[,|]")


class DebianSource(Source):
    """One `Packages` file, or all of a folder (such as that of apt's lists)."""

    format = "debian"

    def used_files(self) -> list[Path]:
        """The file itself, or the lists in the folder: one of each name, where several compressions of it are there."""
        if not self.path.is_dir():
            return [self.path]
        chosen: dict[str, tuple[int, Path]] = {}
        for file in self.path.iterdir():
            match = _LIST_FILE.fullmatch(file.name)
            if match and file.is_file():
                candidate = (_FASTEST_FIRST.index(match[2]), file)
                chosen[match[1]] = min(chosen.get(match[1], candidate), candidate)
        return sorted(file for _, file in chosen.values())

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        files = self.used_files()
        if not files:
            raise SourceError(f"{self.path}: no Packages file (plain, .gz, .xz or .lz4) in this folder")
        for path in files:
            stanzas = _StanzaReader(path, rejects)
            for chunk in read_line_chunks(path, self, rejects):
                stanzas.read(chunk)
                yield from stanzas.take_batch()
            stanzas.end_stanza()
            yield from stanzas.take_batch()


class _StanzaReader:
    """Lines in, triples out. A stanza may begin in one chunk and end in another."""

    def __init__(self, path: Path, rejects: Rejects) -> None:
        self.path = path
        self.rejects = rejects
        self.first_line = 0
        """Of the stanza that is being read; 0 between two stanzas."""
        self.field_lines: dict[str, int] = {}
        self.values: dict[str, list[str]] = {}
        self.current: list[str] | None = None
        """Takes continuation lines: the lines of the current field, or a list that is ignored."""
        self._forget_triples()

    def read(self, chunk: LineChunk) -> None:
        for number, line in chunk.numbered():
            if line and not line.isspace():
                if line[0] in " \t":
                    self._continue_field(number, line)
                else:
                    self._begin_field(number, line)
            elif number in chunk.emptied:
                # The stanza goes on, but a field that cannot be read has no continuation.
                self.first_line = self.first_line or number
                self.current = []
            else:
                self.end_stanza()

    def _begin_field(self, number: int, line: str) -> None:
        name, colon, value = line.partition(":")
        field = name.lower()
        if not self.first_line:
            self.first_line = number
        self.current = []
        if colon and field in _READ_FIELDS:
            if field in self.values:
                reason = f"a second field {name!r} in the stanza that begins at line {self.first_line}"
                self.rejects.add(self.path, number, reason, line)
            else:
                self.current.append(value)
                self.values[field] = self.current
                self.field_lines[field] = number
        elif not colon or not _FIELD_NAME.fullmatch(name):
            self.rejects.add(self.path, number, "neither a field nor the continuation of one", line)

    def _continue_field(self, number: int, line: str) -> None:
        if self.current is None:
            self.first_line = number
            self.current = []
            self.rejects.add(self.path, number, "a continuation line, but no field to continue", line)
        else:
            self.current.append(line)

    def end_stanza(self) -> None:
        """Make triples of the fields read since the last stanza ended."""
        if not self.first_line:
            return
        package = " ".join(self.values.pop("package", [])).strip()
        if not package:
            self.rejects.add(self.path, self.first_line, "a stanza without Package")
        elif not _PACKAGE_NAME.fullmatch(package):
            self.rejects.add(self.path, self.field_lines["package"], "not a package name", package)
        else:
            before = len(self.tails)
            for field, lines in self.values.items():
                targets = self._targets(field, " ".join(lines).strip())
                self.tails += targets
                self.relations += [_RELATION_NUMBER[field]] * len(targets)
            self.packages.append(package)
            self.triples_per_package.append(len(self.tails) - before)
        self.first_line = 0
        self.field_lines = {}
        self.values = {}
        self.current = None

    def _targets(self, field: str, value: str) -> list[str]:
        """The entities that the value of `field` names."""
        if field in PACKAGE_FIELDS:
            targets: list[str] = _TARGET.findall(value)
            if len(targets) != value.count(",") + value.count("|") + 1:
                self._check_items(field, value)
            return targets
        if field == "tag":
            return ["tag:" + tag.strip() for tag in value.split(",") if not tag.isspace() and tag]
        if field == "source":
            value = value.partition("(")[0].rstrip()
        return [f"{field}:{value}"] if value else []

    def _check_items(self, field: str, value: str) -> None:
        """Fewer names than items: a trailing comma is harmless, a version without a name is not."""
        for item in _SEPARATOR.split(value):
            if item.strip() and not _TARGET.match(item):
                self.rejects.add(self.path, self.field_lines[field], f"no package name in {field!r}", item.strip())

    def take_batch(self) -> Iterator[TripleBatch]:
        """The triples made since the last call, if there are any."""
        if self.tails:
            packages = Labels.from_arrow(pa.array(self.packages, pa.large_string()))
            owners = np.repeat(np.arange(len(packages), dtype=OFFSET), self.triples_per_package)
            relations = Labels.from_strings(RELATIONS).take(np.array(self.relations, OFFSET))
            tails = Labels.from_arrow(pa.array(self.tails, pa.large_string()))
            self._forget_triples()
            yield TripleBatch(packages.take(owners), relations, tails)

    def _forget_triples(self) -> None:
        self.packages: list[str] = []
        self.triples_per_package: list[int] = []
        self.relations: list[int] = []
        self.tails: list[str] = []
