"""Requests as messages: what a shard gets and returns is what was sent, and what it does not have is refused."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from dkge_dist.cluster.requests import (
    ANSWER,
    ERROR,
    LATE,
    PATCH_VALUES,
    PULL,
    PUSH,
    ROWS,
    VALUES,
    WRITE,
    ErrorCode,
    RequestHandler,
    pull_request,
    push_request,
    read_error,
    read_pulled,
    read_reply,
    write_request,
)
from dkge_dist.cluster.server import ShardServer, allocate
from dkge_dist.cluster.transport import Message, Received
from dkge_dist.cluster.transport.message import contiguous
from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import Optimizer
from dkge_dist.types import ROW, DkgeError, Field

SIZE, DIM = 256, 5
START = RowInitializer((3, 0), SIZE, DIM, 1.0)
OPTIMIZER = Optimizer("adagrad", 0.1)
SOME = np.array([3, 1, 255], ROW)
ONES = np.ones((3, DIM), np.float32)
KNOWLEDGE, CONTEXT, JOINT = range(3)


@pytest.fixture
def server() -> ShardServer:
    made = ShardServer(0, ShardPlan(SIZE, 64, 1))
    made.open("now", 1, START)
    return made


def arrived(message: Message) -> Received:
    """As it is at the other end."""
    return Received(*message[:3], list(message.tags), [contiguous(array) for array in message.arrays])


def ask(server: ShardServer, request: Message, attempt: str = "now") -> Received:
    return arrived(RequestHandler(server).answer(attempt, arrived(request), allocate))


def refused(server: ShardServer, request: Message) -> str:
    """Why. The shard is as it was."""
    every = {field: np.arange(SIZE, dtype=ROW) for field in Field}
    before, counts = server.pull("now", every, 0), server.stats("now")
    reply = ask(server, request)
    assert reply.kind == ERROR
    code, text = read_error(reply)
    assert code == ErrorCode.INVALID_REQUEST
    assert server.stats("now") == counts
    after = server.pull("now", every, 0)
    assert all(before[field].tobytes() == after[field].tobytes() for field in Field)
    return text


def test_pull_and_push_do_what_the_shard_does(server: ShardServer) -> None:
    twin = ShardServer(0, ShardPlan(SIZE, 64, 1))
    twin.open("now", 1, START)
    wanted = {Field.KNOWLEDGE: SOME, Field.CONTEXT: np.empty(0, ROW)}
    pulled = read_pulled(ask(server, pull_request(wanted, 0, None)))
    assert pulled.keys() == wanted.keys()
    assert (pulled[Field.KNOWLEDGE] == START.block(Field.KNOWLEDGE, 0, SIZE)[SOME]).all()
    assert pulled[Field.CONTEXT].shape == (0, DIM)
    gradients, late = {Field.KNOWLEDGE: (SOME, ONES)}, {Field.CONTEXT: np.array([7, 7], ROW)}
    reply = read_reply(ask(server, push_request(0, 0, gradients, OPTIMIZER, late)))
    expected = twin.push("now", 0, 0, gradients, OPTIMIZER, late)
    assert (reply.late[Field.CONTEXT] == expected.late[Field.CONTEXT]).all()
    assert reply.patches == {}
    after = [one.pull("now", wanted, 1)[Field.KNOWLEDGE] for one in (server, twin)]
    assert after[0].tobytes() == after[1].tobytes()
    assert ask(server, write_request(Field.JOINT, SOME, 4 * ONES, False)).kind == ANSWER
    assert (server.pull("now", {Field.JOINT: SOME}, 0)[Field.JOINT] == 4).all()


def test_corrections_come_back_with_the_push() -> None:
    server = ShardServer(0, ShardPlan(SIZE, 64, 1))
    server.open("now", 2, START)
    early = {field: SOME for field in (Field.KNOWLEDGE, Field.CONTEXT)}
    ask(server, pull_request(early, 0, (0, 1)))
    pushes = [{Field.KNOWLEDGE: (SOME[1:2], ONES[:1])}, {}]
    with ThreadPoolExecutor() as threads:  # Each waits for the other.
        ranks = [threads.submit(ask, server, push_request(0, r, p, OPTIMIZER, {})) for r, p in enumerate(pushes)]
    assert read_reply(ranks[0].result()).patches == {}
    reply = read_reply(ranks[1].result())
    patch = reply.patches[Field.KNOWLEDGE]
    assert patch.positions.tolist() == [1]
    assert (patch.values == server.pull("now", {Field.KNOWLEDGE: SOME[1:2]}, 1)[Field.KNOWLEDGE]).all()


@pytest.mark.parametrize("row", [-5, -(2**31), SIZE, 300, 2**30])
@pytest.mark.parametrize("field", [Field.KNOWLEDGE, Field.CONTEXT])
def test_rows_that_a_shard_does_not_have_are_refused(server: ShardServer, field: Field, row: int) -> None:
    rows = np.array([3, row, 7], ROW)
    told = f"field {field}: row {row} of a shard of 256 rows"
    assert refused(server, pull_request({field: rows}, 0, None)) == f"pull: {told}"
    assert refused(server, push_request(0, 0, {field: (rows, ONES)}, OPTIMIZER, {})) == f"push: {told}"
    assert refused(server, push_request(0, 0, {}, OPTIMIZER, {field: rows})) == f"push: {told}"
    assert refused(server, write_request(field, rows, ONES, False)) == f"write: {told}"


@pytest.mark.parametrize(
    "values",
    [ONES[:2], ONES[:, :4], ONES.astype(np.int32), ONES.reshape(-1), np.ones((3, 6), np.float32)],
    ids=["rows", "dimension", "dtype", "flat", "too wide"],
)
def test_values_of_another_shape_are_refused(server: ShardServer, values: np.ndarray) -> None:
    for request in (
        push_request(0, 0, {Field.CONTEXT: (SOME, values)}, OPTIMIZER, {}),
        write_request(Field.CONTEXT, SOME, values, False),
    ):
        told = f"field context: values are {values.dtype} of shape {values.shape}, not float32 of (3, 5)"
        assert refused(server, request).endswith(told)


@pytest.mark.parametrize("rows", [SOME.astype(np.int64), SOME.reshape(1, 3), SOME.astype(np.float32)])
def test_rows_of_another_type_are_refused(server: ShardServer, rows: np.ndarray) -> None:
    text = refused(server, pull_request({Field.KNOWLEDGE: rows}, 0, None))
    assert text.startswith(f"pull: field knowledge: rows are {rows.dtype} of shape {rows.shape}")


@pytest.mark.parametrize("rate", [math.nan, math.inf, -math.inf, -0.1])
def test_a_learning_rate_that_is_no_rate_is_refused(server: ShardServer, rate: float) -> None:
    optimizer = OPTIMIZER._replace(rate=rate)
    text = refused(server, push_request(0, 0, {Field.KNOWLEDGE: (SOME, ONES)}, optimizer, {}))
    assert text.startswith(f"push: learning rate {rate} is not")


def raw(kind: int, tags: Sequence[int], arrays: Sequence[Any], integers: tuple[int, int, int] = (0, 0, 0)) -> Message:
    return Message(kind, integers, 0.1, tags, arrays)


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (raw(9, [], []), "unknown request 9"),
        (raw(ANSWER, [], []), f"unknown request {ANSWER}"),
        (raw(PULL, [ROWS + 3], [SOME]), "pull: unexpected array with tag 3"),
        (raw(PULL, [VALUES], [ONES]), f"pull: unexpected array with tag {VALUES}"),
        (raw(PULL, [PATCH_VALUES], [ONES]), f"pull: unexpected array with tag {PATCH_VALUES}"),
        (raw(PULL, [ROWS, ROWS], [SOME, SOME]), "pull: unexpected array with tag 0"),
        (raw(PULL, [], [], (0, 0, 1)), "pull: rank 1 of 1"),
        (raw(PUSH, [ROWS], [SOME]), "push: rows of 1 fields, values of 0"),
        (
            raw(PUSH, [VALUES], [ONES]),
            r"push: field knowledge: values are float32 of shape \(3, 5\), not after their rows",
        ),
        (raw(PUSH, [ROWS + JOINT, VALUES + JOINT], [SOME, ONES]), "push: field joint is not trained"),
        (raw(PUSH, [LATE, LATE], [SOME, SOME]), f"push: unexpected array with tag {LATE}"),
        (raw(PUSH, [], [], (-1, 0, 0)), "push: step -1"),
        (raw(PUSH, [], [], (0, 1, 0)), "push: rank 1 of 1"),
        (raw(PUSH, [], [], (0, -1, 0)), "push: rank -1 of 1"),
        (raw(PUSH, [], [], (0, 0, 3)), "push: step 0 with optimizer 3 of 3"),
        (raw(WRITE, [], []), "write: 0 fields instead of 1"),
        (raw(WRITE, [ROWS, LATE], [SOME, SOME]), f"write: unexpected array with tag {LATE}"),
    ],
)
def test_requests_put_together_wrongly_are_refused(server: ShardServer, request_: Message, told: str) -> None:
    assert re.match(told, refused(server, request_))


def test_a_field_that_the_shard_was_not_given_is_refused(server: ShardServer) -> None:
    del server._shard.values[Field.JOINT]
    reply = ask(server, pull_request({Field.JOINT: SOME}, 0, None))
    assert read_error(reply) == (ErrorCode.INVALID_REQUEST, "pull: field joint is not in this shard")


def test_an_attempt_that_is_over_has_a_code(server: ShardServer) -> None:
    handler, pull = RequestHandler(server), arrived(pull_request({Field.KNOWLEDGE: SOME}, 0, None))
    stale = (ErrorCode.STALE_ATTEMPT, "shard 0 belongs to another attempt by now")
    assert read_error(arrived(handler.answer("before", pull, allocate))) == stale
    assert handler.answer("now", pull, allocate).kind == ANSWER
    server.open("later", 1, START)
    assert read_error(arrived(handler.answer("now", pull, allocate))) == stale


def test_every_attempt_has_limits_of_its_own(server: ShardServer) -> None:
    handler = RequestHandler(server)
    write = arrived(write_request(Field.JOINT, SOME, ONES, False))
    assert handler.answer("now", write, allocate).kind == ANSWER
    server.open("later", 2, START._replace(dim=4))
    assert read_error(arrived(handler.answer("later", write, allocate)))[0] == ErrorCode.INVALID_REQUEST
    push = arrived(push_request(0, 2, {}, OPTIMIZER, {}))
    assert read_error(arrived(handler.answer("later", push, allocate)))[1] == "push: rank 2 of 2"


@pytest.mark.parametrize(
    ("error", "text"), [(DkgeError("no such row"), "no such row"), (MemoryError("4 GB"), "MemoryError: 4 GB")]
)
def test_an_error_of_the_shard_is_told(server: ShardServer, error: Exception, text: str) -> None:
    def failing(*request: object) -> object:
        raise error

    server.pull = failing  # type: ignore[assignment,method-assign]
    assert read_error(ask(server, pull_request({Field.KNOWLEDGE: SOME}, 0, None))) == (ErrorCode.FAILED, text)
