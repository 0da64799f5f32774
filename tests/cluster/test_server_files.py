"""What a shard reads and writes, without Ray: stored tables, blocks, deltas and checkpoints, as one table does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.cluster.server import ShardServer
from dkge_dist.store import tables
from dkge_dist.store.parts import DamagedPartError
from dkge_dist.store.storage import open_storage
from dkge_dist.store.tables import (
    BlockIndex,
    CodeIndex,
    load_table,
    save_code_index,
    save_delta,
    save_index,
    save_table,
)
from dkge_dist.tables.checkpoint import create_files
from dkge_dist.tables.initializer import StoredTables
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import Shard
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import ROW, TRAINED, DkgeError, Field
from tests.cluster.twins import everything, gradients_of_shard, local, rows_of_shard, servers, stored
from tests.store.damage import flipped
from tests.tables.rows import ADAGRAD, BLOCK, DIM, ROWS, START, Pushed, assert_same_rows, random_gradients, random_rows

pytestmark = pytest.mark.usefixtures("one_thread")

SHARDS = [1, 2, 3, 25]


def push_all(made: list[ShardServer], step: int, gradients: Pushed) -> None:
    for server in made:
        server.push("now", step, 0, gradients_of_shard(server.plan, server.number, gradients), ADAGRAD)


def trained(shards: int) -> tuple[list[ShardServer], LocalTable]:
    """A table that has learnt a little, so that there is optimizer state too."""
    made, twin = servers(shards), local()
    rng = np.random.default_rng(9)
    for step in range(3):
        gradients = random_gradients(rng, {field: random_rows(rng, 100) for field in TRAINED})
        push_all(made, step, gradients)
        twin.push(gradients, ADAGRAD)
    return made, twin


@pytest.mark.parametrize("shards", SHARDS)
def test_shards_read_their_rows_of_a_stored_table_with_deltas(tmp_path: Path, shards: int) -> None:
    """Also when the graph has grown since: rows that were never written are zeros."""
    rng = np.random.default_rng(1)
    content = stored(tmp_path, {field: rng.random((ROWS, DIM), np.float32) for field in Field})
    storage = open_storage(str(tmp_path))
    with storage.staging() as staging:
        rows = np.array([0, 7, 8, 70, ROWS + 1], ROW)
        delta = save_delta(staging, rows, np.full((5, DIM), 9, np.float32))
    entry = content.tables[Field.CONTEXT]
    content.tables[Field.CONTEXT] = entry.model_copy(update={"rows": ROWS + 3, "deltas": [delta]})
    expected = {field: load_table(storage, table, ROWS + 40) for field, table in content.tables.items()}
    assert (expected[Field.CONTEXT][70] == 9).all()
    assert_same_rows(everything(servers(shards, content=content, rows=ROWS + 40)), expected)


def test_some_fields_alone_are_held(tmp_path: Path) -> None:
    values = {Field.JOINT: np.random.default_rng(1).random((ROWS, DIM), np.float32)}
    made = servers(3, content=stored(tmp_path, values))
    assert_same_rows(everything(made, (Field.JOINT,)), values)
    assert sum(server.stats("now")["bytes_held"] for server in made) == values[Field.JOINT].nbytes


def test_shards_verify_the_blocks_that_they_own(tmp_path: Path) -> None:
    content = stored(tmp_path, {Field.JOINT: np.random.default_rng(1).random((ROWS, DIM), np.float32)})
    storage = open_storage(str(tmp_path))
    part = BlockIndex(storage, content.tables[Field.JOINT]).parts[2]
    flipped(storage.part_path(part), 99)
    for number in range(3):
        server = ShardServer(number, ShardPlan(ROWS, BLOCK, 3))
        if number != 2:
            server.open("now", 1, content)
            continue
        with pytest.raises(DamagedPartError, match=part.digest):
            server.open("now", 1, content)


def test_store_with_other_blocks_is_not_misread(tmp_path: Path) -> None:
    content = stored(tmp_path, {Field.JOINT: np.ones((ROWS, DIM), np.float32)})
    with pytest.raises(AssertionError, match="one block size"):
        ShardServer(0, ShardPlan(ROWS, 2 * BLOCK, 2)).open("now", 1, content)


def save_checkpoint(made: list[ShardServer], folder: Path) -> None:
    folder.mkdir()
    create_files(folder, ROWS, DIM)
    for server in made:
        server.save_checkpoint("now", folder)


def assert_goes_on_as(made: list[ShardServer], twin: LocalTable) -> None:
    """A step from here shows the optimizer state too."""
    gradients = random_gradients(np.random.default_rng(4), {f: np.arange(ROWS, dtype=ROW) for f in TRAINED})
    copy = Shard({field: values.copy() for field, values in twin.shard.values.items()})
    copy.state = {field: values.copy() for field, values in twin.shard.state.items()}
    expected = LocalTable(copy)
    expected.push(gradients, ADAGRAD)
    push_all(made, 10, gradients)
    assert_same_rows(everything(made, TRAINED), {field: expected.shard.values[field] for field in TRAINED})


def assert_read_by(readers: int | None, folder: Any, twin: LocalTable) -> None:
    """A checkpoint brings so many shards, or a table in this process, to where the twin is."""
    if readers is None:
        found = local()
        found.load_checkpoint(folder)
        for kind in ("values", "state"):
            for field in TRAINED:
                assert np.array_equal(getattr(found.shard, kind)[field], getattr(twin.shard, kind)[field])
        return
    read = servers(readers)
    for server in read:
        server.load_checkpoint("now", folder)
    assert_goes_on_as(read, twin)


def test_checkpoint_files_do_not_depend_on_the_shards(tmp_path: Path) -> None:
    for shards in (3, 2):
        made, twin = trained(shards)
        save_checkpoint(made, tmp_path / str(shards))
    (tmp_path / "local").mkdir()
    twin.save_checkpoint(tmp_path / "local")
    names = {path.name for path in (tmp_path / "local").iterdir()}
    assert len(names) == 4
    for name in names:
        content = {(tmp_path / writer / name).read_bytes() for writer in ("3", "2", "local")}
        assert len(content) == 1, name


@pytest.mark.parametrize(("writers", "readers"), [(3, 2), (2, 3), (None, 3), (3, None), (25, 1), (1, 25)])
def test_checkpoint_is_read_by_another_number_of_shards(
    tmp_path: Path, writers: int | None, readers: int | None
) -> None:
    folder = tmp_path / "checkpoint"
    made, twin = trained(writers or 1)
    if writers is None:
        folder.mkdir()
        twin.save_checkpoint(folder)
    else:
        save_checkpoint(made, folder)
    assert_read_by(readers, folder, twin)


def test_checkpoint_of_another_table_is_refused(tmp_path: Path) -> None:
    made, _ = trained(2)
    save_checkpoint(made, tmp_path / "checkpoint")
    other = servers(2, rows=ROWS + 10, content=START._replace(rows=ROWS + 10))
    with pytest.raises(DkgeError, match=r"knowledge\.npy: holds \(150, 5\).* instead of \(160, 5\)"):
        other[1].load_checkpoint("now", tmp_path / "checkpoint")


@pytest.mark.parametrize("shards", SHARDS)
def test_blocks_of_all_shards_make_the_whole_table(tmp_path: Path, shards: int) -> None:
    made, twin = trained(shards)
    storage = open_storage(str(tmp_path))
    with storage.staging() as staging:
        saved = [server.save_blocks("now", storage.location)[0] for server in made]
        for field in Field:
            blocks = sorted(block for by_field in saved for block in by_field[field])
            assert [first for first, _ in blocks] == list(range(0, ROWS, BLOCK))
            entry = save_index(staging, [blob for _, blob in blocks], ROWS, DIM, BLOCK)
            assert entry == save_table(staging, twin.shard.values[field], BLOCK)
            assert np.array_equal(load_table(storage, entry), twin.shard.values[field])


@pytest.mark.parametrize("shards", [1, 3])
def test_codes_of_all_shards_are_those_of_the_whole_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shards: int
) -> None:
    monkeypatch.setattr(tables, "CODED_FROM_ROWS", 1)
    rows, block = 300, 64
    values = np.random.default_rng(0).normal(size=(rows, DIM)).astype(np.float32)
    storage = open_storage(str(tmp_path))
    with storage.staging() as staging:
        whole = save_table(staging, values, block, coded=True)
        content = StoredTables(storage.location, {Field.JOINT: whole}, rows)
        made = [ShardServer(number, ShardPlan(rows, block, shards)) for number in range(shards)]
        grid = CodeIndex(storage, whole).grid
        saved = []
        for server in made:
            server.open("now", 1, content)
            saved += server.save_codes("now", storage.location, grid)[0]
        entry = save_code_index(staging, whole, [blob for _, blob in sorted(saved)], block, grid)
    assert entry == whole


def test_deltas_hold_the_rows_of_their_shard_alone(tmp_path: Path) -> None:
    made, twin = trained(3)
    rows = {Field.KNOWLEDGE: np.sort(random_rows(np.random.default_rng(1), 60)), Field.JOINT: np.array([0, 1], ROW)}
    base = stored(tmp_path, {field: np.zeros((ROWS, DIM), np.float32) for field in rows})
    storage = open_storage(base.location)
    found: dict[Field, list[Any]] = {field: [] for field in rows}
    for server in made:
        local_rows = {field: rows_of_shard(server.plan, server.number, some)[1] for field, some in rows.items()}
        for field, entry in server.save_deltas("now", base.location, local_rows)[0].items():
            found[field].append(entry)
    assert (len(found[Field.KNOWLEDGE]), len(found[Field.JOINT])) == (3, 1), "no part without rows"
    for field, some in rows.items():
        entry = base.tables[field].model_copy(update={"deltas": found[field]})
        expected = np.zeros((ROWS, DIM), np.float32)
        expected[some] = twin.shard.values[field][some]
        assert np.array_equal(load_table(storage, entry), expected)
