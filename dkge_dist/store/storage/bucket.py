"""A store in a bucket of a service that keeps conditions (`If-None-Match: *`), as S3 does. Names are those of a folder.

Parts are read from a cache on the local disk. A writer puts every part, also one that is there already: that renews its
age and mends it if it is damaged.
"""

from __future__ import annotations

import io
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, TypeVar

from dkge_dist.store.storage.base import PART_NAME, Blob, MissingError, Removable, StoreError, blob_of
from dkge_dist.store.storage.cache import PartCache
from dkge_dist.store.storage.objects import ATTEMPTS, Objects

PARTS, STAGING, REMOVING, PROBE = "parts", "staging", "removing", "probe"
AT_ONCE = 8
"""Requests under way when many parts are read or written."""
SECOND = 1.0
"""What a service calls the time of an object is up to a second before it."""

REMOVAL_SECONDS = 600.0
"""A removal takes two requests, but those may take long."""

LEASE_SECONDS = 120.0
RENEWALS = 4
"""How often a lease is renewed while it lasts: some of them may fail."""

T = TypeVar("T")


class BucketStorage:
    """Objects below a prefix: parts are in `parts/`, every other name is that of an object."""

    def __init__(self, location: str) -> None:
        self.name = location
        self.objects = Objects(location)
        self.location = self.objects.location
        self._cache: PartCache | None = None
        self._is_probed = False
        self._dropped: set[str] = set()

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[type[BucketStorage], tuple[str]]:
        return BucketStorage, (self.name,)

    @property
    def cache(self) -> PartCache:
        """Where parts are read from."""
        if self._cache is None:
            self._cache = PartCache.of_environment()
        return self._cache

    def _part(self, digest: str) -> str:
        if not PART_NAME.fullmatch(digest):
            raise StoreError(f"{self}: {digest!r} is no part name")
        return f"{PARTS}/{digest[:2]}/{digest}"

    def _probe(self) -> None:
        """Refuse a service that does not keep the condition: several writers could publish the same version there."""
        if not self._is_probed:
            if all(self.objects.create(PROBE, b"a second object of this name must be refused\n") for _ in range(2)):
                raise StoreError(
                    f"{self}: this service lets an object be created twice (it does not keep `If-None-Match: *`), so "
                    "that two writers could publish the same version; use another one"
                )
            self._is_probed = True

    def is_empty(self) -> bool:
        """Is there no object but the probe?"""
        return all(found.name == PROBE for found in self.objects.walk(""))

    def read(self, name: str) -> bytes:
        """The bytes of an object."""
        return self.objects.read(name).data

    def create(self, name: str, data: bytes) -> bool:
        """Put an object if there is none."""
        self._probe()
        return self.objects.create(name, data)

    def replace(self, name: str, data: bytes) -> str:
        """Put an object, over the one of that name; its address."""
        self.objects.put(name, data)
        return f"{self}/{name}"

    def names(self, folder: str) -> list[str]:
        """The objects directly below a folder."""
        return self.objects.names(folder)[0]

    def part_path(self, part: Blob) -> Path:
        """The file of a part in the cache; it is verified when it comes there."""
        name = self._part(part.digest)
        found = self.cache.find(part)
        return found or self.cache.bring(part, lambda file: self._download(name, part, file))

    def drop_copy(self, part: Blob) -> bool:
        """Remove it from the cache. Once: a disk that spoils it again is not tried for ever."""
        is_new = part.digest not in self._dropped
        self._dropped.add(part.digest)
        self.cache.drop(part.digest)
        return is_new

    def fetch(self, parts: Iterable[Blob]) -> None:
        """Bring parts into the cache, several at once."""
        missing = {part for part in parts if self.cache.find(part) is None}
        _at_once(self.part_path, missing)

    def _download(self, name: str, part: Blob, file: IO[bytes]) -> None:
        found = ""
        for attempt in range(ATTEMPTS):
            begin = file.tell()
            try:
                found = self.objects.download(name, file, part.size)
            except MissingError:
                raise StoreError(f"part {self}/{name} is missing") from None
            except StoreError:
                # Such as a connection that is lost half way.
                if attempt == ATTEMPTS - 1:
                    raise
            if found == part.digest:
                return
            file.seek(begin)
            file.truncate()
        raise StoreError(f"part {self}/{name} is damaged: its bytes have checksum {found}")

    def require(self, parts: Iterable[Blob]) -> None:
        """Look for all of them. What cleaning removed after it was put is put again, if it is in the cache."""
        wanted = {self._part(part.digest): part for part in parts}
        self._outlast_removals({part.digest for part in wanted.values()})
        found = dict(zip(wanted, _at_once(self.objects.head, wanted), strict=True))
        for name, part in wanted.items():
            meta = found[name]
            if meta is None and (path := self.cache.find(part)) is not None:
                self.objects.put(name, path)
            elif meta is None:
                raise StoreError(f"part {self}/{name} is missing")
            elif meta.size != part.size:
                raise StoreError(
                    f"part {self}/{name} has {meta.size} bytes instead of {part.size}: truncated or replaced"
                )

    def _outlast_removals(self, digests: set[str]) -> None:
        """Wait until none of these parts is being removed. Marks mean nothing when no cleaning is at work."""
        until = time.monotonic() + REMOVAL_SECONDS
        while marks := [
            found.name for found in self.objects.walk(REMOVING) if found.name.rpartition("/")[2] in digests
        ]:
            if not self.is_leased("gc"):
                self.objects.delete(*marks)
                return
            if time.monotonic() > until:
                part = marks[0].rpartition("/")[2]
                raise StoreError(
                    f"{self}: `dkge gc` has been removing part {part} for {REMOVAL_SECONDS:g} s; run it again"
                )
            time.sleep(0.2)

    def staging_since(self) -> float | None:
        """By the leases of stagings."""
        found = [find_lease(self.objects, meta.name) for meta in self.objects.walk(STAGING)]
        return min((lease.since for lease in found if lease is not None and lease.is_held), default=None)

    def verify(self, part: Blob) -> None:
        """Read all of a part from the bucket, whatever the cache holds."""
        self._download(self._part(part.digest), part, _Nowhere())

    @contextmanager
    def staging(self) -> Iterator[BucketStaging]:
        """A lease that says that somebody writes parts, and a folder of the cache for them."""
        self._probe()
        name = f"{STAGING}/{secrets.token_hex(8)}.json"
        with hold_lease(self.objects, name), self.cache.staging() as folder:
            yield BucketStaging(self, folder)

    @contextmanager
    def lease(self, name: str) -> Iterator[None]:
        """A lease object."""
        self._probe()
        with ExitStack() as stack:
            try:
                stack.enter_context(hold_lease(self.objects, f"leases/{name}.json"))
            except LeaseHeldError as error:
                raise StoreError(f"{self}: another `dkge {name}` is at work: {error.holder}") from None
            yield

    def is_leased(self, name: str) -> bool:
        """Does its lease object say so?"""
        lease = find_lease(self.objects, f"leases/{name}.json")
        return lease is not None and lease.is_held

    def older_than(self, before: float) -> Iterator[Removable]:
        """By the time of the service."""
        for found in self.objects.walk(PARTS):
            digest = found.name.rpartition("/")[2]
            if found.modified + SECOND < before and PART_NAME.fullmatch(digest):
                yield Removable("part", digest, found.size)
        for found in self.objects.walk(REMOVING):
            if found.modified + SECOND < before:
                yield Removable("unfinished", found.name, found.size)
        for found in self.objects.walk(STAGING):
            lease = find_lease(self.objects, found.name)
            if lease is not None and not lease.is_held and found.modified + SECOND < before:
                yield Removable("staging", found.name, found.size)

    def remove(self, item: Removable, before: float) -> bool:
        """Remove an object; its age is looked at once more, when every writer can see that it may go.

        A writer that put the part before that sees the mark in `require`, and one that puts it later renews its age.
        """
        if item.kind != "part":
            return self._remove_old(item.name, before)
        name, mark = self._part(item.name), f"{REMOVING}/{item.name}"
        self.objects.put(mark, b"")
        try:
            is_gone = self._remove_old(name, before)
        finally:
            self.objects.delete(mark)
        if is_gone:
            self.cache.drop(item.name)
        return is_gone

    def _remove_old(self, name: str, before: float) -> bool:
        found = self.objects.head(name)
        if found is None or found.modified + SECOND >= before:
            return False
        self.objects.delete(name)
        return True

    def workspace(self, name: str) -> Path | None:
        """There is no folder that all machines see."""
        return None

    def discard(self, name: str) -> None:
        """Remove objects."""
        self.objects.delete(name, *(found.name for found in self.objects.walk(name)))


class BucketStaging:
    """Parts that are written to a local file, put into the bucket, and kept in the cache."""

    def __init__(self, storage: BucketStorage, folder: Path) -> None:
        self.storage = storage
        self.folder = folder
        self.written = 0
        self._counting = threading.Lock()

    def add(self, write: Callable[[Path], object]) -> Blob:
        """Write, put, keep. A put is durable when it is answered."""
        temporary = self.folder / secrets.token_hex(8)
        write(temporary)
        part = blob_of(temporary)
        name, objects = self.storage._part(part.digest), self.storage.objects
        before = objects.head(name)
        tag = objects.put(name, temporary)
        if before is None or before.tag != tag:
            with self._counting:
                self.written += part.size
        self.storage.cache.adopt(temporary, part)
        return part

    def add_all(self, writes: Iterable[Callable[[Path], object]]) -> list[Blob]:
        """Add several parts, several at once."""
        return _at_once(self.add, writes)


class _Nowhere(io.BytesIO):
    """A file that keeps nothing."""

    def write(self, data: Any) -> int:
        return len(data)


def _at_once(work: Callable[[Any], T], items: Iterable[Any]) -> list[T]:
    with ThreadPoolExecutor(AT_ONCE, "bucket") as pool:
        try:
            return list(pool.map(work, items))
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


class LeaseHeldError(Exception):
    """Another process holds the lease; `holder` says which."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"held by {holder}")
        self.holder = holder


class Lease(NamedTuple):
    """An object that says who works, until when. `token` is drawn by its holder, `since` is when it began.

    Taking and renewing are conditional puts, so that of several processes one succeeds; its end needs no message.
    Clocks may differ by less than a lease lasts (S3 itself refuses requests of clocks that are further off). A lease
    keeps two processes from the same work; what must not happen at all, such as publishing a version twice, is not left
    to it.
    """

    holder: str
    token: str
    since: float
    until: float

    @property
    def is_held(self) -> bool:
        """Does its holder still work?"""
        return self.until > time.time()

    def to_json(self) -> bytes:
        """As it is stored."""
        return json.dumps(self._asdict()).encode()

    @staticmethod
    def parse(data: bytes) -> Lease:
        """What is damaged is held by nobody."""
        try:
            content = json.loads(data)
            since, until = float(content["since"]), float(content["until"])
            return Lease(str(content["holder"]), str(content["token"]), since, until)
        except (ValueError, KeyError, TypeError):
            return Lease("nobody", "", 0.0, 0.0)


@contextmanager
def hold_lease(objects: Objects, name: str) -> Iterator[None]:
    """Hold the lease of that name. Never waits. The object is gone afterwards."""
    now = time.time()
    mine = Lease(f"process {os.getpid()} on {socket.gethostname()}", secrets.token_hex(8), now, now + LEASE_SECONDS)
    _take(objects, name, mine)
    stopped = threading.Event()
    renewing = threading.Thread(target=_renew, args=(objects, name, mine, stopped), name="lease", daemon=True)
    renewing.start()
    try:
        yield
    finally:
        stopped.set()
        renewing.join()
        # If the service is out of reach, the lease ends by itself.
        with suppress(StoreError):
            if Lease.parse(objects.read(name).data).token == mine.token:
                objects.delete(name)


def find_lease(objects: Objects, name: str) -> Lease | None:
    """A lease, whether or not it is held; None if there is none."""
    try:
        return Lease.parse(objects.read(name).data)
    except MissingError:
        return None


def _take(objects: Objects, name: str, mine: Lease) -> None:
    while not objects.create(name, mine.to_json()):
        try:
            found = objects.read(name)
        except MissingError:
            continue  # The work it was for is done, and all of it was removed.
        other = Lease.parse(found.data)
        if other.is_held:
            raise LeaseHeldError(other.holder)
        if objects.update(name, mine.to_json(), found.tag):
            return


def _renew(objects: Objects, name: str, mine: Lease, stopped: threading.Event) -> None:
    while not stopped.wait(LEASE_SECONDS / RENEWALS):
        # A service that is out of reach now may not be the next time.
        with suppress(StoreError):
            found = objects.read(name)
            if Lease.parse(found.data).token == mine.token:
                objects.update(name, mine._replace(until=time.time() + LEASE_SECONDS).to_json(), found.tag)
