"""The runtime on a Ray cluster: entities in shard actors, worker functions in Ray Train workers."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from dkge_dist.cluster.errors import ShardLostError
from dkge_dist.cluster.session import ClusterConfig, gpus, ray_session, require_workers, shard_actors
from dkge_dist.cluster.table import RayTable
from dkge_dist.cluster.workers import run_workers
from dkge_dist.runtime import LocalCommunicator, Monitor, WorkerRun, WorkerSpec
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store
from dkge_dist.tables.index import VectorIndex
from dkge_dist.tables.initializer import StoredTables
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import Shard
from dkge_dist.tables.table import LocalTable, Tables
from dkge_dist.types import TRAINED, DkgeError, Field


class RayRuntime:
    """A Ray cluster, joined when it is needed."""

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self.shards, self.workers = config.shards, config.workers

    def session(self) -> AbstractContextManager[None]:
        """Stay connected over several steps."""
        return ray_session(self.config, self.config.workers)

    @contextmanager
    def open_tables(self, store: Store, model: ModelManifest, rows: tuple[int, int]) -> Iterator[Tables]:
        """Entities in shards, relations in this process."""
        relations = LocalTable.stored(store.storage, model.model.relations, rows[1])
        with self._opened(store, model, rows[0], tuple(Field)) as entities:
            yield Tables(entities, relations)

    @contextmanager
    def open_index(self, store: Store, model: ModelManifest) -> Iterator[VectorIndex]:
        """Joint vectors in shards."""
        with self._opened(store, model, model.model.entities[Field.JOINT].rows, (Field.JOINT,)) as entities:
            yield entities

    @contextmanager
    def _opened(self, store: Store, model: ModelManifest, rows: int, fields: tuple[Field, ...]) -> Iterator[RayTable]:
        """Some fields of the entities in shards, which read their rows from the store themselves."""
        plan = ShardPlan(rows, model.block_rows, self.shards)
        entries = {field: model.model.entities[field] for field in fields}
        dim = entries[fields[0]].dim
        with ray_session(self.config, 1), shard_actors(self.config, plan, _row_bytes(dim, len(fields))) as actors:
            entities = RayTable(plan, actors, secrets.token_hex(8), dim, LocalCommunicator(Monitor()))
            try:
                entities.open(StoredTables(store.storage.location, entries, rows))
                yield entities
            except ShardLostError as error:
                raise DkgeError(f"{error}; {store} is as it was, and the same command starts again") from None
            finally:
                entities.close()

    @contextmanager
    def run(self, spec: WorkerSpec, monitor: Monitor) -> Iterator[WorkerRun]:
        """Run a worker function in all workers, with the entities in shards."""
        plan = ShardPlan(spec.entities.rows, spec.block_rows, self.shards)
        dim = spec.entities.dim
        cpus = spec.threads or 1
        with (
            ray_session(self.config, self.workers * cpus),
            shard_actors(self.config, plan, _row_bytes(dim, len(Field))) as actors,
        ):
            use_gpu = self._gives_gpus(spec.device)
            require_workers(self.config, cpus, int(use_gpu))
            outcome = run_workers(spec, self.config, plan, actors, use_gpu, monitor)
            assert outcome.relations is not None, "rank 0 returns its relations"
            entities = RayTable(plan, actors, outcome.attempt, dim, LocalCommunicator(monitor))
            tables = Tables(entities, LocalTable(Shard(outcome.relations)))
            try:
                facts = {"shards": self.shards, "workers": self.workers, "shard_stats": entities.stats()}
                yield WorkerRun(outcome.result, tables, facts)
            except ShardLostError as error:
                raise DkgeError(f"{error}; the same command goes on from what is saved") from None
            finally:
                entities.close()

    def _gives_gpus(self, device: str) -> bool:
        """Do workers get a GPU each?"""
        if device != "auto":
            return device.startswith("cuda")
        return gpus() >= self.workers


def _row_bytes(dim: int, fields: int) -> int:
    """Memory of a row: its vectors and its optimizer state."""
    return 4 * dim * fields + 4 * len(TRAINED)
