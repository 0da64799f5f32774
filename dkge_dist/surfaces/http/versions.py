"""The versions that a server has open: the one that it follows, and a few others that were asked for.

A request leases one whole version and keeps it until it is done, whatever is published meanwhile. A new version is
opened beside the old one and made ready, then one assignment makes it the one that is leased from now on. An old one is
closed when its last request is done.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path

from dkge_dist.ask.evidence import FEW_QUESTIONS
from dkge_dist.ask.model import Kind
from dkge_dist.ask.session import Session, newer_snapshot, open_session
from dkge_dist.runtime import LocalRuntime
from dkge_dist.store.manifest import DisplayNamesEntry, ModelManifest
from dkge_dist.store.store import Store
from dkge_dist.surfaces.http.completion import Completion
from dkge_dist.surfaces.http.lists import load_lists
from dkge_dist.types import DkgeError

LOG = logging.getLogger("dkge.serve")
RESOLVED_SECONDS = 1.0
"""How long the version that a name stands for is remembered: a bucket is asked once a second, not at every request."""
MAX_RESOLVED = 1000


class NotReadyError(DkgeError):
    """Nothing can be answered yet, or no more: the server is starting or stopping."""


class ServedVersion:
    """One opened version: its session, and what search needs. Closed when it is retired and nobody leases it."""

    def __init__(self, store: Store, number: int | None, pin: str | None, cache: Path) -> None:
        head = store.head()
        self._names: DisplayNamesEntry | None = head.display_names if head is not None else None
        self._cache = cache
        with ExitStack() as opening:
            named = str(number) if number is not None else pin
            session = open_session(store, LocalRuntime(), named, suggests=False)
            self.session: Session = opening.enter_context(session)
            self._contexts = opening.pop_all()
        self._lock = threading.Lock()
        self._leases, self._is_retired, self._asked = 0, False, 0
        self._preparing = threading.Lock()

    @property
    def number(self) -> int:
        """The version of its model."""
        return self.session.opened.model.version

    @property
    def snapshot(self) -> str:
        """The name of the snapshot that it was learnt from."""
        return self.session.opened.snapshot_name

    @property
    def key(self) -> tuple[int, DisplayNamesEntry | None]:
        """Which version it is, with which display names: those may change without a new model."""
        return self.number, self._names

    def prepare(self) -> None:
        """Make what many questions need, once. Questions are answered meanwhile."""
        with self._preparing:
            if not self.session.keep:
                opened = self.session.opened
                *_, full = opened.store.chain(opened.store.snapshot_manifest(opened.model.model.snapshot))
                assert full.snapshot.base is not None, "a chain ends with a snapshot in full"
                lists = load_lists(self._cache / "lists", full.snapshot.base.train.digest, opened.snapshot.base)
                self.session.prepare(lists)

    def completion(self, kind: Kind) -> Completion:
        """Search among entities or relations."""
        return self._entities if kind == "entities" else self._relations

    @cached_property
    def _entities(self) -> Completion:
        return self._completion("entities")

    @cached_property
    def _relations(self) -> Completion:
        return self._completion("relations")

    def _completion(self, kind: Kind) -> Completion:
        opened = self.session.opened
        names, alive = opened.of_kind(kind)
        manifest = opened.store.snapshot_manifest(opened.model.model.snapshot)
        is_entities = kind == "entities"
        segments = manifest.entity_segments if is_entities else manifest.relation_segments
        runs = [] if self._names is None else self._names.entities if is_entities else self._names.relations
        degrees = opened.snapshot.base.entities if is_entities else opened.snapshot.base.relations
        return Completion.of(
            opened.store.storage, names, segments, runs, alive, degrees.total, self._cache / "completion"
        )

    def lease(self) -> bool:
        """Keep it open. False if it is closed already."""
        with self._lock:
            if self._is_retired and not self._leases:
                return False
            self._leases += 1
            self._asked += 1
            return True

    def release(self) -> None:
        """A request is done with it."""
        with self._lock:
            self._leases -= 1
            closes = self._is_retired and not self._leases
        if closes:
            self._contexts.close()

    def retire(self) -> None:
        """Nobody new will lease it."""
        with self._lock:
            closes = not self._is_retired and not self._leases
            self._is_retired = True
        if closes:
            self._contexts.close()

    @property
    def wants_lists(self) -> bool:
        """Is it asked so often that lists of the whole graph pay?"""
        return not self.session.keep and self._asked > FEW_QUESTIONS


class Versions:
    """What is open of one store. `pin` (a version, snapshot, alias or date) is followed instead of what is current."""

    def __init__(
        self, store: Store, pin: str | None, cache: Path, at_once: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`at_once` other versions are open at most beside the followed one."""
        self.store, self.pin = store, pin
        self._cache, self._at_once, self._clock = cache, at_once, clock
        self._current: ServedVersion | None = None
        self._others: OrderedDict[int, ServedVersion] = OrderedDict()
        self._resolved: dict[str, tuple[float, int]] = {}
        self._lock, self._opening = threading.Lock(), threading.Lock()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self.failures = 0
        """How often a new version could not be opened."""
        self.problem: str | None = None
        """Why the last one could not."""

    def start(self, poll_seconds: float) -> None:
        """Open the version to follow, so that it can be asked; a thread makes it ready and follows newer ones."""
        self._current = ServedVersion(self.store, None, self.pin, self._cache)
        self._thread = threading.Thread(target=self._follow, args=(poll_seconds,), name="follow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following. What is leased stays open until it is released."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            retired = [*self._others.values(), *([self._current] if self._current else [])]
            self._others.clear()
            self._current = None
        for version in retired:
            version.retire()

    @property
    def current(self) -> ServedVersion:
        """The version that is followed, as it is now."""
        if self._current is None:
            raise NotReadyError("the server is starting or stopping; ask again")
        return self._current

    @property
    def is_ready(self) -> bool:
        """Has the followed version all that it needs for quick answers?"""
        return self._current is not None and self._current.session.keep

    @contextmanager
    def lease(self, name: str | None = None) -> Iterator[ServedVersion]:
        """The followed version, or the one of a version, snapshot, alias or date, kept open while the context lasts."""
        while True:
            version = self.current if name is None else self._named(name)
            if version.lease():
                break
        try:
            yield version
        finally:
            version.release()
            if name is not None and version.wants_lists:
                threading.Thread(target=version.prepare, name="prepare", daemon=True).start()

    def _named(self, name: str) -> ServedVersion:
        number = self._resolve(name)
        current = self.current
        if current.number == number:
            return current
        with self._opening:
            # Under the lock of openings: of several requests for the same version, one opens it.
            with self._lock:
                if (found := self._others.get(number)) is not None:
                    self._others.move_to_end(number)
                    return found
            opened = ServedVersion(self.store, number, None, self._cache)
            with self._lock:
                self._others[number] = opened
                closed = [self._others.popitem(last=False)[1] for _ in range(len(self._others) - self._at_once)]
        for version in closed:
            version.retire()
        return opened

    def _resolve(self, name: str) -> int:
        now = self._clock()
        known = self._resolved.get(name)
        if known is not None and now - known[0] < RESOLVED_SECONDS:
            return known[1]
        number = self.store.find_model(name).version
        with self._lock:
            if len(self._resolved) >= MAX_RESOLVED:
                self._resolved.clear()
            self._resolved[name] = (now, number)
        return number

    def _follow(self, poll_seconds: float) -> None:
        while not self._stop.is_set():
            try:
                self.follow()
                self.problem = None
            except (DkgeError, OSError, MemoryError) as error:
                # The version that is open goes on answering.
                self.failures += 1
                if self.problem != str(error):
                    LOG.warning("cannot follow the store: %s", error)
                self.problem = str(error)
            self._stop.wait(poll_seconds)

    def follow(self) -> bool:
        """Make the newest version the one that is asked, once it is ready. Was there another one?"""
        current = self.current
        self._ready(current)
        newest, head = self.store.find_model(self.pin), self.store.head()
        if (newest.version, head.display_names if head is not None else None) == current.key:
            current.session.notice = newer_snapshot(current.session.opened, self.pin)
            return False
        opened = ServedVersion(self.store, None, self.pin, self._cache)
        self._ready(opened)
        if self._stop.is_set():
            opened.retire()
            return False
        self._current = opened
        LOG.info("version %d of %r is asked from now on", opened.number, opened.snapshot)
        current.retire()
        return True

    def _ready(self, version: ServedVersion) -> None:
        version.prepare()
        for kind in ("entities", "relations"):
            version.completion(kind)

    def behind(self) -> int:
        """How many models took over after the one that is asked."""
        head, served = self.store.head(), self.current.number
        newest = head.current.model if head is not None else None
        if newest is None or newest <= served:
            return 0
        later = (self.store.manifest(number) for number in range(served + 1, newest + 1))
        return sum(isinstance(one, ModelManifest) and one.current.model == one.version for one in later)
