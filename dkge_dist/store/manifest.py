"""What a version is, as JSON. Strict: unknown keys, wrong types and newer formats are refused, not guessed at."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Literal

import pydantic
from pydantic import AfterValidator, BaseModel, ConfigDict, Strict, ValidationError

from dkge_dist.records import StoredRecord
from dkge_dist.store.storage import Blob, StoreError
from dkge_dist.types import Field

FORMAT = 8
"""The only one that is read. Of a digit that no single bit makes that of an older one."""
SEAL = re.compile(rb'\{\n "sha256": "([0-9a-f]{64})",\n')

Count = Annotated[int, pydantic.Field(ge=0)]
Digest = Annotated[str, pydantic.Field(pattern=r"^[0-9a-f]{64}$")]
Checksum = Annotated[str, pydantic.Field(pattern=r"^[0-9a-f]{16}$")]


class Entry(BaseModel):
    """A value in a manifest, or a manifest."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class PartEntry(Entry):
    """A content-addressed file and how many rows it holds; `checksum` is what its readers verify it by."""

    digest: Digest
    size: Count
    rows: Count
    checksum: Checksum

    @staticmethod
    def of(part: Blob, rows: int) -> PartEntry:
        """As a manifest names it."""
        return PartEntry(digest=part.digest, size=part.size, rows=rows, checksum=part.checksum)

    @property
    def part(self) -> Blob:
        """As the storage knows it."""
        return Blob(self.digest, self.size, self.checksum)


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

    name: Annotated[str, pydantic.Field(min_length=1)]
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
    content: Annotated[str, pydantic.Field(pattern=r"^[0-9a-f]{32}$")]
    diff: dict[str, int]
    counts: dict[str, int]


class TableEntry(Entry):
    """A table of vectors: blocks of rows as the chunks of a Zarr array, and rows that were written since.

    `base` is the array's `zarr.json`, which names its chunks; each of `deltas` holds sorted rows with their values, the
    later one wins. `rows` counts also those that only a delta has. `codes` is the index of 8-bit codes of the base,
    which only joint vectors of many entities have.
    """

    rows: Count
    dim: Count
    base: PartEntry
    deltas: list[PartEntry]
    codes: PartEntry | None = None


def _complete(tables: dict[Field, TableEntry]) -> dict[Field, TableEntry]:
    missing = [field.value for field in Field if field not in tables]
    if missing:
        raise ValueError(f"a model without {missing[0]} vectors")
    return tables


# JSON has strings for keys: there they are no instances of Field yet, which a strict model would ask for.
TablesEntry = Annotated[dict[Annotated[Field, Strict(False)], TableEntry], AfterValidator(_complete)]
"""All tables of entities, or of relations."""


class BaselineEntry(Entry):
    """The training that an updated model is compared with: its version, and its ranks of validation triples.

    They are named here too, because that version may be cleared away.
    """

    version: Count
    validation: PartEntry | None


class ListsEntry(Entry):
    """Neighbour lists of the train graph of a snapshot in full, whose train part is `base`; `part` has them as arrays.

    Snapshots that stand on it are patches of these lists, so that the models of many nights share them.
    """

    base: Digest
    part: PartEntry


class ModelEntry(Entry):
    """What was learnt from one snapshot: tables of entities and relations, and dense parameters.

    `snapshot` and `parent` are version numbers: of the snapshot, and of the model that this one was updated from.
    `record` says what the training or the update did, and how good it is.
    `evidence` holds its weights and counts, None where it was learnt without. `validation` holds the rank of every
    validation triple of a sample, `paths` the counts of relation paths of the snapshot, so that nobody has to count the
    whole graph again. `lists` are what questions walk; without them they are made when they are needed. `updates`
    counts the updates since the tables were last written in full.
    """

    snapshot: Count
    parent: Count | None
    settings: dict[str, Any]
    entities: TablesEntry
    relations: TablesEntry
    dense: PartEntry
    history: PartEntry
    record: StoredRecord
    evidence: PartEntry | None = None
    validation: PartEntry | None = None
    paths: PartEntry | None = None
    lists: ListsEntry | None = None
    baseline: BaselineEntry | None = None
    updates: Count = 0


class RangeEntry(Entry):
    """Versions from the first to the last, both included."""

    first: Annotated[int, pydantic.Field(ge=1)]
    last: Annotated[int, pydantic.Field(ge=1)]


def joined_ranges(ranges: Iterable[RangeEntry]) -> list[RangeEntry]:
    """The same versions in as few ranges as there can be."""
    found: list[RangeEntry] = []
    for some in sorted(ranges, key=lambda entry: entry.first):
        if found and some.first <= found[-1].last + 1:
            found[-1] = RangeEntry(first=found[-1].first, last=max(some.last, found[-1].last))
        else:
            found.append(some)
    return found


def ranges_of(numbers: Iterable[int]) -> list[RangeEntry]:
    """Versions as ranges."""
    return joined_ranges(RangeEntry(first=number, last=number) for number in numbers)


class CurrentEntry(Entry):
    """What is current while this version is the head: a snapshot, a model, and which versions were cleared away.

    `trained` is the newest model, at this version or before it, that a night trained from scratch: 0 if there is none.
    """

    snapshot: Annotated[int, pydantic.Field(ge=1)]
    model: Count | None
    cleared: list[RangeEntry] = []
    trained: Count = 0

    def is_cleared(self, number: int | None) -> bool:
        """Was a version cleared away? Versions that never had parts of their own may count, too."""
        return number is not None and any(some.first <= number <= some.last for some in self.cleared)


class DisplayNamesEntry(Entry):
    """The display names of entities and relations: runs, each several times as long as the next; the later one wins."""

    entities: list[PartEntry]
    relations: list[PartEntry]


class Manifest(Entry):
    """A version. Its number is the fence against stale writers; `parent` is the checksum of the version before.

    `writer` is drawn anew for every version: no two writers make the same bytes, so that each can tell its own.
    Every version carries the whole dictionary of its time, whatever its kind: rows are permanent, also over a rollback.
    It also carries what has to be known of all versions before it, so that nobody has to look at them: in `name_runs`
    the hashes of the names of snapshots, in `trained_runs` those of triples that are in train no more.
    `display_names` are those that are current while this version is the head; None where nothing was ever named.
    """

    format: int = FORMAT
    version: Annotated[int, pydantic.Field(ge=1)]
    kind: str
    parent: Digest | None
    created: str
    writer: str
    seconds: float
    block_rows: Count
    entity_segments: list[SegmentEntry]
    relation_segments: list[SegmentEntry]
    name_runs: list[PartEntry] = []
    trained_runs: list[PartEntry] = []
    display_names: DisplayNamesEntry | None = None
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
    """A version that makes current again what was current at an earlier one."""

    kind: Literal["rollback"] = "rollback"
    to: Annotated[int, pydantic.Field(ge=1)]


class NamesManifest(Manifest):
    """A version that brings display names and nothing else. `named` counts those that are new or changed."""

    kind: Literal["names"] = "names"
    named: dict[str, int]


class ClearManifest(Manifest):
    """A version that clears old ones away: their manifests stay, parts that only they named are gone."""

    kind: Literal["gc"] = "gc"
    keep: Count


KINDS: dict[str, type[Manifest]] = {
    "snapshot": SnapshotManifest,
    "model": ModelManifest,
    "rollback": RollbackManifest,
    "names": NamesManifest,
    "gc": ClearManifest,
}


def sealed(content: str) -> bytes:
    """An indented JSON object that opens with the checksum of everything after it.

    The newest version needs it: of every other one, the next version holds the checksum.
    """
    body = content.removeprefix("{\n").encode() + b"\n"
    return b'{\n "sha256": "%s",\n' % hashlib.sha256(body).hexdigest().encode() + body


def refuse_other_format(number: int, where: str) -> None:
    """One format is read; nothing is guessed at."""
    if number != FORMAT:
        other = "upgrade dkge_dist" if number > FORMAT else "it is of an older program: ingest and train into a new one"
        raise StoreError(f"{where}: the store has format {number}, this program reads {FORMAT}: {other}")


def parse_manifest(data: bytes, where: str) -> Manifest:
    """A manifest from its bytes; `where` names it in errors."""
    try:
        content = json.loads(data)
        if not isinstance(content, dict):
            raise ValueError(f"a JSON object is expected, not {str(content)[:80]}")
    except (ValueError, RecursionError) as error:
        raise StoreError(f"{where}: damaged, not a manifest: {error}") from None
    if isinstance(content.get("format"), int):
        refuse_other_format(content["format"], where)
    seal = SEAL.match(data)
    if seal is None or hashlib.sha256(data[seal.end() :]).hexdigest().encode() != seal[1]:
        raise StoreError(f"{where}: damaged or altered: its bytes are not those of the checksum that it opens with")
    del content["sha256"]
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


def tables_of(entry: ModelEntry) -> list[TableEntry]:
    """All tables of a model."""
    return [*entry.entities.values(), *entry.relations.values()]


def indexes_of(table: TableEntry) -> list[str]:
    """The digests of the parts that name the blocks of a table."""
    return [part.digest for part in (table.base, table.codes) if part is not None]


def parts_of(value: object) -> Iterator[PartEntry]:
    """Every part that a manifest, or a value in one, names."""
    if isinstance(value, PartEntry):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from parts_of(item)
    elif isinstance(value, dict):
        yield from parts_of(list(value.values()))
    elif isinstance(value, Entry):
        for name in type(value).model_fields:
            yield from parts_of(getattr(value, name))
