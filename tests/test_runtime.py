"""The local runtime: the tables of a stored model, and a worker function run in this process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist import api
from dkge_dist.runtime import Communicator, LocalCommunicator, LocalRuntime, Monitor, WorkerSpec
from dkge_dist.store.store import Store
from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.table import Tables
from dkge_dist.types import ROW, TRAINED, Field
from tests.graphs import movies, write_tsv
from tests.models import vectors_of

pytestmark = pytest.mark.usefixtures("one_thread")

ENTITIES, RELATIONS = RowInitializer((3, 0), 20, 4, 1.0), RowInitializer((3, 1), 3, 4, 1.0)


class Recorder(Monitor):
    """Keeps what it is told, and asks to stop."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def progress(self, share: float, message: str) -> None:
        self.told.append((share, message))

    def epoch(self, metrics: dict[str, Any]) -> None:
        self.told.append(metrics)

    def should_stop(self) -> bool:
        return True


def work(communicator: Communicator, tables: Tables, job: Any) -> Any:
    """Reports, and writes one row of either table."""
    communicator.report(0.5, "half")
    communicator.report_epoch({"epoch": 1})
    communicator.barrier()
    for table in tables:
        table.write(Field.JOINT, np.array([2], ROW), np.full((1, 4), 7, np.float32))
    assert communicator.should_stop()
    return communicator.broadcast(lambda: job * 2), (communicator.rank, communicator.world)


def spec(folder: Path) -> WorkerSpec:
    return WorkerSpec(work, 21, ENTITIES, RELATIONS, 8, 2, "cpu", folder)


def test_run_gives_the_result_and_the_tables_as_the_worker_left_them(tmp_path: Path) -> None:
    monitor = Recorder()
    with LocalRuntime().run(spec(tmp_path), monitor) as run:
        assert run.result == (42, (0, 1))
        assert run.facts == {}
        for table, start in zip(run.tables, (ENTITIES, RELATIONS), strict=True):
            every = np.arange(start.rows, dtype=ROW)
            found = table.pull(dict.fromkeys(Field, every))
            assert all(np.array_equal(found[field], start.block(field, 0, start.rows)) for field in TRAINED)
            assert np.flatnonzero(found[Field.JOINT].any(1)).tolist() == [2]
    assert monitor.told == [(0.5, "half"), {"epoch": 1}]


def test_worker_gets_the_threads_and_the_device_of_its_spec(tmp_path: Path) -> None:
    def look(communicator: Communicator, tables: Tables, job: Any) -> Any:
        return communicator.threads, communicator.device

    with LocalRuntime().run(WorkerSpec(look, None, ENTITIES, RELATIONS, 8, 3, "cpu", tmp_path), Monitor()) as run:
        assert run.result == (3, "cpu")


def test_error_of_a_worker_is_raised_as_it_is(tmp_path: Path) -> None:
    def fail(communicator: Communicator, tables: Tables, job: Any) -> Any:
        raise KeyError("oops")

    failing = WorkerSpec(fail, None, ENTITIES, RELATIONS, 8, 1, "cpu", tmp_path)
    with pytest.raises(KeyError, match="oops"), LocalRuntime().run(failing, Monitor()):
        pass


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runtime")
    api.ingest(folder / "store", write_tsv(folder / "base.tsv", movies(80)), valid=5)
    api.train(folder / "store", settings=["model.dim=4", "train.max_epochs=1", "train.negatives=8", "threads=1"])
    return folder / "store"


def test_tables_of_a_model_are_those_in_the_store_with_room_for_more(store: Path) -> None:
    opened, expected = Store.open(store), vectors_of(store)
    model = opened.find_model()
    rows = (model.model.entities[Field.JOINT].rows + 5, model.model.relations[Field.JOINT].rows)
    with LocalRuntime().open_tables(opened, model, rows) as tables:
        assert (tables.entities.rows, tables.relations.rows) == rows
        every = np.arange(rows[0], dtype=ROW)
        found = tables.entities.pull(dict.fromkeys(Field, every))
        for field in Field:
            assert np.array_equal(found[field][:-5], expected.entities[field])
            assert not found[field][-5:].any()


def test_writing_to_opened_tables_leaves_the_store_alone(store: Path) -> None:
    opened, before = Store.open(store), vectors_of(store)
    model = opened.find_model()
    with LocalRuntime().open_tables(opened, model, (0, 0), (Field.JOINT,)) as tables:
        tables.entities.write(Field.JOINT, np.array([0], ROW), np.full((1, 4), 9, np.float32))
        assert (tables.entities.pull({Field.JOINT: np.array([0], ROW)})[Field.JOINT] == 9).all()
    assert np.array_equal(vectors_of(store).entities[Field.JOINT], before.entities[Field.JOINT])


def test_local_clock_goes_on() -> None:
    clock = LocalCommunicator(Monitor()).clock
    assert clock() <= clock()
