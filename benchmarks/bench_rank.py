"""Ranking: counting closer rows with early abandon against chunked `torch.cdist`; at IMDB-13 size by codes and without.

Vectors come from a short training, since how early a row can be abandoned depends on them.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.movies import store_of
from benchmarks.published import add_source, published_store
from benchmarks.report import median_seconds, options, publish
from dkge_dist.ask.model import open_model
from dkge_dist.ask.ranks import JointEmbedding, known_triples, rank
from dkge_dist.kernels.csr import incoming, outgoing
from dkge_dist.kernels.ranks import known_answers
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.tables.coded import CodedIndex
from dkge_dist.tables.index import ExactIndex
from dkge_dist.types import Array, Split, Triples

CHUNK = 256


def model_of(path: Path, settings: list[str]) -> tuple[JointEmbedding, tuple[Triples, Triples, Triples]]:
    """Joint vectors and splits of a store's model, learnt first if there is none."""
    store = Store.open(path)
    if not any(line["kind"] == "model" for line in api.log(path)["versions"]):
        api.train(path, snapshot="1", settings=settings)
    opened = open_model(store)
    train, valid, test = (opened.snapshot.triples(split) for split in Split)
    return opened.embedding, (train, valid, test)


def by_cdist(embedding: JointEmbedding, triples: Triples, known: Triples) -> Array:
    """The same ranks from all distances, some queries at a time."""
    import torch

    rows, candidates = embedding.entities.rows, embedding.candidates
    joint = embedding.vectors(np.arange(rows))
    table = torch.from_numpy(joint[candidates])
    column = np.full(rows, -1)
    column[candidates] = np.arange(candidates.shape[0])
    head, tail, relation = joint[triples.head], joint[triples.tail], embedding.relations[triples.relation]
    ranks = []
    for query, true, adjacency, anchors in (
        (head + relation, triples.tail, outgoing(known, rows), triples.head),
        (tail - relation, triples.head, incoming(known, rows), triples.tail),
    ):
        filtered = known_answers(adjacency, anchors, triples.relation, true)
        for first in range(0, triples.count, CHUNK):
            some = slice(first, min(first + CHUNK, triples.count))
            distances = torch.cdist(torch.from_numpy(query[some]), table, p=1)
            mine = distances[torch.arange(distances.shape[0]), torch.from_numpy(column[true[some]])]
            for q in range(distances.shape[0]):
                removed = filtered.rows[filtered.indptr[first + q] : filtered.indptr[first + q + 1]]
                distances[q, torch.from_numpy(column[removed])] = torch.inf
            closer = (distances < mine[:, None]).sum(1)
            equal = (distances == mine[:, None]).sum(1)
            ranks.append((1 + closer + equal / 2).numpy())
    return np.concatenate(ranks)


def main() -> None:
    parser = options(__doc__ or "")
    add_source(parser)
    parser.add_argument("--preset", default="imdb-13")
    parser.add_argument("--triples", type=int, default=1000, help="triples to rank in the large graph")
    parser.add_argument("--train-seconds", type=float, default=120, help="of the large graph, for its vectors")
    arguments = parser.parse_args()
    embedding, splits = model_of(published_store(arguments), ["train.max_epochs=4"])
    triples, known = splits[Split.TEST], known_triples(splits, "filtered")
    ours = rank(embedding, triples, known)
    theirs = by_cdist(embedding, triples, known)
    same = float(np.mean(np.abs(ours.both - theirs) <= 1))
    seconds = median_seconds(lambda: rank(embedding, triples, known), 5)
    cdist = median_seconds(lambda: by_cdist(embedding, triples, known), 1)
    large = model_of(
        store_of(arguments.work, arguments.preset),
        ["model.dim=100", f"train.max_seconds={arguments.train_seconds}", "train.batch_size=4000"],
    )
    rng = np.random.default_rng(0)
    some = large[1][Split.TRAIN].take(np.sort(rng.choice(large[1][Split.TRAIN].count, arguments.triples, False)))
    by_codes, table = large[0], large[0].entities
    if not isinstance(table, CodedIndex):
        raise SystemExit("the model of the large graph has no codes: remove its store, so that it is learnt anew")
    by_vectors = replace(by_codes, entities=ExactIndex(table.vectors(np.arange(table.rows))))
    ranks, large_seconds = [], []
    for embedding in (by_vectors, by_codes):
        rank(embedding, some.take(slice(0, 2)), large[1][Split.TRAIN])  # Kernels are loaded, parts are verified.
        began = time.perf_counter()
        ranks.append(rank(embedding, some, large[1][Split.TRAIN]).both)
        large_seconds.append(time.perf_counter() - began)
    result: dict[str, Any] = {
        "triples": triples.count,
        "rank_seconds": seconds,
        "cdist_seconds": cdist,
        "ranks_equal_share": same,
        "large_candidates": int(large[0].candidates.shape[0]),
        "large_ranks_equal": bool(np.array_equal(*ranks)),
    }
    figures = {
        "times faster than chunked torch.cdist": (cdist / seconds, ">= 5"),
        "seconds for the published test triples": (seconds, ""),
        "share of equal ranks (within rounding)": (same, "1"),
        f"seconds for {arguments.triples} triples at {arguments.preset}": (large_seconds[1], "<= 10"),
        "  by vectors alone": (large_seconds[0], ""),
        "  times faster by codes": (large_seconds[0] / large_seconds[1], ""),
        "  all ranks are equal": (result["large_ranks_equal"], "True"),
    }
    publish("bench_rank", result, arguments, figures)


if __name__ == "__main__":
    main()
