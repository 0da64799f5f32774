"""Errors of the transport. A broken connection that may be made again is a plain OSError or EOFError."""

from __future__ import annotations

from dkge_dist.types import DkgeError


class PeerLostError(DkgeError):
    """The other end is gone or silent past its deadline, or the connection was closed. Nothing is asked any more."""


class PeerSilentError(PeerLostError):
    """The other end shows no sign of life: its process is stopped, or its machine is cut off."""


class AuthenticationError(PeerLostError):
    """The other end did not prove that it knows the secret, or runs as another user. The text begins with the verb."""


class ProtocolError(DkgeError):
    """The other end sent bytes that are no message of this protocol."""
