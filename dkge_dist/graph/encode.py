"""The triples of a source as rows. In: a source, dictionaries. Out: columns of rows. New labels get new rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.sources.base import NameBatch, Rejects, Source, SourceError
from dkge_dist.kernels.triples import distinct_rows
from dkge_dist.types import Array, Split, Triples

SWAPPED_FACTOR = 10
SWAPPED_MINIMUM = 100


@dataclass(frozen=True)
class Encoded:
    """The triples of a source by split, in its order; `deleted` marks those that a change file deletes.

    `names` are the display names that came with them.
    """

    splits: tuple[Triples, Triples, Triples]
    deleted: Array
    names: list[NameBatch] = field(default_factory=list)

    @property
    def count(self) -> int:
        """Number of triples, duplicates included."""
        return sum(triples.count for triples in self.splits)


def encode(
    source: Source,
    entities: Dictionary,
    relations: Dictionary,
    rejects: Rejects,
    progress: Callable[[int, int], None] | None = None,
) -> Encoded:
    """Read `source` to its end. `progress` is called with the bytes read and the total."""
    parts: dict[Split, list[Triples]] = {split: [] for split in Split}
    deleted: list[Array] = []
    names: list[NameBatch] = []
    for batch in source.batches(rejects):
        # Heads and tails are encoded separately: both look-ups then read the text in its order.
        triples = Triples(entities.encode(batch.head), relations.encode(batch.relation), entities.encode(batch.tail))
        parts[batch.split].append(triples)
        if batch.deleted is not None:
            deleted.append(batch.deleted)
        if batch.names is not None and len(batch.names.label):
            # Looked up at the end: a name may come before the triples that its label is in.
            names.append(batch.names.compacted())
        if progress is not None:
            progress(source.bytes_read, source.bytes_total)
    train, valid, test = (Triples.concat(parts[split]) for split in Split)
    encoded = Encoded((train, valid, test), np.concatenate([np.empty(0, bool), *deleted]), names)
    if encoded.count == 0 and not source.is_names:
        raise SourceError(f"{source.path}: no triples in it")
    return encoded


def columns_look_swapped(encoded: Encoded, relations_known: int) -> bool:
    """Are there many more distinct relations than heads or tails? Then the columns are probably in another order.

    Only new relations count: a store that has such relations already has accepted them before.
    """
    triples = Triples.concat(list(encoded.splits))
    relations = distinct_rows(triples.relation)
    relations = relations[relations >= relations_known]
    if triples.count < SWAPPED_MINIMUM or relations.shape[0] <= SWAPPED_FACTOR:
        return False
    ends = min(distinct_rows(column).shape[0] for column in (triples.head, triples.tail))
    return bool(relations.shape[0] > SWAPPED_FACTOR * ends)
