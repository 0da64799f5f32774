"""Calls to a shard over the transport and by Ray: what it returns, what it reports, and when it counts as lost."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.cluster import calls
from dkge_dist.cluster.calls import RayCall, ShardConnection, TransportCall, results
from dkge_dist.cluster.errors import ShardLostError
from dkge_dist.cluster.requests import (
    pull_request,
    push_request,
    read_nothing,
    read_pulled,
    read_reply,
    serve_shard,
    write_request,
)
from dkge_dist.cluster.server import ShardServer
from dkge_dist.cluster.session import ShardActor
from dkge_dist.cluster.transport import TransportClient, TransportServer, client
from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import Optimizer
from dkge_dist.types import ROW, DkgeError, Field

ATTEMPT = "0123456789abcdef"
PLAN = ShardPlan(200, 64, 1)
START = RowInitializer((3, 0), 200, 5, 1.0)
OPTIMIZER = Optimizer("adagrad", 0.1)
SOME = np.array([3, 1, 150], ROW)


@pytest.fixture
def shard() -> ShardServer:
    server = ShardServer(0, PLAN)
    server.open(ATTEMPT, 1, START)
    return server


@pytest.fixture
def listening(shard: ShardServer) -> Iterator[TransportServer]:
    made = serve_shard(shard, "127.0.0.1")
    yield made
    made.close()


@pytest.fixture(params=["one machine", "two machines"])
def connection(listening: TransportServer, request: pytest.FixtureRequest) -> Iterator[ShardConnection]:
    address = listening.address
    is_far = request.param == "two machines"
    made = ShardConnection(0, address._replace(unix_name="") if is_far else address, ATTEMPT)
    yield made
    made.close()


def push(connection: ShardConnection, step: int, value: float = 1.0) -> TransportCall:
    gradients = {Field.KNOWLEDGE: (SOME, np.full((3, 5), value, np.float32))}
    late = {Field.CONTEXT: np.array([7, 7], ROW)}
    return TransportCall(0, connection, push_request(step, 0, gradients, OPTIMIZER, late), read_reply)


def pull(connection: ShardConnection, after: int = 0) -> TransportCall:
    wanted = {Field.KNOWLEDGE: SOME, Field.CONTEXT: np.empty(0, ROW)}
    return TransportCall(0, connection, pull_request(wanted, after, None), read_pulled)


def test_calls_return_what_the_shard_does(shard: ShardServer, connection: ShardConnection) -> None:
    twin = ShardServer(0, PLAN)
    twin.open(ATTEMPT, 1, START)
    first, reply, second = results([pull(connection), push(connection, 0), pull(connection, 1)])
    gradients = {Field.KNOWLEDGE: (SOME, np.ones((3, 5), np.float32))}
    expected = twin.push(ATTEMPT, 0, 0, gradients, OPTIMIZER, {Field.CONTEXT: np.array([7, 7], ROW)})
    assert (first[Field.KNOWLEDGE] == START.block(Field.KNOWLEDGE, 0, 200)[SOME]).all()
    assert (reply.late[Field.CONTEXT] == expected.late[Field.CONTEXT]).all()
    assert (second[Field.KNOWLEDGE] == twin.pull(ATTEMPT, {Field.KNOWLEDGE: SOME}, 1)[Field.KNOWLEDGE]).all()
    request = write_request(Field.JOINT, SOME, np.full((3, 5), 4, np.float32), False)
    TransportCall(0, connection, request, read_nothing).result()
    assert (shard.pull(ATTEMPT, {Field.JOINT: SOME}, 0)[Field.JOINT] == 4).all()


def test_push_is_idempotent_over_a_broken_connection(shard: ShardServer, connection: ShardConnection) -> None:
    twin = ShardServer(0, PLAN)
    twin.open(ATTEMPT, 1, START)
    taken = shard.push

    def cutting(*arguments: Any) -> Any:
        reply = taken(*arguments)
        if shard.push is cutting:
            shard.push = taken  # type: ignore[method-assign]
            connection._client._channel.hang_up()
        return reply

    shard.push = cutting  # type: ignore[method-assign]
    push(connection, 0).result()
    push(connection, 1, 0.5).result()
    for step, value in ((0, 1.0), (1, 0.5)):
        twin.push(ATTEMPT, step, 0, {Field.KNOWLEDGE: (SOME, np.full((3, 5), value, np.float32))}, OPTIMIZER)
    every = {Field.KNOWLEDGE: np.arange(200, dtype=ROW)}
    found = [one.pull(ATTEMPT, every, 2)[Field.KNOWLEDGE].tobytes() for one in (shard, twin)]
    assert found[0] == found[1]


@pytest.mark.parametrize("attempt", ["", "0123456789abcdeg", "0123"])
def test_another_attempt_is_a_lost_shard(listening: TransportServer, attempt: str) -> None:
    with pytest.raises(ShardLostError, match=r"^shard 0 .*: restarted, or in another attempt by now"):
        ShardConnection(0, listening.address, attempt)


def test_a_shard_without_an_attempt_lets_nobody_in() -> None:
    listening = serve_shard(ShardServer(0, PLAN), "127.0.0.1")
    with pytest.raises(ShardLostError, match=r"^shard 0 refuses our secret: restarted"):
        ShardConnection(0, listening.address, ATTEMPT)
    listening.close()


def test_an_older_attempt_is_refused_at_its_next_call(shard: ShardServer, connection: ShardConnection) -> None:
    pull(connection).result()
    shard.open("another", 1, START)
    with pytest.raises(ShardLostError, match="shard 0 belongs to another attempt by now"):
        pull(connection).result()
    connection._client._channel.hang_up()
    for _ in range(2):  # Whoever notices first, the reading thread or a caller: all callers are told the same.
        with pytest.raises(ShardLostError, match="shard 0 refuses our secret: restarted"):
            pull(connection).result()


def test_an_error_of_the_shard_names_it(connection: ShardConnection) -> None:
    request = write_request(Field.JOINT, np.array([10_000], ROW), np.zeros((1, 5), np.float32), False)
    with pytest.raises(DkgeError, match=r"^shard 0: write: field joint: row 10000 of a shard of 200 rows$"):
        TransportCall(0, connection, request, read_nothing).result()
    assert pull(connection).result()[Field.KNOWLEDGE].shape == (3, 5)


def test_a_closed_connection_is_a_lost_shard(connection: ShardConnection) -> None:
    waiting = pull(connection, after=1)
    connection.close()
    for ask in (waiting.result, lambda: pull(connection)):
        with pytest.raises(ShardLostError, match="the connection to shard 0 is closed"):
            ask()


@pytest.fixture
def actor(ray_here: None) -> Iterator[Any]:
    import ray

    made = ray.remote(ShardActor).options(num_cpus=0, max_concurrency=4, max_restarts=-1).remote(0, PLAN)
    ray.get(made.ask.remote("open", ATTEMPT, 1, START))
    yield made
    ray.kill(made, no_restart=True)


def test_errors_keep_their_class_over_ray(actor: Any, tmp_path: Path) -> None:
    wanted = {Field.KNOWLEDGE: SOME}
    with pytest.raises(ShardLostError, match=r"^shard 0 belongs to another attempt by now$"):
        RayCall(0, actor, "ask", ("pull", "another", wanted, 0)).result()
    with pytest.raises(DkgeError, match=r"^shard 0: .*/nowhere/knowledge.npy: No such file or directory$"):
        RayCall(0, actor, "ask", ("load_checkpoint", ATTEMPT, tmp_path / "nowhere")).result()


def assert_replaced(actor: Any) -> None:
    """Another process answers, which belongs to no attempt yet."""
    with pytest.raises(ShardLostError, match="shard 0 has been restarted"):
        RayCall(0, actor, "ask", ("stats", ATTEMPT)).result()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_known", "told"),
    [
        (False, "shard 0 is gone: no sign of life for 2 s"),
        (True, r"shard 0 is gone: no answer for 0\.5 s, and none to"),
    ],
    ids=["starting", "listening"],
)
def test_a_stopped_actor_is_lost_and_replaced(
    actor: Any, monkeypatch: pytest.MonkeyPatch, is_known: bool, told: str
) -> None:
    import ray

    address = ray.get(actor.address.remote()) if is_known else None
    process = ray.get(actor.ask.remote("stats", ATTEMPT))["pid"]
    os.kill(process, signal.SIGSTOP)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(calls, "START_SECONDS", 2.0)
            patch.setattr(calls, "PING_AFTER", 0.5)
            patch.setattr(client, "HANDSHAKE_SECONDS", 0.2)
            with pytest.raises(ShardLostError, match=told):
                RayCall(0, actor, "ask", ("stats", ATTEMPT), address).result()
        assert_replaced(actor)
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


@pytest.mark.slow
def test_an_actor_that_stops_over_the_transport_is_replaced(actor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new attempt need not find out again that it does not answer."""
    import ray

    process = ray.get(actor.ask.remote("stats", ATTEMPT))["pid"]
    monkeypatch.setattr(calls, "TransportClient", partial(TransportClient, silence_seconds=1.0))
    connection = ShardConnection(0, ray.get(actor.address.remote()), ATTEMPT, actor)
    os.kill(process, signal.SIGSTOP)
    try:
        with pytest.raises(ShardLostError, match="shard 0 is gone: no sign of life for 1 s"):
            pull(connection).result()
        assert_replaced(actor)
    finally:
        connection.close()
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


@pytest.mark.slow
def test_a_stopped_actor_that_a_new_process_cannot_reach_is_replaced(actor: Any) -> None:
    """Ray tells new processes that it is unavailable for the moment, again and again."""
    import ray

    def ask(asked: Any) -> str:
        try:
            return str(RayCall(0, asked, "ask", ("stats", ATTEMPT)).result())
        except ShardLostError as error:
            return str(error)

    process = ray.get(actor.ask.remote("stats", ATTEMPT))["pid"]
    os.kill(process, signal.SIGSTOP)
    try:
        told = ray.get(ray.remote(ask).options(num_cpus=0).remote(actor))
        assert told.startswith("shard 0 cannot be reached: "), told
        assert_replaced(actor)
    finally:
        with suppress(ProcessLookupError):
            os.kill(process, signal.SIGCONT)


def test_a_busy_actor_is_not_lost(actor: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "PING_AFTER", 0.2)
    import ray

    address = ray.get(actor.address.remote())
    waiting = RayCall(0, actor, "ask", ("pull", ATTEMPT, {Field.KNOWLEDGE: SOME}, 1), address)
    with pytest.raises(ray.exceptions.GetTimeoutError):
        ray.get(waiting._ref, timeout=1.0)
    step = ("push", ATTEMPT, 0, 0, {Field.KNOWLEDGE: (SOME, np.ones((3, 5), np.float32))}, OPTIMIZER)
    actor.ask.remote(*step)
    assert waiting.result()[Field.KNOWLEDGE].shape == (3, 5)
