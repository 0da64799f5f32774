"""Link prediction on the held-out triples of a model's snapshot."""

from __future__ import annotations

import time
from collections.abc import Sequence

from dkge_dist.evaluation.breakdown import by_category, by_relation
from dkge_dist.evaluation.link_prediction import JointEmbedding, Protocol, known_triples, metrics, rank
from dkge_dist.jobs.opened import OpenedModel, open_embedding, open_model
from dkge_dist.jobs.report import Report, seconds_since
from dkge_dist.kernels.jit import set_threads
from dkge_dist.kernels.triples import contains
from dkge_dist.runtime import Runtime
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError, Split, Triples


def evaluate(
    store: Store,
    runtime: Runtime,
    version: str | None,
    split: str,
    protocol: Protocol,
    tables: Sequence[str],
    threads: int,
) -> Report:
    """Rank one split; `tables` may name `relations` and `categories`."""
    began = time.monotonic()
    if threads:
        set_threads(threads)
    opened = open_model(store, version)
    triples = held_out(opened, split)
    with open_embedding(opened, runtime) as embedding:
        report = evaluate_triples(opened, embedding, triples, protocol, tables)
    return {**report, "split": split, "seconds": seconds_since(began)}


def evaluate_splits(opened: OpenedModel, embedding: JointEmbedding) -> dict[str, Report]:
    """Rank all held-out triples of a model whose vectors are open."""
    reports = {}
    for split in (Split.VALID, Split.TEST):
        began = time.monotonic()
        triples = opened.snapshot.triples(split)
        if triples.count:
            report = evaluate_triples(opened, embedding, triples, "paper", ())
            reports[split.label] = {**report, "split": split.label, "seconds": seconds_since(began)}
    return reports


def held_out(opened: OpenedModel, split: str) -> Triples:
    """The triples of a held-out split; an error if there are none."""
    triples = opened.snapshot.triples(Split[split.upper()])
    if not triples.count:
        raise DkgeError(
            f"{opened.store}: snapshot {opened.snapshot_name!r} has no {split} triples; ingest with --{split} N"
        )
    return triples


def evaluate_triples(
    opened: OpenedModel, embedding: JointEmbedding, triples: Triples, protocol: Protocol, tables: Sequence[str]
) -> Report:
    """Metrics of some triples. `without_train` leaves out those that stand in train too."""
    train, valid, test = (opened.snapshot.triples(split) for split in Split)
    ranks = rank(embedding, triples, known_triples((train, valid, test), protocol))
    apart = ~contains(train, triples)
    report: Report = {
        **metrics(ranks.both),
        "triples": triples.count,
        "version": opened.model.version,
        "snapshot": opened.snapshot_name,
        "protocol": protocol,
        "candidates": int(embedding.candidates.shape[0]),
        "leaked": int((~apart).sum()),
        "without_train": metrics(ranks.take(apart).both),
        "head": metrics(ranks.head),
        "tail": metrics(ranks.tail),
    }
    if "relations" in tables:
        lines = by_relation(ranks, triples).items()
        report["relations"] = [{"relation": opened.names[1].label(row), **line} for row, line in lines]
    if "categories" in tables:
        report["categories"] = by_category(ranks, triples, train)
    return report
