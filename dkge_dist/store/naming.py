"""The display names that an ingest brings: read, compared with those of the store, and stored where they changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dkge_dist.graph.display_names import names_of_rows
from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import NameBatch, Rejects, Source
from dkge_dist.store.display_names import add_names
from dkge_dist.store.guards import Draft, Named, Names, refuse_unknown_labels
from dkge_dist.store.manifest import DisplayNamesEntry, Manifest, NamesManifest
from dkge_dist.store.storage import Staging
from dkge_dist.store.store import Store

UNKNOWN = "display names of labels that are in no triple"


class NameCounts(NamedTuple):
    """Display names that are new or changed, and those that were taken away."""

    entities: int = 0
    relations: int = 0
    removed_entities: int = 0
    removed_relations: int = 0

    def to_dict(self) -> dict[str, int]:
        """Removals only where there are some."""
        return {key: value for key, value in self._asdict().items() if value or not key.startswith("removed")}


NO_NAMES = NameCounts()


def read_names(
    source: Source, batches: list[NameBatch], files: Sequence[Source], names: Names, rejects: Rejects, force: bool
) -> Named:
    """The display names that came with the triples of `source`, overruled by those of files, one after the other."""
    named = _named(source, batches, names, force)
    for file in files:
        read = (batch.names for batch in file.batches(rejects))
        more = _named(file, [batch.compacted() for batch in read if batch is not None], names, force)
        named = (named[0].then(more[0]), named[1].then(more[1]))
    return named


def _named(source: Source, batches: list[NameBatch], names: Names, force: bool) -> Named:
    """The names by rows. A label may be that of an entity, of a relation, or of both."""
    labels = Labels.concat([batch.label for batch in batches])
    entities, relations = (dictionary.lookup(labels) for dictionary in names)
    known = np.maximum(entities, relations) >= 0
    if source.is_names and not force:
        refuse_unknown_labels(source, known)
    if unknown := int((~known).sum()):
        source.counts[UNKNOWN] += unknown
    return names_of_rows(batches, entities), names_of_rows(batches, relations)


def changed_names(store: Store, head: Manifest | None, named: Named) -> Named:
    """Those of the given names that are not so at `head` already."""
    stored = store.display_names(head.display_names if head else None)
    entities, relations = (
        names.changed(given) if names is not None else given.without_removals()
        for names, given in zip(stored, named, strict=True)
    )
    return entities, relations


def save_names(staging: Staging, head: Manifest | None, changed: Named) -> DisplayNamesEntry | None:
    """What a version on top of `head` says about display names, with those that changed."""
    before = head.display_names if head else None
    if not any(names.count for names in changed):
        return before
    before = before or DisplayNamesEntry(entities=[], relations=[])
    return DisplayNamesEntry(
        entities=add_names(staging, before.entities, changed[0]),
        relations=add_names(staging, before.relations, changed[1]),
    )


def save_names_alone(store: Store, draft: Draft, seconds: float) -> tuple[NameCounts, int]:
    """Where no triple changed: publish the names that did. How many, and the bytes written for them."""
    head = draft.head
    assert head is not None, "nothing is unchanged in an empty store"
    # Labels that came with triples that change nothing have no rows in the store.
    known = (
        names.take(names.rows < sum(segment.count for segment in dictionary.segments))
        for names, dictionary in zip(draft.named, draft.names, strict=True)
    )
    changed = changed_names(store, head, (next(known), next(known)))
    counts = count_names(changed)
    if not any(counts):
        return counts, 0
    with store.storage.staging() as staging:
        following = {**store.following(head, round(seconds, 3)), "display_names": save_names(staging, head, changed)}
        store.publish(NamesManifest(**following, current=head.current, named=counts.to_dict()))
    return counts, staging.written


def count_names(named: Named) -> NameCounts:
    """How many names of entities and of relations, and how many were taken away."""
    removed = [int(names.is_removal.sum()) for names in named]
    return NameCounts(named[0].count - removed[0], named[1].count - removed[1], *removed)
