"""What links alone reach, without vectors: test answers that another relation joins to the question's entity in train.

YAGO-3SP has many. Only candidates with a link are ordered: at random, and by the candidate's own record (how often its
other pairs have both relations). What answers without a link would add is not counted, and neither figure is a ceiling:
vectors and other evidence come on top.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.published import add_source, published_store
from benchmarks.report import options, publish
from dkge_dist.ask.ranks import PROTOCOLS, Protocol, filter_known, known_triples
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.walks import GraphEvidence, WalkLimits
from dkge_dist.graph.training_graph import training_graph
from dkge_dist.kernels.csr import incoming, outgoing
from dkge_dist.kernels.evidence.walks import LINK
from dkge_dist.kernels.ranks import in_lists
from dkge_dist.settings import load_settings
from dkge_dist.store.manifest import SnapshotManifest
from dkge_dist.store.store import Store
from dkge_dist.types import Split

EVERY_LINK = WalkLimits(seed=7, max_neighbours=64, max_candidates=1_000_000)


def linked(store: Store, manifest: SnapshotManifest) -> dict[str, float]:
    """MRR and Hits@1 that linked test answers add, by protocol and by how linked candidates are ordered."""
    snapshot, names = store.snapshot(manifest), store.dictionaries(manifest)
    train, valid, test = (snapshot.triples(split) for split in Split)
    graph = training_graph(snapshot, (names[0].digests, names[1].digests), load_settings())
    evidence = GraphEvidence.of(graph, EVERY_LINK)
    sums: dict[str, float] = {"linked": 0.0}
    for side, (asks_tail, answers) in enumerate(((True, test.tail), (False, test.head))):
        questions = Questions.of(test, asks_tail)
        own = evidence.of_pairs(questions, answers)[:, LINK]
        found = evidence.candidates(questions)
        number = np.repeat(np.arange(questions.count), np.diff(found.indptr))
        sums["linked"] += float((own > 0).sum()) / (2 * test.count)
        for protocol in PROTOCOLS:
            known = known_triples((train, valid, test), protocol)
            rows = graph.entity_rows
            removed = filter_known(test, outgoing(known, rows), incoming(known, rows))[side]
            rival = (found.values[:, LINK] > 0) & ~in_lists(removed, found.indptr, found.rows)
            strength, asked = found.values[rival, LINK], number[rival]
            for name, (reciprocal, first) in _orders(own, strength, asked, protocol).items():
                sums[f"mrr, {name}"] = sums.get(f"mrr, {name}", 0.0) + reciprocal / (2 * test.count)
                sums[f"hits@1, {name}"] = sums.get(f"hits@1, {name}", 0.0) + first / (2 * test.count)
    return sums


def _orders(own: Any, strength: Any, asked: Any, protocol: Protocol) -> dict[str, tuple[float, float]]:
    """(sum of reciprocal ranks, expected number of first places) of linked answers, for both orders."""
    has_link = own > 0
    count = own.shape[0]
    rivals = np.bincount(asked, minlength=count)[has_link]
    above = np.bincount(asked[strength > own[asked]], minlength=count)[has_link]
    equal = np.bincount(asked[strength == own[asked]], minlength=count)[has_link]
    # The mean of 1/1, 1/2, ... over all places that a random order may give.
    harmonic = np.cumsum(1 / np.arange(1, rivals.max(initial=0) + 2))
    rank = 1 + above + equal / 2
    return {
        f"{protocol}, at random": (float((harmonic[rivals] / (rivals + 1)).sum()), float((1 / (rivals + 1)).sum())),
        f"{protocol}, by own record": (float((1 / rank).sum()), float((rank <= 1).sum())),
    }


def main() -> None:
    parser = options(__doc__ or "")
    add_source(parser)
    parser.add_argument("--snapshots", type=int, default=3)
    arguments = parser.parse_args()
    store = Store.open(published_store(arguments, arguments.snapshots))
    names = [f"snapshot{number}" for number in range(1, arguments.snapshots + 1)]
    found = {name: linked(store, store.find_snapshot(name)) for name in names}
    figures = {f"{name}: {what}": (value, "") for name, values in found.items() for what, value in values.items()}
    publish("bench_linked", found, arguments, figures)


if __name__ == "__main__":
    main()
