"""What travels on the wire: pull, push and write as headers and arrays, and their answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dkge_dist.cluster.channel import Message, Sent
from dkge_dist.cluster.server import Patch, Places, Reply, ShardServer, Values
from dkge_dist.shards.shard import Field, Optimizer
from dkge_dist.types import Array, DkgeError

Request = tuple[dict[str, Any], list[Sent]]


def pull_request(wanted: Places, after: int, corrected_by: tuple[int, int] | None) -> Request:
    """For `ShardServer.pull`."""
    header = {"method": "pull", "fields": list(wanted), "after": after, "corrected_by": corrected_by}
    return header, list(wanted.values())


def push_request(
    step: int, rank: int, gradients: Mapping[Field, tuple[Array, Sent]], optimizer: Optimizer, late: Places
) -> Request:
    """For `ShardServer.push`."""
    header = {
        "method": "push",
        "step": step,
        "rank": rank,
        "fields": list(gradients),
        "optimizer": list(optimizer),
        "late": list(late),
    }
    return header, [*(array for pair in gradients.values() for array in pair), *late.values()]


def write_request(field: Field, places: Array, values: Sent) -> Request:
    """For `ShardServer.write`."""
    return {"method": "write", "field": field}, [places, values]


def answered(server: ShardServer, attempt: str, header: dict[str, Any], arrays: list[Array]) -> Message:
    """What a shard answers to a request."""
    try:
        if header["method"] == "pull":
            corrected = header["corrected_by"]
            wanted = dict(zip(map(Field, header["fields"]), arrays, strict=True))
            values = server.pull(attempt, wanted, header["after"], tuple(corrected) if corrected else None)
            return {"fields": list(values)}, list(values.values())
        if header["method"] == "push":
            return _pushed(server, attempt, header, arrays)
        server.write(attempt, Field(header["field"]), *arrays)
        return {}, []
    except DkgeError as error:
        return {"error": type(error).__name__, "message": str(error)}, []
    except Exception as error:  # A mistake of ours, or memory that ran out: told to who asked, not kept here.
        return {"error": type(error).__name__, "message": f"{type(error).__name__}: {error}"}, []


def _pushed(server: ShardServer, attempt: str, header: dict[str, Any], arrays: list[Array]) -> Message:
    fields = [Field(name) for name in header["fields"]]
    pairs, late = arrays[: 2 * len(fields)], arrays[2 * len(fields) :]
    gradients = {field: (pairs[2 * i], pairs[2 * i + 1]) for i, field in enumerate(fields)}
    kind, rate = header["optimizer"]
    asked = dict(zip(map(Field, header["late"]), late, strict=True))
    reply = server.push(attempt, header["step"], header["rank"], gradients, Optimizer(kind, rate), asked)
    patches = [array for patch in reply.patches.values() for array in patch]
    return {"late": list(reply.late), "patches": list(reply.patches)}, [*reply.late.values(), *patches]


def read_pulled(message: Message) -> Values:
    """What `ShardServer.pull` gave."""
    header, arrays = message
    return dict(zip(map(Field, header["fields"]), arrays, strict=True))


def read_reply(message: Message) -> Reply:
    """What `ShardServer.push` gave."""
    header, arrays = message
    count = len(header["late"])
    late = dict(zip(map(Field, header["late"]), arrays[:count], strict=True))
    rest = arrays[count:]
    patches = {Field(name): Patch(rest[2 * i], rest[2 * i + 1]) for i, name in enumerate(header["patches"])}
    return Reply(late, patches)


def read_nothing(message: Message) -> None:
    """What `ShardServer.write` gave."""
