"""Drift: how much a model that is only updated loses against one that is trained anew, night after night.

A movie graph evolves for many nights. One model is learnt from scratch and updated every night; at some nights another
is learnt from scratch on the same snapshot. Both rank the same test triples. A share of every night's new triples is
held out too, so that newcomers are tested and not only what was there at first. `--plot` draws it.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from pathlib import Path
from typing import Any

from benchmarks.movies import movies
from benchmarks.report import RESULTS, options, publish
from dkge_dist import api

NIGHTS = (1, 2, 4, 6, 8, 10, 14, 18, 22, 26, 28, 30)


def play(folder: Path, store: Path, share: float, settings: list[str], compare: set[int]) -> list[dict[str, Any]]:
    """Every night: update; at the nights to compare, also train anew."""
    sizes = json.loads((folder / "done.json").read_text())

    def held_out(night: int) -> int:
        return round(share * (sizes["triples"] + night * (sizes["added"] - sizes["deleted"])))

    api.ingest(store, folder / "snapshot-000.tsv", valid=held_out(0), test=held_out(0))
    first = api.train(store, settings=settings)
    online = first["version"]
    lines = [{"night": 0, "scratch_mrr": api.evaluate(store)["mrr"], "scratch_seconds": first["seconds"]}]
    for number, source in enumerate(sorted(folder.glob("night-*.changes")), 1):
        api.ingest(store, source, valid=held_out(number), test=held_out(number))
        updated = api.update(store, since_version=str(online))
        online = updated["version"]
        found = api.evaluate(store, version=str(online))
        line = {"night": number, "online_mrr": found["mrr"], "online_hits@10": found["hits@10"]}
        for name in ("seconds", "open_seconds", "plan_seconds", "learn_seconds", "publish_seconds"):
            line[f"update_{name}"] = updated[name]
        line["trained_triples"] = updated["trained_triples"]
        if number in compare:
            anew = api.train(store, settings=settings)
            scratch = api.evaluate(store, version=str(anew["version"]))
            line |= {"scratch_mrr": scratch["mrr"], "scratch_hits@10": scratch["hits@10"]}
            line |= {"scratch_seconds": anew["seconds"], "lost": 1 - found["mrr"] / scratch["mrr"]}
        lines.append(line)
        print(line, file=sys.stderr, flush=True)
    return lines


def draw(lines: list[dict[str, Any]], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    for name, label in (("online_mrr", "updated every night"), ("scratch_mrr", "trained anew")):
        points = [(line["night"], line[name]) for line in lines if name in line]
        axes.plot(*zip(*points, strict=True), marker="o", markersize=3, label=label)
    axes.set(xlabel="night", ylabel="test MRR", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--preset", default="imdb-30")
    parser.add_argument("--entities", type=int, default=8000)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--held-out", type=float, default=0.06, help="share of the triples to test, and to validate")
    parser.add_argument("--plot", action="store_true", help="draw it into benchmarks/results")
    parser.add_argument("settings", nargs="*", metavar="key=value")
    arguments = parser.parse_args()
    folder = movies(arguments.work, arguments.preset, arguments.nights, entities=arguments.entities)
    store = arguments.work / f"drift-{arguments.preset}-{arguments.entities}-{arguments.nights}-store"
    shutil.rmtree(store, ignore_errors=True)
    compare = {night for night in NIGHTS if night <= arguments.nights} | {arguments.nights}
    lines = play(folder, store, arguments.held_out, arguments.settings, compare)
    compared = [line for line in lines if "lost" in line]
    updates = [line["update_seconds"] for line in lines if "update_seconds" in line]
    anew = [line["scratch_seconds"] for line in lines if "scratch_seconds" in line]
    figures = {
        f"MRR lost after {arguments.nights} nights": (compared[-1]["lost"], "<= 0.01"),
        "MRR lost, mean of the last three comparisons": (statistics.mean(line["lost"] for line in compared[-3:]), ""),
        "an update against training anew, share of the seconds": (
            statistics.median(updates) / statistics.median(anew), "<= 0.02",
        ),
        "an update, median s": (statistics.median(updates), ""),
        "training anew, median s": (statistics.median(anew), ""),
    }  # fmt: skip
    if arguments.plot:
        draw(lines, RESULTS / "bench_drift.png")
    publish("bench_drift", {"nights": lines}, arguments, figures)


if __name__ == "__main__":
    main()
