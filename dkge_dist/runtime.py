"""Where work runs. Two protocols, and the local implementation of each; those on Ray are in `cluster`.

A `Communicator` is what a worker function knows of its fellow workers and of the process that started it. A `Runtime`
opens the tables of a model version and runs a worker function. Training, updating and ranking are written once against
these two.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store
from dkge_dist.tables.coded import open_index
from dkge_dist.tables.index import VectorIndex
from dkge_dist.tables.initializer import TableStart, refuse_too_large
from dkge_dist.tables.table import LocalTable, Tables
from dkge_dist.types import DkgeError, Field

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")


class CollectiveError(DkgeError):
    """All workers raise it at the same step, so that none waits for another."""


class Monitor:
    """Follows a long job: hears of its progress and of every epoch, and may ask it to stop. This one is silent."""

    def progress(self, share: float, message: str) -> None:
        """How much is done, from 0 to 1."""

    def epoch(self, metrics: dict[str, Any]) -> None:
        """An epoch is over."""

    def should_stop(self) -> bool:
        """Is the job to stop at the next opportunity?"""
        return False


class Communicator(Protocol):
    """One of `world` workers. All of them call the collective methods in the same order.

    `threads` and `device` are what this worker may use: 0 threads means all cores, `auto` a GPU where there is one.
    """

    rank: int
    world: int
    threads: int
    device: str

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Make each tensor the sum of those of all workers. The shared clock moves on with it."""

    def broadcast(self, compute: Callable[[], T]) -> T:
        """What `compute` returns on rank 0, on every rank."""

    def barrier(self) -> None:
        """Wait for all workers."""

    def clock(self) -> float:
        """Seconds; the same for all workers between two steps, so that they decide alike."""

    def should_stop(self) -> bool:
        """Is the job to stop? The same for all workers between two steps."""

    def report(self, share: float, message: str) -> None:
        """Tell the monitor how much is done."""

    def report_epoch(self, metrics: dict[str, Any]) -> None:
        """Tell the monitor that an epoch is over."""


class LocalCommunicator:
    """The only worker, in the process of its monitor."""

    def __init__(self, monitor: Monitor, threads: int = 0, device: str = "auto") -> None:
        self.rank, self.world, self.threads, self.device = 0, 1, threads, device
        self.report, self.report_epoch, self.should_stop = monitor.progress, monitor.epoch, monitor.should_stop

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """The sum over one worker is there already."""

    def broadcast(self, compute: Callable[[], T]) -> T:
        """What `compute` returns."""
        return compute()

    def barrier(self) -> None:
        """Nobody to wait for."""

    def clock(self) -> float:
        """Seconds of this process."""
        return time.monotonic()


WorkerFn = Callable[[Communicator, Tables, Any], Any]


@dataclass(frozen=True)
class WorkerSpec:
    """What to run: a function in every worker, the job it is given, and the tables it starts with.

    `job` is arrays and plain values, so that workers on one machine can share it. `folder` is for notes of the run.
    """

    function: WorkerFn
    job: Any
    entities: TableStart
    relations: TableStart
    block_rows: int
    threads: int
    device: str
    folder: Path


@dataclass(frozen=True)
class WorkerRun:
    """A run that is over: what the function returned on rank 0, the tables as it left them, and facts of the run."""

    result: Any
    tables: Tables
    facts: dict[str, Any] = field(default_factory=dict)


class Runtime(Protocol):
    """Where tables are held and worker functions run. `shards` and `workers` say on how many processes."""

    shards: int
    workers: int

    def session(self) -> AbstractContextManager[None]:
        """Stay connected over several steps; each of them would connect by itself otherwise."""

    def open_tables(self, store: Store, model: ModelManifest, rows: tuple[int, int]) -> AbstractContextManager[Tables]:
        """The tables of a model version, with room for so many entities and relations."""

    def open_index(self, store: Store, model: ModelManifest) -> AbstractContextManager[VectorIndex]:
        """The joint vectors of the entities of a model version, to be asked."""

    def run(self, spec: WorkerSpec, monitor: Monitor) -> AbstractContextManager[WorkerRun]:
        """Run a worker function to its end; the tables are there until the context ends."""


class LocalRuntime:
    """This process."""

    shards = 1
    workers = 1

    def session(self) -> AbstractContextManager[None]:
        """Nothing to connect to."""
        return nullcontext()

    @contextmanager
    def open_tables(self, store: Store, model: ModelManifest, rows: tuple[int, int]) -> Iterator[Tables]:
        """The tables of a model version, mapped from the store."""
        kinds = zip((model.model.entities, model.model.relations), rows, strict=True)
        yield Tables(*(LocalTable.stored(store.storage, entries, count) for entries, count in kinds))

    @contextmanager
    def open_index(self, store: Store, model: ModelManifest) -> Iterator[VectorIndex]:
        """The joint vectors of entities, scanned by their codes where they have any."""
        yield open_index(store.storage, model.model.entities[Field.JOINT])

    @contextmanager
    def run(self, spec: WorkerSpec, monitor: Monitor) -> Iterator[WorkerRun]:
        """Run a worker function in this process."""
        refuse_too_large((spec.entities, spec.relations))
        tables = Tables(*(LocalTable.initialized(start) for start in (spec.entities, spec.relations)))
        communicator = LocalCommunicator(monitor, spec.threads, spec.device)
        yield WorkerRun(spec.function(communicator, tables, spec.job), tables)
