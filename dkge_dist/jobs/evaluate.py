"""Link prediction on the held-out triples of a model's snapshot, or on triples of a file."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dkge_dist.ask.model import Kind, OpenedModel, check_alive, labelled, lines_of_three, rows_of
from dkge_dist.ask.ranks import (
    JointEmbedding,
    Protocol,
    Ranks,
    metrics,
    rank_by_protocol,
)
from dkge_dist.ask.results import Evaluation
from dkge_dist.ask.score import TRIPLE_LINE
from dkge_dist.ask.session import Session
from dkge_dist.evaluation.breakdown import by_category, by_relation
from dkge_dist.evidence.scores import Evidence
from dkge_dist.jobs.report import ProgressCallback, Report, seconds_since
from dkge_dist.kernels.jit import set_threads
from dkge_dist.kernels.triples import contains
from dkge_dist.types import DkgeError, Split, Triples, UsageError


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
    session: Session, options: EvaluateOptions, threads: int = 0, progress: ProgressCallback | None = None
) -> Evaluation:
    """Rank held-out or given triples."""
    began = time.monotonic()
    if threads:
        set_threads(threads)
    opened = session.opened
    if options.triples is not None:
        triples, source = triples_of_file(opened, options.triples), str(options.triples)
    else:
        triples, source = held_out(opened, options.split), options.split
    evidence = session.evidence() if options.evidence else None
    report = evaluate_triples(opened, session.embedding, evidence, triples, options, progress)
    notice = {} if session.notice is None else {"notice": session.notice}
    return Evaluation({**report, "split": source, **notice, "seconds": seconds_since(began)})


def evaluate_splits(
    opened: OpenedModel,
    embedding: JointEmbedding,
    evidence: Evidence | None,
    progress: ProgressCallback | None = None,
) -> dict[str, Report]:
    """Rank all held-out triples of a model whose vectors are open."""
    reports = {}
    for split in (Split.VALID, Split.TEST):
        began = time.monotonic()
        triples = opened.snapshot.triples(split)
        if triples.count:
            report = evaluate_triples(opened, embedding, evidence, triples, EvaluateOptions(), progress)
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


def triples_of_file(opened: OpenedModel, path: Path) -> Triples:
    """`head<TAB>relation<TAB>tail` lines; labels that the snapshot does not have are an error."""
    lines = list(lines_of_three(path, TRIPLE_LINE))
    if not lines:
        raise UsageError(f"{path}: holds no triple")
    where = [place for place, _ in lines]
    columns = [[fields[column] for _, fields in lines] for column in range(3)]
    entities, relations = opened.names
    rows = [
        rows_of(names, labels, where, opened)
        for names, labels in zip((entities, relations, entities), columns, strict=True)
    ]
    kinds: tuple[Kind, ...] = ("entities", "relations", "entities")
    for column, kind in enumerate(kinds):
        check_alive(opened, kind, rows[column], columns[column], where)
    return Triples(*rows)


def evaluate_triples(
    opened: OpenedModel,
    embedding: JointEmbedding,
    evidence: Evidence | None,
    triples: Triples,
    options: EvaluateOptions,
    progress: ProgressCallback | None = None,
) -> Report:
    """Metrics of some triples: what was asked for at the top, the rest under `paper`, `filtered` and `vectors`.

    `without_train` leaves out those that stand in train too.
    """
    splits = (
        opened.snapshot.triples(Split.TRAIN),
        opened.snapshot.triples(Split.VALID),
        opened.snapshot.triples(Split.TEST),
    )
    steps = 1 if evidence is None else 2

    def on_ranked(done: float, step: int) -> None:
        if progress is not None:
            progress((step + done) / steps, f"ranking {triples.count:,} triples")

    by_vectors = rank_by_protocol(embedding, triples, splits, progress=partial(on_ranked, step=0))
    by_score = by_vectors
    if evidence is not None:
        by_score = rank_by_protocol(embedding, triples, splits, evidence, partial(on_ranked, step=1))
    ranks = by_score[options.protocol]
    apart = ~contains(splits[Split.TRAIN], triples)
    report: Report = {
        **metrics(ranks.both),
        "triples": triples.count,
        "version": opened.model.version,
        "snapshot": opened.snapshot_name,
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
        shown = labelled(opened.names[1], np.array([*lines], np.int64), "relation", "name")
        report["relations"] = [{**one, **line} for one, line in zip(shown, lines.values(), strict=True)]
    if "categories" in options.tables:
        report["categories"] = by_category(ranks, triples, splits[Split.TRAIN])
    if options.ranks:
        report["ranks"] = _by_triple(opened, triples, ranks, by_vectors[options.protocol])
    return report


def _metrics_apart(ranks: Ranks, apart: np.ndarray[Any, Any]) -> Report:
    return {**metrics(ranks.both), "without_train": metrics(ranks.take(apart).both)}


def _by_triple(opened: OpenedModel, triples: Triples, ranks: Ranks, by_vectors: Ranks) -> list[Report]:
    """The ranks of every triple, by labels and with display names where there are some."""
    entities, relations = opened.names
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
