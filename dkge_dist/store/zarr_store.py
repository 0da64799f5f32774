"""A model version as a Zarr group, for any program that reads Zarr. Nothing is copied or converted beforehand.

    entities/knowledge, entities/context, entities/joint     vectors: a chunk for every block of the table
    entities/labels, entities/alive                          of every row: its label, and is it in the snapshot?
    relations/...                                            likewise

The metadata is what zarr itself writes for such arrays. Chunks are made when they are read: a block that no delta has
rows of is mapped, any other is patched. Importing zarr takes most of a second, so import this module where it is used.
"""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from functools import cache
from typing import Any, NoReturn

import numpy as np
import zarr
from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype, default_buffer_prototype
from zarr.storage import MemoryStore

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.store.manifest import ModelManifest, TableEntry
from dkge_dist.store.store import Store
from dkge_dist.store.tables import VALUE, BlockIndex, StoredTable
from dkge_dist.types import Array, Field

CHUNK_KEY = re.compile(r"(.+?)/c/(0|[1-9][0-9]*)(/0)?")


def open_version(store: Store, version: str | int | None = None) -> zarr.Group:
    """A model as a read-only group: the current one, or another one as `Store.find_model` finds it."""
    model = store.find_model(None if version is None else str(version))
    return zarr.open_group(VersionStore(store, model), mode="r", zarr_format=3)


class VersionStore(MemoryStore):
    """The keys of one model version. Read-only; any number of threads may read."""

    supports_writes = False
    supports_deletes = False

    def __init__(self, store: Store, model: ModelManifest) -> None:
        self._contents = _Contents(store, model)
        super().__init__(self._contents, read_only=True)
        self._store, self._model = store, model

    def __str__(self) -> str:
        return f"{self._store}@{self._model.version}"

    def __repr__(self) -> str:
        return f"VersionStore({str(self._store)!r}, {self._model.version})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VersionStore) and self.__reduce__() == other.__reduce__()

    def __reduce__(self) -> tuple[Callable[[str, int], VersionStore], tuple[str, int]]:
        """A version never changes, so that another process can open it anew."""
        return _reopened, (self._store.storage.location, self._model.version)

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        """The bytes of a key; None if there is no such key. StoreError if a part is missing or damaged."""
        if key not in self._contents:
            return None
        # In a thread: parts of a bucket have to come first.
        value = await asyncio.to_thread(self._contents.__getitem__, key)
        return await MemoryStore({key: value}).get(key, prototype or default_buffer_prototype(), byte_range)


def _reopened(location: str, version: int) -> VersionStore:
    store = Store.open(location)
    return VersionStore(store, store.model_manifest(version))


class _Contents(MutableMapping[str, Buffer]):
    """What zarr takes for a dictionary of keys: metadata, and chunks that are made when they are asked for."""

    def __init__(self, store: Store, model: ModelManifest) -> None:
        self._arrays = _arrays(store, model)
        self._metadata = _metadata(store, model, self._arrays)

    def _chunk(self, key: str) -> Callable[[], Array] | None:
        """What makes the chunk of a key, if it is one."""
        match = CHUNK_KEY.fullmatch(key)
        array = self._arrays.get(match[1]) if match else None
        if match is None or array is None or int(match[2]) >= array.count or bool(match[3]) != (len(array.shape) > 1):
            return None
        return lambda: array.chunk(int(match[2]))

    def __getitem__(self, key: str) -> Buffer:
        chunk = self._chunk(key)
        return self._metadata[key] if chunk is None else default_buffer_prototype().buffer.from_bytes(chunk().data)

    def __contains__(self, key: object) -> bool:
        return key in self._metadata or self._chunk(str(key)) is not None

    def __iter__(self) -> Iterator[str]:
        yield from self._metadata
        for path, array in self._arrays.items():
            yield from (f"{path}/c/{number}{'/0' * (len(array.shape) - 1)}" for number in range(array.count))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __setitem__(self, key: str, value: Buffer) -> NoReturn:
        raise TypeError("a version is read-only")

    def __delitem__(self, key: str) -> NoReturn:
        raise TypeError("a version is read-only")


@dataclass(frozen=True)
class _Array:
    """One array of the group; `chunk` makes the bytes of a chunk by its number."""

    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    dtype: Any
    fill_value: Any
    chunk: Callable[[int], Array]

    @property
    def count(self) -> int:
        """How many chunks it has."""
        return -(-self.shape[0] // self.chunks[0])


def _arrays(store: Store, model: ModelManifest) -> dict[str, _Array]:
    """All arrays of a version by their path. Only the indexes of its tables are read yet; what is made is kept."""
    names = cache(lambda: store.dictionaries(model))
    # With the rows that had labels when the model was published: no table has more.
    snapshot = cache(lambda: store.snapshot(store.snapshot_manifest(model.model.snapshot), model))
    entry = model.model
    kinds = {
        "entities": _kind(store, entry.entities, lambda: names()[0], lambda: snapshot().entities_alive),
        "relations": _kind(store, entry.relations, lambda: names()[1], lambda: snapshot().relations_alive),
    }
    return {f"{kind}/{name}": array for kind, arrays in kinds.items() for name, array in arrays.items()}


def _kind(
    store: Store, tables: dict[Field, TableEntry], names: Callable[[], Dictionary], alive: Callable[[], Array]
) -> dict[str, _Array]:
    """The arrays of entities, or of relations."""
    arrays = {field.value: _vectors(store, tables[field]) for field in Field}
    joint = arrays[Field.JOINT]
    rows, block = joint.shape[0], joint.chunks[0]

    def label_chunk(number: int) -> Array:
        return _vlen_utf8(_labels(names(), number * block, min(rows, (number + 1) * block)), block)

    def alive_chunk(number: int) -> Array:
        flags = np.zeros(block, bool)
        known = alive()[:rows][number * block : (number + 1) * block]
        flags[: known.shape[0]] = known
        return flags.view(np.uint8)

    arrays["labels"] = _Array((rows,), (block,), str, "", label_chunk)
    arrays["alive"] = _Array((rows,), (block,), bool, False, alive_chunk)
    return arrays


def _vectors(store: Store, entry: TableEntry) -> _Array:
    index = BlockIndex(store.storage, entry)
    table = cache(lambda: StoredTable(store.storage, entry))

    def chunk(number: int) -> Array:
        return table().chunk(number).reshape(-1).view(np.uint8)

    return _Array((entry.rows, entry.dim), (index.block, entry.dim), VALUE, 0.0, chunk)


def _labels(names: Dictionary, first: int, last: int) -> Iterator[bytes]:
    """The labels of a run of rows, as they are stored."""
    for segment in names.segments:
        data, offset = segment.table.data, segment.table.offset
        for place in range(max(0, first - segment.first_row), min(segment.count, last - segment.first_row)):
            yield data[offset[place] : offset[place + 1]].tobytes()


def _vlen_utf8(labels: Iterable[bytes], count: int) -> Array:
    """A chunk of `count` strings as the `vlen-utf8` codec has it: how many, then each after its length."""
    found = [*labels]
    found += [b""] * (count - len(found))
    pieces = (piece for label in found for piece in (struct.pack("<I", len(label)), label))
    return np.frombuffer(b"".join([struct.pack("<I", count), *pieces]), np.uint8)


def _metadata(store: Store, model: ModelManifest, arrays: dict[str, _Array]) -> dict[str, Buffer]:
    """Every `zarr.json`, written by zarr itself."""
    written: dict[str, Buffer] = {}
    snapshot = store.snapshot_manifest(model.model.snapshot)
    attributes = {
        "version": model.version,
        "snapshot": snapshot.snapshot.name,
        "snapshot_version": snapshot.version,
        "dimension": model.model.entities[Field.JOINT].dim,
        "labels": {"entities": "entities/labels", "relations": "relations/labels"},
    }
    root = zarr.create_group(MemoryStore(written), zarr_format=3, attributes=attributes)
    for path, array in arrays.items():
        root.create_array(
            path,
            shape=array.shape,
            chunks=array.chunks,
            dtype=array.dtype,
            fill_value=array.fill_value,
            compressors=None,
        )
    return written
