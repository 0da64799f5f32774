"""What a version is, as JSON. Strict: unknown keys, wrong types and newer formats are refused, not guessed at."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dkge_dist.store.storage import Blob, StoreError

FORMAT = 1
SEAL = re.compile(rb'\{\n "sha256": "([0-9a-f]{64})",\n')

Count = Annotated[int, Field(ge=0)]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class Entry(BaseModel):
    """A part of a manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PartEntry(Entry):
    """A content-addressed file and how many rows it holds."""

    digest: Digest
    size: Count
    rows: Count

    @property
    def part(self) -> Blob:
        """What the storage knows it by."""
        return Blob(self.digest, self.size)


class SegmentEntry(Entry):
    """A run of the dictionary: its labels with their digests, and the table that finds them."""

    labels: PartEntry
    slots: PartEntry


class BaseEntry(Entry):
    """A snapshot in full."""

    train: PartEntry
    valid: PartEntry
    test: PartEntry
    entity_degrees: PartEntry
    relation_degrees: PartEntry


class ChangeEntry(Entry):
    """The way from the parent snapshot: triples by split, and the rows that came alive or died."""

    triples: PartEntry
    rows: PartEntry


class SnapshotEntry(Entry):
    """One state of the graph. `base`, `change` or both say how to get it.

    `diff` sums up the change to the parent, `counts` what the ingest noticed (duplicates, dangling keys and the like).
    """

    name: Annotated[str, Field(min_length=1)]
    parent: Count | None
    base: BaseEntry | None
    change: ChangeEntry | None
    format: str
    given_splits: bool
    entities: Count
    relations: Count
    train: Count
    valid: Count
    test: Count
    content: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    diff: dict[str, int]
    counts: dict[str, int]


class TableEntry(Entry):
    """A table of vectors: blocks of rows as the chunks of a Zarr array, and rows that were written since.

    `base` is the array's `zarr.json`, which names its chunks; each of `deltas` holds sorted rows with their values, the
    later one wins. `rows` counts also those that only a delta has.
    """

    rows: Count
    dim: Count
    base: PartEntry
    deltas: list[PartEntry]


class ModelEntry(Entry):
    """What was learnt of one snapshot: tables of entities and relations by field, and dense parameters.

    `snapshot` and `parent` are version numbers: of what it was learnt from, and of the model that it was updated from.
    `updates` counts those since the tables were written whole.
    """

    snapshot: Count
    parent: Count | None
    settings: dict[str, Any]
    entities: dict[str, TableEntry]
    relations: dict[str, TableEntry]
    dense: PartEntry
    history: PartEntry
    metrics: dict[str, float]
    facts: dict[str, Any]
    updates: Count = 0


class CurrentEntry(Entry):
    """What is in force once this version is the head: a snapshot, a model, and which old versions were cleared away."""

    snapshot: Annotated[int, Field(ge=1)]
    model: Count | None
    cleared: list[int] = []


class Manifest(Entry):
    """A version. Its number is the fence against stale writers, `parent` ties it to the history before it.

    Every version carries the whole dictionary of its time, whatever its kind: rows are for ever, also over a rollback.
    """

    format: int = FORMAT
    version: Annotated[int, Field(ge=1)]
    kind: str
    parent: Digest | None
    created: str
    seconds: float
    block_rows: Count
    entity_segments: list[SegmentEntry]
    relation_segments: list[SegmentEntry]
    current: CurrentEntry

    @property
    def summary(self) -> str:
        """What it is, for messages."""
        return f"{self.kind} version {self.version}"

    def to_json(self) -> bytes:
        """The bytes whose checksum names this version to its children."""
        return sealed(self.model_dump_json(indent=1))


class SnapshotManifest(Manifest):
    """A version that brings a snapshot."""

    kind: Literal["snapshot"] = "snapshot"
    snapshot: SnapshotEntry

    @property
    def summary(self) -> str:
        """What it is, for messages."""
        return f"snapshot {self.snapshot.name!r}"


class ModelManifest(Manifest):
    """A version that brings a model."""

    kind: Literal["model"] = "model"
    model: ModelEntry


class RollbackManifest(Manifest):
    """A version that brings back what was in force at an earlier one."""

    kind: Literal["rollback"] = "rollback"
    to: Annotated[int, Field(ge=1)]


class ClearManifest(Manifest):
    """A version that clears old ones away: their manifests stay, parts that only they named are gone."""

    kind: Literal["gc"] = "gc"
    keep: Count


KINDS: dict[str, type[Manifest]] = {
    "snapshot": SnapshotManifest,
    "model": ModelManifest,
    "rollback": RollbackManifest,
    "gc": ClearManifest,
}


def sealed(content: str) -> bytes:
    """An indented JSON object that opens with the checksum of everything after it.

    The newest version needs it: older ones have a child that vouches for them.
    """
    body = content.removeprefix("{\n").encode() + b"\n"
    return b'{\n "sha256": "%s",\n' % hashlib.sha256(body).hexdigest().encode() + body


def parse_manifest(data: bytes, where: str) -> Manifest:
    """A manifest from its bytes; `where` names it in errors."""
    try:
        content = json.loads(data)
        if not isinstance(content, dict):
            raise ValueError(f"a JSON object is expected, not {str(content)[:80]}")
    except ValueError as error:
        raise StoreError(f"{where}: damaged, not a manifest: {error}") from None
    if isinstance(content.get("format"), int) and content["format"] > FORMAT:
        newer = f"the store has format {content['format']}, this program reads up to {FORMAT}"
        raise StoreError(f"{where}: {newer}: upgrade dkge_dist")
    seal = SEAL.match(data)
    if seal is None or hashlib.sha256(data[seal.end() :]).hexdigest().encode() != seal[1]:
        raise StoreError(f"{where}: damaged or altered: its bytes are not those of the checksum that it opens with")
    del content["sha256"]
    if content.get("kind") == "snapshot":
        # Stores from before there were models do not say which one is in force: none.
        content.setdefault("current", {"snapshot": content.get("version"), "model": None})
    try:
        kind = KINDS.get(str(content.get("kind")))
        if kind is None:
            raise StoreError(
                f"{where}: a version of kind {content.get('kind')!r}: this program knows {', '.join(KINDS)}"
            )
        return kind.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(place) for place in first["loc"])
        raise StoreError(f"{where}: not a manifest of this program: {key}: {first['msg']}") from None
