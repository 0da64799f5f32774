"""Servers and channels of one test, closed after it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from dkge_dist.cluster.transport import TransportServer
from dkge_dist.cluster.transport.channel import Channel
from tests.cluster.transport.echo import SECRET, SHORT, echo


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the tries to connect."""
    monkeypatch.setattr("dkge_dist.cluster.transport.client.PAUSE", 0.05)


@pytest.fixture
def server() -> Iterator[TransportServer]:
    """One that sends back what it gets, in this process."""
    made = TransportServer("127.0.0.1", lambda: SECRET, echo, **SHORT)
    yield made
    made.close()


@pytest.fixture(params=["one machine", "two machines"])
def is_far(request: pytest.FixtureRequest) -> bool:
    """Do the ends take each other for different machines?"""
    return bool(request.param == "two machines")


@pytest.fixture
def channels(is_far: bool) -> Iterator[tuple[Channel, Channel]]:
    """Two ends of a connection, with shared memory if they are on one machine."""
    if is_far:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            near = socket.create_connection(listening.getsockname())
            ends = (Channel(near), Channel(listening.accept()[0]))
    else:
        one, other = socket.socketpair(socket.AF_UNIX)
        ends = (Channel(one), Channel(other))
        with ThreadPoolExecutor() as threads:
            list(threads.map(Channel.share, ends))
    yield ends
    for end in ends:
        end.close()
