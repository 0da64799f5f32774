"""The tables of a stored model, opened to be read and written: in this process, or in shards on a cluster."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dkge_dist.api.reports import Report
from dkge_dist.store.manifest import ModelManifest, TableEntry
from dkge_dist.store.models import Deltas
from dkge_dist.store.storage import Staging
from dkge_dist.store.store import Store
from dkge_dist.store.tables import load_table, save_delta
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import TRAINED, Shard
from dkge_dist.tables.table import LocalTable, Table
from dkge_dist.types import Array, DkgeError, Field

if TYPE_CHECKING:
    from dkge_dist.cluster.session import Place
    from dkge_dist.cluster.table import RayTable


@dataclass(frozen=True)
class OpenTables:
    """Entities and relations; `save` writes rows of the entities, `moved` tells what went where for that.

    `moved` is given the shards that an update was planned to write to.
    """

    entities: Table
    relations: LocalTable
    save: Callable[[Staging, Mapping[Field, Array]], Deltas]
    moved: Callable[[int], Report]


@contextmanager
def tables_here(store: Store, parent: ModelManifest, rows: tuple[int, int]) -> Iterator[OpenTables]:
    """In this process."""
    entities = _local(store, parent.model.entities, rows[0])
    yield OpenTables(
        entities,
        _local(store, parent.model.relations, rows[1]),
        lambda staging, written: save_rows(staging, entities, written),
        lambda planned: {"bytes_pulled": 0, "bytes_pushed": 0},
    )


def _local(store: Store, entries: dict[str, TableEntry], rows: int) -> LocalTable:
    return LocalTable(Shard({field: load_table(store.storage, entries[field], rows) for field in Field}))


def save_rows(staging: Staging, table: Table, written: Mapping[Field, Array]) -> Deltas:
    """Write some rows (ascending) of a table as one delta a field."""
    return {
        field.value: [save_delta(staging, rows, table.pull({field: rows})[field])]
        for field, rows in written.items()
        if rows.shape[0]
    }


@contextmanager
def tables_on(place: Place, store: Store, parent: ModelManifest, rows: tuple[int, int]) -> Iterator[OpenTables]:
    """Entities in shards, which read their rows from the store and write them back themselves; relations here."""
    with sharded(place, store, parent, rows[0], tuple(Field)) as table:
        yield OpenTables(
            table,
            _local(store, parent.model.relations, rows[1]),
            table.save_deltas,
            lambda planned: _moved(table),
        )


@contextmanager
def sharded(
    place: Place, store: Store, model: ModelManifest, rows: int, fields: tuple[Field, ...]
) -> Iterator[RayTable]:
    """Some fields of a stored model's entities, in shards."""
    from dkge_dist.cluster.errors import ShardLostError
    from dkge_dist.cluster.server import Stored
    from dkge_dist.cluster.session import connected, shard_actors
    from dkge_dist.cluster.table import RayTable

    plan = ShardPlan(rows, model.block_rows, place.shards)
    tables = {field: model.model.entities[field] for field in fields}
    dim = tables[fields[0]].dim
    row_bytes = 4 * dim * len(fields) + 4 * len(TRAINED)
    with connected(place, 1), shard_actors(place, plan, row_bytes) as actors:
        table = RayTable(plan, actors, secrets.token_hex(8), dim)
        try:
            table.open(Stored(store.path.resolve(), tables))
            yield table
        except ShardLostError as error:
            raise DkgeError(f"{error}; {store.path} is as it was, and the same command starts again") from None
        finally:
            table.close()


def _moved(table: RayTable) -> Report:
    """As the shards counted it."""
    stats = table.stats()
    written = [shard for shard, of in enumerate(stats) if of["push_calls"] or of["write_calls"] or of["bytes_written"]]
    return {
        "shards_touched": len(written),
        "bytes_pulled": sum(of["bytes_pulled"] for of in stats),
        "bytes_pushed": sum(of["bytes_pushed"] for of in stats),
        "shards": [{"shard": shard, "touched": shard in written, **of} for shard, of in enumerate(stats)],
    }
