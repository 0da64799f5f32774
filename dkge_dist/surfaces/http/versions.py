"""The models that a server has open: the one that it follows, and a few others that were asked for.

A request is answered by one model to its end, whatever is published meanwhile: a new one is opened beside the old one
and made ready, then one assignment makes it the one that is asked from now on.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from dkge_dist.ask.lookup import Kind
from dkge_dist.ask.model import newer_snapshot, open_model
from dkge_dist.store.manifest import DisplayNamesEntry, ModelManifest
from dkge_dist.store.store import Store
from dkge_dist.surfaces.http.completion import Completion
from dkge_dist.types import DkgeError

LOG = logging.getLogger("dkge.serve")
RESOLVED_SECONDS = 1.0
"""How long the version that a name stands for is remembered: a bucket is asked once a second, not at every request."""
MAX_RESOLVED = 1000


class NotReadyError(DkgeError):
    """Nothing can be answered yet, or no more: the server is starting or stopping."""


class Served:
    """One model, and what search needs besides."""

    def __init__(self, store: Store, name: str | None, cache: Path) -> None:
        head = store.head()
        self._names: DisplayNamesEntry | None = head.display_names if head is not None else None
        self._cache = cache
        self.model = open_model(store, name, suggests=False)
        self.is_ready = False

    @property
    def key(self) -> tuple[int, DisplayNamesEntry | None]:
        """Which version it is, with which display names: those may change without a new model."""
        return self.model.version, self._names

    def prepare(self) -> None:
        """Open all that questions and search need. Others may ask meanwhile."""
        self.model.open_all()
        _ = self._entities, self._relations
        self.is_ready = True

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
        model = self.model
        (names, alive), manifest, base = model.of_kind(kind), model.snapshot_manifest, model.snapshot.base
        is_entities = kind == "entities"
        segments = manifest.entity_segments if is_entities else manifest.relation_segments
        runs = [] if self._names is None else self._names.entities if is_entities else self._names.relations
        facts = (base.entities if is_entities else base.relations).total
        return Completion.of(model.store.storage, names, segments, runs, alive, facts, self._cache / "completion")


class Versions:
    """What is open of one store. `pin` (a version, snapshot, alias or date) is followed instead of what is current."""

    def __init__(
        self, store: Store, pin: str | None, cache: Path, at_once: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`at_once` other versions are open at most beside the followed one."""
        self.store, self.pin = store, pin
        self._cache, self._at_once, self._clock = cache, at_once, clock
        self._current: Served | None = None
        self._others: OrderedDict[int, Served] = OrderedDict()
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
        self._current = Served(self.store, self.pin, self._cache)
        self._thread = threading.Thread(target=self._follow, args=(poll_seconds,), name="follow", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop following. What is being asked is answered."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            self._others.clear()
            self._current = None

    @property
    def current(self) -> Served:
        """The version that is followed, as it is now."""
        if self._current is None:
            raise NotReadyError("the server is starting or stopping; ask again")
        return self._current

    @property
    def is_ready(self) -> bool:
        """Has the followed version all that it needs for quick answers?"""
        return self._current is not None and self._current.is_ready

    def at(self, name: str | None = None) -> Served:
        """The followed version, or the one of a version, snapshot, alias or date."""
        return self.current if name is None else self._named(name)

    def _named(self, name: str) -> Served:
        number = self._resolve(name)
        current = self.current
        if current.model.version == number:
            return current
        with self._opening:
            # Under the lock of openings: of several requests for the same version, one opens it.
            with self._lock:
                if (found := self._others.get(number)) is not None:
                    self._others.move_to_end(number)
                    return found
            opened = Served(self.store, str(number), self._cache)
            with self._lock:
                self._others[number] = opened
                while len(self._others) > self._at_once:
                    self._others.popitem(last=False)
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
        current.prepare()
        newest, head = self.store.find_model(self.pin), self.store.head()
        if (newest.version, head.display_names if head is not None else None) == current.key:
            current.model.notice = newer_snapshot(current.model, self.pin)
            return False
        opened = Served(self.store, self.pin, self._cache)
        opened.prepare()
        if self._stop.is_set():
            return False
        self._current = opened
        LOG.info("version %d of %r is asked from now on", opened.model.version, opened.model.snapshot_name)
        return True

    def behind(self) -> int:
        """How many models took over after the one that is asked."""
        head, served = self.store.head(), self.current.model.version
        newest = head.current.model if head is not None else None
        if newest is None or newest <= served:
            return 0
        later = (self.store.manifest(number) for number in range(served + 1, newest + 1))
        return sum(isinstance(one, ModelManifest) and one.current.model == one.version for one in later)
