"""Updates against training anew: link prediction after two published nights, and what they cost.

For every seed, snapshot 1 is learnt from scratch and brought to snapshots 2 and 3 online; both are also learnt from
scratch. The difference has a paired bootstrap interval over the tested triples.
"""

from __future__ import annotations

import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.published import TIME_LIMIT, add_source, online_words, published_store, trained
from benchmarks.report import options, publish
from dkge_dist import api
from dkge_dist.evaluation.link_prediction import Protocol, known_triples, metrics, rank
from dkge_dist.jobs.opened import open_embedding, open_model
from dkge_dist.kernels.triples import contains
from dkge_dist.runtime import LocalRuntime
from dkge_dist.store.store import Store
from dkge_dist.types import Array, Split

NIGHTS = ("snapshot2", "snapshot3")
PUBLISHED = {"snapshot2": 0.440, "snapshot3": 0.442}
RESAMPLES = 2000


def ranks(path: Path, version: int, protocol: Protocol = "paper") -> tuple[Array, Array]:
    """Ranks of the test triples (tails beside heads), and which of them are in train too."""
    opened = open_model(Store.open(path), str(version))
    train, valid, test = (opened.snapshot.triples(split) for split in Split)
    with open_embedding(opened, LocalRuntime()) as embedding:
        found = rank(embedding, test, known_triples((train, valid, test), protocol))
    return np.stack([found.tail, found.head], 1), contains(train, test)


def interval(online: Array, scratch: Array) -> list[float]:
    """95% of MRR(online) / MRR(scratch) − 1 over resampled triples (rows of ranks), the same ones for both."""
    one, other = (1 / online).mean(1), (1 / scratch).mean(1)
    rng = np.random.default_rng(0)
    places = rng.integers(0, one.shape[0], (RESAMPLES, one.shape[0]))
    ratio = one[places].mean(1) / other[places].mean(1) - 1
    return [float(value) for value in np.quantile(ratio, [0.025, 0.975])]


def one_seed(store: Path, seed: int, settings: list[str]) -> tuple[dict[str, Any], dict[str, tuple[Array, Array]]]:
    """What is reported of a seed, and the ranks (online, from scratch) of each night."""
    words = [f"seed={seed}", TIME_LIMIT, *settings]
    how = online_words(words)
    base = trained(store, "snapshot1", "default", words)
    found = {}
    result: dict[str, Any] = {"seed": seed, "scratch_seconds": base["seconds"]}
    since = str(base["version"])
    api.update(store, to=NIGHTS[0], since_version=since, settings=how)  # loads the compiled kernels
    for night in NIGHTS:
        updated = api.update(store, to=night, since_version=since, settings=how)
        since = str(updated["version"])
        anew = trained(store, night, "default", words)
        (online, leaked), (scratch, _) = ranks(store, updated["version"]), ranks(store, anew["version"])
        found[night] = online, scratch
        kept = ("seconds", "plan_seconds", "learn_seconds", "open_seconds", "publish_seconds")
        kept += ("epochs", "trained_triples", "emerging_entities", "affected_entities")
        result[night] = {
            "online": metrics(online.reshape(-1)),
            "online_without_train": metrics(online[~leaked].reshape(-1)),
            "scratch": metrics(scratch.reshape(-1)),
            "scratch_without_train": metrics(scratch[~leaked].reshape(-1)),
            "online_filtered": metrics(ranks(store, updated["version"], "filtered")[0].reshape(-1)),
            "scratch_filtered": metrics(ranks(store, anew["version"], "filtered")[0].reshape(-1)),
            "leaked": int(leaked.sum()),
            "relative": float((1 / online).mean() / (1 / scratch).mean() - 1),
            "relative_95": interval(online, scratch),
            "update": {name: updated[name] for name in kept},
            "scratch_seconds": anew["seconds"],
            "times_faster": anew["seconds"] / updated["seconds"],
        }
        shown = {name: result[night][name] for name in ("relative", "relative_95", "times_faster")}
        print(seed, night, shown, file=sys.stderr, flush=True)
    return result, found


def main() -> None:
    parser = options(__doc__ or "")
    add_source(parser)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("settings", nargs="*", metavar="key=value")
    arguments = parser.parse_args()
    store = published_store(arguments, 3)
    seeds = [one_seed(store, seed, arguments.settings) for seed in range(1, arguments.seeds + 1)]
    runs = [result for result, _ in seeds]
    figures: dict[str, tuple[Any, Any]] = {}
    for night in NIGHTS:
        mean = {kind: statistics.mean(run[night][kind]["mrr"] for run in runs) for kind in ("online", "scratch")}
        figures[f"{night}: MRR online"] = (mean["online"], f">= {PUBLISHED[night]} (published online)")
        figures[f"{night}: MRR from scratch"] = (mean["scratch"], "")
        loss = 1 - mean["online"] / mean["scratch"]
        pooled = interval(*(np.hstack([found[night][side] for _, found in seeds]) for side in range(2)))
        figures[f"{night}: lost against scratch"] = (loss, "<= 0.01")
        figures[f"{night}: lost, least of 95% (paired bootstrap)"] = (-pooled[1], "")
        figures[f"{night}: lost, most of 95% (paired bootstrap)"] = (-pooled[0], "")
        for kind in ("online", "scratch"):
            for suffix, words in (
                ("without_train", "without test triples that stand in train"),
                ("filtered", "protocol filtered"),
            ):
                value = statistics.mean(run[night][f"{kind}_{suffix}"]["mrr"] for run in runs)
                figures[f"{night}: MRR {kind}, {words}"] = (value, "")
        slowest = min(run[night]["times_faster"] for run in runs)
        figures[f"{night}: times faster than scratch (least)"] = (slowest, ">= 50")
    publish("bench_online", {"runs": runs}, arguments, figures)


if __name__ == "__main__":
    main()
