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
        self._begin_stanza()
        self.triples: list[tuple[str, int, str]] = []

    def _begin_stanza(self) -> None:
        self.first_line = 0
        """Of the stanza that is being read; 0 between two stanzas."""
        self.fields: dict[str, tuple[int, list[str]]] = {}
        """The line and the text of each field."""
        self.current: list[str] | None = None
        """Takes continuation lines: the lines of the current field, or a list that is ignored."""

    def read(self, chunk: LineChunk) -> None:
        for number, line in chunk.numbered():
            is_empty = not line or line.isspace()
            if is_empty and number not in chunk.emptied:
                self.end_stanza()
                continue
            self.first_line = self.first_line or number
            if is_empty:
                # The stanza goes on, but a field that cannot be read has no continuation.
                self.current = []
            elif line[0] not in " \t":
                self.current = self._begin_field(number, line)
            elif self.current is not None:
                self.current.append(line)
            else:
                self.current = []
                self.rejects.add(self.path, number, "a continuation line, but no field to continue", line)

    def _begin_field(self, number: int, line: str) -> list[str]:
        """The lines of the field that begins with `line`."""
        name, colon, value = line.partition(":")
        field = name.lower()
        if not colon or not _FIELD_NAME.fullmatch(name):
            self.rejects.add(self.path, number, "neither a field nor the continuation of one", line)
        elif field in self.fields:
            reason = f"a second field {name!r} in the stanza that begins at line {self.first_line}"
            self.rejects.add(self.path, number, reason, line)
        elif field in _READ_FIELDS:
            self.fields[field] = (number, [value])
            return self.fields[field][1]
        return []

    def end_stanza(self) -> None:
        """Make triples of the fields read since the last stanza ended."""
        if not self.first_line:
            return
        line, text = self.fields.pop("package", (self.first_line, []))
        package = " ".join(text).strip()
        if not package:
            self.rejects.add(self.path, self.first_line, "a stanza without Package")
        elif not _PACKAGE_NAME.fullmatch(package):
            self.rejects.add(self.path, line, "not a package name", package)
        else:
            for field, (line, lines) in self.fields.items():
                targets = self._targets(field, " ".join(lines).strip(), line)
                self.triples += [(package, _RELATION_NUMBER[field], target) for target in targets]
        self._begin_stanza()

    def _targets(self, field: str, value: str, line: int) -> list[str]:
        """The entities that the value of `field` names."""
        if field in PACKAGE_FIELDS:
            targets: list[str] = _TARGET.findall(value)
            if len(targets) != value.count(",") + value.count("|") + 1:
                # A trailing comma is harmless, a version without a name is not.
                for item in _SEPARATOR.split(value):
                    if item.strip() and not _TARGET.match(item):
                        self.rejects.add(self.path, line, f"no package name in {field!r}", item.strip())
            return targets
        if field == "tag":
            return ["tag:" + tag.strip() for tag in value.split(",") if not tag.isspace() and tag]
        if field == "source":
            value = value.partition("(")[0].rstrip()
        return [f"{field}:{value}"] if value else []

    def take_batch(self) -> Iterator[TripleBatch]:
        """The triples made since the last call, if there are any."""
        if self.triples:
            packages, relations, targets = zip(*self.triples, strict=True)
            self.triples = []
            head, tail = (Labels.from_arrow(pa.array(labels, pa.large_string())) for labels in (packages, targets))
            yield TripleBatch(head, Labels.from_strings(RELATIONS).take(np.array(relations, OFFSET)), tail)
