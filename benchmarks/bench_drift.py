"""Drift: how much a model that is only updated loses against one that is trained anew, night after night.

A movie graph evolves for many nights. One model is learnt from scratch and updated every night; at some nights another
is learnt from scratch on the same snapshot. Both rank the same test triples. `--plot` draws it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.movies import movies
from benchmarks.report import RESULTS, options, publish
from dkge_dist import api

NIGHTS = (1, 2, 4, 6, 8, 10, 14, 18, 22, 26, 30)


def play(folder: Path, store: Path, held_out: int, settings: list[str], compare: set[int]) -> list[dict[str, Any]]:
    """Every night: update; at the nights to compare, also train anew."""
    api.ingest(store, folder / "snapshot-000.tsv", valid=held_out, test=held_out)
    first = api.train(store, settings=settings)
    online = first["version"]
    lines = [{"night": 0, "scratch_mrr": api.evaluate(store)["mrr"], "scratch_seconds": first["seconds"]}]
    for number, source in enumerate(sorted(folder.glob("night-*.changes")), 1):
        api.ingest(store, source)
        updated = api.update(store, since_version=str(online))
        online = updated["version"]
        found = api.evaluate(store, version=str(online))
        line = {"night": number, "online_mrr": found["mrr"], "online_hits@10": found["hits@10"]}
        line |= {"update_seconds": updated["seconds"], "learn_seconds": updated["learn_seconds"]}
        if number in compare:
            anew = api.train(store, settings=settings)
            scratch = api.evaluate(store, version=str(anew["version"]))
            line |= {"scratch_mrr": scratch["mrr"], "scratch_seconds": anew["seconds"]}
            line["lost"] = 1 - found["mrr"] / scratch["mrr"]
        lines.append(line)
        print(line, flush=True)
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
    parser.add_argument("--held-out", type=int, default=600)
    parser.add_argument("--plot", action="store_true", help="draw it into benchmarks/results")
    parser.add_argument("settings", nargs="*", metavar="key=value")
    arguments = parser.parse_args()
    folder = movies(arguments.work, arguments.preset, arguments.nights, entities=arguments.entities)
    store = arguments.work / f"drift-{arguments.preset}-{arguments.entities}-{arguments.nights}-store"
    if store.exists():
        raise SystemExit(f"{store}: is there from an earlier run; remove it to measure again")
    compare = {night for night in NIGHTS if night <= arguments.nights} | {arguments.nights}
    lines = play(folder, store, arguments.held_out, arguments.settings, compare)
    compared = [line for line in lines if "lost" in line]
    last = compared[-3:]
    lost = sum(line["lost"] for line in last) / len(last)
    updates = [line["update_seconds"] for line in lines if "update_seconds" in line]
    anew = [line["scratch_seconds"] for line in lines if "scratch_seconds" in line]
    figures = {
        f"MRR lost after {arguments.nights} nights": (compared[-1]["lost"], "<= 0.01"),
        "MRR lost, mean of the last three comparisons": (lost, "<= 0.01"),
        "an update against training anew, share of the seconds": (
            (sum(updates) / len(updates)) / (sum(anew) / len(anew)), "<= 0.02",
        ),
    }  # fmt: skip
    if arguments.plot:
        draw(lines, RESULTS / "bench_drift.png")
    publish("bench_drift", {"nights": lines}, arguments, figures)


if __name__ == "__main__":
    main()
