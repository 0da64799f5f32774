"""What link prediction can reach: held-out truths compete with each other under protocol `paper`, not under `filtered`.

Train triples alone leave the competition under `paper`. Where (head, relation) has several held-out tails, nothing a
model can know says which of them is asked for: the best it can do is to rank them in any order before everybody else.
The second figure counts only pairs that train links by another relation, as YAGO-3SP has many: what copying can give.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np

from benchmarks.published import add_source, published_store
from benchmarks.report import options, publish
from dkge_dist.store.store import Store
from dkge_dist.types import Split, Triples


def _list(triples: Triples) -> list[tuple[int, int, int]]:
    return list(zip(*(column.tolist() for column in triples), strict=True))


def ceilings(splits: dict[Split, Triples]) -> dict[str, float]:
    """MRR and Hits@1 on test of a model that puts all truths first, and of one that only knows linked pairs."""
    train, test = set(_list(splits[Split.TRAIN])), _list(splits[Split.TEST])
    held_out = {*_list(splits[Split.VALID]), *test} - train
    tails, heads, linked = defaultdict(set), defaultdict(set), defaultdict(set)
    for head, relation, tail in held_out:
        tails[head, relation].add(tail)
        heads[tail, relation].add(head)
    for head, relation, tail in train:
        linked[head, tail].add(relation)
    rows = []
    for head, relation, tail in test:
        copied = bool(linked[head, tail] - {relation})
        for truths in (tails[head, relation] | {tail}, heads[tail, relation] | {head}):
            count = len(truths)
            rows.append((np.mean(1 / np.arange(1, count + 1)), 1 / count, copied))
    mrr, first, copied = np.array(rows).T
    return {
        "mrr": float(mrr.mean()),
        "hits@1": float(first.mean()),
        "linked": float(copied.mean()),
        "mrr_of_linked": float((mrr * copied).mean()),
        "hits@1_of_linked": float((first * copied).mean()),
    }


def main() -> None:
    parser = options(__doc__ or "")
    add_source(parser)
    parser.add_argument("--snapshots", type=int, default=3)
    arguments = parser.parse_args()
    store = Store.open(published_store(arguments, arguments.snapshots))
    found: dict[str, Any] = {}
    for number in range(1, arguments.snapshots + 1):
        snapshot = store.snapshot(store.find_snapshot(f"snapshot{number}"))
        found[f"snapshot{number}"] = ceilings({split: snapshot.triples(split) for split in Split})
    figures = {
        f"{name}: {what}": (values[key], "")
        for name, values in found.items()
        for key, what in (
            ("mrr", "MRR of a perfect model under protocol paper"),
            ("hits@1", "Hits@1 of a perfect model under protocol paper"),
            ("linked", "share of test sides whose pair train links by another relation"),
            ("mrr_of_linked", "MRR that all of these, right, add under protocol paper"),
            ("hits@1_of_linked", "Hits@1 that all of these, right, add under protocol paper"),
        )
    }
    publish("bench_ceiling", found, arguments, figures)


if __name__ == "__main__":
    main()
