"""Ports that a firewall can know: a node names those that its shards may listen on."""

from __future__ import annotations

import socket

import pytest

from dkge_dist.cluster.transport.address import PORTS, listen
from dkge_dist.types import UsageError

HOST = "127.0.0.1"


def free_pair() -> int:
    """The first of two neighbouring ports that nobody uses."""
    while True:
        with socket.create_server((HOST, 0)) as one:
            port: int = one.getsockname()[1]
            try:
                with socket.create_server((HOST, port + 1)):
                    return port
            except OSError:
                continue


def test_shards_of_a_node_take_the_ports_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    first = free_pair()
    monkeypatch.setenv(PORTS, f"{first}-{first + 1}")
    made = [listen(HOST) for _ in range(2)]
    try:
        assert [address.port for address, _ in made] == [first, first + 1]
        with pytest.raises(UsageError, match=rf"DKGE_SHARD_PORTS=.*: none of these ports of {HOST} is free"):
            listen(HOST)
    finally:
        for _, listening in made:
            for some, _ in listening:
                some.close()


@pytest.mark.parametrize("given", ["20000", "20010-20000", "0-5", "1-65536", "a-b", "20000-", "٢-٣"])
def test_what_is_no_range_is_refused(monkeypatch: pytest.MonkeyPatch, given: str) -> None:
    monkeypatch.setenv(PORTS, given)
    with pytest.raises(UsageError, match=rf"DKGE_SHARD_PORTS={given}: give a range of ports, as in 20000-20099"):
        listen(HOST)
