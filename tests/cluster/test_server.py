"""One shard as others see it, without Ray: rows in shards do what rows in one piece do, whoever calls first."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.cluster.server import ShardServer, StaleAttemptError, Stored, summed
from dkge_dist.evaluation.answers import merged, nearest
from dkge_dist.kernels.ranks import FilteredCandidates, count_closer
from dkge_dist.store.storage import open_storage
from dkge_dist.store.tables import load_table, save_delta, save_index, save_table
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import TRAINED, Shard, checkpoint_files
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import OFFSET, ROW, DkgeError, Field
from tests.cluster.twins import (
    ADAGRAD,
    BLOCK,
    DIM,
    ROWS,
    SGD,
    START,
    Pushed,
    apart,
    everything,
    gradients_of,
    local,
    same_rows,
    servers,
    some_gradients,
    some_rows,
    stored,
)

pytestmark = pytest.mark.usefixtures("one_thread")

SHARDS = [1, 2, 3, 25]
NOTHING: Pushed = {}
WAIT = 20


def push_all(made: list[ShardServer], step: int, gradients: Pushed, optimizer: Any = ADAGRAD) -> None:
    for server in made:
        server.push("now", step, 0, gradients_of(server.plan, server.number, gradients), optimizer)


@pytest.mark.parametrize("shards", SHARDS)
def test_a_table_in_shards_does_what_one_in_one_piece_does(shards: int) -> None:
    made, twin = servers(shards), local()
    same_rows(everything(made), twin.shard.values)
    rng = np.random.default_rng(shards)
    for step in range(12):
        wanted = {field: some_rows(rng) for field in TRAINED}
        gradients = some_gradients(rng, wanted)
        optimizer = SGD if step % 3 == 0 else ADAGRAD
        push_all(made, step, gradients, optimizer)
        twin.push(gradients, optimizer)
        field = list(Field)[step % 3]
        rows = some_rows(rng)
        values = rng.random((rows.shape[0], DIM), np.float32)
        twin.write(field, rows, values)
        for server in made:
            numbers, places = apart(server.plan, server.number, rows)
            server.write("now", field, places, values[numbers])
    same_rows(everything(made), twin.shard.values)


@pytest.mark.parametrize("shards", SHARDS)
def test_a_stored_table_with_deltas_is_read_by_those_who_hold_its_rows(tmp_path: Path, shards: int) -> None:
    """Also when the graph has grown since: nobody wrote to those rows yet, so they are zeros."""
    rng = np.random.default_rng(1)
    fill = stored(tmp_path, {field: rng.random((ROWS, DIM), np.float32) for field in Field})
    storage = open_storage(tmp_path)
    with storage.staging() as staging:
        rows = np.array([0, 7, 8, 70, ROWS + 1], ROW)
        delta = save_delta(staging, rows, np.full((5, DIM), 9, np.float32))
    entry = fill.tables[Field.CONTEXT]
    fill.tables[Field.CONTEXT] = entry.model_copy(update={"rows": ROWS + 3, "deltas": [delta]})
    expected = {field: load_table(storage, table, ROWS + 40) for field, table in fill.tables.items()}
    assert (expected[Field.CONTEXT][70] == 9).all()
    same_rows(everything(servers(shards, fill=fill, rows=ROWS + 40)), expected)


def test_some_fields_alone_may_be_held(tmp_path: Path) -> None:
    values = {Field.JOINT: np.random.default_rng(1).random((ROWS, DIM), np.float32)}
    made = servers(3, fill=stored(tmp_path, values))
    same_rows(everything(made, (Field.JOINT,)), values)
    assert sum(server.stats()["bytes_held"] for server in made) == values[Field.JOINT].nbytes


def test_a_push_that_is_repeated_is_applied_once() -> None:
    (one,), twin = servers(1), local()
    rng = np.random.default_rng(0)
    for step in range(3):
        gradients = some_gradients(rng, {field: some_rows(rng) for field in TRAINED})
        twin.push(gradients, ADAGRAD)
        for _ in range(3):
            one.push("now", step, 0, gradients, ADAGRAD)
    # One that went round by a slow way comes after later steps were taken.
    one.push("now", 0, 0, some_gradients(rng, {Field.KNOWLEDGE: np.arange(9, dtype=ROW)}), ADAGRAD)
    same_rows(everything([one]), twin.shard.values)
    assert one.stats()["push_calls"] == 3


def test_a_repeated_push_brings_what_the_first_was_to_bring() -> None:
    (one,), twin = servers(1), local()
    gradients = some_gradients(np.random.default_rng(0), {Field.CONTEXT: np.arange(4, dtype=ROW)})
    late = {Field.KNOWLEDGE: np.array([4], ROW), Field.CONTEXT: np.array([3, 9], ROW)}
    twin.push(gradients, ADAGRAD)
    for _ in range(2):
        same_rows(one.push("now", 0, 0, gradients, ADAGRAD, late).late, twin.pull(late))


CALLS: dict[str, Callable[[ShardServer, str, Path], Any]] = {
    "pull": lambda server, attempt, folder: server.pull(attempt, {Field.JOINT: np.arange(2, dtype=ROW)}, 0),
    "push": lambda server, attempt, folder: server.push(attempt, 0, 0, NOTHING, ADAGRAD),
    "write": lambda server, attempt, folder: server.write(
        attempt, Field.JOINT, np.arange(2, dtype=ROW), np.ones((2, DIM), np.float32)
    ),
    "count_closer": lambda server, attempt, folder: server.count_closer(
        attempt,
        np.zeros((1, DIM), np.float32),
        np.zeros(1, np.float32),
        np.arange(3, dtype=ROW),
        FilteredCandidates(np.zeros(2, OFFSET), np.empty(0, ROW)),
    ),
    "nearest": lambda server, attempt, folder: server.nearest(
        attempt, np.zeros((1, DIM), np.float32), np.ones(ROWS, bool), 3
    ),
    "save_blocks": lambda server, attempt, folder: server.save_blocks(attempt, str(folder)),
    "save_deltas": lambda server, attempt, folder: server.save_deltas(
        attempt, str(folder), {Field.JOINT: np.arange(2, dtype=ROW)}
    ),
    "save_checkpoint": lambda server, attempt, folder: server.save_checkpoint(attempt, folder),
    "load_checkpoint": lambda server, attempt, folder: server.load_checkpoint(attempt, folder),
}


@pytest.mark.parametrize("method", CALLS)
def test_strangers_are_refused_and_change_nothing(method: str, tmp_path: Path) -> None:
    """Who belongs to an attempt that was given up, and whose shard was restarted and has lost its rows."""
    (one,) = servers(1)
    call = CALLS[method]
    with pytest.raises(StaleAttemptError, match="shard 0 belongs to another attempt"):
        call(one, "before", tmp_path)
    restarted = ShardServer(2, ShardPlan(ROWS, BLOCK, 3))
    with pytest.raises(StaleAttemptError, match="shard 2 has been restarted"):
        call(restarted, "now", tmp_path)
    assert list(tmp_path.iterdir()) == []
    same_rows(everything([one]), local().shard.values)
    one.open("later", 1, START)
    with pytest.raises(StaleAttemptError, match="shard 0 belongs to another attempt"):
        call(one, "now", tmp_path)


def test_another_attempt_starts_from_nothing() -> None:
    (one,) = servers(1, world=2)
    rng = np.random.default_rng(0)
    with ThreadPoolExecutor(1) as pool:
        given_up = pool.submit(one.push, "now", 0, 1, some_gradients(rng, {Field.CONTEXT: some_rows(rng)}), ADAGRAD)
        until(lambda: one.stats()["push_calls"] == 1)
        one.open("now again", 1, START)
        with pytest.raises(StaleAttemptError):
            given_up.result(WAIT)
    gradients = some_gradients(rng, {Field.CONTEXT: np.arange(9, dtype=ROW)})
    one.push("now again", 0, 0, gradients, ADAGRAD)
    twin = local()
    twin.push(gradients, ADAGRAD)
    wanted = {field: np.arange(ROWS, dtype=ROW) for field in Field}
    same_rows(one.pull("now again", wanted, 0), twin.shard.values)
    assert one.stats()["push_calls"] == 1


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread is about to do."""
    import time

    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_everybody_who_waits_is_told_when_the_attempt_is_given_up() -> None:
    (one,) = servers(1, world=3)
    with ThreadPoolExecutor(4) as pool:
        waiting: list[Future[Any]] = [
            pool.submit(one.push, "now", 0, 0, NOTHING, ADAGRAD),
            pool.submit(one.push, "now", 0, 2, NOTHING, ADAGRAD),
            pool.submit(one.pull, "now", {Field.JOINT: np.arange(3, dtype=ROW)}, 1),
            pool.submit(one.pull, "now", {Field.JOINT: np.arange(3, dtype=ROW)}, 5, (5, 1)),
        ]
        until(lambda: one.stats()["push_calls"] == 2)
        assert not any(future.done() for future in waiting)
        one.open("another", 3, START)
        for future in waiting:
            with pytest.raises(StaleAttemptError, match="belongs to another attempt"):
                future.result(WAIT)


@pytest.mark.parametrize("first", [0, 1])
def test_two_ranks_add_up_in_the_order_of_ranks_whoever_comes_first(first: int) -> None:
    """Sums of floats depend on their order: here they may not depend on the network."""
    made, twin = servers(2, world=2), local()
    plan = made[0].plan
    rng = np.random.default_rng(5)
    with ThreadPoolExecutor(4) as pool:
        for step in range(8):
            ranks = [some_gradients(rng, {f: some_rows(rng, 100) for f in TRAINED}) for _ in range(2)]
            waiting = []
            for server in made:
                pushes = [server.stats()["push_calls"]]
                for rank in (first, 1 - first):
                    mine = gradients_of(plan, server.number, ranks[rank])
                    waiting.append(pool.submit(server.push, "now", step, rank, mine, ADAGRAD))
                    until(lambda server=server, before=pushes[-1]: server.stats()["push_calls"] > before)
                    pushes.append(server.stats()["push_calls"])
            for future in waiting:
                future.result(WAIT)
            for field in TRAINED:
                twin.push({field: added(ranks, field)}, ADAGRAD)
    same_rows(everything(made), twin.shard.values)


def added(ranks: list[Pushed], field: Field) -> tuple[np.ndarray, np.ndarray]:
    """Gradients of several ranks, row by row."""
    total: dict[int, np.ndarray] = {}
    for gradients in ranks:
        for row, value in zip(gradients[field][0].tolist(), gradients[field][1], strict=True):
            total[row] = total[row] + value if row in total else np.zeros(DIM, np.float32) + value
    rows = sorted(total)
    return np.array(rows, ROW), np.array([total[row] for row in rows], np.float32).reshape(-1, DIM)


def test_sums_are_those_of_a_loop() -> None:
    rng = np.random.default_rng(0)
    ranks = [some_gradients(rng, {Field.CONTEXT: some_rows(rng, 100)}) for _ in range(4)]
    places, values = summed([gradients[Field.CONTEXT] for gradients in ranks])
    rows, expected = added(ranks, Field.CONTEXT)
    assert np.array_equal(places, rows)
    assert values.tobytes() == expected.tobytes()


def test_a_step_waits_for_a_rank_that_has_nothing_for_it() -> None:
    (one,), twin = servers(1, world=2), local()
    gradients = some_gradients(np.random.default_rng(0), {Field.CONTEXT: np.arange(9, dtype=ROW)})
    rows = {Field.CONTEXT: np.arange(ROWS, dtype=ROW)}
    with ThreadPoolExecutor(2) as pool:
        pushed = pool.submit(one.push, "now", 0, 0, gradients, ADAGRAD)
        pulled = pool.submit(one.pull, "now", rows, 1)
        until(lambda: one.stats()["push_calls"] == 1)
        same_rows(one.pull("now", rows, 0), twin.pull(rows))
        assert not pushed.done() and not pulled.done()
        one.push("now", 0, 1, NOTHING, ADAGRAD)
        twin.push(gradients, ADAGRAD)
        pushed.result(WAIT)
        same_rows(pulled.result(WAIT), twin.pull(rows))


def test_a_push_repeated_while_others_are_awaited_counts_once() -> None:
    (one,), twin = servers(1, world=2), local()
    gradients = some_gradients(np.random.default_rng(0), {Field.CONTEXT: np.arange(9, dtype=ROW)})
    with ThreadPoolExecutor(3) as pool:
        same = [pool.submit(one.push, "now", 0, 0, gradients, ADAGRAD) for _ in range(3)]
        until(lambda: one.stats()["push_calls"] == 1)
        assert not any(future.done() for future in same)
        one.push("now", 0, 1, NOTHING, ADAGRAD)
        for future in same:
            future.result(WAIT)
    twin.push(gradients, ADAGRAD)
    same_rows(everything([one]), twin.shard.values)
    assert one.stats()["push_calls"] == 2


def test_rows_read_early_are_corrected_when_another_rank_changes_them() -> None:
    (one,), twin = servers(1, world=2), local()
    rng = np.random.default_rng(0)
    early = {Field.KNOWLEDGE: np.array([9, 3, 50, 7], ROW), Field.CONTEXT: np.array([1, 2], ROW)}
    theirs = some_gradients(rng, {Field.KNOWLEDGE: np.array([7, 9, 100], ROW), Field.CONTEXT: np.array([5], ROW)})
    mine = some_gradients(rng, {Field.KNOWLEDGE: np.array([80], ROW)})
    got = one.pull("now", early, 0, (0, 0))
    same_rows(got, twin.pull(early))
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(one.push, "now", 0, 1, theirs, ADAGRAD)
        reply = one.push("now", 0, 0, mine, ADAGRAD, {Field.KNOWLEDGE: np.array([80, 100], ROW)})
        assert other.result(WAIT).patches == {}, "nobody else read anything early"
    for gradients in (mine, theirs):
        twin.push(gradients, ADAGRAD)
    assert reply.patches.keys() == {Field.KNOWLEDGE}
    assert sorted(reply.patches[Field.KNOWLEDGE].numbers.tolist()) == [0, 3], "only what changed is sent again"
    got[Field.KNOWLEDGE][reply.patches[Field.KNOWLEDGE].numbers] = reply.patches[Field.KNOWLEDGE].values
    same_rows(got, twin.pull(early))
    same_rows(reply.late, twin.pull({Field.KNOWLEDGE: np.array([80, 100], ROW)}))


def test_rows_read_after_the_step_that_was_to_correct_them_need_no_correction() -> None:
    """The early read was slower on its way than the pushes of everybody."""
    (one,), twin = servers(1, world=2), local()
    gradients = some_gradients(np.random.default_rng(0), {Field.KNOWLEDGE: np.array([3], ROW)})
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(one.push, "now", 0, 1, gradients, ADAGRAD)
        one.push("now", 0, 0, NOTHING, ADAGRAD)
        other.result(WAIT)
        twin.push(gradients, ADAGRAD)
        early = {Field.KNOWLEDGE: np.array([3], ROW)}
        same_rows(one.pull("now", early, 0, (0, 0)), twin.pull(early))
        other = pool.submit(one.push, "now", 1, 1, gradients, ADAGRAD)
        assert one.push("now", 1, 0, NOTHING, ADAGRAD).patches == {}
        other.result(WAIT)


def test_what_is_moved_is_counted_to_the_byte(tmp_path: Path) -> None:
    (one,) = servers(1)
    counted = {"pull_calls", "push_calls", "write_calls", "rows_pulled", "rows_pushed", "bytes_pulled", "bytes_pushed"}
    assert {one.stats()[name] for name in counted} == {0}
    rows = {Field.KNOWLEDGE: np.arange(10, dtype=ROW), Field.CONTEXT: np.arange(30, dtype=ROW)}
    one.pull("now", rows, 0)
    gradients = some_gradients(np.random.default_rng(0), rows)
    one.push("now", 0, 0, gradients, ADAGRAD, {Field.CONTEXT: np.arange(2, dtype=ROW)})
    one.push("now", 0, 0, gradients, ADAGRAD)
    one.write("now", Field.JOINT, np.arange(5, dtype=ROW), np.ones((5, DIM), np.float32))
    found = one.stats()
    a_row = 4 * DIM + 4
    assert (found["pull_calls"], found["push_calls"], found["write_calls"]) == (1, 1, 1)
    assert (found["rows_pulled"], found["rows_pushed"]) == (42, 45)
    assert (found["bytes_pulled"], found["bytes_pushed"]) == (42 * a_row, 45 * a_row)
    assert found["bytes_written"] == 0
    assert found["rows"] == ROWS
    assert found["bytes_held"] == ROWS * (3 * DIM * 4 + 2 * 4)
    _, written = one.save_deltas("now", str(tmp_path), {Field.JOINT: np.arange(5, dtype=ROW)})
    assert one.stats()["bytes_written"] == written > 5 * a_row
    one.open("next", 1, START)
    assert {one.stats()[name] for name in counted | {"bytes_written"}} == {0}


def rounded(rng: np.random.Generator, count: int) -> np.ndarray:
    """Few different values, so that many distances are just the same."""
    return rng.integers(0, 2, (count, DIM)).astype(np.float32)


@pytest.mark.parametrize("shards", SHARDS)
def test_counts_and_nearest_rows_add_up_over_shards(tmp_path: Path, shards: int) -> None:
    """Ties included: among rows that are just as near the smaller one comes first, wherever it lies."""
    rng = np.random.default_rng(shards)
    joint = rounded(rng, ROWS)
    made = servers(shards, fill=stored(tmp_path, {Field.JOINT: joint}))
    plan = made[0].plan
    queries = rounded(rng, 6) + np.float32(0.25)
    bounds = np.abs(queries - joint[rng.integers(0, ROWS, 6)]).sum(1).astype(np.float32)
    alive = rng.random(ROWS) < 0.8
    candidates = np.flatnonzero(alive).astype(ROW)
    skipped = [np.sort(rng.permutation(ROWS)[: rng.integers(0, 9)]).astype(ROW) for _ in range(6)]
    indptr = np.concatenate([[0], np.cumsum([len(rows) for rows in skipped])]).astype(OFFSET)
    expected = count_closer(queries, bounds, joint, candidates, FilteredCandidates(indptr, np.concatenate(skipped)))
    closer, equal = np.zeros(6, OFFSET), np.zeros(6, OFFSET)
    best = None
    for server in made:
        mine = [apart(plan, server.number, rows)[1] for rows in skipped]
        begin = np.concatenate([[0], np.cumsum([len(rows) for rows in mine])]).astype(OFFSET)
        places = apart(plan, server.number, candidates)[1]
        found = server.count_closer("now", queries, bounds, places, FilteredCandidates(begin, np.concatenate(mine)))
        closer, equal = closer + found[0], equal + found[1]
        near = server.nearest("now", queries, alive[plan.held(server.number)], 7)
        best = near if best is None else merged(best, near, 7)
    assert np.array_equal(closer, expected[0])
    assert np.array_equal(equal, expected[1])
    assert equal.sum() > 10, "the test is about ties"
    whole = nearest(queries, [(0, joint)], alive, 7)
    assert best is not None
    assert np.array_equal(best.rows, whole.rows)
    assert np.array_equal(best.distances, whole.distances)


def trained(shards: int) -> tuple[list[ShardServer], LocalTable]:
    """A table that has learnt a little, so that there is optimizer state too."""
    made, twin = servers(shards), local()
    rng = np.random.default_rng(9)
    for step in range(3):
        gradients = some_gradients(rng, {field: some_rows(rng, 100) for field in TRAINED})
        push_all(made, step, gradients)
        twin.push(gradients, ADAGRAD)
    return made, twin


def save_checkpoint(made: list[ShardServer], folder: Path) -> None:
    folder.mkdir()
    for name, width in checkpoint_files(DIM):
        np.lib.format.open_memmap(folder / name, "w+", np.float32, (ROWS, *width)).flush()
    for server in made:
        server.save_checkpoint("now", folder)


def assert_goes_on_as(made: list[ShardServer], twin: LocalTable) -> None:
    """A step from here shows the optimizer state too."""
    gradients = some_gradients(np.random.default_rng(4), {f: np.arange(ROWS, dtype=ROW) for f in TRAINED})
    expected = LocalTable(
        Shard({f: v.copy() for f, v in twin.shard.values.items()}, {f: v.copy() for f, v in twin.shard.state.items()})
    )
    expected.push(gradients, ADAGRAD)
    push_all(made, 10, gradients)
    same_rows(everything(made, TRAINED), {field: expected.shard.values[field] for field in TRAINED})


def test_checkpoints_are_the_same_files_whoever_writes_them(tmp_path: Path) -> None:
    for shards in (3, 2):
        made, twin = trained(shards)
        save_checkpoint(made, tmp_path / str(shards))
    (tmp_path / "local").mkdir()
    twin.save(tmp_path / "local")
    for name, _ in checkpoint_files(DIM):
        content = {(tmp_path / who / name).read_bytes() for who in ("3", "2", "local")}
        assert len(content) == 1, name


@pytest.mark.parametrize(("writers", "readers"), [(3, 2), (2, 3), (None, 3), (3, None), (25, 1), (1, 25)])
def test_a_checkpoint_of_so_many_shards_is_read_by_others(
    tmp_path: Path, writers: int | None, readers: int | None
) -> None:
    folder = tmp_path / "checkpoint"
    made, twin = trained(writers or 1)
    if writers is None:
        folder.mkdir()
        twin.save(folder)
    else:
        save_checkpoint(made, folder)
    if readers is None:
        found = local()
        found.load(folder)
        for kind in ("values", "state"):
            for field in TRAINED:
                assert np.array_equal(getattr(found.shard, kind)[field], getattr(twin.shard, kind)[field])
        return
    read = servers(readers)
    for server in read:
        server.load_checkpoint("now", folder)
    assert_goes_on_as(read, twin)


def test_a_checkpoint_of_another_table_is_refused(tmp_path: Path) -> None:
    made, _ = trained(2)
    save_checkpoint(made, tmp_path / "checkpoint")
    with pytest.raises(DkgeError, match=r"knowledge\.npy: holds \(150, 5\) of a table of 160 rows"):
        servers(2, rows=ROWS + 10, fill=START._replace(rows=ROWS + 10))[1].load_checkpoint(
            "now", tmp_path / "checkpoint"
        )


@pytest.mark.parametrize("shards", SHARDS)
def test_blocks_that_shards_save_are_the_parts_of_the_whole_table(tmp_path: Path, shards: int) -> None:
    made, twin = trained(shards)
    storage = open_storage(tmp_path)
    with storage.staging() as staging:
        saved = [server.save_blocks("now", str(tmp_path))[0] for server in made]
        for field in Field:
            parts = sorted(part for by_field in saved for part in by_field[field])
            assert [block for block, _ in parts] == list(range(-(-ROWS // BLOCK)))
            index = save_index(staging, [part for _, part in parts], ROWS, DIM, BLOCK)
            assert index == save_table(staging, twin.shard.values[field], BLOCK)
            assert np.array_equal(load_table(storage, index), twin.shard.values[field])


def test_deltas_that_shards_save_hold_their_rows_and_no_others(tmp_path: Path) -> None:
    made, twin = trained(3)
    rows = {Field.KNOWLEDGE: np.sort(some_rows(np.random.default_rng(1), 60)), Field.JOINT: np.array([0, 1], ROW)}
    base = stored(tmp_path, {field: np.zeros((ROWS, DIM), np.float32) for field in rows})
    storage = open_storage(tmp_path)
    with storage.staging():
        found: dict[Field, list[Any]] = {field: [] for field in rows}
        for server in made:
            places = {field: apart(server.plan, server.number, some)[1] for field, some in rows.items()}
            for field, entry in server.save_deltas("now", str(tmp_path), places)[0].items():
                found[field].append(entry)
    assert (len(found[Field.KNOWLEDGE]), len(found[Field.JOINT])) == (3, 1), "no part without rows"
    for field, some in rows.items():
        entry = base.tables[field].model_copy(update={"deltas": found[field]})
        expected = np.zeros((ROWS, DIM), np.float32)
        expected[some] = twin.shard.values[field][some]
        assert np.array_equal(load_table(storage, entry), expected)


def test_a_store_with_other_blocks_is_not_misread(tmp_path: Path) -> None:
    fill = stored(tmp_path, {Field.JOINT: np.ones((ROWS, DIM), np.float32)})
    with pytest.raises(AssertionError, match="one block size"):
        ShardServer(0, ShardPlan(ROWS, 2 * BLOCK, 2)).open("now", 1, Stored(fill.location, fill.tables))
