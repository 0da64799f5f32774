"""The numbered versions of a store: read one, find the newest, publish the next. Nothing is ever changed in place."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from dkge_dist.store.manifest import (
    FORMAT,
    CurrentEntry,
    Manifest,
    ModelManifest,
    SnapshotManifest,
    indexes_of,
    parse_manifest,
    parts_of,
    refuse_other_format,
    tables_of,
)
from dkge_dist.store.storage import Blob, MissingError, StoreError, open_storage
from dkge_dist.store.tables import table_parts

MARKER, HINT = "store.json", "head"
VERSION_FILE = re.compile(r"([0-9]{8,})\.json")


class NumberTakenError(StoreError):
    """Another writer was first to publish a version of this number."""


def _version_name(number: int) -> str:
    return f"versions/{number:08d}.json"


class Versions:
    """Manifests by their numbers. The highest one is the head; of two writers of a number one wins."""

    def __init__(self, location: str | os.PathLike[str], clock: Callable[[], float] = time.time) -> None:
        self.storage = open_storage(location)
        self._clock = clock
        self._manifests: dict[int, Manifest] = {}
        self._newest = 0
        """The newest version that was seen yet."""

    def __str__(self) -> str:
        return str(self.storage)

    def _is_made(self) -> bool:
        """Is there a store? One of another format is refused."""
        try:
            number = json.loads(self.storage.read(MARKER))["format"]
        except MissingError:
            return False
        except (ValueError, KeyError, TypeError, RecursionError):
            number = None
        where = f"{self}/{MARKER}"
        if not isinstance(number, int) or number < 1:
            raise StoreError(f'{where}: damaged: it should hold the format of the store, as in {{"format": {FORMAT}}}')
        refuse_other_format(number, where)
        return True

    def ensure(self) -> None:
        """Make this location a store if it is none yet."""
        if not self._is_made():
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
        number = self._newest or self._hinted()
        while self._is_there(number + 1):
            number += 1
        self._newest = number
        return self.manifest(number) if number else None

    def _hinted(self) -> int:
        """A version that cannot be far from the newest: writers leave a hint. Without one, all names are listed."""
        with suppress(StoreError, OSError, ValueError):
            number = int(self.storage.read(HINT).decode("ascii"))
            if number > 0 and self._is_there(number):
                return number
        return max(self.versions(), default=0)

    def _is_there(self, number: int) -> bool:
        with suppress(MissingError):
            self.storage.read(_version_name(number))
            return True
        return False

    def _leave_hint(self, number: int) -> None:
        # No more than a hint: whoever is killed before, or has no space left for it, has published all the same.
        with suppress(StoreError, OSError):
            self.storage.replace(HINT, str(number).encode("ascii"))

    def _back_to(self, first: int) -> Iterator[Manifest]:
        """All versions from the newest to this one. They are read one by one as they are asked for."""
        head = self.head()
        return (self.manifest(number) for number in range(head.version if head else 0, first - 1, -1))

    def snapshots(self) -> Iterator[SnapshotManifest]:
        """All snapshots, newest first."""
        return (manifest for manifest in self._back_to(1) if isinstance(manifest, SnapshotManifest))

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

    def is_cleared(self, number: int) -> bool:
        """Was a version cleared away?"""
        current = self._current_or_none()
        return current is not None and current.is_cleared(number)

    def _current_or_none(self) -> CurrentEntry | None:
        """What is current. A damaged head is no reason not to read what is older."""
        with suppress(StoreError):
            head = self.head()
            return head.current if head else None
        return None

    def _refuse_cleared(self, number: int) -> None:
        if self.is_cleared(number):
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

    def checksum(self, number: int) -> str:
        """What a child version names its parent by."""
        return hashlib.sha256(self.storage.read(_version_name(number))).hexdigest()

    def following(self, head: Manifest | None, seconds: float) -> dict[str, Any]:
        """What a version on top of `head` says about itself, if it brings no labels."""
        return {
            "version": head.version + 1 if head else 1,
            "parent": self.checksum(head.version) if head else None,
            "created": datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="seconds"),
            "writer": secrets.token_hex(8),
            "seconds": seconds,
            "block_rows": head.block_rows if head else 0,
            "entity_segments": head.entity_segments if head else [],
            "relation_segments": head.relation_segments if head else [],
            "name_runs": head.name_runs if head else [],
            "trained_runs": head.trained_runs if head else [],
            "display_names": head.display_names if head else None,
        }

    def publish(self, manifest: Manifest) -> None:
        """Make a version visible, all at once. Its parts are durable already, or it is refused."""
        self.storage.require(self._new_parts(manifest))
        if not self.storage.create(_version_name(manifest.version), manifest.to_json()):
            winner = self.manifest(manifest.version).summary
            raise NumberTakenError(
                f"{self}: version {manifest.version} was published by another writer meanwhile ({winner}); "
                "nothing was changed, run this again on top of it"
            )
        self._manifests[manifest.version] = manifest
        self._leave_hint(manifest.version)

    def _new_parts(self, manifest: Manifest) -> list[Blob]:
        """Parts that a version names, and none that it stands on. Those of the others are kept for these."""
        known = [self.manifest(manifest.version - 1)] if manifest.version > 1 else []
        if isinstance(manifest, ModelManifest) and manifest.model.parent is not None:
            known.append(self.manifest(manifest.model.parent))
        old = {part.digest for part in parts_of(known)}
        new = [part for part in parts_of(manifest) if part.digest not in old]
        if isinstance(manifest, ModelManifest):
            for table in tables_of(manifest.model):
                if not old.issuperset(indexes_of(table)):
                    new += table_parts(self.storage, table)
        return [part.part for part in new]
