"""A table in shard actors keeps the contract of all tables, and moves no more than it has to."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.cluster.errors import ShardLostError
from dkge_dist.cluster.table import PendingPull, RayTable, RowSlice
from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.storage import Storage, open_storage
from dkge_dist.tables.initializer import RowInitializer, StoredTables
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.table import LocalTable, TrainingTable
from dkge_dist.types import ROW, TRAINED, DkgeError, Field
from tests.cluster.twins import local, ray_tables, rows_of_shard
from tests.cluster.two_workers import SGD, Arrays, alone, learn
from tests.tables.contract import TableContract
from tests.tables.rows import (
    ADAGRAD,
    BLOCK,
    DIM,
    EVERY_ROW,
    EVERYTHING,
    ROWS,
    START,
    assert_same_rows,
    overlapping_batches,
    random_batch,
    random_gradients,
    rows_of,
)

pytestmark = pytest.mark.usefixtures("one_thread")

ROW_BYTES = 4 * DIM + 4
SHARDS = [1, 3]


class TestRayTable(TableContract):
    @pytest.fixture(autouse=True, params=SHARDS)
    def _actors(self, actors: dict[int, list[Any]], request: pytest.FixtureRequest) -> None:
        self.actors = actors[request.param]

    def make_table(self, start: RowInitializer) -> TrainingTable:
        return ray_tables(self.actors, content=start)[0]

    def open_table(self, storage: Storage, entries: dict[Field, TableEntry], rows: int) -> TrainingTable:
        assert rows == ROWS, "the actors are of one size"
        return ray_tables(self.actors, content=StoredTables(storage.location, entries, rows))[0]


@pytest.fixture(params=SHARDS)
def table(actors: dict[int, list[Any]], request: pytest.FixtureRequest) -> RayTable:
    """A table of so many shards, at its start values."""
    return ray_tables(actors[request.param])[0]


@pytest.mark.parametrize("shards", SHARDS)
def test_large_rows_belong_to_the_caller(actors: dict[int, list[Any]], shards: int) -> None:
    """They come in memory that the shard will write to again."""
    dim = 600
    start = START._replace(dim=dim)
    (table,), twin = ray_tables(actors[shards], content=start, dim=dim), LocalTable.initialized(start)
    rng = np.random.default_rng(0)
    batches = [{field: rng.permutation(ROWS)[:140].astype(ROW) for field in TRAINED} for _ in range(4)]
    ticket = None
    for batch, following in itertools.pairwise(batches):
        got = table.pull(batch, ticket)
        assert_same_rows(got, twin.pull(batch))
        got[Field.CONTEXT] += 1
        ticket = table.prefetch(following)
        gradients = {f: (rows, rng.standard_normal((140, dim)).astype(np.float32)) for f, rows in batch.items()}
        for one in (table, twin):
            one.push(gradients, ADAGRAD)
    for one in (table, twin):
        one.write(Field.JOINT, EVERY_ROW, np.ones((ROWS, dim), np.float32))
    assert_same_rows(table.pull(EVERYTHING), twin.pull(EVERYTHING))


@pytest.mark.parametrize("when", ["ahead", "before", "after", "never"])
def test_every_row_moves_once_each_way(table: RayTable, when: str) -> None:
    """Counted in the actors: 4d bytes and a row number of 4 for each row that is pulled, and for each pushed."""
    rng = np.random.default_rng(0)
    batches = overlapping_batches(rng, 8)
    tickets = [table.prefetch(batches[0]) if when == "ahead" else None]
    for batch, following in itertools.pairwise(batches):
        if when == "ahead":
            tickets.append(table.prefetch(following))
        table.pull(batch, tickets.pop(0))
        if when == "before":
            tickets.append(table.prefetch(following))
        table.push(random_gradients(rng, batch), ADAGRAD)
        if when in ("after", "never"):
            tickets.append(table.prefetch(following) if when == "after" else None)
    table.pull(batches[-1], tickets.pop(0))
    stats = table.stats()
    rows = [sum(some.shape[0] for some in batch.values()) for batch in batches]
    assert sum(of["rows_pulled"] for of in stats) == sum(rows)
    assert sum(of["bytes_pulled"] for of in stats) == sum(rows) * ROW_BYTES
    assert sum(of["rows_pushed"] for of in stats) == sum(rows[:-1])
    assert sum(of["bytes_pushed"] for of in stats) == sum(rows[:-1]) * ROW_BYTES


def test_batch_makes_one_pull_and_one_push_per_shard(actors: dict[int, list[Any]]) -> None:
    """And none to a shard that holds no row of it."""
    (table,) = ray_tables(actors[3])
    rng = np.random.default_rng(0)
    second = np.arange(BLOCK, 2 * BLOCK, dtype=ROW)
    whole = {field: rng.permutation(ROWS)[:100].astype(ROW) for field in TRAINED}
    for batch in ({Field.KNOWLEDGE: second, Field.CONTEXT: second[:3]}, whole):
        table.pull(batch, table.prefetch(batch))
        table.push(random_gradients(rng, batch), ADAGRAD)
    table.write(Field.JOINT, second, np.ones((BLOCK, DIM), np.float32))
    stats = table.stats()
    assert [of["pull_calls"] for of in stats] == [1, 2, 1]
    assert [of["push_calls"] for of in stats] == [1, 2, 1]
    assert [of["write_calls"] for of in stats] == [0, 1, 0]
    assert len({of["pid"] for of in stats}) == 3


def test_checkpoint_goes_to_other_shards_and_to_one_process(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    twin = local()
    (three,) = ray_tables(actors[3])
    gradients = [random_gradients(rng, random_batch(rng)) for _ in range(3)]
    for some in gradients[:2]:
        three.push(some, ADAGRAD)
        twin.push(some, ADAGRAD)
    three.save_checkpoint(tmp_path)
    (one,), here = ray_tables(actors[1]), local()
    for table in (one, here):
        table.load_checkpoint(tmp_path)
    for table in (one, here, three, twin):
        table.push(gradients[2], ADAGRAD)
    for table in (one, here, three):
        assert_same_rows(table.pull(EVERYTHING), twin.pull(EVERYTHING))


def test_every_shard_with_changed_rows_writes_one_delta(table: RayTable, tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    rows = {Field.KNOWLEDGE: rows_of(1, 9, 17, 149), Field.CONTEXT: rows_of(), Field.JOINT: rows_of(64)}
    with storage.staging() as staging:
        deltas = table.save_deltas(staging, rows)
    assert {field: len(parts) for field, parts in deltas.items()} == {"knowledge": table.plan.shards, "joint": 1}
    stats = table.stats()
    assert sum(of["bytes_written"] for of in stats) == staging.written
    assert all(of["bytes_written"] for of in stats)


def test_table_of_an_abandoned_attempt_is_lost(actors: dict[int, list[Any]]) -> None:
    (old,) = ray_tables(actors[3])
    old.push({Field.CONTEXT: (rows_of(0, 1, 2), np.ones((3, DIM), np.float32))}, ADAGRAD)
    ray_tables(actors[3])
    with pytest.raises(ShardLostError, match=r"shard \d belongs to another attempt by now"):
        old.pull(EVERYTHING)
    with pytest.raises(ShardLostError, match="belongs to another attempt by now"):
        old.write(Field.JOINT, EVERY_ROW, np.ones((ROWS, DIM), np.float32))
    with pytest.raises(ShardLostError, match="belongs to another attempt by now"):
        old.nearest(np.ones((1, DIM), np.float32), EVERY_ROW, 3)


def test_error_of_a_shard_names_the_shard(actors: dict[int, list[Any]], tmp_path: Path) -> None:
    (table,) = ray_tables(actors[3])
    with pytest.raises(DkgeError, match=r"shard 0: .*knowledge\.npy"):
        table.load_checkpoint(tmp_path)


SHARDS = [1, 2, 3, 25]


@pytest.mark.parametrize("shards", SHARDS)
@pytest.mark.parametrize("partly", [False, True])
def test_rows_go_to_their_shard_and_come_back_in_order(shards: int, partly: bool) -> None:
    rng = np.random.default_rng(shards)
    plan, whole = ShardPlan(ROWS, BLOCK, shards), START.whole()
    for _ in range(10):
        wanted = random_batch(rng)
        positions = {f: np.flatnonzero(rng.random(r.shape[0]) < 0.5) for f, r in wanted.items()} if partly else None
        asked = RowSlice(plan, wanted, positions)
        out = {field: np.full((rows.shape[0], DIM), np.nan, np.float32) for field, rows in wanted.items()}
        for shard in asked.shards():
            held = plan.held(shard)
            answer = {field: whole[field][held[local]] for field, local in asked.local(shard).items()}
            asked.spread(answer, shard, out)
        for field, rows in wanted.items():
            mine = np.arange(rows.shape[0]) if positions is None else positions[field]
            others = np.setdiff1d(np.arange(rows.shape[0]), mine)
            assert np.array_equal(out[field][mine], whole[field][rows[mine]])
            assert np.isnan(out[field][others]).all(), "rows that are not in the slice are left alone"


@pytest.mark.parametrize("shards", SHARDS)
def test_only_shards_that_hold_rows_are_asked(shards: int) -> None:
    plan = ShardPlan(ROWS, BLOCK, shards)
    rng = np.random.default_rng(0)
    for _ in range(10):
        wanted = random_batch(rng)
        asked = RowSlice(plan, wanted)
        expected = [s for s in range(shards) if any(rows_of_shard(plan, s, rows)[0].size for rows in wanted.values())]
        assert asked.shards() == expected
        for shard in expected:
            for field, rows in wanted.items():
                positions, local = rows_of_shard(plan, shard, rows)
                assert asked.order(shard, field).tolist() == positions.tolist()
                assert asked.local(shard)[field].tolist() == local.tolist()


def test_slice_of_nothing_asks_no_shard() -> None:
    plan = ShardPlan(ROWS, BLOCK, 3)
    nothing = RowSlice(plan, {field: rows_of() for field in TRAINED})
    assert nothing.shards() == []
    out = {Field.CONTEXT: np.ones((2, DIM), np.float32)}
    RowSlice(plan, {Field.CONTEXT: rows_of(1, 2)}, {Field.CONTEXT: rows_of()}).spread({}, 0, out)
    assert (out[Field.CONTEXT] == 1).all()


class Answered:
    """A call whose answer is there."""

    def result(self) -> None:
        return None


def test_pending_pull_knows_all_calls_under_way() -> None:
    """They are waited for when the pull is given up: none may come in between later ones."""
    plan = ShardPlan(ROWS, BLOCK, 3)
    wanted = {Field.CONTEXT: rows_of(0, 8, 16)}
    pending = PendingPull(4, wanted, RowSlice(plan, wanted), None)
    assert pending.calls() == []
    early, late, pushed = Answered(), Answered(), Answered()
    pending.early_calls[2], pending.late_calls[0], pending.pushed[1] = early, late, pushed
    assert pending.calls() == [early, late, pushed]
    assert (pending.ticket, pending.wanted) == (4, wanted)


def test_rows_that_only_another_worker_has_move_too(two_workers: list[Arrays]) -> None:
    """And no row that none of them has a gradient of, also not by its optimizer state."""
    moved = np.float32(SGD.rate) * np.array([[0, 0], [-7, -7], [-5, -5], [0, 0], [-2, -2]], np.float32)
    for found in two_workers:
        np.testing.assert_allclose(found[f"replicated {Field.CONTEXT}"], moved, rtol=1e-6)
        assert not found[f"replicated {Field.KNOWLEDGE}"].any()


@pytest.mark.parametrize("form", ["ragged", "padded"])
def test_copies_stay_equal_to_the_bit(two_workers: list[Arrays], form: str) -> None:
    one, other = two_workers
    names = [name for name in one if name.startswith(form)]
    assert len(names) > 10
    for name in names:
        assert one[name].tobytes() == other[name].tobytes(), name


@pytest.mark.parametrize("form", ["ragged", "padded"])
def test_two_workers_learn_as_one(two_workers: list[Arrays], form: str) -> None:
    """They add up in another order, so this is equal up to rounding. Padded blocks learn what ragged contexts do."""
    for name, values in learn(alone(), "ragged").items():
        found = two_workers[0][name.replace("ragged", form)]
        np.testing.assert_allclose(found, values, rtol=1e-5, atol=1e-5 * np.abs(values).max(), err_msg=name)


def test_no_worker_goes_on_before_a_checkpoint_is_written(two_workers: list[Arrays]) -> None:
    assert [found["checkpoint"].tolist() for found in two_workers] == [[3, 0]] * 2, "rank 0 wrote it, both see it"
