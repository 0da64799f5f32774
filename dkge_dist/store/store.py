"""A store: numbered versions over immutable parts, asked for by name, number or date, and what each of them holds."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import Diff, hash_triples
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.store.display_names import StoredNames
from dkge_dist.store.graph_parts import RowCounts, load_base, load_change, load_segment
from dkge_dist.store.manifest import (
    FORMAT,
    BaseEntry,
    CurrentEntry,
    DisplayNamesEntry,
    Manifest,
    ModelManifest,
    PartEntry,
    SegmentEntry,
    SnapshotManifest,
    indexes_of,
    parse_manifest,
    parts_of,
    refuse_other_format,
    tables_of,
)
from dkge_dist.store.parts import HASH_TYPES, add_run, has_hashes, read_numbers, versions_of
from dkge_dist.store.remote_trainings import RemoteTrainings
from dkge_dist.store.storage import Blob, MissingError, Staging, StoreError, open_storage
from dkge_dist.store.tables import table_parts
from dkge_dist.store.trainings import Trainings
from dkge_dist.types import Array, Triples, UsageError

MARKER, HINT = "store.json", "head"
VERSION_FILE = re.compile(r"([0-9]{8,})\.json")
VERSION_NUMBER = re.compile(r"[0-9]{1,18}", re.ASCII)
ALIASES = "aliases"
ALIAS = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
"""Begins with a letter: a number or a date is never an alias. No dots: nothing of it is a path, or hidden."""

DATE = re.compile(r"\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII)
SECOND = timedelta(seconds=1)
_SEED = 0x747261696E6564

Names = tuple[Dictionary, Dictionary]
"""Entities and relations."""


class NumberTakenError(StoreError):
    """Another writer was first to publish a version of this number."""


def _version_name(number: int) -> str:
    return f"versions/{number:08d}.json"


class Store:
    """Manifests by their numbers, of which the highest is the head. Nothing is ever changed in place.

    Reading is safe at any time; writing goes through `publish`, where of two writers of a number one wins.
    """

    def __init__(self, location: str | os.PathLike[str], clock: Callable[[], float] = time.time) -> None:
        self.storage = open_storage(location)
        self._clock = clock
        self._manifests: dict[int, Manifest] = {}
        self._newest = 0
        """The newest version that was seen yet."""

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

    @property
    def trainings(self) -> Trainings | RemoteTrainings:
        """Trainings of this store that are not published yet."""
        folder = self.storage.workspace("training")
        return RemoteTrainings(self.storage) if folder is None else Trainings(folder)

    # An alias is a name that pins a version: a small object, replaced all at once. It is no part of any version: it may
    # be set anew and removed. Whoever reads one sees the old version or the new.

    def alias(self, name: str) -> int | None:
        """The version that an alias pins, None if there is no such alias."""
        if not ALIAS.fullmatch(name):
            return None
        try:
            found = json.loads(self.storage.read(f"{ALIASES}/{name}.json"))["version"]
        except MissingError:
            return None
        except (ValueError, KeyError, TypeError, RecursionError):
            found = None
        if not isinstance(found, int) or isinstance(found, bool) or found < 1:
            raise StoreError(f"{self}/{ALIASES}/{name}.json: damaged: set the alias again, or remove it")
        return found

    def alias_names(self) -> list[str]:
        """Names of aliases, in order. One may be removed meanwhile, or be damaged."""
        return [name.removesuffix(".json") for name in self.storage.names(ALIASES)]

    def aliases(self) -> dict[str, int]:
        """The versions that aliases pin, by their names."""
        found = {name: self.alias(name) for name in self.alias_names()}
        return {name: version for name, version in found.items() if version is not None}

    def write_alias(self, name: str, version: int) -> None:
        """Make an alias, or let it pin another version."""
        if not ALIAS.fullmatch(name):
            raise UsageError(f"alias {name!r}: a letter, then at most 63 letters, digits, `-` and `_`")
        self.storage.replace(f"{ALIASES}/{name}.json", json.dumps({"version": version}).encode("ascii"))

    def remove_alias(self, name: str) -> None:
        """Remove an alias."""
        if not ALIAS.fullmatch(name) or name not in self.alias_names():
            raise UsageError(f"no alias {name!r}; {', '.join(self.aliases()) or 'there are none'}")
        self.storage.discard(f"{ALIASES}/{name}.json")

    def _numbered(self, name: str) -> int | None:
        """The version of which a name is the number, if there is one."""
        head = self.head()
        number = int(name) if head and VERSION_NUMBER.fullmatch(name) else 0
        return number if head and 1 <= number <= head.version else None

    def _as_of(self, text: str) -> Manifest | None:
        """The newest version that was published by a date or time; None if the text is neither."""
        moment, head = moment_of(text), self.head()
        if moment is None or head is None:
            return None
        number = newest_by(moment, head.version, self._published)
        if not number:
            first = self._published(1).astimezone(UTC)
            raise StoreError(f"{self}: nothing was published by {text}; version 1 is of {first:%Y-%m-%d %H:%M:%S} UTC")
        return self.manifest(number)

    def _published(self, number: int) -> datetime:
        try:
            found = datetime.fromisoformat(self.manifest(number).created)
        except ValueError:
            raise StoreError(f"{self}: version {number} does not say when it was published") from None
        return found if found.tzinfo is not None else found.replace(tzinfo=UTC)

    def find_version(self, text: str) -> int:
        """A version by its number or an alias, or the one that was the newest at a date or time.

        One that did not become current stands for itself by its number alone.
        """
        if (pinned := self.alias(text)) is not None:
            return pinned
        if VERSION_NUMBER.fullmatch(text):
            return int(text)
        found = self._as_of(text)
        if found is None:
            raise UsageError(f"{text!r}: a version number or a date is expected, as in `dkge log`")
        while isinstance(found, ModelManifest) and found.current.model != found.version:
            found = self.manifest(found.version - 1)
        return found.version

    def snapshot_named(self, name: str) -> SnapshotManifest | None:
        """The snapshot of that name, if there is one."""
        head = self.head()
        found = map(self.manifest, versions_of(self.storage, head.name_runs, _hash_of_name(name)) if head else [])
        snapshots = (manifest for manifest in found if isinstance(manifest, SnapshotManifest))
        return next((manifest for manifest in snapshots if manifest.snapshot.name == name), None)

    def name_runs_with(self, staging: Staging, head: Manifest | None, name: str) -> list[PartEntry]:
        """What a version on top of `head` says about names, which brings a snapshot of this name."""
        version = head.version + 1 if head else 1
        columns = {"hash": np.array([_hash_of_name(name)], np.uint64), "version": np.array([version], np.int64)}
        return add_run(staging, head.name_runs if head else [], columns)

    def _resolve(self, name: str, by_date: bool = True) -> SnapshotManifest | CurrentEntry:
        """The snapshot of a name, or what was current at a version: that of an alias, of a number, or of a date.

        An alias goes first: it was set to be relied on. A name that is a number counts as a name.
        """
        if (pinned := self.alias(name)) is not None:
            return self.state_at(pinned)
        if found := self.snapshot_named(name):
            self._refuse_cleared(found.version)
            return found
        if number := self._numbered(name):
            return self.state_at(number)
        if by_date and (then := self._as_of(name)):
            return then.current
        newest = [manifest.snapshot.name for manifest in itertools.islice(self.snapshots(), 5)]
        known = f"; the newest are {', '.join(reversed(newest))}" if newest else ": it is empty"
        raise StoreError(f"{self}: no snapshot {name!r}{known}")

    def find_snapshot(self, name: str, by_date: bool = True) -> SnapshotManifest:
        """A snapshot by its name, or the one that was current at a version number, an alias or a date."""
        found = self._resolve(name, by_date)
        return found if isinstance(found, SnapshotManifest) else self.snapshot_manifest(found.snapshot)

    def find_model(self, name: str | None = None) -> ModelManifest:
        """The current model, or that of a version, alias or date; of a snapshot's name, the newest learnt from it.

        If none was, the model that was current while that snapshot was.
        """
        if name is None:
            head = self.head()
            model = head.current.model if head else None
        else:
            found = self._resolve(name)
            model = self._newest_of(found.version) if isinstance(found, SnapshotManifest) else found.model
        if model is None:
            said = "" if name is None else f" at {name!r}"
            raise StoreError(f"{self}: there is no model{said} yet; `dkge train {self}` learns one")
        return self.model_manifest(model)

    def _newest_of(self, snapshot: int) -> int | None:
        """The newest model that was learnt from a snapshot and took over, or else the newest that was current then."""
        current = (m.current.model for m in self._back_to(snapshot) if m.current.snapshot == snapshot)
        return self.learnt_from(snapshot) or next(current)

    def learnt_from(self, snapshot: int) -> int | None:
        """The newest model that was learnt from a snapshot and took over."""
        models = (m for m in self._back_to(snapshot) if isinstance(m, ModelManifest) and m.current.model == m.version)
        return next((m.version for m in models if m.model.snapshot == snapshot), None)

    def dictionaries(self, manifest: Manifest | None) -> tuple[Dictionary, Dictionary]:
        """Entities and relations as that version knows them, with the display names that they have now.

        Names are no part of what a version says: who asks an old one asks by the names of today.
        """
        if manifest is None:
            return Dictionary(noun="entity"), Dictionary(noun="relation")
        entities, relations = self.display_names(self._manifests.get(self._newest, manifest).display_names)
        return (
            self._dictionary(manifest.entity_segments, "entity", entities),
            self._dictionary(manifest.relation_segments, "relation", relations),
        )

    def display_names(self, entry: DisplayNamesEntry | None) -> tuple[StoredNames | None, StoredNames | None]:
        """Those of entities and of relations, None where there are none. Nothing is read before it is asked for."""
        kinds = (entry.entities, entry.relations) if entry is not None else ([], [])
        entities, relations = (StoredNames(self.storage, runs) if runs else None for runs in kinds)
        return entities, relations

    def _dictionary(self, entries: list[SegmentEntry], noun: str, names: StoredNames | None) -> Dictionary:
        segments = []
        first_row = 0
        for entry in entries:
            segments.append(load_segment(self.storage, entry, first_row))
            first_row += entry.labels.rows
        return Dictionary(segments, noun, names)

    def ancestry(self, manifest: SnapshotManifest) -> Iterator[SnapshotManifest]:
        """A snapshot, its parent, and so on to the first that was not cleared away."""
        current = self._current_or_none()
        before: SnapshotManifest | None = manifest
        while before is not None:
            yield before
            before = self._parent(before, current)

    def _parent(self, manifest: SnapshotManifest, current: CurrentEntry | None) -> SnapshotManifest | None:
        """The parent of a snapshot, unless it has none or none any more."""
        number = manifest.snapshot.parent
        if number is None or (current is not None and current.is_cleared(number)):
            return None
        parent = self.manifest(number)
        if not isinstance(parent, SnapshotManifest):
            raise StoreError(f"{self}: version {number} is a {parent.kind}, not a snapshot")
        return parent

    def snapshot(self, manifest: SnapshotManifest | None, at: Manifest | None = None) -> Snapshot:
        """The state of the graph at a snapshot: the nearest base and the net change since.

        With as many rows as labels were known then, or at the later version `at`.
        """
        if manifest is None:
            return Snapshot.empty()
        *changed, full = self.chain(manifest)
        assert full.snapshot.base is not None
        rows = rows_at(at or manifest)
        base = load_base(self.storage, full.snapshot.base, rows)
        net = Diff.none()
        for ancestor in reversed(changed):
            net = net.then(self.change(ancestor, rows))
        return Snapshot(base, net, *rows)

    def chain(self, manifest: SnapshotManifest) -> list[SnapshotManifest]:
        """A snapshot and those before it, down to the first that is stored in full."""
        chain = []
        for ancestor in self.ancestry(manifest):
            chain.append(ancestor)
            if ancestor.snapshot.base is not None:
                return chain
        raise StoreError(f"{self}: snapshot {manifest.snapshot.name!r} stands on no full one")

    def base_of(self, manifest: SnapshotManifest) -> BaseEntry:
        """The snapshot in full that a snapshot is stored as a change to."""
        base = self.chain(manifest)[-1].snapshot.base
        assert base is not None, "a chain ends with a snapshot in full"
        return base

    def change(self, manifest: SnapshotManifest, rows: RowCounts | None = None) -> Diff:
        """What changed from the parent of a snapshot to it, of rows that there are at its version or at a later one."""
        if manifest.snapshot.change is None:
            raise StoreError(f"{self}: version {manifest.version} has a parent but no change to it")
        return load_change(self.storage, manifest.snapshot.change, rows or rows_at(manifest))

    def diff(self, old: SnapshotManifest, new: SnapshotManifest) -> Diff:
        """What changed from one snapshot to another, older or newer, composed of the changes between them."""
        current = self._current_or_none()
        back: list[Diff] = []
        forth: list[Diff] = []
        left: SnapshotManifest | None = old
        right: SnapshotManifest | None = new
        while left is not None and right is not None and left.version != right.version:
            # Of the two, the later one is no ancestor of the other.
            if left.version > right.version:
                back.append(self.change(left).inverted())
                left = self._parent(left, current)
            else:
                forth.append(self.change(right))
                right = self._parent(right, current)
        if left is None or right is None:
            raise StoreError(f"{self}: {old.snapshot.name!r} and {new.snapshot.name!r} have no common ancestor")
        net = Diff.none()
        for step in [*back, *reversed(forth)]:
            net = net.then(step)
        return net


def _hash_of_name(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()[:8], "little")


def rows_at(manifest: Manifest) -> RowCounts:
    """How many labels a version has."""
    entities, relations = (
        sum(entry.labels.rows for entry in entries)
        for entries in (manifest.entity_segments, manifest.relation_segments)
    )
    return RowCounts(entities, relations)


def moment_of(text: str) -> datetime | None:
    """The last second of a day (2026-11-17), a minute (2026-11-17T03:00) or a second; None if it is written otherwise.

    The last, so that a version is found by the minute that `dkge log` shows, and a day is all of that day. Times are
    UTC unless they say otherwise, as in manifests.
    """
    found = DATE.fullmatch(text)
    if found is None:
        return None
    time, seconds, _ = found.groups()
    unit = timedelta(days=1) if time is None else SECOND if seconds else timedelta(minutes=1)
    try:
        began = datetime.fromisoformat(text)
        return (began if began.tzinfo is not None else began.replace(tzinfo=UTC)) + (unit - SECOND)
    except ValueError as error:
        raise UsageError(f"{text!r} is no date: {error}") from None


def newest_by(moment: datetime, newest: int, time_of_version: Callable[[int], datetime]) -> int:
    """The newest of versions 1 to `newest` that was published by then, 0 if none was.

    A binary search: it asks for the times of a few versions, however many there are. They are in order, but for
    clocks that were set back.
    """
    low, high = 0, newest
    while low < high:
        middle = (low + high + 1) // 2
        if time_of_version(middle) <= moment:
            low = middle
        else:
            high = middle - 1
    return low


class PastTriples:
    """Triples that were in a train split once and are not now: what was ever trained on is never held out later.

    Every version carries their hashes, of all snapshots before it on whatever branch: a model may be updated from one
    branch to another. So clearing takes nothing from that, and nobody has to walk through the history. They are opened
    once to be asked often. Without a version there are none.
    """

    def __init__(self, store: Store, head: Manifest | None, names: Names) -> None:
        self._names = names
        self._runs = [read_numbers(store.storage, run, HASH_TYPES)[0] for run in (head.trained_runs if head else [])]

    def has(self, triples: Triples) -> Array:
        """For each triple, none of them in train now: was it ever? Of two with the same hash (never yet) both count."""
        if not self._runs:
            return np.zeros(triples.count, bool)
        return has_hashes(self._runs, hash_triples(triples, _SEED, *self._names))


def remember(staging: Staging, head: Manifest | None, names: Names, lost: Triples) -> list[PartEntry]:
    """The `trained_runs` of a version on top of `head`, which takes the triples `lost` out of train."""
    return add_run(staging, head.trained_runs if head else [], {"hash": hash_triples(lost, _SEED, *names)})
