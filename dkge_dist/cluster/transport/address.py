"""Where a server listens, and sockets to and at that place. Nothing is sent or received here."""

from __future__ import annotations

import os
import re
import secrets
import socket
from typing import NamedTuple

from dkge_dist.cluster.transport import shared_memory
from dkge_dist.types import UsageError

CONNECT_SECONDS = 5.0
"""How long a machine may take to accept a connection, as when its packets are dropped."""


PORTS = "DKGE_SHARD_PORTS"
"""Environment variable of a node: the TCP ports that its shards may listen on, as in 20000-20099; else any."""


class Address(NamedTuple):
    """A TCP port, and for processes of the same machine an abstract Unix socket that no other machine can reach."""

    host: str
    port: int
    unix_name: str = ""

    @property
    def tcp_endpoint(self) -> str:
        """What both ends of a TCP connection authenticate as the place they met at."""
        return f"tcp:{self.host}:{self.port}"

    @property
    def unix_endpoint(self) -> str:
        """What both ends of a Unix connection authenticate as the place they met at."""
        return f"unix:{self.unix_name}"


def listen(host: str) -> tuple[Address, list[tuple[socket.socket, str]]]:
    """A new address, and its listening sockets with their endpoints."""
    tcp = _listen_tcp(host)
    unix_name = ""
    if shared_memory.is_available():  # A name that begins with a zero byte leaves no file behind.
        unix_name = f"dkge-{secrets.token_hex(8)}"
        unix = socket.socket(socket.AF_UNIX)
        unix.bind(f"\0{unix_name}")
        unix.listen()
    bound_host, port = tcp.getsockname()[:2]
    address = Address(bound_host, port, unix_name)
    listening = [(tcp, address.tcp_endpoint)]
    if unix_name:
        listening.append((unix, address.unix_endpoint))
    return address, listening


def _listen_tcp(host: str) -> socket.socket:
    """On any port, or on the first free one of those that a firewall lets through."""
    given = os.environ.get(PORTS, "")
    if not given:
        return socket.create_server((host, 0))
    match = re.fullmatch(r"([0-9]{1,5})-([0-9]{1,5})", given, re.ASCII)
    first, last = (int(match[1]), int(match[2])) if match else (0, 0)
    if not 0 < first <= last < 1 << 16:
        raise UsageError(f"{PORTS}={given}: give a range of ports, as in 20000-20099")
    for port in range(first, last + 1):
        try:
            return socket.create_server((host, port))
        except OSError as error:
            refused = error
    raise UsageError(f"{PORTS}={given}: none of these ports of {host} is free ({refused.strerror}); give more")


def dial(address: Address) -> tuple[socket.socket, str]:
    """A connection, and its endpoint: by the Unix socket if the server is on this machine, else by TCP."""
    if address.unix_name:
        near = socket.socket(socket.AF_UNIX)
        near.settimeout(CONNECT_SECONDS)
        try:
            near.connect(f"\0{address.unix_name}")
            return near, address.unix_endpoint
        except OSError:
            near.close()  # No such name here: another machine, or another container on it.
    far = socket.create_connection((address.host, address.port), CONNECT_SECONDS)
    return far, address.tcp_endpoint
