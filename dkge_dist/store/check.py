"""Verify a store: every checksum, every snapshot, every label. Names what is broken and goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import EMPTY_CONTENT, Change, Diff, content_after
from dkge_dist.graph.snapshot import Base
from dkge_dist.kernels.hashing import digests
from dkge_dist.store.display_names import check_run
from dkge_dist.store.manifest import (
    Manifest,
    ModelEntry,
    ModelManifest,
    PartEntry,
    SegmentEntry,
    SnapshotManifest,
    indexes_of,
    parts_of,
    tables_of,
)
from dkge_dist.store.models import check_model
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store, rows_at
from dkge_dist.store.tables import table_parts
from dkge_dist.types import Split, Triples


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong: the version it was found in, and what it is."""

    version: int
    message: str


@dataclass(frozen=True)
class Checked:
    """What a check looked at and found."""

    versions: int
    parts: int
    bytes: int
    problems: list[Problem]


def check(store: Store, progress: Callable[[int, int], None] | None = None) -> Checked:
    """Look at everything. What several versions share is looked at once and reported where it is first named."""
    checker = _Checker(store)
    numbers = store.versions()
    problems: dict[str, Problem] = {}
    for done, number in enumerate(numbers):
        if progress is not None:
            checker.on_part = partial(progress, done, len(numbers))
        for message in checker.check_version(number):
            problems.setdefault(message, Problem(number, message))
        if progress is not None:
            progress(done + 1, len(numbers))
    for name, number in _aliases(store, problems):
        if number not in numbers:
            problems[name] = Problem(number, f"alias {name!r} pins version {number}, which there is not")
        elif store.is_cleared(number):
            problems[name] = Problem(number, f"alias {name!r} pins version {number}, which was cleared away")
    return Checked(len(numbers), len(checker.sound), checker.bytes, list(problems.values()))


def _aliases(store: Store, problems: dict[str, Problem]) -> Iterator[tuple[str, int]]:
    """Every alias and its version. One that cannot be read is a problem."""
    for alias in store.alias_names():
        try:
            version = store.alias(alias)
        except StoreError as error:
            problems[alias] = Problem(0, str(error))
        else:
            if version is not None:
                yield alias, version


class _Checker:
    """Remembers what was looked at: `sound` says of every part, by digest, whether its bytes are right.

    `on_part` is called after every part: the first version of a large store has most of them.
    """

    def __init__(self, store: Store) -> None:
        self.store = store
        self.sound: dict[str, bool] = {}
        self.bytes = 0
        self.segments: set[tuple[str, int]] = set()
        self.runs: set[str] = set()
        self.on_part: Callable[[], None] = lambda: None

    def check_version(self, number: int) -> Iterator[str]:
        """What is wrong with one version; a problem that it only shares with an earlier one may come again."""
        try:
            manifest = self.store.manifest(number)
            yield from self._check_parent(manifest)
            if self.store.is_cleared(number):
                return
            for part in parts_of(manifest):
                yield from self._check_part(part)
            if manifest.display_names is not None:
                rows = rows_at(manifest)
                yield from self._check_names(manifest.display_names.entities, rows.entities)
                yield from self._check_names(manifest.display_names.relations, rows.relations)
            if isinstance(manifest, SnapshotManifest):
                yield from self._check_name(manifest)
                yield from self._check_snapshot(manifest)
            elif isinstance(manifest, ModelManifest):
                yield from self._check_model(manifest.model)
        except (StoreError, OSError) as error:
            yield str(error)

    def _check_snapshot(self, manifest: SnapshotManifest) -> Iterator[str]:
        chain = self.store.chain(manifest)
        needed = [*parts_of(manifest), *parts_of([ancestor.snapshot for ancestor in chain])]
        if all(self.sound.get(part.digest) for part in needed):
            # Damaged arrays are not given to kernels.
            yield from self._check_content(manifest)

    def _check_name(self, manifest: SnapshotManifest) -> Iterator[str]:
        try:
            found = self.store.snapshot_named(manifest.snapshot.name)
        except (StoreError, OSError):
            return  # By the newest version, or a part of it: it is told there that they are damaged.
        if found is None or found.version != manifest.version:
            yield f"snapshot {manifest.snapshot.name!r} (version {manifest.version}) is not found by its name"

    def _check_names(self, runs: list[PartEntry], rows: int) -> Iterator[str]:
        for run in runs:
            if run.digest not in self.runs and self.sound[run.digest]:
                self.runs.add(run.digest)
                yield from check_run(self.store.storage, run, rows)

    def _check_model(self, entry: ModelEntry) -> Iterator[str]:
        blocks = [
            part
            for table in tables_of(entry)
            if all(self.sound[digest] for digest in indexes_of(table))
            for part in table_parts(self.store.storage, table)
        ]
        for part in blocks:
            yield from self._check_part(part)
        if all(self.sound[part.digest] for part in [*parts_of(entry), *blocks]):
            yield from check_model(self.store, entry)

    def _check_parent(self, manifest: Manifest) -> Iterator[str]:
        before = manifest.version - 1
        if before and before not in self.store.versions():
            yield f"version {before} is missing"
        elif manifest.parent != (self.store.checksum(before) if before else None):
            yield f"version {manifest.version} was made on top of another version {before} than there is"

    def _check_part(self, part: PartEntry) -> Iterator[str]:
        if part.digest in self.sound:
            return
        self.sound[part.digest] = False
        try:
            self.store.storage.verify(part.part)
        except (StoreError, OSError) as error:
            yield str(error)
            return
        self.sound[part.digest] = True
        self.bytes += part.size
        self.on_part()

    def _check_content(self, manifest: SnapshotManifest) -> Iterator[str]:
        """What checksums of files cannot tell: that the parts fit together."""
        names = self.store.dictionaries(manifest)
        for dictionary, entries in zip(names, (manifest.entity_segments, manifest.relation_segments), strict=True):
            yield from self._check_dictionary(dictionary, entries)
        snapshot = self.store.snapshot(manifest)
        # Loading has refused rows that no label has, and triples out of order.
        if manifest.snapshot.base is not None:
            yield from _check_degrees(snapshot.base)
        entry = manifest.snapshot
        whole = Diff.of([Change(snapshot.triples(split), Triples.empty()) for split in Split])
        content = content_after(EMPTY_CONTENT, whole, *names)
        if content != entry.content:
            yield f"snapshot {entry.name!r} has content {content}, its manifest says {entry.content}"
        told = (entry.train, entry.valid, entry.test, entry.entities, entry.relations)
        alive = (int(snapshot.entities_alive.sum()), int(snapshot.relations_alive.sum()))
        found = (*(snapshot.triples(split).count for split in Split), *alive)
        if found != told:
            yield f"snapshot {entry.name!r} has {found} train, valid, test, entities, relations; manifest says {told}"
        if entry.parent is not None and not self.store.is_cleared(entry.parent):
            before = self.store.snapshot_manifest(entry.parent)
            change = self.store.diff(before, manifest)
            if content_after(before.snapshot.content, change, *names) != entry.content:
                yield f"snapshot {entry.name!r} is not what its change makes of version {before.version}"

    def _check_dictionary(self, dictionary: Dictionary, entries: list[SegmentEntry]) -> Iterator[str]:
        for segment, entry in zip(dictionary.segments, entries, strict=True):
            key = (entry.labels.digest, segment.first_row)
            if key in self.segments:
                continue
            self.segments.add(key)
            labels = segment.labels
            if not np.array_equal(digests(labels.data, labels.start, labels.stop), segment.table.digest):
                yield f"{dictionary.noun} rows from {segment.first_row}: digests do not belong to the labels"
            rows = np.arange(segment.first_row, segment.first_row + segment.count)
            if not np.array_equal(dictionary.lookup(labels), rows):
                yield f"{dictionary.noun} rows from {segment.first_row}: labels are not found at their rows"


def _check_degrees(base: Base) -> Iterator[str]:
    counted = Base.of(base.splits, base.entities.total.shape[0], base.relations.total.shape[0])
    for told, found in ((base.entities, counted.entities), (base.relations, counted.relations)):
        if not (np.array_equal(told.train, found.train) and np.array_equal(told.total, found.total)):
            yield "stored degrees are not those of the triples"
