"""Addresses: near clients meet on the Unix socket, others on the TCP port, and both ends name the same endpoint."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from dkge_dist.cluster.transport import address as module
from dkge_dist.cluster.transport.address import Address, dial, listen

Listening = tuple[Address, dict[str, socket.socket]]


@pytest.fixture
def listening() -> Iterator[Listening]:
    address, sockets = listen("127.0.0.1")
    yield address, {endpoint: listener for listener, endpoint in sockets}
    for listener, _ in sockets:
        listener.close()


def test_client_on_the_same_machine_dials_the_unix_socket(listening: Listening) -> None:
    address, by_endpoint = listening
    connection, endpoint = dial(address)
    with connection, by_endpoint[endpoint].accept()[0] as accepted:
        assert endpoint == address.unix_endpoint == f"unix:{address.unix_name}"
        assert connection.family == accepted.family == socket.AF_UNIX


@pytest.mark.parametrize("unix_name", ["", "dkge-nobody-has-this-name"])
def test_unknown_unix_name_falls_back_to_tcp(listening: Listening, unix_name: str) -> None:
    address, by_endpoint = listening
    connection, endpoint = dial(address._replace(unix_name=unix_name))
    with connection, by_endpoint[endpoint].accept()[0] as accepted:
        assert endpoint == address.tcp_endpoint == f"tcp:127.0.0.1:{address.port}"
        assert accepted.getpeername() == connection.getsockname()


def test_every_server_has_an_address_of_its_own(listening: Listening) -> None:
    other, sockets = listen("127.0.0.1")
    for listener, _ in sockets:
        listener.close()
    assert {other.port, other.unix_name}.isdisjoint({listening[0].port, listening[0].unix_name})


def test_address_that_nobody_listens_at_is_refused() -> None:
    address, sockets = listen("127.0.0.1")
    for listener, _ in sockets:
        listener.close()
    with pytest.raises(ConnectionRefusedError):
        dial(address)


def test_without_shared_memory_there_is_no_unix_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shared_memory, "is_available", lambda: False)
    address, sockets = listen("127.0.0.1")
    with sockets[0][0]:
        assert (address.unix_name, len(sockets)) == ("", 1)
