"""Ranking: counting closer rows with early abandon against chunked `torch.cdist`, and at IMDB-13 size.

Vectors come from a short training, since how early a row can be abandoned depends on them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.movies import store_of
from benchmarks.published import add_source, published_store
from benchmarks.report import median_seconds, options, publish
from dkge_dist import api
from dkge_dist.evaluation.link_prediction import Joint, known_triples, rank
from dkge_dist.kernels.csr import incoming, outgoing
from dkge_dist.kernels.ranks import known_answers
from dkge_dist.store.store import Store
from dkge_dist.store.tables import load_table
from dkge_dist.types import ROW, Array, Split, Triples

CHUNK = 256


def model_of(path: Path, settings: list[str]) -> tuple[Joint, tuple[Triples, Triples, Triples]]:
    """Joint vectors and splits of a store's model, learnt first if there is none."""
    store = Store.open(path)
    if not any(line["kind"] == "model" for line in api.log(path)["versions"]):
        api.train(path, snapshot="1", settings=settings)
    entry = store.find_model().model
    snapshot = store.snapshot(store.snapshot_manifest(entry.snapshot))
    splits = tuple(snapshot.triples(split) for split in Split)
    tables = (load_table(store.storage, tables["joint"]) for tables in (entry.entities, entry.relations))
    alive = np.flatnonzero(snapshot.entities_alive).astype(ROW)
    return Joint(*tables, alive), splits  # type: ignore[return-value]


def by_cdist(joint: Joint, triples: Triples, known: Triples) -> Array:
    """The same ranks from all distances, some queries at a time."""
    import torch

    table = torch.from_numpy(joint.entities[joint.candidates])
    place = np.full(joint.entities.shape[0], -1)
    place[joint.candidates] = np.arange(joint.candidates.shape[0])
    rows = joint.entities.shape[0]
    head, tail, relation = joint.entities[triples.head], joint.entities[triples.tail], joint.relations[triples.relation]
    ranks = []
    for query, true, adjacency, anchors in (
        (head + relation, triples.tail, outgoing(known, rows), triples.head),
        (tail - relation, triples.head, incoming(known, rows), triples.tail),
    ):
        filtered = known_answers(adjacency, anchors, triples.relation, true)
        for first in range(0, triples.count, CHUNK):
            some = slice(first, min(first + CHUNK, triples.count))
            distances = torch.cdist(torch.from_numpy(query[some]), table, p=1)
            mine = distances[torch.arange(distances.shape[0]), torch.from_numpy(place[true[some]])]
            for q in range(distances.shape[0]):
                left_out = filtered.rows[filtered.indptr[first + q] : filtered.indptr[first + q + 1]]
                distances[q, torch.from_numpy(place[left_out])] = torch.inf
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
    joint, splits = model_of(published_store(arguments), ["train.max_epochs=4"])
    triples, known = splits[Split.TEST], known_triples(splits, "filtered")
    ours = rank(joint, triples, known)
    theirs = by_cdist(joint, triples, known)
    same = float(np.mean(np.abs(ours.both - theirs) <= 1))
    seconds = median_seconds(lambda: rank(joint, triples, known), 5)
    cdist = median_seconds(lambda: by_cdist(joint, triples, known), 1)
    large = model_of(
        store_of(arguments.work, arguments.preset),
        ["model.dim=100", f"train.max_seconds={arguments.train_seconds}", "train.batch_size=4000"],
    )
    rng = np.random.default_rng(0)
    some = large[1][Split.TRAIN].take(np.sort(rng.choice(large[1][Split.TRAIN].count, arguments.triples, False)))
    began = time.perf_counter()
    rank(large[0], some, large[1][Split.TRAIN])
    result: dict[str, Any] = {
        "triples": triples.count,
        "rank_seconds": seconds,
        "cdist_seconds": cdist,
        "ranks_equal_share": same,
        "large_candidates": int(large[0].candidates.shape[0]),
    }
    large_seconds = time.perf_counter() - began
    figures = {
        "times faster than chunked torch.cdist": (cdist / seconds, ">= 5"),
        "seconds for the published test triples": (seconds, ""),
        "share of equal ranks (within rounding)": (same, "1"),
        f"seconds for {arguments.triples} triples at {arguments.preset}": (large_seconds, "<= 60"),
    }
    publish("bench_rank", result, arguments, figures)


if __name__ == "__main__":
    main()
