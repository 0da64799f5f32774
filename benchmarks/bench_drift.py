"""Drift: how much a model that is only updated loses against one that is trained anew, night after night.

A movie graph evolves for many nights. For every seed one model is learnt from scratch and updated every night; at some
nights another is learnt from scratch on the same snapshot. Both rank the same test triples, and the loss has a paired
bootstrap interval over them. A share of every night's new triples is held out too, so that newcomers are tested and not
only what was there at first. At the end, fidelity tells whether the last night is learnt, and whether what nights long
ago added is still believed. The same nights are also learnt several at once. `--plot` draws it.
"""

from __future__ import annotations

import json
import shutil
import statistics
import sys
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.movies import movies
from benchmarks.nights import WAYS, fidelity, fidelity_figures, held_out_ranks, interval, mrr
from benchmarks.report import RESULTS, options, publish
from dkge_dist.ask.model import open_model
from dkge_dist.kernels.triples import contains
from dkge_dist.measure.fidelity import measure_groups
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import Array, Split, Triples

Ranks = dict[int, dict[str, tuple[Array, Array]]]
"""Of the test triples by night and way: by the updated model, and by the one that was trained anew."""
AT_ONCE = (3, 7, 9)
"""Nights that are learnt at once, as published."""
OLD = 500
"""Triples of the nights of an age that are looked at."""


def play(
    folder: Path, store: Path, share: float, settings: list[str], compare: set[int]
) -> tuple[dict[str, Any], Ranks]:
    """Every night: update; at the nights to compare, also train anew. Then the same nights, several at once."""
    sizes = json.loads((folder / "done.json").read_text())

    def held_out(night: int) -> int:
        return round(share * (sizes["triples"] + night * (sizes["added"] - sizes["deleted"])))

    api.ingest(store, folder / "snapshot-000.tsv", name="night-0", valid=held_out(0), test=held_out(0))
    first = api.train(store, settings=settings)
    online, before, found = first["version"], "night-0", {}
    lines = [{"night": 0, "scratch": _found(_ranks(store, online)), "scratch_seconds": first["seconds"]}]
    for number, source in enumerate(sorted(folder.glob("night-*.changes")), 1):
        api.ingest(store, source, name=f"night-{number}", valid=held_out(number), test=held_out(number))
        updated = api.update(store, since_version=str(online))
        online = updated["version"]
        mine = _ranks(store, online)
        line = {"night": number, "online": _found(mine), "trained_triples": updated["trained_triples"]}
        for name in ("seconds", "open_seconds", "plan_seconds", "learn_seconds", "measure_seconds", "publish_seconds"):
            line[f"update_{name}"] = updated[name]
        if number in compare:
            anew = api.train(store, settings=settings)
            theirs = _ranks(store, anew["version"])
            found[number] = {way: (mine[way], theirs[way]) for way in mine}
            line |= {"scratch": _found(theirs), "scratch_seconds": anew["seconds"]}
            for name, version in (("online", online), ("scratch", anew["version"])):
                line[f"{name}_fidelity"] = fidelity(store, version, before)
                line[f"{name}_old"] = old_nights(store, version, number)
        lines.append(line)
        before = f"night-{number}"
        print(line, file=sys.stderr, flush=True)
    at_once = {}
    for several in AT_ONCE:
        at_once[several] = _learn_at_once(store, first["version"], several, lines[-1]["night"])
        print("at once", several, at_once[several], file=sys.stderr, flush=True)
    return {"nights": lines, "at_once": at_once}, found


def _learn_at_once(store: Path, version: int, several: int, nights: int) -> dict[str, Any]:
    """Held-out MRR at the last night if so many are learnt together, and what their updates took."""
    seconds = []
    for night in [*range(several, nights, several), nights]:
        updated = api.update(store, to=f"night-{night}", since_version=str(version))
        version = updated["version"]
        seconds.append(updated["seconds"])
    return {"held_out": _found(_ranks(store, version)), "updates": len(seconds), "seconds": sum(seconds)}


def old_nights(path: Path, version: int, nights: int) -> dict[str, dict[str, float]]:
    """MRR of what nights added and no later one deleted, by the third of the nights that they belong to."""
    opened = open_model(Store.open(path), str(version))
    evidence, train = opened.evidence, opened.snapshot.triples(Split.TRAIN)
    assert evidence is not None, "a model of the default preset"
    rng, groups = np.random.default_rng(0), {}
    for third in range(3):
        ages = range(1 + third * nights // 3, 1 + (third + 1) * nights // 3)
        added = [
            opened.store.diff(*(opened.store.find_snapshot(f"night-{n}") for n in (night - 1, night))).added
            for night in ages
        ]
        still = Triples.concat([some.take(contains(train, some)) for some in added])
        chosen = rng.choice(still.count, min(OLD, still.count), replace=False)
        groups[f"nights {ages[0]} to {ages[-1]}"] = still.take(chosen)
    embedding = opened.embedding
    found = measure_groups(embedding, groups, evidence.graph.graph.full, evidence)
    return {name: {way: group[way]["mrr"] for way in WAYS} for name, group in found.items()}


def _ranks(store: Path, version: int) -> dict[str, Array]:
    return {way: ranks for way, (ranks, _) in held_out_ranks(store, version).items()}


def _found(ranks: dict[str, Array]) -> dict[str, float]:
    return {way: mrr(values) for way, values in ranks.items()}


def draw(runs: list[list[dict[str, Any]]], path: Path) -> None:
    """Every seed thin, their mean thick."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4))
    sides = (("online", "updated every night"), ("scratch", "trained anew"))
    for color, (side, label) in enumerate(sides):
        for way, style in zip(WAYS, ("--", "-"), strict=True):
            nights = [line["night"] for line in runs[0] if side in line]
            values = np.array([[line[side][way] for line in run if side in line] for run in runs])
            axes.plot(nights, values.T, style, color=f"C{color}", linewidth=0.5, alpha=0.4)
            shown = f"{label}, {way.replace('_', ' ')}"
            axes.plot(nights, values.mean(0), style, color=f"C{color}", marker="o", markersize=3, label=shown)
    axes.set(xlabel="night", ylabel="test MRR", ylim=(0, None))
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def figures_of(runs: list[dict[str, Any]], found: list[Ranks], compare: list[int]) -> dict[str, tuple[Any, Any]]:
    """Means over the seeds."""
    figures: dict[str, tuple[Any, Any]] = {}
    for night, way in product(compare, WAYS):
        lines = [line for run in runs for line in run["nights"] if line["night"] == night]
        shown = way.replace("_", " ")
        sides = [np.concatenate([of_seed[night][way][side] for of_seed in found]) for side in range(2)]
        low, high = interval(*sides)
        name = f"MRR lost after {night} nights, {shown}"
        figures[name] = (1 - mrr(sides[0]) / mrr(sides[1]), "<= 0.015")
        figures[f"{name}: least of 95% (paired bootstrap)"] = (-high, "")
        figures[f"{name}: most of 95%"] = (-low, "")
        figures |= fidelity_figures(
            f"night {night}", way, *([line[f"{side}_fidelity"] for line in lines] for side in ("online", "scratch"))
        )
        for group in lines[0]["online_old"]:
            for side, of in (("online", ""), ("scratch", ", from scratch")):
                value = statistics.mean(line[f"{side}_old"][group][way] for line in lines)
                figures[f"night {night}: added in {group}, {shown}{of}"] = (value, "")
    last = [run["nights"][-1]["online"] for run in runs]
    for several in AT_ONCE:
        for way in WAYS:
            ratio = statistics.mean(run["at_once"][several]["held_out"][way] for run in runs) / statistics.mean(
                line[way] for line in last
            )
            name = f"{several} nights at once: held-out MRR / one by one, {way.replace('_', ' ')}"
            figures[name] = (ratio, "")
        seconds = statistics.median(run["at_once"][several]["seconds"] for run in runs)
        figures[f"{several} nights at once: seconds of all updates (median)"] = (seconds, "")
    updates = [line["update_seconds"] for run in runs for line in run["nights"] if "update_seconds" in line]
    anew = [line["scratch_seconds"] for run in runs for line in run["nights"] if "scratch_seconds" in line]
    return {
        **figures,
        "an update, median s": (statistics.median(updates), ""),
        "training anew, median s": (statistics.median(anew), ""),
    }


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--preset", default="imdb-30")
    parser.add_argument("--entities", type=int, default=8000)
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--compare", type=int, nargs="*", default=[30], help="nights to train anew, too")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3, 4, 5])
    parser.add_argument("--held-out", type=float, default=0.06, help="share of the triples to test, and to validate")
    parser.add_argument("--plot", action="store_true", help="draw it into benchmarks/results")
    parser.add_argument("settings", nargs="*", metavar="key=value")
    arguments = parser.parse_args()
    if arguments.plot:
        import matplotlib  # noqa: F401  # missing, it should be so now and not after all the work
    folder = movies(arguments.work, arguments.preset, arguments.nights, entities=arguments.entities)
    store = arguments.work / f"drift-{arguments.preset}-{arguments.entities}-{arguments.nights}-store"
    runs, found = [], []
    for seed in arguments.seeds:
        shutil.rmtree(store, ignore_errors=True)
        words = [*arguments.settings, f"seed={seed}"]
        run, of_seed = play(folder, store, arguments.held_out, words, set(arguments.compare))
        runs.append(run)
        found.append(of_seed)
    if arguments.plot:
        draw([run["nights"] for run in runs], RESULTS / "bench_drift.png")
    publish("bench_drift", {"runs": runs}, arguments, figures_of(runs, found, arguments.compare))


if __name__ == "__main__":
    main()
