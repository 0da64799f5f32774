"""Pull, push and write of a shard as messages of the transport, and their replies.

In: operations of `ShardServer` and what they return. Out: messages, and back. On the server's side everything that a
request holds is checked against the shard before a kernel sees it, as kernels check no bounds. The check is a kernel
itself: with 16 shards a request meets cold caches, and numpy's maximum of rows cost a twentieth of the whole batch. It
believes that a client that knows the attempt does not change rows in shared memory while they are used. A request that
fails the check, and any error of the shard, becomes an ERROR reply with a code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from enum import IntEnum
from functools import partial
from typing import get_args

import numpy as np

from dkge_dist.cluster.errors import StaleAttemptError
from dkge_dist.cluster.server import LocalRows, Patch, Reply, ShardServer, Values
from dkge_dist.cluster.transport import AllocateReply, Message, Payload, Received, Shape, TransportServer
from dkge_dist.kernels.jit import set_threads
from dkge_dist.kernels.rows import first_outside
from dkge_dist.tables.shard import Optimizer, OptimizerKind
from dkge_dist.types import ROW, TRAINED, Array, DkgeError, Field

PULL, PUSH, WRITE, ANSWER, ERROR = range(5)
NAMES = ("pull", "push", "write")
NOTHING = (0, 0, 0)
KINDS: tuple[OptimizerKind, ...] = get_args(OptimizerKind)
KIND_CODE = {kind: code for code, kind in enumerate(KINDS)}

# A tag is the role of an array plus the number of its field.
ROWS, VALUES, LATE, PATCH_NUMBERS, PATCH_VALUES = range(0, 40, 8)
FIELD_BITS = 7
FIELDS = tuple(Field)
FIELD_CODE = {field: code for code, field in enumerate(FIELDS)}
ROLES = {PULL: (ROWS,), PUSH: (ROWS, VALUES, LATE), WRITE: (ROWS, VALUES)}
TAGS = {
    request: {role + code: (role, field) for role in roles for code, field in enumerate(FIELDS)}
    for request, roles in ROLES.items()
}
"""Of the arrays that each request may hold: what their tags mean."""
UNKNOWN = (-1, Field.JOINT)
INT32, FLOAT32 = np.dtype(ROW), np.dtype(np.float32)


class ErrorCode(IntEnum):
    """What kind of error a reply tells of; its text is for people."""

    STALE_ATTEMPT = 1
    INVALID_REQUEST = 2
    FAILED = 3


class InvalidRequestError(DkgeError):
    """A request asks for what the shard does not have, or is put together wrongly."""


def serve_shard(server: ShardServer, host: str) -> TransportServer:
    """Answer the requests of a shard's workers: those that know the attempt that it was opened for."""
    # Numba's number of threads belongs to a thread: one each, as there are as many as connections.
    return TransportServer(host, lambda: server.attempt, RequestHandler(server).answer, partial(set_threads, 1))


def pull_request(wanted: LocalRows, after: int, corrected_by: tuple[int, int] | None) -> Message:
    """For `ShardServer.pull`."""
    step, rank = corrected_by or (-1, 0)
    return Message(PULL, (after, step, rank), 0.0, _tags(wanted, ROWS), list(wanted.values()))


def push_request(
    step: int, rank: int, gradients: Mapping[Field, tuple[Array, Payload]], optimizer: Optimizer, late: LocalRows
) -> Message:
    """For `ShardServer.push`."""
    tags: list[int] = []
    arrays: list[Payload] = []
    for field, pair in gradients.items():
        code = FIELD_CODE[field]
        tags += (ROWS + code, VALUES + code)
        arrays += pair
    tags += _tags(late, LATE)
    arrays += late.values()
    return Message(PUSH, (step, rank, KIND_CODE[optimizer.kind]), optimizer.rate, tags, arrays)


def write_request(field: Field, rows: Array, values: Payload, is_reset: bool) -> Message:
    """For `ShardServer.write`."""
    code = FIELD_CODE[field]
    return Message(WRITE, (int(is_reset), 0, 0), 0.0, [ROWS + code, VALUES + code], [rows, values])


class RequestHandler:
    """Answers requests for a shard: checks them, calls the shard, and makes messages of what it returns or raises."""

    def __init__(self, server: ShardServer) -> None:
        self._server = server
        self._limits: tuple[str, Mapping[Field, Shape], int] = ("", {}, 0)

    def answer(self, attempt: str, request: Received, allocate: AllocateReply) -> Message:
        """The reply to a request; its rows are gathered into what `allocate` gives."""
        try:
            known, shapes, world = self._limits
            if known != attempt:  # They stay as they are for as long as an attempt goes on.
                shapes, world = self._server.limits(attempt)
                self._limits = (attempt, shapes, world)
            arrays = _checked(request, shapes)
            if request.kind == WRITE:
                return self._write(attempt, request, arrays)
            # Of both the integers say which rank asks.
            rank = request.integers[2 if request.kind == PULL else 1]
            if not 0 <= rank < world:
                raise InvalidRequestError(f"{NAMES[request.kind]}: rank {rank} of {world}")
            take = self._pull if request.kind == PULL else self._push
            return take(attempt, request, arrays, allocate)
        except StaleAttemptError as error:
            return _error(ErrorCode.STALE_ATTEMPT, str(error))
        except InvalidRequestError as error:
            return _error(ErrorCode.INVALID_REQUEST, str(error))
        except DkgeError as error:
            return _error(ErrorCode.FAILED, str(error))
        except Exception as error:  # A bug of ours, or memory that ran out: told to the client, not kept here.
            return _error(ErrorCode.FAILED, f"{type(error).__name__}: {error}")

    def _pull(
        self, attempt: str, request: Received, arrays: Mapping[int, LocalRows], allocate: AllocateReply
    ) -> Message:
        after, step, rank = request.integers
        values = self._server.pull(attempt, arrays[ROWS], after, (step, rank) if step >= 0 else None, allocate)
        return Message(ANSWER, NOTHING, 0.0, _tags(values, VALUES), list(values.values()))

    def _push(
        self, attempt: str, request: Received, arrays: Mapping[int, LocalRows], allocate: AllocateReply
    ) -> Message:
        step, rank, kind = request.integers
        if step < 0 or not 0 <= kind < len(KINDS):
            raise InvalidRequestError(f"push: step {step} with optimizer {kind} of {len(KINDS)}")
        if not 0 <= request.scalar < math.inf:
            raise InvalidRequestError(f"push: learning rate {request.scalar} is not a finite number of at least 0")
        if Field.JOINT in arrays[ROWS]:
            raise InvalidRequestError(f"push: field {Field.JOINT} is not trained")
        gradients = {field: (rows, arrays[VALUES][field]) for field, rows in arrays[ROWS].items()}
        optimizer = Optimizer(KINDS[kind], request.scalar)
        reply = self._server.push(attempt, step, rank, gradients, optimizer, arrays[LATE], allocate)
        tags, answer = _tags(reply.late, LATE), list(reply.late.values())
        for field, patch in reply.patches.items():
            tags += (PATCH_NUMBERS + FIELD_CODE[field], PATCH_VALUES + FIELD_CODE[field])
            answer += patch
        return Message(ANSWER, NOTHING, 0.0, tags, answer)

    def _write(self, attempt: str, request: Received, arrays: Mapping[int, LocalRows]) -> Message:
        if len(arrays[ROWS]) != 1:
            raise InvalidRequestError(f"write: {len(arrays[ROWS])} fields instead of 1")
        ((field, rows),) = arrays[ROWS].items()
        is_reset = bool(request.integers[0])
        if is_reset and field not in TRAINED:
            raise InvalidRequestError(f"reset: field {field} is not trained")
        self._server.write(attempt, field, rows, arrays[VALUES][field], is_reset)
        return Message(ANSWER, NOTHING, 0.0, (), ())


def _checked(request: Received, shapes: Mapping[Field, Shape]) -> dict[int, LocalRows]:
    """The arrays of a request by role and field, each as the shard needs it: dtype, shape, rows that exist."""
    if request.kind not in TAGS:
        raise InvalidRequestError(f"unknown request {request.kind}")
    name, tags = NAMES[request.kind], TAGS[request.kind]
    rows: LocalRows = {}
    arrays: dict[int, LocalRows] = {ROWS: rows, VALUES: {}, LATE: {}}
    for tag, array in zip(request.tags, request.arrays, strict=True):
        role, field = tags.get(tag, UNKNOWN)
        if role < 0 or field in arrays[role]:
            raise InvalidRequestError(f"{name}: unexpected array with tag {tag}")
        if field not in shapes:
            raise InvalidRequestError(f"{name}: field {field} is not in this shard")
        rows_there, dim = shapes[field]
        if role == VALUES:
            if array.dtype != FLOAT32 or field not in rows or array.shape != (rows[field].shape[0], dim):
                raise _invalid_values(name, field, array, rows.get(field), dim)
        elif array.dtype != INT32 or array.ndim != 1 or first_outside(array, rows_there) >= 0:
            raise _invalid_rows(name, field, array, rows_there)
        arrays[role][field] = array
    if request.kind != PULL and len(rows) != len(arrays[VALUES]):
        raise InvalidRequestError(f"{name}: rows of {len(rows)} fields, values of {len(arrays[VALUES])}")
    return arrays


def _invalid_rows(name: str, field: Field, rows: Array, size: int) -> InvalidRequestError:
    if rows.dtype != INT32 or rows.ndim != 1:
        told = f"rows are {rows.dtype} of shape {rows.shape}, not one-dimensional int32"
    else:
        told = f"row {rows[first_outside(rows, size)]} of a shard of {size} rows"
    return InvalidRequestError(f"{name}: field {field}: {told}")


def _invalid_values(name: str, field: Field, values: Array, rows: Array | None, dim: int) -> InvalidRequestError:
    needed = "after their rows" if rows is None else f"float32 of {(rows.shape[0], dim)}"
    told = f"values are {values.dtype} of shape {values.shape}, not {needed}"
    return InvalidRequestError(f"{name}: field {field}: {told}")


def _error(code: ErrorCode, text: str) -> Message:
    return Message(ERROR, (code, 0, 0), 0.0, [0], [np.frombuffer(text.encode(), np.uint8)])


def read_error(reply: Received) -> tuple[ErrorCode, str]:
    """What an ERROR reply tells."""
    return ErrorCode(reply.integers[0]), reply.arrays[0].tobytes().decode()


def read_pulled(reply: Received) -> Values:
    """What `ShardServer.pull` gave."""
    return {FIELDS[tag & FIELD_BITS]: array for tag, array in zip(reply.tags, reply.arrays, strict=True)}


def read_reply(reply: Received) -> Reply:
    """What `ShardServer.push` gave."""
    late: Values = {}
    patches = {}
    for number, tag in enumerate(reply.tags):
        field = FIELDS[tag & FIELD_BITS]
        if tag < PATCH_NUMBERS:
            late[field] = reply.arrays[number]
        elif tag < PATCH_VALUES:
            patches[field] = Patch(reply.arrays[number], reply.arrays[number + 1])
    return Reply(late, patches)


def read_nothing(reply: Received) -> None:
    """What `ShardServer.write` gave."""


def _tags(fields: Iterable[Field], role: int) -> list[int]:
    return [role + FIELD_CODE[field] for field in fields]
