"""A store: numbered versions over immutable parts. The highest number is the head; nothing is ever changed in place."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.kernels.triples import contains
from dkge_dist.store.manifest import FORMAT, Manifest, SegmentEntry, parse_manifest
from dkge_dist.store.parts import load_base, load_change, load_segment
from dkge_dist.store.storage import LocalStorage, StoreError
from dkge_dist.types import Array, Triples

MARKER = "store.json"
VERSION_FILE = re.compile(r"([0-9]{8,})\.json")
LOST_AND_FOUND = "lost+found"


def _version_name(number: int) -> str:
    return f"versions/{number:08d}.json"


class Store:
    """Reading is safe at any time; writing goes through `publish`, which one writer wins."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.storage = LocalStorage(path)
        self._manifests: dict[int, Manifest] = {}

    @staticmethod
    def open(path: Path) -> Store:
        """An existing store."""
        if not (path / MARKER).is_file():
            what = "no such folder" if not path.exists() else "not a store (no store.json)"
            raise StoreError(f"{path}: {what}; `dkge ingest {path} SOURCE` makes one")
        store = Store(path)
        _check_marker(store.storage.read(MARKER), path / MARKER)
        return store

    @staticmethod
    def open_or_new(path: Path) -> Store:
        """An existing store, or one that will be made in an empty or missing folder when something is published."""
        if path.is_dir():
            names = {entry.name for entry in path.iterdir()}
            if MARKER in names:
                return Store.open(path)
            # A writer that died while it made the marker leaves a file behind, a new file system a folder.
            strangers = {name for name in names if not name.startswith(f".{MARKER}.")} - {LOST_AND_FOUND}
            if not strangers:
                return Store(path)
        elif not path.exists():
            return Store(path)
        raise StoreError(f"{path}: exists and is not a store; name an empty or new folder")

    def ensure(self) -> None:
        """Make the folder a store if it is none yet."""
        self.storage.create(MARKER, json.dumps({"format": FORMAT}).encode())

    def versions(self) -> list[int]:
        """The numbers of all versions, oldest first."""
        names = (VERSION_FILE.fullmatch(name) for name in self.storage.names("versions"))
        return sorted(int(name[1]) for name in names if name)

    def manifest(self, number: int) -> Manifest:
        """One version."""
        if number not in self._manifests:
            name = _version_name(number)
            manifest = parse_manifest(self.storage.read(name), str(self.path / name))
            if manifest.version != number:
                raise StoreError(f"{self.path / name}: says it is version {manifest.version}")
            if manifest.snapshot.parent is not None and manifest.snapshot.parent >= number:
                raise StoreError(f"{self.path / name}: says it was made from version {manifest.snapshot.parent}")
            self._manifests[number] = manifest
        return self._manifests[number]

    def head(self) -> Manifest | None:
        """The newest version, None in a store that holds nothing yet."""
        numbers = self.versions()
        return self.manifest(numbers[-1]) if numbers else None

    def snapshot_named(self, name: str) -> Manifest | None:
        """The snapshot of that name, if there is one."""
        found = (self.manifest(number) for number in reversed(self.versions()))
        return next((manifest for manifest in found if manifest.snapshot.name == name), None)

    def find_snapshot(self, name: str) -> Manifest:
        """A snapshot by its name, or by its version number; a name that is a number counts as a name."""
        if found := self.snapshot_named(name):
            return found
        numbers = self.versions()
        if name.isdecimal() and int(name) in numbers:
            return self.manifest(int(name))
        known = ", ".join(self.manifest(number).snapshot.name for number in numbers[-5:])
        raise StoreError(
            f"{self.path}: no snapshot {name!r}" + (f"; the newest are {known}" if known else ": it is empty")
        )

    def checksum(self, number: int) -> str:
        """What a child version names its parent by."""
        return hashlib.sha256(self.storage.read(_version_name(number))).hexdigest()

    def publish(self, manifest: Manifest) -> None:
        """Make a version visible, all at once. Its parts are durable already."""
        if not self.storage.create(_version_name(manifest.version), manifest.to_json()):
            winner = self.manifest(manifest.version).snapshot.name
            raise StoreError(
                f"{self.path}: version {manifest.version} was published by another writer meanwhile ({winner!r}); "
                "nothing was changed, run this again on top of it"
            )

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

    def _line(self, manifest: Manifest) -> Iterator[Manifest]:
        """A snapshot, its parent, and so on to the first."""
        while True:
            yield manifest
            if manifest.snapshot.parent is None:
                return
            manifest = self.manifest(manifest.snapshot.parent)

    def snapshot(self, manifest: Manifest | None) -> Snapshot:
        """The state of the graph at a version: the nearest base and the net change since."""
        if manifest is None:
            return Snapshot.nothing()
        *changed, full = self.chain(manifest)
        assert full.snapshot.base is not None
        net = Diff.none()
        for ancestor in reversed(changed):
            net = net.then(self._change(ancestor))
        return Snapshot(load_base(self.storage, full.snapshot.base), net, *_rows(manifest))

    def chain(self, manifest: Manifest) -> list[Manifest]:
        """A snapshot and those before it, down to the first that is stored in full."""
        chain = []
        for ancestor in self._line(manifest):
            chain.append(ancestor)
            if ancestor.snapshot.base is not None:
                return chain
        raise StoreError(f"{self.path}: snapshot {manifest.snapshot.name!r} stands on no full one")

    def was_trained(self, manifest: Manifest | None, triples: Triples) -> Array:
        """For each triple: did a snapshot up to this one take it out of train? What is still there is not asked for."""
        found = np.zeros(triples.count, bool)
        for ancestor in self._line(manifest) if manifest is not None else ():
            if ancestor.snapshot.change is not None:
                found |= contains(self._change(ancestor).deleted, triples)
        return found

    def _change(self, manifest: Manifest) -> Diff:
        if manifest.snapshot.change is None:
            raise StoreError(f"{self.path}: version {manifest.version} has a parent but no change to it")
        return load_change(self.storage, manifest.snapshot.change)

    def diff(self, old: Manifest, new: Manifest) -> Diff:
        """What changed from one snapshot to another, older or newer, composed of the changes between them."""
        before = {ancestor.version: place for place, ancestor in enumerate(self._line(old))}
        way_up: list[Diff] = []
        for ancestor in self._line(new):
            if ancestor.version in before:
                break
            way_up.append(self._change(ancestor))
        else:
            raise StoreError(f"{self.path}: {old.snapshot.name!r} and {new.snapshot.name!r} have no common ancestor")
        net = Diff.none()
        for place, step in enumerate(self._line(old)):
            if place == before[ancestor.version]:
                break
            net = net.then(self._change(step).inverted())
        for change in reversed(way_up):
            net = net.then(change)
        return net


def _check_marker(data: bytes, where: Path) -> None:
    try:
        number = json.loads(data)["format"]
    except (ValueError, KeyError, TypeError):
        number = None
    if not isinstance(number, int) or number < 1:
        raise StoreError(f'{where}: damaged: it should hold the format of the store, as in {{"format": {FORMAT}}}')
    if number > FORMAT:
        raise StoreError(
            f"{where}: the store has format {number}, this program reads up to {FORMAT}: upgrade dkge_dist"
        )


def _rows(manifest: Manifest) -> tuple[int, int]:
    entities, relations = (
        sum(entry.labels.rows for entry in entries)
        for entries in (manifest.entity_segments, manifest.relation_segments)
    )
    return entities, relations
