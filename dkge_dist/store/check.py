"""Verify a store: every checksum, every snapshot, every label. Names what is broken and goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from dkge_dist.graph.content import NOTHING, content_of
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.snapshot import Base, Snapshot
from dkge_dist.kernels.hashing import digests
from dkge_dist.kernels.triples import canonical
from dkge_dist.store.manifest import Manifest, PartEntry
from dkge_dist.store.storage import StoreError, sha256_file
from dkge_dist.store.store import Store
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


def parts_of(value: object) -> Iterator[PartEntry]:
    """Every part that a manifest names."""
    if isinstance(value, PartEntry):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from parts_of(item)
    elif hasattr(type(value), "model_fields"):
        for name in type(value).model_fields:
            yield from parts_of(getattr(value, name))


def check(store: Store, progress: Callable[[int, int], None] | None = None) -> Checked:
    """Look at everything. A part that several versions share is read once and reported where it is first named."""
    problems: list[Problem] = []
    sound: dict[str, bool] = {}
    size = 0
    numbers = store.versions()
    for done, number in enumerate(numbers):
        try:
            manifest = store.manifest(number)
            _check_parent(store, manifest, numbers)
            for part in parts_of(manifest):
                if part.digest not in sound:
                    sound[part.digest] = False
                    _check_part(store, part)
                    sound[part.digest] = True
                    size += part.size
            if all(sound[part.digest] for part in parts_of(manifest)):
                problems += [Problem(number, message) for message in _check_content(store, manifest)]
        except StoreError as error:
            problems.append(Problem(number, str(error)))
        if progress is not None:
            progress(done + 1, len(numbers))
    return Checked(len(numbers), len(sound), size, problems)


def _check_parent(store: Store, manifest: Manifest, numbers: list[int]) -> None:
    before = [number for number in numbers if number < manifest.version]
    expected = store.checksum(before[-1]) if before else None
    if manifest.parent != expected:
        raise StoreError(
            f"version {manifest.version} was made on top of {manifest.parent}, but version "
            f"{before[-1] if before else 0} before it is {expected}: one of the two was altered"
        )


def _check_part(store: Store, part: PartEntry) -> None:
    path = store.storage.part_path(part.part)
    found = sha256_file(path)
    if found != part.digest:
        raise StoreError(f"part {path} is damaged: its bytes have checksum {found}")


def _check_content(store: Store, manifest: Manifest) -> Iterator[str]:
    """What checksums of files cannot tell: that the parts fit together."""
    names = store.dictionaries(manifest)
    for dictionary in names:
        yield from _check_dictionary(dictionary)
    snapshot = store.snapshot(manifest)
    yield from _check_triples(snapshot)
    entry = manifest.snapshot
    lanes = sum(content_of(snapshot.triples(split), split, *names) for split in Split)
    content = "".join(f"{int(lane):016x}" for lane in np.atleast_1d(lanes)) or NOTHING
    if content != entry.content:
        yield f"snapshot {entry.name!r} has content {content}, its manifest says {entry.content}"
    told = (entry.train, entry.valid, entry.test, entry.entities, entry.relations)
    alive = (int(snapshot.entities_alive.sum()), int(snapshot.relations_alive.sum()))
    found = (*(snapshot.triples(split).count for split in Split), *alive)
    if found != told:
        yield f"snapshot {entry.name!r} has {found} train, valid, test, entities, relations; its manifest says {told}"


def _check_dictionary(dictionary: Dictionary) -> Iterator[str]:
    for segment in dictionary.segments:
        labels = segment.labels
        if not np.array_equal(digests(labels.data, labels.start, labels.stop), segment.table.digest):
            yield f"{dictionary.noun} rows from {segment.first_row}: digests do not belong to the labels"
        rows = np.arange(segment.first_row, segment.first_row + segment.count)
        if not np.array_equal(dictionary.lookup(labels), rows):
            yield f"{dictionary.noun} rows from {segment.first_row}: labels are not found at their rows"


def _check_triples(snapshot: Snapshot) -> Iterator[str]:
    splits = tuple(snapshot.triples(split) for split in Split)
    for split in Split:
        triples: Triples = splits[split]
        rows = Triples(*(np.asarray(column) for column in triples))
        limits = (snapshot.entity_rows, snapshot.relation_rows, snapshot.entity_rows)
        if any(c.shape[0] and (c.min() < 0 or c.max() >= limit) for c, limit in zip(rows, limits, strict=True)):
            yield f"{split.label} triples name rows that no label has"
            return
        if not all(np.array_equal(a, b) for a, b in zip(canonical(rows), rows, strict=True)):
            yield f"{split.label} triples are out of order or repeated"
    base = snapshot.base
    counted = Base.of(base.splits, base.entities.total.shape[0], base.relations.total.shape[0])
    for told, found in ((base.entities, counted.entities), (base.relations, counted.relations)):
        if not (np.array_equal(told.train, found.train) and np.array_equal(told.total, found.total)):
            yield "stored degrees are not those of the triples"
