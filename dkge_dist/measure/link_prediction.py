"""Link prediction on the held-out triples of a model's snapshot, or on triples of a file. In: a Model. Out: metrics.

Also by relation, and by how many answers a relation has on either side (1-1, 1-N, N-1, N-N).
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dkge_dist.ask.batches import lines_in, resolve
from dkge_dist.ask.lookup import labelled
from dkge_dist.ask.ranks import Protocol, Ranks, metrics, rank_by_protocol
from dkge_dist.ask.results import Evaluation
from dkge_dist.ask.scores import TRIPLE_LINE
from dkge_dist.kernels.jit import set_threads
from dkge_dist.kernels.sets import distinct
from dkge_dist.kernels.triples import contains
from dkge_dist.types import (
    OFFSET,
    Array,
    DkgeError,
    ProgressCallback,
    Report,
    Split,
    Triples,
    UsageError,
    seconds_since,
)

if TYPE_CHECKING:
    from dkge_dist.ask.model import Model

MANY = 1.5
"""Answers on average from which on a side counts as many."""
CATEGORIES = ("1-1", "1-N", "N-1", "N-N")


@dataclass(frozen=True)
class EvaluateOptions:
    """What is ranked (a split, or the triples of a file) and how; `tables` may name `relations` and `categories`.

    `ranks` adds the ranks of every triple.
    """

    split: str = "test"
    triples: Path | None = None
    protocol: Protocol = "filtered"
    evidence: bool = True
    tables: tuple[str, ...] = ()
    ranks: bool = False


def evaluate(
    model: Model, options: EvaluateOptions, threads: int = 0, progress: ProgressCallback | None = None
) -> Evaluation:
    """Rank held-out or given triples."""
    began = time.monotonic()
    if threads:
        set_threads(threads)
    if options.triples is not None:
        triples, source = triples_of_file(model, options.triples), str(options.triples)
    else:
        triples, source = held_out(model, options.split), options.split
    report = evaluate_triples(model, triples, options, progress)
    notice = {} if model.notice is None else {"notice": model.notice}
    return Evaluation({**report, "split": source, **notice, "seconds": seconds_since(began)})


def evaluate_splits(model: Model, progress: ProgressCallback | None = None) -> dict[str, Report]:
    """Rank all held-out triples of a model."""
    reports = {}
    for split in (Split.VALID, Split.TEST):
        began = time.monotonic()
        triples = model.snapshot.triples(split)
        if triples.count:
            report = evaluate_triples(model, triples, EvaluateOptions(), progress)
            reports[split.label] = {**report, "split": split.label, "seconds": seconds_since(began)}
    return reports


def held_out(model: Model, split: str) -> Triples:
    """The triples of a held-out split; an error if there are none."""
    triples = model.snapshot.triples(Split[split.upper()])
    if not triples.count:
        raise DkgeError(
            f"{model.store}: snapshot {model.snapshot_name!r} has no {split} triples; ingest with --{split} N"
        )
    return triples


def triples_of_file(model: Model, path: Path) -> Triples:
    """`head<TAB>relation<TAB>tail` lines; labels that the snapshot does not have are an error."""
    lines = lines_in(path, "triple")
    for line in lines:
        if len(line.fields) != 3:
            raise UsageError(f"{path}, line {line.number}: expected {TRIPLE_LINE}")
    asked = resolve(model, lines, TRIPLE_LINE, asked=0)
    for failure in asked.failures.values():
        raise DkgeError(f"{path}, line {failure.line}: {failure.error}")
    return Triples(*asked.rows_N3.T.copy())


def evaluate_triples(
    model: Model, triples: Triples, options: EvaluateOptions, progress: ProgressCallback | None = None
) -> Report:
    """Metrics of some triples: what was asked for at the top, the rest under `paper`, `filtered` and `vectors`.

    `without_train` leaves out those that stand in train too.
    """
    embedding, evidence = model.embedding, model.evidence if options.evidence else None
    train, valid, test = (model.snapshot.triples(split) for split in Split)
    splits = (train, valid, test)
    steps = 1 if evidence is None else 2

    def on_ranked(done: float, step: int) -> None:
        if progress is not None:
            progress((step + done) / steps, f"ranking {triples.count:,} triples")

    by_vectors = rank_by_protocol(embedding, triples, splits, progress=partial(on_ranked, step=0))
    by_score = by_vectors
    if evidence is not None:
        by_score = rank_by_protocol(embedding, triples, splits, evidence, partial(on_ranked, step=1))
    ranks = by_score[options.protocol]
    apart = ~contains(train, triples)
    report: Report = {
        **metrics(ranks.both),
        "triples": triples.count,
        "version": model.version,
        "snapshot": model.snapshot_name,
        "protocol": options.protocol,
        "evidence": evidence is not None,
        "candidates": int(embedding.candidates.shape[0]),
        "leaked": int((~apart).sum()),
        "without_train": metrics(ranks.take(apart).both),
        "head": metrics(ranks.head),
        "tail": metrics(ranks.tail),
        **{protocol: _metrics_apart(found, apart) for protocol, found in by_score.items()},
        "vectors": {
            **metrics(by_vectors[options.protocol].both),
            **{protocol: _metrics_apart(found, apart) for protocol, found in by_vectors.items()},
        },
    }
    if "relations" in options.tables:
        lines = by_relation(ranks, triples)
        shown = labelled(model.names[1], np.array([*lines], np.int64), "relation", "name")
        report["relations"] = [{**one, **line} for one, line in zip(shown, lines.values(), strict=True)]
    if "categories" in options.tables:
        report["categories"] = by_category(ranks, triples, train)
    if options.ranks:
        report["ranks"] = _by_triple(model, triples, ranks, by_vectors[options.protocol])
    return report


def _metrics_apart(ranks: Ranks, apart: np.ndarray[Any, Any]) -> Report:
    return {**metrics(ranks.both), "without_train": metrics(ranks.take(apart).both)}


def _by_triple(model: Model, triples: Triples, ranks: Ranks, by_vectors: Ranks) -> list[Report]:
    """The ranks of every triple, by labels and with display names where there are some."""
    entities, relations = model.names
    columns = (
        labelled(entities, triples.head, "head", "head_name"),
        labelled(relations, triples.relation, "relation", "relation_name"),
        labelled(entities, triples.tail, "tail", "tail_name"),
        ranks.head.tolist(), ranks.tail.tolist(), by_vectors.head.tolist(), by_vectors.tail.tolist(),
    )  # fmt: skip
    return [
        {
            **head, **relation, **tail, "head_rank": head_rank, "tail_rank": tail_rank,
            "vectors": {"head_rank": head_alone, "tail_rank": tail_alone},
        }
        for head, relation, tail, head_rank, tail_rank, head_alone, tail_alone in zip(*columns, strict=True)
    ]  # fmt: skip


def by_relation(ranks: Ranks, triples: Triples) -> dict[int, dict[str, Any]]:
    """Metrics of each relation that has triples, the most frequent first; by relation row."""
    rows, counts = np.unique(triples.relation, return_counts=True)
    found = {}
    for row, count in sorted(zip(rows.tolist(), counts.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0])):
        here = triples.relation == row
        found[row] = {"triples": count, **metrics(ranks.take(here).both)}
    return found


def by_category(ranks: Ranks, triples: Triples, train: Triples) -> dict[str, dict[str, Any]]:
    """Metrics of each category that has triples, also apart for heads and tails. Categories come from train."""
    category = categories(train, int(max(train.relation.max(initial=-1), triples.relation.max(initial=-1))) + 1)
    found = {}
    for number, name in enumerate(CATEGORIES):
        here = category[triples.relation] == number
        if here.any():
            found[name] = {
                "triples": int(here.sum()),
                **metrics(ranks.take(here).both),
                "head": metrics(ranks.head[here]),
                "tail": metrics(ranks.tail[here]),
            }
    return found


def categories(train: Triples, relations: int) -> Array:
    """The category of each relation, as a place in `CATEGORIES` (heads first, then tails)."""
    count = np.bincount(train.relation, minlength=relations)
    heads, tails = (_distinct(train.relation, ends, relations) for ends in (train.head, train.tail))
    many_tails = count / np.maximum(heads, 1) > MANY
    many_heads = count / np.maximum(tails, 1) > MANY
    return 2 * many_heads.astype(np.int8) + many_tails.astype(np.int8)


def _distinct(relation: Array, ends: Array, relations: int) -> Array:
    """How many different ends each relation has."""
    pairs = distinct((relation.astype(OFFSET) << 32) | ends)
    return np.bincount(pairs >> 32, minlength=relations)
