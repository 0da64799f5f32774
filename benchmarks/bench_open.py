"""How long a question takes in a store that is open, and how long the first one takes that opens it."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import dkge_dist
from benchmarks.movies import store_of
from benchmarks.random_model import publish_random_model
from benchmarks.report import median_seconds, options, publish
from dkge_dist.store.store import Store
from dkge_dist.types import Split


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--preset", default="imdb-13")
    parser.add_argument("--entities", type=int, default=None)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--times", type=int, default=30)
    arguments = parser.parse_args()
    path = store_of(arguments.work, arguments.preset, entities=arguments.entities)
    if not any(line["kind"] == "model" for line in dkge_dist.log(path)["versions"]):
        publish_random_model(Store.open(path), 1, [f"model.dim={arguments.dim}"])
    began = time.perf_counter()
    store = dkge_dist.open(path)
    result: dict[str, Any] = {"open_seconds": time.perf_counter() - began}
    opened = store.session.opened
    train, (entities, relations) = opened.snapshot.triples(Split.TRAIN), opened.names
    chosen = np.random.default_rng(0).choice(train.count, arguments.times + 1, False)
    triples = [
        (
            entities.label(int(train.head[i])),
            relations.label(int(train.relation[i])),
            entities.label(int(train.tail[i])),
        )
        for i in chosen
    ]
    began = time.perf_counter()
    head, relation, _ = triples.pop()
    store.answer(head, relation)
    result |= {"first_answer_seconds": time.perf_counter() - began, "entities": int(opened.snapshot.entity_rows)}
    questions = {
        "answer": lambda h, r, t: store.answer(h, r),
        "answer without evidence": lambda h, r, t: store.answer(h, r, evidence=False),
        "relations": lambda h, r, t: store.answer(h, None, t),
        "score": lambda h, r, t: store.score(h, r, t),
        "score without ranks": lambda h, r, t: store.score(h, r, t, ranks=False),
        "similar": lambda h, r, t: store.similar(h),
    }
    for name, ask in questions.items():
        ask(*triples[0])
        asked = iter(triples * 2)
        result[f"{name}, seconds"] = median_seconds(lambda: ask(*next(asked)), arguments.times)  # noqa: B023
    figures = {name: (value, "") for name, value in result.items()}
    publish("bench_open", result, arguments, figures)


if __name__ == "__main__":
    main()
