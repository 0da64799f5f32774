"""Parts as they are read: mapped, and compared with their checksum before anybody sees a byte of them.

A part is named by its SHA-256, which takes a second a gigabyte or two. Beside it stands XXH3 (64 bits), which is as
fast as memory and finds what goes wrong by itself; it does not stop a forger. Parts of older stores have none and are
verified by their name.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, cast, get_args

import numpy as np
import xxhash

from dkge_dist.store.mapping import map_file
from dkge_dist.store.storage import Blob, Staging, Storage, StoreError
from dkge_dist.types import Array, UsageError

When = Literal["mapped", "folded"]
SETTING = "DKGE_VERIFY"


class DamagedPartError(StoreError):
    """The bytes of a part are not those that were written."""


def when_blocks() -> When:
    """When blocks of tables are verified: whenever they are `mapped`, or only when they are `folded` into new ones.

    All other parts are always verified. An environment variable says it, because every command reads stores, most of
    them without any settings, and shards do so on machines of their own.
    """
    chosen = os.environ.get(SETTING, "mapped")
    if chosen not in get_args(When):
        raise UsageError(f"{SETTING}={chosen}: blocks are verified when they are {' or '.join(get_args(When))}")
    return cast(When, chosen)


def add_part(staging: Staging, write: Callable[[Path], None]) -> Blob:
    """Let `write` fill a file and make it a durable part, with the checksum that readers verify it by."""
    (part,) = add_parts(staging, [write])
    return part


def add_parts(staging: Staging, writes: Sequence[Callable[[Path], None]]) -> list[Blob]:
    """Add several parts, at once where that is faster."""
    found = [""] * len(writes)

    def looking(number: int) -> Callable[[Path], None]:
        def write_and_look(path: Path) -> None:
            writes[number](path)
            found[number] = _checksum(_bytes_of(path, path.stat().st_size))

        return write_and_look

    parts = staging.add_all(looking(number) for number in range(len(writes)))
    return [part._replace(checksum=checksum) for part, checksum in zip(parts, found, strict=True)]


def open_part(storage: Storage, part: Blob) -> tuple[Path, Array]:
    """The verified bytes of a part, read-only, over its mapped file; and its path, for messages."""
    while True:
        path = storage.part_path(part)
        data = _bytes_of(path, part.size)
        try:
            verify_bytes(path, part, data)
            return path, data
        except DamagedPartError:
            if not storage.drop_copy(part):
                raise


def verify_bytes(path: Path, part: Blob, data: Array) -> None:
    """DamagedPartError if these are not the bytes of the part."""
    if part.checksum is None:
        is_sound = hashlib.sha256(data.data).hexdigest() == part.digest
    else:
        is_sound = _checksum(data) == part.checksum
    if not is_sound:
        raise DamagedPartError(
            f"part {path} is damaged: its bytes are not those that were written; `dkge check` names all such parts"
        )


def _bytes_of(path: Path, size: int) -> Array:
    return map_file(path, size) if size else np.empty(0, np.uint8)


def _checksum(data: Array) -> str:
    return xxhash.xxh3_64_hexdigest(data.data)
