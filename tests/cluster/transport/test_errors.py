"""Errors of the transport are told apart by class."""

from __future__ import annotations

import copy

import pytest

from dkge_dist.cluster.transport.errors import AuthenticationError, PeerLostError, PeerSilentError, ProtocolError
from dkge_dist.types import DkgeError


@pytest.mark.parametrize("kind", [PeerLostError, PeerSilentError, AuthenticationError, ProtocolError])
def test_error_keeps_its_class_and_text_between_processes(kind: type[DkgeError]) -> None:
    again = copy.copy(kind("shard 3 is gone"))  # By the same protocol as between processes.
    assert type(again) is kind
    assert str(again) == "shard 3 is gone"


def test_peer_that_fails_to_authenticate_is_lost_and_broken_bytes_are_not() -> None:
    assert issubclass(AuthenticationError, PeerLostError) and issubclass(PeerSilentError, PeerLostError)
    assert not issubclass(ProtocolError, PeerLostError)
