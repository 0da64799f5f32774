"""The local communicator and runtime: one worker, in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dkge_dist
from dkge_dist.runtime import (
    CollectiveError,
    Communicator,
    LocalCommunicator,
    LocalRuntime,
    Monitor,
    Runtime,
    WorkerSpec,
)
from dkge_dist.store.store import Store
from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.shard import Optimizer
from dkge_dist.tables.table import Tables
from dkge_dist.types import ROW, DkgeError, Field
from tests.graphs import listing, movies, write_tsv
from tests.models import model_of, vectors_of

pytestmark = pytest.mark.usefixtures("one_thread")


class Listening(Monitor):
    def __init__(self) -> None:
        self.heard: list[Any] = []

    def progress(self, share: float, message: str) -> None:
        self.heard.append((share, message))

    def epoch(self, metrics: dict[str, Any]) -> None:
        self.heard.append(metrics)

    def should_stop(self) -> bool:
        return len(self.heard) > 1


def test_a_monitor_is_silent_and_never_stops() -> None:
    monitor = Monitor()
    monitor.progress(0.5, "half")
    monitor.epoch({"epoch": 1})
    assert monitor.should_stop() is False


def test_the_only_worker_speaks_to_its_monitor() -> None:
    monitor = Listening()
    communicator: Communicator = LocalCommunicator(monitor, 3, "cpu")
    assert (communicator.rank, communicator.world, communicator.threads, communicator.device) == (0, 1, 3, "cpu")
    communicator.report(0.5, "half")
    assert not communicator.should_stop()
    communicator.report_epoch({"epoch": 1})
    assert communicator.should_stop()
    assert monitor.heard == [(0.5, "half"), {"epoch": 1}]


def test_collectives_of_one_worker_leave_everything_as_it_is() -> None:
    communicator = LocalCommunicator(Monitor())
    tensors = [torch.arange(3.0), torch.ones(2, 2)]
    communicator.all_reduce(tensors)
    assert [tensor.tolist() for tensor in tensors] == [[0, 1, 2], [[1, 1], [1, 1]]]
    assert communicator.broadcast(lambda: {"mrr": 0.5}) == {"mrr": 0.5}
    communicator.barrier()
    before = communicator.clock()
    assert before <= communicator.clock()


def test_an_error_of_all_workers_is_one_that_a_user_sees() -> None:
    assert issubclass(CollectiveError, DkgeError)


def spec_of(function: Any, folder: Path) -> WorkerSpec:
    starts = RowInitializer((1, 0), 9, 4, 1.0), RowInitializer((1, 1), 3, 4, 1.0)
    return WorkerSpec(function, {"answer": 42}, *starts, 64, 2, "cpu", folder)


def test_a_worker_function_runs_once_with_its_job_and_tables_at_start_values(tmp_path: Path) -> None:
    calls: list[tuple[Communicator, Tables, Any]] = []

    def function(communicator: Communicator, tables: Tables, job: Any) -> str:
        calls.append((communicator, tables, job))
        every = np.arange(9, dtype=ROW)
        assert np.array_equal(
            tables.entities.pull({Field.CONTEXT: every})[Field.CONTEXT], spec.entities.whole()["context"]
        )
        tables.relations.push({Field.KNOWLEDGE: (np.array([1], ROW), np.ones((1, 4), np.float32))}, Optimizer("sgd", 1))
        return "done"

    spec = spec_of(function, tmp_path)
    runtime: Runtime = LocalRuntime()
    with runtime.session(), runtime.run(spec, Monitor()) as run:
        assert (run.result, run.facts) == ("done", {})
        moved = run.tables.relations.pull({Field.KNOWLEDGE: np.array([1], ROW)})[Field.KNOWLEDGE]
        assert np.array_equal(moved, spec.relations.whole()[Field.KNOWLEDGE][[1]] - 1)
    ((communicator, tables, job),) = calls
    assert (communicator.threads, communicator.device, job) == (2, "cpu", {"answer": 42})
    assert (tables.entities.rows, tables.relations.rows, tables.entities.dim) == (9, 3, 4)


def test_what_a_worker_raises_is_raised(tmp_path: Path) -> None:
    def function(communicator: Communicator, tables: Tables, job: Any) -> None:
        raise CollectiveError("stopped")

    with pytest.raises(CollectiveError, match="stopped"), LocalRuntime().run(spec_of(function, tmp_path), Monitor()):
        pass


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runtime")
    dkge_dist.ingest(folder / "store", write_tsv(folder / "base.tsv", movies(60)))
    dkge_dist.train(folder / "store", settings=["model.dim=4", "train.max_epochs=1"])
    return folder / "store"


def test_tables_of_a_model_are_opened_with_room_for_more(store: Path) -> None:
    vectors, before = vectors_of(store), listing(store)
    counts = [tables[Field.JOINT].shape[0] for tables in (vectors.entities, vectors.relations)]
    with LocalRuntime().open_tables(Store.open(store), model_of(store), (counts[0] + 5, counts[1] + 1)) as tables:
        assert (tables.entities.rows, tables.relations.rows) == (counts[0] + 5, counts[1] + 1)
        for table, stored, count in zip(tables, (vectors.entities, vectors.relations), counts, strict=True):
            found = table.pull({field: np.arange(table.rows, dtype=ROW) for field in Field})
            for field in Field:
                assert np.array_equal(found[field][:count], stored[field])
                assert not found[field][count:].any()
            table.write(Field.JOINT, np.array([0], ROW), np.full((1, 4), 7, np.float32))
    assert listing(store) == before, "what is written to a table stays in this process"


def test_an_index_answers_for_joint_vectors(store: Path) -> None:
    with LocalRuntime().open_index(Store.open(store), model_of(store)) as index:
        assert np.array_equal(index.vectors(np.array([0], ROW)), vectors_of(store).entities[Field.JOINT][:1])


def test_this_process_is_one_shard_and_one_worker() -> None:
    assert (LocalRuntime().shards, LocalRuntime().workers) == (1, 1)
