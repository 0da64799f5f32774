"""The table in this process keeps the contract of all tables."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.storage import Storage
from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.table import LocalTable, Table, joint_table
from dkge_dist.types import ROW, Field
from tests.tables.contract import TableContract
from tests.tables.rows import START

pytestmark = pytest.mark.usefixtures("one_thread")


class TestLocalTable(TableContract):
    def make_table(self, start: RowInitializer) -> Table:
        return LocalTable.initialized(start)

    def open_table(self, storage: Storage, entries: dict[Field, TableEntry], rows: int) -> Table:
        return LocalTable.stored(storage, entries, rows, tuple(entries))


def test_no_bytes_move_between_processes() -> None:
    table = LocalTable.initialized(START)
    table.pull({Field.KNOWLEDGE: np.arange(9, dtype=ROW)})
    table.write(Field.JOINT, np.arange(9, dtype=ROW), np.ones((9, START.dim), np.float32))
    (stats,) = table.stats()
    assert (stats["bytes_pulled"], stats["bytes_pushed"]) == (0, 0)


def test_a_joint_table_holds_joint_vectors_alone() -> None:
    """Of any type and layout; they are copied where that is not what kernels read."""
    values = np.asfortranarray(np.arange(12, dtype=np.float64).reshape(4, 3))
    table = joint_table(values)
    assert (table.rows, table.dim) == (4, 3)
    found = table.nearest(np.array([[3, 4, 5]], np.float32), np.arange(4, dtype=ROW), 2)
    assert found.rows.tolist() == [[1, 0]]
    assert found.distances.tolist() == [[0, 9]]
    assert table.shard.values.keys() == {Field.JOINT}
