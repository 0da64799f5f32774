"""The table in this process keeps the contract of all tables."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.storage import Storage
from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.table import LocalTable, TrainingTable
from dkge_dist.types import ROW, Field
from tests.tables.contract import TableContract
from tests.tables.rows import START

pytestmark = pytest.mark.usefixtures("one_thread")


class TestLocalTable(TableContract):
    def make_table(self, start: RowInitializer) -> TrainingTable:
        return LocalTable.initialized(start)

    def open_table(self, storage: Storage, entries: dict[Field, TableEntry], rows: int) -> TrainingTable:
        return LocalTable.stored(storage, entries, rows, tuple(entries))


def test_no_bytes_move_between_processes() -> None:
    table = LocalTable.initialized(START)
    table.pull({Field.KNOWLEDGE: np.arange(9, dtype=ROW)})
    table.write(Field.JOINT, np.arange(9, dtype=ROW), np.ones((9, START.dim), np.float32))
    (stats,) = table.stats()
    assert (stats["bytes_pulled"], stats["bytes_pushed"]) == (0, 0)
