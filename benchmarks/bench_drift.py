"""Drift: how much a model that is only updated loses against one that is trained anew, night after night.

A movie graph evolves for many nights. For every seed one model is learnt from scratch and updated every night; at some
nights another is learnt from scratch on the same snapshot. Both rank the same test triples, and the loss has a paired
bootstrap interval over them. A share of every night's new triples is held out too, so that newcomers are tested and not
only what was there at first. `--plot` draws it.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.movies import movies
from benchmarks.nights import held_out_ranks, interval
from benchmarks.report import RESULTS, options, publish
from dkge_dist import api
from dkge_dist.evaluation.link_prediction import metrics
from dkge_dist.types import Array

Ranks = dict[int, tuple[Array, Array]]
"""Of the test triples at a night: by the updated model, and by the one that was trained anew."""


def play(
    folder: Path, store: Path, share: float, settings: list[str], compare: set[int]
) -> tuple[list[dict[str, Any]], Ranks]:
    """Every night: update; at the nights to compare, also train anew."""
    sizes = json.loads((folder / "done.json").read_text())

    def held_out(night: int) -> int:
        return round(share * (sizes["triples"] + night * (sizes["added"] - sizes["deleted"])))

    api.ingest(store, folder / "snapshot-000.tsv", valid=held_out(0), test=held_out(0))
    first = api.train(store, settings=settings)
    online = first["version"]
    lines = [{"night": 0, "scratch": _found(_ranks(store, online)), "scratch_seconds": first["seconds"]}]
    found: Ranks = {}
    for number, source in enumerate(sorted(folder.glob("night-*.changes")), 1):
        api.ingest(store, source, valid=held_out(number), test=held_out(number))
        updated = api.update(store, since_version=str(online))
        online = updated["version"]
        mine = _ranks(store, online)
        line = {"night": number, "online": _found(mine), "trained_triples": updated["trained_triples"]}
        for name in ("seconds", "open_seconds", "plan_seconds", "learn_seconds", "publish_seconds"):
            line[f"update_{name}"] = updated[name]
        if number in compare:
            anew = api.train(store, settings=settings)
            found[number] = mine, _ranks(store, anew["version"])
            line |= {"scratch": _found(found[number][1]), "scratch_seconds": anew["seconds"]}
            line["lost"] = 1 - line["online"]["mrr"] / line["scratch"]["mrr"]
        lines.append(line)
        print(line, file=sys.stderr, flush=True)
    return lines, found


def _ranks(store: Path, version: int) -> Array:
    return held_out_ranks(store, version)["vectors"][0]


def _found(ranks: Array) -> dict[str, float]:
    return metrics(ranks.reshape(-1))


def draw(runs: list[list[dict[str, Any]]], path: Path) -> None:
    """Every seed thin, their mean thick."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for color, (name, label) in enumerate((("online", "updated every night"), ("scratch", "trained anew"))):
        nights = [line["night"] for line in runs[0] if name in line]
        values = np.array([[line[name]["mrr"] for line in run if name in line] for run in runs])
        axes.plot(nights, values.T, color=f"C{color}", linewidth=0.5, alpha=0.6)
        axes.plot(nights, values.mean(0), color=f"C{color}", marker="o", markersize=3, label=label)
    axes.set(xlabel="night", ylabel="test MRR", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--preset", default="imdb-30")
    parser.add_argument("--entities", type=int, default=8000)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--compare", type=int, nargs="*", default=[15, 30], help="nights to train anew, too")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3])
    parser.add_argument("--held-out", type=float, default=0.06, help="share of the triples to test, and to validate")
    parser.add_argument("--plot", action="store_true", help="draw it into benchmarks/results")
    parser.add_argument("settings", nargs="*", metavar="key=value")
    arguments = parser.parse_args()
    folder = movies(arguments.work, arguments.preset, arguments.nights, entities=arguments.entities)
    store = arguments.work / f"drift-{arguments.preset}-{arguments.entities}-{arguments.nights}-store"
    runs, found = [], []
    for seed in arguments.seeds:
        shutil.rmtree(store, ignore_errors=True)
        words = [*arguments.settings, f"seed={seed}"]
        lines, of_seed = play(folder, store, arguments.held_out, words, set(arguments.compare))
        runs.append(lines)
        found.append(of_seed)
    figures: dict[str, tuple[Any, Any]] = {}
    for night in arguments.compare:
        mean = {
            kind: statistics.mean(line[kind]["mrr"] for run in runs for line in run if line["night"] == night)
            for kind in ("online", "scratch")
        }
        low, high = interval(*(np.hstack([of_seed[night][side] for of_seed in found]) for side in range(2)))
        asked = "<= 0.01" if night == arguments.nights else ""
        figures[f"MRR lost after {night} nights"] = (1 - mean["online"] / mean["scratch"], asked)
        figures[f"  least of 95% after {night} (paired bootstrap)"] = (-high, "")
        figures[f"  most of 95% after {night}"] = (-low, "")
    updates = [line["update_seconds"] for run in runs for line in run if "update_seconds" in line]
    anew = [line["scratch_seconds"] for run in runs for line in run if "scratch_seconds" in line]
    figures |= {
        "an update against training anew, share of the seconds": (
            statistics.median(updates) / statistics.median(anew), "<= 0.02",
        ),
        "an update, median s": (statistics.median(updates), ""),
        "training anew, median s": (statistics.median(anew), ""),
    }  # fmt: skip
    if arguments.plot:
        draw(runs, RESULTS / "bench_drift.png")
    publish("bench_drift", {"runs": runs}, arguments, figures)


if __name__ == "__main__":
    main()
