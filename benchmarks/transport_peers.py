"""What carries messages between a worker and its shards: our transport, pyzmq (ipc) and Arrow Flight (Unix socket).

Each has a server's side, which starts to answer the requests of a shard in a thread and returns where, and a worker's
side. The libraries carry our header and arrays from where they lie, and are used as fast as we know how: nothing is
copied that need not be, one thread answers, one connection a shard.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol

import numpy as np

from dkge_dist.cluster.requests import RequestHandler, serve_shard
from dkge_dist.cluster.server import ShardServer, allocate
from dkge_dist.cluster.transport import Address, Message, Received, TransportClient
from dkge_dist.cluster.transport.message import HEADER_BYTES, NO_SLOT, contiguous, pack_header, unpack_header
from dkge_dist.types import Array

ATTEMPT = "benchmark"
COLUMNS = 6  # Of a push: rows and gradients of two fields, and rows of two fields to read after it.


class Carrier(Protocol):
    """The worker's side of a contender."""

    def ask(self, shard: int, request: Message) -> Any:
        """Send a request."""

    def answer(self, shard: int, asked: Any) -> Received:
        """Wait for its reply. Requests of a shard are answered in their order."""


def serve_ours(server: ShardServer, folder: Path) -> Any:
    return serve_shard(server, "127.0.0.1").address


class Ours:
    """A connection of our transport a shard."""

    def __init__(self, places: list[Any]) -> None:
        """Connect to all shards."""
        self._clients = [TransportClient(f"shard {s}", Address(*place), ATTEMPT) for s, place in enumerate(places)]

    def ask(self, shard: int, request: Message) -> Any:
        """Send a request."""
        return self._clients[shard].ask(request)

    def answer(self, shard: int, asked: Any) -> Received:
        """Wait for its reply."""
        return self._clients[shard].answer(asked)


def packed(message: Message) -> tuple[bytearray, list[Array]]:
    """What the libraries carry: our header, and arrays from where they lie."""
    header = bytearray(HEADER_BYTES)
    pack_header(header, message, NO_SLOT, [])
    return header, [contiguous(array) for array in message.arrays]


def unpacked(header: bytes, buffers: list[Any]) -> Received:
    kind, _, integers, scalar, tags, _, specs = unpack_header(header)
    arrays = []
    for buffer, (dtype, shape) in zip(buffers, specs, strict=False):
        arrays.append(np.frombuffer(buffer, dtype, int(np.prod(shape))).reshape(shape))
    return Received(kind, integers, scalar, tags, arrays)


def serve_zmq(server: ShardServer, folder: Path) -> Any:
    import zmq

    answer, place = RequestHandler(server).answer, f"ipc://{folder}/{os.getpid()}"
    router = zmq.Context().socket(zmq.ROUTER)
    router.bind(place)

    def serve() -> None:
        while True:
            client, header, *frames = router.recv_multipart(copy=False)
            request = unpacked(header.bytes, [frame.buffer for frame in frames])
            reply, arrays = packed(answer(ATTEMPT, request, allocate))
            router.send_multipart([client, reply, *map(memoryview, arrays)], copy=False)

    Thread(target=serve, daemon=True).start()
    return place


class Zmq:
    """A DEALER a shard, of one context."""

    def __init__(self, places: list[Any]) -> None:
        """Connect to all shards."""
        import zmq

        self._sockets = [zmq.Context.instance().socket(zmq.DEALER) for _ in places]
        for dealer, place in zip(self._sockets, places, strict=True):
            dealer.connect(place)

    def ask(self, shard: int, request: Message) -> None:
        """Send a request."""
        header, arrays = packed(request)
        self._sockets[shard].send_multipart([header, *arrays], copy=False)

    def answer(self, shard: int, asked: None) -> Received:
        """Wait for its reply."""
        header, *frames = self._sockets[shard].recv_multipart(copy=False)
        return unpacked(header.bytes, [frame.buffer for frame in frames])


def flight_schema() -> Any:
    import pyarrow as pa

    return pa.schema([(str(column), pa.large_binary()) for column in range(COLUMNS)])


def record_batch(arrays: list[Array], schema: Any) -> Any:
    """One row, one column an array, nothing copied."""
    import pyarrow as pa

    columns = []
    for column in range(COLUMNS):
        array = arrays[column].reshape(-1) if column < len(arrays) else np.empty(0, np.uint8)
        offsets = np.array([0, array.nbytes], np.int64)
        buffers = [None, pa.py_buffer(offsets), pa.py_buffer(array)]
        columns.append(pa.Array.from_buffers(pa.large_binary(), 1, buffers))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def from_chunk(chunk: Any) -> Received:
    buffers = [column.buffers()[2] for column in chunk.data.columns]
    return unpacked(chunk.app_metadata.to_pybytes(), [b"" if buffer is None else buffer for buffer in buffers])


def serve_flight(server: ShardServer, folder: Path) -> Any:
    import pyarrow as pa
    from pyarrow import flight

    schema, answer = flight_schema(), RequestHandler(server).answer

    class Exchange(flight.FlightServerBase):  # type: ignore[misc]
        def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
            writer.begin(schema)
            for chunk in reader:
                reply, arrays = packed(answer(ATTEMPT, from_chunk(chunk), allocate))
                writer.write_with_metadata(record_batch(arrays, schema), pa.py_buffer(reply))

    place = f"grpc+unix://{folder}/{os.getpid()}"
    Thread(target=Exchange(place).serve, daemon=True).start()
    return place


class Flight:
    """Replies are read by a thread a shard: whoever writes only would wait for a server that waits to be read."""

    def __init__(self, places: list[Any]) -> None:
        """Connect to all shards."""
        from pyarrow import flight

        self._schema = flight_schema()
        self._writers, self._replies = [], []
        self._clients = [flight.connect(place) for place in places]
        for client in self._clients:
            writer, reader = client.do_exchange(flight.FlightDescriptor.for_command(b"rows"))
            writer.begin(self._schema)
            replies: SimpleQueue[Received] = SimpleQueue()
            Thread(target=self._read, args=(reader, replies), daemon=True).start()
            self._writers.append(writer)
            self._replies.append(replies)

    @staticmethod
    def _read(reader: Any, replies: SimpleQueue[Received]) -> None:
        while True:
            replies.put(from_chunk(reader.read_chunk()))

    def ask(self, shard: int, request: Message) -> None:
        """Send a request."""
        import pyarrow as pa

        header, arrays = packed(request)
        self._writers[shard].write_with_metadata(record_batch(arrays, self._schema), pa.py_buffer(header))

    def answer(self, shard: int, asked: None) -> Received:
        """Wait for its reply."""
        return self._replies[shard].get()


CONTENDERS: dict[str, tuple[Callable[[ShardServer, Path], Any], Callable[[list[Any]], Carrier]]] = {
    "ours": (serve_ours, Ours),
    "zmq": (serve_zmq, Zmq),
    "flight": (serve_flight, Flight),
}
