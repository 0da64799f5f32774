"""A source becomes the next snapshot of a store."""

from __future__ import annotations

import time

from dkge_dist.graph.sources.base import Source
from dkge_dist.records import IngestRecord, MisspellingRecord, Misspellings
from dkge_dist.store.ingest import Ingested, IngestOptions
from dkge_dist.store.ingest import ingest as ingest_source
from dkge_dist.store.store import Store
from dkge_dist.types import ProgressCallback, seconds_since

SHOWN = 5


def ingest(
    store: Store, source: Source, options: IngestOptions, progress: ProgressCallback | None
) -> tuple[IngestRecord, Ingested]:
    """Make the next snapshot; the record, and what a later step of the same job needs of it."""
    began = time.monotonic()

    def on_bytes(done: int, total: int) -> None:
        if progress is not None:
            progress(done / total if total else 0.0, "reading")

    result = ingest_source(store, source, options, on_bytes)
    entry = result.manifest.snapshot
    seconds = seconds_since(began)
    return IngestRecord(
        version=result.manifest.version,
        name=entry.name,
        format=source.format,
        unchanged=result.unchanged,
        entities=entry.entities,
        relations=entry.relations,
        triples=entry.train + entry.valid + entry.test,
        train=entry.train,
        valid=entry.valid,
        test=entry.test,
        **result.diff.counts(),
        held_out_by_default=result.held_out_by_default,
        misspellings=_misspellings(result),
        counts=result.counts,
        named_entities=result.named.entities,
        named_relations=result.named.relations,
        unnamed_entities=result.named.removed_entities,
        unnamed_relations=result.named.removed_relations,
        rejects=result.rejects,
        lines=result.lines,
        bytes_written=result.bytes_written,
        seconds=seconds,
        triples_per_second=round(result.lines / max(seconds, 1e-9)),
    ), result


def _misspellings(result: Ingested) -> Misspellings:
    """How many new labels look misspelt, with a few of them."""
    found = result.misspellings
    return Misspellings(
        total=len(found.relations) + len(found.entities),
        relations=[MisspellingRecord(**pair._asdict()) for pair in found.relations[:SHOWN]],
        entities=[MisspellingRecord(**pair._asdict()) for pair in found.entities[:SHOWN]],
        not_compared=found.not_compared,
    )
