"""Both ends of a new connection prove that they know one secret, which is never sent. In: a socket. Out: or an error.

    server -> client    magic, version, server nonce
    client -> server    client nonce, HMAC(secret, "client", endpoint, both nonces)
    server -> client    HMAC(secret, "server", endpoint, both nonces), or zeros: refused

Sizes are fixed, the whole exchange has one deadline, and nothing is allocated before it is over. The role in each proof
keeps an end from being answered with its own proof, the endpoint keeps a process that took over a freed name or port
from relaying to a server elsewhere. On a Unix socket both ends also have to run as the same user.

The connection is not encrypted: strangers are kept out, but rows can be read by a machine that sees the packets.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
import socket
import struct
import time

from dkge_dist.cluster.transport.errors import AuthenticationError

HANDSHAKE_SECONDS = 5.0
GREETING = b"dkge\x02"
"""Magic and version of the protocol."""
NONCE_BYTES = PROOF_BYTES = 32
REFUSED = bytes(PROOF_BYTES)
CREDENTIALS = struct.Struct("3i")
"""Process, user and group of a Unix peer, as Linux tells them."""


def authenticate_client(connection: socket.socket, secret: str, endpoint: str, seconds: float) -> None:
    """The server's part. The socket keeps a timeout. AuthenticationError if the client does not know the secret."""
    exchange = _Exchange(connection, endpoint, seconds)
    server_nonce = secrets.token_bytes(NONCE_BYTES)
    exchange.send(GREETING + server_nonce)
    told = exchange.receive(NONCE_BYTES + PROOF_BYTES)
    client_nonce, proof = told[:NONCE_BYTES], told[NONCE_BYTES:]
    nonces = server_nonce + client_nonce
    # Without a secret (a shard that no attempt was opened on) nobody is let in, whatever they prove.
    if not secret or not hmac.compare_digest(proof, exchange.proof(secret, b"client", nonces)):
        exchange.send(REFUSED)
        raise AuthenticationError("does not know the secret")
    exchange.send(exchange.proof(secret, b"server", nonces))


def authenticate_server(connection: socket.socket, secret: str, endpoint: str, seconds: float) -> None:
    """The client's part. The socket keeps a timeout. AuthenticationError if the server does not know the secret."""
    if not secret:
        raise AuthenticationError("was called without a secret")
    exchange = _Exchange(connection, endpoint, seconds)
    greeting = exchange.receive(len(GREETING) + NONCE_BYTES)
    if not greeting.startswith(GREETING):
        raise AuthenticationError(f"greets with {greeting[: len(GREETING)]!r} instead of {GREETING!r}")
    client_nonce = secrets.token_bytes(NONCE_BYTES)
    nonces = greeting[len(GREETING) :] + client_nonce
    exchange.send(client_nonce + exchange.proof(secret, b"client", nonces))
    proof = exchange.receive(PROOF_BYTES)
    if not hmac.compare_digest(proof, exchange.proof(secret, b"server", nonces)):
        raise AuthenticationError("refuses our secret" if proof == REFUSED else "does not know the secret")


class _Exchange:
    """A few bytes each way until one deadline."""

    def __init__(self, connection: socket.socket, endpoint: str, seconds: float) -> None:
        _require_same_user(connection)
        self._connection, self._endpoint = connection, endpoint.encode()
        self._until = time.monotonic() + seconds

    def proof(self, secret: str, role: bytes, nonces: bytes) -> bytes:
        """The HMAC of these nonces in this role at this endpoint."""
        return hmac.digest(secret.encode(), b"\0".join((role, self._endpoint, nonces)), hashlib.sha256)

    def send(self, data: bytes) -> None:
        self._connection.settimeout(self._left())
        self._connection.sendall(data)

    def receive(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            self._connection.settimeout(self._left())
            some = self._connection.recv(size - len(data))
            if not some:
                raise EOFError("the other side closed the connection during the handshake")
            data += some
        return data

    def _left(self) -> float:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the handshake took too long")
        return left


def _require_same_user(connection: socket.socket) -> None:
    """Of a Unix peer: for a client the user that was listening, for a server the user that connected."""
    if connection.family != socket.AF_UNIX or not hasattr(socket, "SO_PEERCRED"):
        return
    told = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    process, user, _ = CREDENTIALS.unpack(told)
    if user != os.geteuid():
        raise AuthenticationError(f"(process {process}) runs as user {user}, not {os.geteuid()}")
