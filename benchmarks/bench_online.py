"""Nights against training anew: what is believed, forgotten and kept after two published nights, and what they cost.

For every seed, snapshot 1 is learnt from scratch and brought to snapshots 2 and 3 online; both are also learnt from
scratch. Fidelity is exact. Held-out triples (test on YAGO-3SP, half of validation on DBpedia-3SP) are those that do not
stand in train; their difference has a paired bootstrap interval.
"""

from __future__ import annotations

import statistics
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.nights import WAYS, fidelity, fidelity_figures, held_out_ranks, interval, mrr
from benchmarks.published import DBPEDIA, TIME_LIMIT, add_source, online_words, published_store, trained
from benchmarks.report import options, publish
from dkge_dist.surfaces import api
from dkge_dist.types import Array

SNAPSHOTS = ("snapshot1", "snapshot2", "snapshot3")
SECONDS = {"yago": "<= 4", "dbpedia": "<= 6"}
LEAST = {"yago": {}, "dbpedia": {"added_existing": 0.9, "added_emerging": 0.8}}
KEPT = ("seconds", "plan_seconds", "learn_seconds", "measure_seconds", "open_seconds", "publish_seconds")
KEPT += ("epochs", "trained_triples", "emerging_entities", "affected_entities")

Held = dict[str, tuple[Array, Array]]
"""By way: ranks without leaked triples, online and from scratch."""


def one_seed(store: Path, seed: int, settings: list[str]) -> tuple[dict[str, Any], dict[str, Held]]:
    """What is reported of a seed, and the held-out ranks of each night."""
    words = [f"seed={seed}", TIME_LIMIT]
    how = online_words(settings)
    base = trained(store, SNAPSHOTS[0], "default", words)
    result: dict[str, Any] = {"seed": seed, "scratch_seconds": base["seconds"]}
    ranks: dict[str, Held] = {}
    parent = str(base["version"])
    api.update(store, to=SNAPSHOTS[1], since_version=parent, settings=how)  # loads the compiled kernels
    for before, night in pairwise(SNAPSHOTS):
        updated = api.update(store, to=night, since_version=parent, settings=how)
        parent = str(updated["version"])
        anew = trained(store, night, "default", words)
        sides = held_out_ranks(store, updated["version"]), held_out_ranks(store, anew["version"])
        ranks[night] = {
            way: tuple(found[way][0][~found[way][1]] for found in sides)  # type: ignore[misc]
            for way in WAYS
        }
        result[night] = {
            "online": fidelity(store, updated["version"], before),
            "scratch": fidelity(store, anew["version"], before),
            "held_out": {way: [mrr(side) for side in ranks[night][way]] for way in WAYS},
            "leaked": int(sides[0]["vectors"][1].sum()),
            "update": {name: updated[name] for name in KEPT},
            "scratch_seconds": anew["seconds"],
        }
        print(seed, night, result[night], file=sys.stderr, flush=True)
    return result, ranks


def figures_of(part: str, night: str, runs: list[dict[str, Any]], ranks: list[dict[str, Held]]) -> dict[str, Any]:
    """Means over the seeds, beside what training from scratch gives."""
    figures: dict[str, tuple[Any, Any]] = {}

    for way in WAYS:
        sides = ([run[night][side] for run in runs] for side in ("online", "scratch"))
        figures |= fidelity_figures(f"{part} {night}", way, *sides, least=LEAST[part])
        both = [np.concatenate([of_seed[night][way][side] for of_seed in ranks]) for side in range(2)]
        low, high = interval(*both)
        name = f"{part} {night}: held-out MRR / from scratch, {way.replace('_', ' ')}"
        figures[name] = (mrr(both[0]) / mrr(both[1]), ">= 0.985")
        figures[f"{name}: 95% from"] = (1 + low, "")
        figures[f"{name}: 95% to"] = (1 + high, "")
        figures[f"{part} {night}: held-out MRR, {way.replace('_', ' ')}"] = (mrr(both[0]), "")
    seconds = [run[night]["update"]["learn_seconds"] for run in runs]
    figures[f"{part} {night}: seconds of learning (median)"] = (statistics.median(seconds), SECONDS[part])
    shares = [run[night]["update"]["seconds"] / run[night]["scratch_seconds"] for run in runs]
    figures[f"{part} {night}: the whole update / from scratch, seconds (median)"] = (statistics.median(shares), "")
    return figures


def main() -> None:
    parser = options(__doc__ or "")
    add_source(parser)
    parser.add_argument("--dbpedia", type=Path, default=DBPEDIA, help="folder of DBpedia-3SP, as --source")
    parser.add_argument("--parts", nargs="+", choices=("yago", "dbpedia"), default=["yago", "dbpedia"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--set", dest="settings", nargs="*", default=[], metavar="key=value", help="of the updates")
    arguments = parser.parse_args()
    figures: dict[str, tuple[Any, Any]] = {}
    result: dict[str, Any] = {}
    for part in arguments.parts:
        store = published_store(arguments, 3, arguments.dbpedia if part == "dbpedia" else None)
        seeds = [one_seed(store, seed, arguments.settings) for seed in range(1, arguments.seeds + 1)]
        result[part] = [run for run, _ in seeds]
        for night in SNAPSHOTS[1:]:
            figures |= figures_of(part, night, result[part], [ranks for _, ranks in seeds])
    publish("bench_online", result, arguments, figures)


if __name__ == "__main__":
    main()
