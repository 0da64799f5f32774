"""Requests and replies between processes: `TransportClient.ask`, `.answer`, `.close`, and `TransportServer`.

A message is a few numbers and raw arrays; what they mean is the caller's business. On one machine arrays lie in shared
memory, between machines they follow their header through TCP. Both ends prove that they know the same secret before
anything is allocated for them; an end that falls silent is lost after a stated time. Imports numpy and `types` alone.
"""

from dkge_dist.cluster.transport.address import Address
from dkge_dist.cluster.transport.client import Pending, TransportClient
from dkge_dist.cluster.transport.errors import AuthenticationError, PeerLostError, PeerSilentError
from dkge_dist.cluster.transport.message import AllocateReply, Message, Payload, Received, RowSelection, Shape
from dkge_dist.cluster.transport.server import Answer, TransportServer

__all__ = [
    "Address",
    "AllocateReply",
    "Answer",
    "AuthenticationError",
    "Message",
    "Payload",
    "PeerLostError",
    "PeerSilentError",
    "Pending",
    "Received",
    "RowSelection",
    "Shape",
    "TransportClient",
    "TransportServer",
]
