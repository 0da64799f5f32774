"""A store: numbered versions over immutable parts. The highest number is the head; nothing is ever changed in place."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.kernels.triples import contains
from dkge_dist.store.manifest import (
    FORMAT,
    CurrentEntry,
    Manifest,
    ModelManifest,
    SegmentEntry,
    SnapshotManifest,
    parse_manifest,
)
from dkge_dist.store.parts import RowCounts, load_base, load_change, load_segment
from dkge_dist.store.storage import MissingError, StoreError, open_storage
from dkge_dist.store.trainings import Trainings
from dkge_dist.types import Array, Triples

MARKER = "store.json"
VERSION_FILE = re.compile(r"([0-9]{8,})\.json")


class NumberTakenError(StoreError):
    """Another writer was first to publish a version of this number."""


def _version_name(number: int) -> str:
    return f"versions/{number:08d}.json"


class Store:
    """Reading is safe at any time; writing goes through `publish`, which one writer wins."""

    def __init__(self, location: str | os.PathLike[str]) -> None:
        self.storage = open_storage(location)
        self._manifests: dict[int, Manifest] = {}

    def __str__(self) -> str:
        return str(self.storage)

    @staticmethod
    def open(location: str | os.PathLike[str]) -> Store:
        """An existing store."""
        store = Store(location)
        if not store._is_made():
            what = "no store here yet" if store.storage.is_empty() else f"not a store (no {MARKER})"
            raise StoreError(f"{store}: {what}; `dkge ingest {store} SOURCE` makes one")
        return store

    @staticmethod
    def open_or_new(location: str | os.PathLike[str]) -> Store:
        """An existing store, or one that will be made at an empty location when something is published."""
        store = Store(location)
        if not store._is_made() and not store.storage.is_empty():
            raise StoreError(f"{store}: exists and is not a store; name an empty or new folder")
        return store

    def _is_made(self) -> bool:
        """Is there a store? One of a newer program is refused."""
        try:
            number = json.loads(self.storage.read(MARKER))["format"]
        except MissingError:
            return False
        except (ValueError, KeyError, TypeError, RecursionError):
            number = None
        where = f"{self}/{MARKER}"
        if not isinstance(number, int) or number < 1:
            raise StoreError(f'{where}: damaged: it should hold the format of the store, as in {{"format": {FORMAT}}}')
        if number > FORMAT:
            raise StoreError(
                f"{where}: the store has format {number}, this program reads up to {FORMAT}: upgrade dkge_dist"
            )
        return True

    @property
    def trainings(self) -> Trainings:
        """Trainings of this store that are not published yet."""
        return Trainings(self.storage.workspace("training"))

    def ensure(self) -> None:
        """Make this location a store if it is none yet."""
        self.storage.create(MARKER, json.dumps({"format": FORMAT}).encode())

    def versions(self) -> list[int]:
        """The numbers of all versions, oldest first."""
        names = (VERSION_FILE.fullmatch(name) for name in self.storage.names("versions"))
        return sorted(int(name[1]) for name in names if name)

    def manifest(self, number: int) -> Manifest:
        """One version."""
        if number not in self._manifests:
            name = _version_name(number)
            manifest = parse_manifest(self.storage.read(name), f"{self}/{name}")
            if manifest.version != number:
                raise StoreError(f"{self}/{name}: says it is version {manifest.version}")
            before = manifest.snapshot.parent if isinstance(manifest, SnapshotManifest) else None
            for named in (before, manifest.current.snapshot, manifest.current.model):
                if named is not None and (named > number or (named == number and named == before)):
                    raise StoreError(f"{self}/{name}: says it stands on version {named}")
            self._manifests[number] = manifest
        return self._manifests[number]

    def head(self) -> Manifest | None:
        """The newest version, None in a store that holds nothing yet."""
        numbers = self.versions()
        return self.manifest(numbers[-1]) if numbers else None

    def snapshot_manifest(self, number: int) -> SnapshotManifest:
        """The version of a snapshot."""
        manifest = self.manifest(number)
        if not isinstance(manifest, SnapshotManifest):
            raise StoreError(f"{self}: version {number} is a {manifest.kind}, not a snapshot")
        self._refuse_cleared(number)
        return manifest

    def model_manifest(self, number: int) -> ModelManifest:
        """The version of a model."""
        manifest = self.manifest(number)
        if not isinstance(manifest, ModelManifest):
            raise StoreError(f"{self}: version {number} is a {manifest.kind}, not a model")
        self._refuse_cleared(number)
        return manifest

    def cleared(self) -> frozenset[int]:
        """Versions that were cleared away. A damaged head is no reason not to read what is older."""
        with suppress(StoreError):
            head = self.head()
            return frozenset(head.current.cleared) if head else frozenset()
        return frozenset()

    def _refuse_cleared(self, number: int) -> None:
        if number in self.cleared():
            raise StoreError(f"{self}: version {number} was cleared away by `dkge gc`")

    def current_snapshot(self) -> SnapshotManifest | None:
        """The current snapshot, None in a store that holds nothing yet."""
        head = self.head()
        return self.snapshot_manifest(head.current.snapshot) if head else None

    def current_model(self) -> ModelManifest | None:
        """The current model, None if there is none yet."""
        head = self.head()
        return self.model_manifest(head.current.model) if head and head.current.model is not None else None

    def state_at(self, number: int) -> CurrentEntry:
        """What was current at a version. One that brings a model stands for that, also if it did not take over."""
        manifest = self.manifest(number)
        is_model = isinstance(manifest, ModelManifest)
        return manifest.current.model_copy(update={"model": number}) if is_model else manifest.current

    def snapshots(self) -> Iterator[SnapshotManifest]:
        """All snapshots, newest first."""
        found = (self.manifest(number) for number in reversed(self.versions()))
        return (manifest for manifest in found if isinstance(manifest, SnapshotManifest))

    def snapshot_named(self, name: str) -> SnapshotManifest | None:
        """The snapshot of that name, if there is one."""
        return next((manifest for manifest in self.snapshots() if manifest.snapshot.name == name), None)

    def find_snapshot(self, name: str) -> SnapshotManifest:
        """A snapshot by its name, or by a version number; a name that is a number counts as a name.

        A version that is not a snapshot stands for the one that was current at that version.
        """
        if found := self.snapshot_named(name):
            self._refuse_cleared(found.version)
            return found
        if name.isdecimal() and int(name) in self.versions():
            return self.snapshot_manifest(self.manifest(int(name)).current.snapshot)
        newest = [manifest.snapshot.name for manifest in itertools.islice(self.snapshots(), 5)]
        known = ", ".join(reversed(newest))
        raise StoreError(f"{self}: no snapshot {name!r}" + (f"; the newest are {known}" if known else ": it is empty"))

    def find_model(self, name: str | None = None) -> ModelManifest:
        """The current model, or the one at a version number; of a snapshot's name, the newest that was learnt from it.

        If none was, the model that was current while that snapshot was.
        """
        numbers = self.versions()
        if name is None:
            model = self.manifest(numbers[-1]).current.model if numbers else None
        elif name.isdecimal() and int(name) in numbers and self.snapshot_named(name) is None:
            model = self.state_at(int(name)).model
        else:
            model = self._newest_of(self.find_snapshot(name).version)
        if model is None:
            said = "" if name is None else f" at {name!r}"
            raise StoreError(f"{self}: there is no model{said} yet; `dkge train {self}` learns one")
        return self.model_manifest(model)

    def _newest_of(self, snapshot: int) -> int | None:
        """The newest model that was learnt from a snapshot and took over, or else the newest that was current then."""
        manifests = [self.manifest(number) for number in reversed(self.versions())]
        models = (m for m in manifests if isinstance(m, ModelManifest) and m.current.model == m.version)
        learnt = (m.version for m in models if m.model.snapshot == snapshot)
        current = (m.current.model for m in manifests if m.current.snapshot == snapshot)
        return next(learnt, None) or next(current)

    def checksum(self, number: int) -> str:
        """What a child version names its parent by."""
        return hashlib.sha256(self.storage.read(_version_name(number))).hexdigest()

    def following(self, head: Manifest | None, seconds: float) -> dict[str, Any]:
        """What a version on top of `head` says about itself, if it brings no labels."""
        return {
            "version": head.version + 1 if head else 1,
            "parent": self.checksum(head.version) if head else None,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "seconds": seconds,
            "block_rows": head.block_rows if head else 0,
            "entity_segments": head.entity_segments if head else [],
            "relation_segments": head.relation_segments if head else [],
        }

    def publish(self, manifest: Manifest) -> None:
        """Make a version visible, all at once. Its parts are durable already."""
        if not self.storage.create(_version_name(manifest.version), manifest.to_json()):
            winner = self.manifest(manifest.version).summary
            raise NumberTakenError(
                f"{self}: version {manifest.version} was published by another writer meanwhile ({winner}); "
                "nothing was changed, run this again on top of it"
            )
        self._manifests[manifest.version] = manifest

    def dictionaries(self, manifest: Manifest | None) -> tuple[Dictionary, Dictionary]:
        """Entities and relations as that version knows them."""
        if manifest is None:
            return Dictionary(noun="entity"), Dictionary(noun="relation")
        return (
            self._dictionary(manifest.entity_segments, "entity"),
            self._dictionary(manifest.relation_segments, "relation"),
        )

    def _dictionary(self, entries: list[SegmentEntry], noun: str) -> Dictionary:
        segments = []
        first_row = 0
        for entry in entries:
            segments.append(load_segment(self.storage, entry, first_row))
            first_row += entry.labels.rows
        return Dictionary(segments, noun)

    def ancestry(self, manifest: SnapshotManifest) -> Iterator[SnapshotManifest]:
        """A snapshot, its parent, and so on to the first that was not cleared away."""
        cleared = self.cleared()
        while True:
            yield manifest
            if manifest.snapshot.parent is None or manifest.snapshot.parent in cleared:
                return
            manifest = self.snapshot_manifest(manifest.snapshot.parent)

    def snapshot(self, manifest: SnapshotManifest | None, at: Manifest | None = None) -> Snapshot:
        """The state of the graph at a snapshot: the nearest base and the net change since.

        With as many rows as labels were known then, or at the later version `at`.
        """
        if manifest is None:
            return Snapshot.empty()
        *changed, full = self.chain(manifest)
        assert full.snapshot.base is not None
        rows = _rows(at or manifest)
        base = load_base(self.storage, full.snapshot.base, rows)
        net = Diff.none()
        for ancestor in reversed(changed):
            net = net.then(self._change(ancestor, rows))
        return Snapshot(base, net, *rows)

    def chain(self, manifest: SnapshotManifest) -> list[SnapshotManifest]:
        """A snapshot and those before it, down to the first that is stored in full."""
        chain = []
        for ancestor in self.ancestry(manifest):
            chain.append(ancestor)
            if ancestor.snapshot.base is not None:
                return chain
        raise StoreError(f"{self}: snapshot {manifest.snapshot.name!r} stands on no full one")

    def was_trained(self, manifest: SnapshotManifest | None, triples: Triples) -> Array:
        """For each triple, none of them in train now: was it ever, in a snapshot up to this one?"""
        found = np.zeros(triples.count, bool)
        for ancestor in self.ancestry(manifest) if manifest is not None else ():
            if ancestor.snapshot.change is not None:
                found |= contains(self._change(ancestor).deleted, triples)
        return found

    def _change(self, manifest: SnapshotManifest, rows: RowCounts | None = None) -> Diff:
        """The change that a snapshot brings, of rows that there are at its version or at a later one."""
        if manifest.snapshot.change is None:
            raise StoreError(f"{self}: version {manifest.version} has a parent but no change to it")
        return load_change(self.storage, manifest.snapshot.change, rows or _rows(manifest))

    def diff(self, old: SnapshotManifest, new: SnapshotManifest) -> Diff:
        """What changed from one snapshot to another, older or newer, composed of the changes between them."""
        before = {ancestor.version: place for place, ancestor in enumerate(self.ancestry(old))}
        way_up: list[Diff] = []
        for ancestor in self.ancestry(new):
            if ancestor.version in before:
                break
            way_up.append(self._change(ancestor))
        else:
            raise StoreError(f"{self}: {old.snapshot.name!r} and {new.snapshot.name!r} have no common ancestor")
        net = Diff.none()
        for place, step in enumerate(self.ancestry(old)):
            if place == before[ancestor.version]:
                break
            net = net.then(self._change(step).inverted())
        for change in reversed(way_up):
            net = net.then(change)
        return net


def _rows(manifest: Manifest) -> RowCounts:
    entities, relations = (
        sum(entry.labels.rows for entry in entries)
        for entries in (manifest.entity_segments, manifest.relation_segments)
    )
    return RowCounts(entities, relations)
