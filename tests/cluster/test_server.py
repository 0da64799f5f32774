"""One shard as workers see it, without Ray: attempts, steps of several ranks, corrections, ranks and statistics."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.cluster.errors import StaleAttemptError
from dkge_dist.cluster.server import ShardServer, summed
from dkge_dist.kernels.codes import Grid
from dkge_dist.kernels.ranks import FilteredCandidates
from dkge_dist.tables.index import ExactIndex, merged
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.types import OFFSET, ROW, TRAINED, Field
from tests.cluster.twins import everything, gradients_of_shard, local, rows_of_shard, servers, stored, summed_over_ranks
from tests.tables.rows import (
    ADAGRAD,
    BLOCK,
    DIM,
    ROWS,
    SGD,
    START,
    Pushed,
    assert_same_rows,
    random_gradients,
    random_rows,
)

pytestmark = pytest.mark.usefixtures("one_thread")

SHARDS = [1, 2, 3, 25]
NOTHING: Pushed = {}
WAIT = 20


def until(condition: Callable[[], bool]) -> None:
    """Wait for something that another thread is about to do."""
    end = time.monotonic() + WAIT
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize("shards", SHARDS)
def test_shards_do_what_one_table_does(shards: int) -> None:
    made, twin = servers(shards), local()
    assert_same_rows(everything(made), twin.shard.values)
    rng = np.random.default_rng(shards)
    for step in range(12):
        wanted = {field: random_rows(rng) for field in TRAINED}
        gradients = random_gradients(rng, wanted)
        optimizer = SGD if step % 3 == 0 else ADAGRAD
        for server in made:
            server.push("now", step, 0, gradients_of_shard(server.plan, server.number, gradients), optimizer)
        twin.push(gradients, optimizer)
        field = list(Field)[step % 3]
        is_reset = step % 4 == 0 and field in TRAINED
        rows = random_rows(rng)
        values = rng.random((rows.shape[0], DIM), np.float32)
        twin.write(field, rows, values, is_reset)
        for server in made:
            positions, local_rows = rows_of_shard(server.plan, server.number, rows)
            server.write("now", field, local_rows, values[positions], is_reset)
    assert_same_rows(everything(made), twin.shard.values)


def test_reset_forgets_optimizer_state() -> None:
    (one,), twin = servers(1), local()
    rng = np.random.default_rng(0)
    rows = np.arange(6, dtype=ROW)
    before, after = (random_gradients(rng, {Field.CONTEXT: rows}) for _ in range(2))
    values = rng.random((6, DIM), np.float32)
    one.push("now", 0, 0, before, ADAGRAD)
    one.write("now", Field.CONTEXT, rows, values, is_reset=True)
    one.push("now", 1, 0, after, ADAGRAD)
    twin.write(Field.CONTEXT, rows, values)
    twin.push(after, ADAGRAD)
    assert_same_rows(everything([one]), twin.shard.values)


def test_repeated_push_is_applied_once() -> None:
    (one,), twin = servers(1), local()
    rng = np.random.default_rng(0)
    for step in range(3):
        gradients = random_gradients(rng, {field: random_rows(rng) for field in TRAINED})
        twin.push(gradients, ADAGRAD)
        for _ in range(3):
            one.push("now", step, 0, gradients, ADAGRAD)
    # A late repeat comes after later steps were taken.
    one.push("now", 0, 0, random_gradients(rng, {Field.KNOWLEDGE: np.arange(9, dtype=ROW)}), ADAGRAD)
    assert_same_rows(everything([one]), twin.shard.values)
    assert one.stats("now")["push_calls"] == 3


def test_repeated_push_gets_the_same_reply() -> None:
    (one,), twin = servers(1), local()
    gradients = random_gradients(np.random.default_rng(0), {Field.CONTEXT: np.arange(4, dtype=ROW)})
    late = {Field.KNOWLEDGE: np.array([4], ROW), Field.CONTEXT: np.array([3, 9], ROW)}
    twin.push(gradients, ADAGRAD)
    for _ in range(2):
        assert_same_rows(one.push("now", 0, 0, gradients, ADAGRAD, late).late, twin.pull(late))


QUERY = np.zeros((1, DIM), np.float32)
NOBODY = FilteredCandidates(np.zeros(2, OFFSET), np.empty(0, ROW))
CALLS: dict[str, Callable[[ShardServer, str, Path], Any]] = {
    "pull": lambda server, attempt, folder: server.pull(attempt, {Field.JOINT: np.arange(2, dtype=ROW)}, 0),
    "push": lambda server, attempt, folder: server.push(attempt, 0, 0, NOTHING, ADAGRAD),
    "write": lambda server, attempt, folder: server.write(
        attempt, Field.JOINT, np.arange(2, dtype=ROW), np.ones((2, DIM), np.float32)
    ),
    "distances": lambda server, attempt, folder: server.distances(
        attempt, QUERY, np.array([0, 3], OFFSET), np.arange(3, dtype=ROW)
    ),
    "count_closer": lambda server, attempt, folder: server.count_closer(
        attempt, QUERY, np.zeros(1, np.float32), np.arange(3, dtype=ROW), NOBODY
    ),
    "nearest": lambda server, attempt, folder: server.nearest(attempt, QUERY, np.arange(3, dtype=ROW), 3),
    "save_blocks": lambda server, attempt, folder: server.save_blocks(attempt, str(folder)),
    "save_codes": lambda server, attempt, folder: server.save_codes(attempt, str(folder), Grid(0.0, 1.0)),
    "save_deltas": lambda server, attempt, folder: server.save_deltas(
        attempt, str(folder), {Field.JOINT: np.arange(2, dtype=ROW)}
    ),
    "save_checkpoint": lambda server, attempt, folder: server.save_checkpoint(attempt, folder),
    "load_checkpoint": lambda server, attempt, folder: server.load_checkpoint(attempt, folder),
    "stats": lambda server, attempt, folder: server.stats(attempt),
}


@pytest.mark.parametrize("method", CALLS)
def test_calls_of_another_attempt_are_refused(method: str, tmp_path: Path) -> None:
    """Of a worker whose attempt was given up, and of one whose shard was restarted and has lost its rows."""
    (one,) = servers(1)
    call = CALLS[method]
    with pytest.raises(StaleAttemptError, match="shard 0 belongs to another attempt"):
        call(one, "before", tmp_path)
    restarted = ShardServer(2, ShardPlan(ROWS, BLOCK, 3))
    with pytest.raises(StaleAttemptError, match="shard 2 has been restarted"):
        call(restarted, "now", tmp_path)
    assert list(tmp_path.iterdir()) == []
    assert_same_rows(everything([one]), local().shard.values)
    one.open("later", 1, START)
    with pytest.raises(StaleAttemptError, match="shard 0 belongs to another attempt"):
        call(one, "now", tmp_path)


def test_new_attempt_starts_from_nothing() -> None:
    (one,) = servers(1, world=2)
    rng = np.random.default_rng(0)
    with ThreadPoolExecutor(1) as pool:
        given_up = pool.submit(one.push, "now", 0, 1, random_gradients(rng, {Field.CONTEXT: random_rows(rng)}), ADAGRAD)
        until(lambda: one.stats("now")["push_calls"] == 1)
        one.open("now again", 1, START)
        with pytest.raises(StaleAttemptError):
            given_up.result(WAIT)
    gradients = random_gradients(rng, {Field.CONTEXT: np.arange(9, dtype=ROW)})
    one.push("now again", 0, 0, gradients, ADAGRAD)
    twin = local()
    twin.push(gradients, ADAGRAD)
    wanted = {field: np.arange(ROWS, dtype=ROW) for field in Field}
    assert_same_rows(one.pull("now again", wanted, 0), twin.shard.values)
    assert one.stats("now again")["push_calls"] == 1


def test_waiting_calls_fail_when_the_attempt_is_given_up() -> None:
    (one,) = servers(1, world=3)
    with ThreadPoolExecutor(4) as pool:
        waiting: list[Future[Any]] = [
            pool.submit(one.push, "now", 0, 0, NOTHING, ADAGRAD),
            pool.submit(one.push, "now", 0, 2, NOTHING, ADAGRAD),
            pool.submit(one.pull, "now", {Field.JOINT: np.arange(3, dtype=ROW)}, 1),
            pool.submit(one.pull, "now", {Field.JOINT: np.arange(3, dtype=ROW)}, 5, (5, 1)),
        ]
        until(lambda: one.stats("now")["push_calls"] == 2)
        assert not any(future.done() for future in waiting)
        one.open("another", 3, START)
        for future in waiting:
            with pytest.raises(StaleAttemptError, match="belongs to another attempt"):
                future.result(WAIT)


@pytest.mark.parametrize("first", [0, 1])
def test_gradients_are_summed_in_rank_order(first: int) -> None:
    """Sums of floats depend on their order: here they may not depend on the network."""
    made, twin = servers(2, world=2), local()
    plan = made[0].plan
    rng = np.random.default_rng(5)
    with ThreadPoolExecutor(4) as pool:
        for step in range(8):
            ranks = [random_gradients(rng, {f: random_rows(rng, 100) for f in TRAINED}) for _ in range(2)]
            waiting = []
            for server in made:
                pushes = [server.stats("now")["push_calls"]]
                for rank in (first, 1 - first):
                    mine = gradients_of_shard(plan, server.number, ranks[rank])
                    waiting.append(pool.submit(server.push, "now", step, rank, mine, ADAGRAD))
                    until(lambda server=server, before=pushes[-1]: server.stats("now")["push_calls"] > before)
                    pushes.append(server.stats("now")["push_calls"])
            for future in waiting:
                future.result(WAIT)
            twin.push(summed_over_ranks(ranks), ADAGRAD)
    assert_same_rows(everything(made), twin.shard.values)


def test_summed_equals_a_loop() -> None:
    rng = np.random.default_rng(0)
    ranks = [random_gradients(rng, {Field.CONTEXT: random_rows(rng, 100)}) for _ in range(4)]
    rows, values = summed([gradients[Field.CONTEXT] for gradients in ranks])
    expected_rows, expected = summed_over_ranks(ranks)[Field.CONTEXT]
    assert np.array_equal(rows, expected_rows)
    assert values.tobytes() == expected.tobytes()


def test_step_waits_for_a_rank_without_gradients() -> None:
    (one,), twin = servers(1, world=2), local()
    gradients = random_gradients(np.random.default_rng(0), {Field.CONTEXT: np.arange(9, dtype=ROW)})
    rows = {Field.CONTEXT: np.arange(ROWS, dtype=ROW)}
    with ThreadPoolExecutor(2) as pool:
        pushed = pool.submit(one.push, "now", 0, 0, gradients, ADAGRAD)
        pulled = pool.submit(one.pull, "now", rows, 1)
        until(lambda: one.stats("now")["push_calls"] == 1)
        assert_same_rows(one.pull("now", rows, 0), twin.pull(rows))
        assert not pushed.done() and not pulled.done()
        one.push("now", 0, 1, NOTHING, ADAGRAD)
        twin.push(gradients, ADAGRAD)
        pushed.result(WAIT)
        assert_same_rows(pulled.result(WAIT), twin.pull(rows))


def test_push_repeated_while_waiting_counts_once() -> None:
    (one,), twin = servers(1, world=2), local()
    gradients = random_gradients(np.random.default_rng(0), {Field.CONTEXT: np.arange(9, dtype=ROW)})
    with ThreadPoolExecutor(3) as pool:
        same = [pool.submit(one.push, "now", 0, 0, gradients, ADAGRAD) for _ in range(3)]
        until(lambda: one.stats("now")["push_calls"] == 1)
        assert not any(future.done() for future in same)
        one.push("now", 0, 1, NOTHING, ADAGRAD)
        for future in same:
            future.result(WAIT)
    twin.push(gradients, ADAGRAD)
    assert_same_rows(everything([one]), twin.shard.values)
    assert one.stats("now")["push_calls"] == 2


def test_early_rows_are_patched_when_another_rank_changes_them() -> None:
    (one,), twin = servers(1, world=2), local()
    rng = np.random.default_rng(0)
    early = {Field.KNOWLEDGE: np.array([9, 3, 50, 7], ROW), Field.CONTEXT: np.array([1, 2], ROW)}
    theirs = random_gradients(rng, {Field.KNOWLEDGE: np.array([7, 9, 100], ROW), Field.CONTEXT: np.array([5], ROW)})
    mine = random_gradients(rng, {Field.KNOWLEDGE: np.array([80], ROW)})
    got = one.pull("now", early, 0, (0, 0))
    assert_same_rows(got, twin.pull(early))
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(one.push, "now", 0, 1, theirs, ADAGRAD)
        reply = one.push("now", 0, 0, mine, ADAGRAD, {Field.KNOWLEDGE: np.array([80, 100], ROW)})
        assert other.result(WAIT).patches == {}, "the other rank read nothing early"
    for gradients in (mine, theirs):
        twin.push(gradients, ADAGRAD)
    assert reply.patches.keys() == {Field.KNOWLEDGE}
    patch = reply.patches[Field.KNOWLEDGE]
    assert sorted(patch.positions.tolist()) == [0, 3], "only what changed is sent again"
    got[Field.KNOWLEDGE][patch.positions] = patch.values
    assert_same_rows(got, twin.pull(early))
    assert_same_rows(reply.late, twin.pull({Field.KNOWLEDGE: np.array([80, 100], ROW)}))


def test_rows_read_after_their_step_need_no_patch() -> None:
    """The early read was slower on its way than the pushes of all ranks."""
    (one,), twin = servers(1, world=2), local()
    gradients = random_gradients(np.random.default_rng(0), {Field.KNOWLEDGE: np.array([3], ROW)})
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(one.push, "now", 0, 1, gradients, ADAGRAD)
        one.push("now", 0, 0, NOTHING, ADAGRAD)
        other.result(WAIT)
        twin.push(gradients, ADAGRAD)
        early = {Field.KNOWLEDGE: np.array([3], ROW)}
        assert_same_rows(one.pull("now", early, 0, (0, 0)), twin.pull(early))
        other = pool.submit(one.push, "now", 1, 1, gradients, ADAGRAD)
        assert one.push("now", 1, 0, NOTHING, ADAGRAD).patches == {}
        other.result(WAIT)


def test_stats_count_every_byte(tmp_path: Path) -> None:
    (one,) = servers(1)
    counted = {"pull_calls", "push_calls", "write_calls", "rows_pulled", "rows_pushed", "bytes_pulled", "bytes_pushed"}
    assert {one.stats("now")[name] for name in counted} == {0}
    rows = {Field.KNOWLEDGE: np.arange(10, dtype=ROW), Field.CONTEXT: np.arange(30, dtype=ROW)}
    one.pull("now", rows, 0)
    gradients = random_gradients(np.random.default_rng(0), rows)
    one.push("now", 0, 0, gradients, ADAGRAD, {Field.CONTEXT: np.arange(2, dtype=ROW)})
    one.push("now", 0, 0, gradients, ADAGRAD)
    one.write("now", Field.JOINT, np.arange(5, dtype=ROW), np.ones((5, DIM), np.float32))
    found = one.stats("now")
    row_bytes = 4 * DIM + 4
    assert (found["pull_calls"], found["push_calls"], found["write_calls"]) == (1, 1, 1)
    assert (found["rows_pulled"], found["rows_pushed"]) == (42, 45)
    assert (found["bytes_pulled"], found["bytes_pushed"]) == (42 * row_bytes, 45 * row_bytes)
    assert found["bytes_written"] == 0
    assert found["rows"] == ROWS
    assert found["bytes_held"] == ROWS * (3 * DIM * 4 + 2 * 4)
    _, written = one.save_deltas("now", str(tmp_path), {Field.JOINT: np.arange(5, dtype=ROW)})
    assert one.stats("now")["bytes_written"] == written > 5 * row_bytes
    one.open("next", 1, START)
    assert {one.stats("next")[name] for name in counted | {"bytes_written"}} == {0}


def rounded(rng: np.random.Generator, count: int) -> np.ndarray:
    """Few different values, so that many distances are equal."""
    return rng.integers(0, 2, (count, DIM)).astype(np.float32)


@pytest.mark.parametrize("shards", SHARDS)
def test_ranks_and_nearest_rows_add_up_over_shards(tmp_path: Path, shards: int) -> None:
    """Ties included: of rows at the same distance the smaller one comes first, wherever it is held."""
    rng = np.random.default_rng(shards)
    joint = rounded(rng, ROWS)
    made, twin = servers(shards, content=stored(tmp_path, {Field.JOINT: joint})), ExactIndex(joint)
    plan = made[0].plan
    queries = rounded(rng, 6) + np.float32(0.25)
    bounds = np.abs(queries - joint[rng.integers(0, ROWS, 6)]).sum(1).astype(np.float32)
    candidates = np.flatnonzero(rng.random(ROWS) < 0.8).astype(ROW)
    removed = [np.sort(rng.permutation(ROWS)[: rng.integers(0, 9)]).astype(ROW) for _ in range(6)]
    closer, equal = np.zeros(6, OFFSET), np.zeros(6, OFFSET)
    best = None
    for server in made:
        mine = [rows_of_shard(plan, server.number, rows)[1] for rows in removed]
        local_rows = rows_of_shard(plan, server.number, candidates)[1]
        found = server.count_closer("now", queries, bounds, local_rows, filtered(mine))
        closer, equal = closer + found[0], equal + found[1]
        near = server.nearest("now", queries, local_rows, 7)
        best = near if best is None else merged(best, near, 7)
    expected = twin.count_closer(queries, bounds, candidates, filtered(removed))
    assert np.array_equal(closer, expected[0])
    assert np.array_equal(equal, expected[1])
    assert equal.sum() > 10, "the test is about ties"
    whole = twin.nearest(queries, candidates, 7)
    assert best is not None
    assert np.array_equal(best.rows, whole.rows)
    assert np.array_equal(best.distances, whole.distances)


def filtered(by_query: list[np.ndarray]) -> FilteredCandidates:
    indptr = np.concatenate([[0], np.cumsum([len(rows) for rows in by_query])]).astype(OFFSET)
    return FilteredCandidates(indptr, np.concatenate(by_query))
