"""What travels on the wire: pull, push and write as numbers and arrays with tags, and their answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import numpy as np

from dkge_dist.cluster.channel import Message, Received, Room, Sent
from dkge_dist.cluster.server import LocalRows, Patch, Pushed, Reply, ShardServer, StaleAttemptError, Values
from dkge_dist.tables.shard import Optimizer
from dkge_dist.types import Array, DkgeError, Field

PULL, PUSH, WRITE, ANSWER, ERROR = range(5)
NOTHING = (0, 0, 0)
KINDS: tuple[Literal["adagrad"], Literal["sgd"]] = ("adagrad", "sgd")
KIND_NUMBER = {kind: number for number, kind in enumerate(KINDS)}

# A tag says which field an array is of, and in which role.
PLACES, VALUES, LATE, NUMBERS, CORRECTED = range(0, 40, 8)
FIELDS = tuple(Field)
FIELD_NUMBER = {field: number for number, field in enumerate(FIELDS)}
FIELD_OF = 7


def _tags(fields: Iterable[Field], role: int) -> list[int]:
    return [role + FIELD_NUMBER[field] for field in fields]


def _by_field(tags: Sequence[int], arrays: Sequence[Array]) -> dict[Field, Array]:
    return {FIELDS[tag & FIELD_OF]: array for tag, array in zip(tags, arrays, strict=True)}


def pull_request(wanted: LocalRows, after: int, corrected_by: tuple[int, int] | None) -> Message:
    """For `ShardServer.pull`."""
    step, rank = corrected_by or (-1, 0)
    return Message(PULL, (after, step, rank), 0.0, _tags(wanted, PLACES), list(wanted.values()))


def push_request(
    step: int, rank: int, gradients: Mapping[Field, tuple[Array, Sent]], optimizer: Optimizer, late: LocalRows
) -> Message:
    """For `ShardServer.push`."""
    tags: list[int] = []
    arrays: list[Sent] = []
    for field, pair in gradients.items():
        number = FIELD_NUMBER[field]
        tags += (PLACES + number, VALUES + number)
        arrays += pair
    tags += _tags(late, LATE)
    arrays += late.values()
    return Message(PUSH, (step, rank, KIND_NUMBER[optimizer.kind]), optimizer.rate, tags, arrays)


def write_request(field: Field, places: Array, values: Sent, is_reset: bool) -> Message:
    """For `ShardServer.write`."""
    number = FIELD_NUMBER[field]
    return Message(WRITE, (int(is_reset), 0, 0), 0.0, [PLACES + number, VALUES + number], [places, values])


def answered(server: ShardServer, attempt: str, request: Received, room: Room) -> Message:
    """What a shard answers to a request; `room` is where the rows of the answer are put together."""
    try:
        if request.about == PULL:
            after, step, rank = request.numbers
            wanted = _by_field(request.tags, request.arrays)
            values = server.pull(attempt, wanted, after, (step, rank) if step >= 0 else None, room)
            return Message(ANSWER, NOTHING, 0.0, _tags(values, VALUES), list(values.values()))
        if request.about == PUSH:
            return _pushed(server, attempt, request, room)
        rows, written = request.arrays
        server.write(attempt, FIELDS[request.tags[0] & FIELD_OF], rows, written, bool(request.numbers[0]))
        return Message(ANSWER, NOTHING, 0.0, (), ())
    except DkgeError as error:
        return _error(isinstance(error, StaleAttemptError), str(error))
    except Exception as error:  # A mistake of ours, or memory that ran out: told to who asked, not kept here.
        return _error(False, f"{type(error).__name__}: {error}")


def _error(is_stale: bool, words: str) -> Message:
    return Message(ERROR, (int(is_stale), 0, 0), 0.0, [0], [np.frombuffer(words.encode(), np.uint8)])


def _pushed(server: ShardServer, attempt: str, request: Received, room: Room) -> Message:
    gradients: Pushed = {}
    late: LocalRows = {}
    tags, arrays = request.tags, request.arrays
    for number, tag in enumerate(tags):
        if tag < VALUES:
            gradients[FIELDS[tag]] = (arrays[number], arrays[number + 1])
        elif tag >= LATE:
            late[FIELDS[tag & FIELD_OF]] = arrays[number]
    step, rank, kind = request.numbers
    reply = server.push(attempt, step, rank, gradients, Optimizer(KINDS[kind], request.fraction), late, room)
    told, answer = _tags(reply.late, LATE), list(reply.late.values())
    for field, patch in reply.patches.items():
        told += (NUMBERS + FIELD_NUMBER[field], CORRECTED + FIELD_NUMBER[field])
        answer += patch
    return Message(ANSWER, NOTHING, 0.0, told, answer)


def read_error(message: Received) -> tuple[bool, str]:
    """Is the attempt over, and what was said."""
    return bool(message.numbers[0]), message.arrays[0].tobytes().decode()


def read_pulled(message: Received) -> Values:
    """What `ShardServer.pull` gave."""
    return _by_field(message.tags, message.arrays)


def read_reply(message: Received) -> Reply:
    """What `ShardServer.push` gave."""
    late: Values = {}
    patches = {}
    for number, tag in enumerate(message.tags):
        if tag < NUMBERS:
            late[FIELDS[tag & FIELD_OF]] = message.arrays[number]
        elif tag < CORRECTED:
            patches[FIELDS[tag & FIELD_OF]] = Patch(message.arrays[number], message.arrays[number + 1])
    return Reply(late, patches)


def read_nothing(message: Received) -> None:
    """What `ShardServer.write` gave."""
