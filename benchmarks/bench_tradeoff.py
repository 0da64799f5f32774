"""What a night costs and brings, for several ways to learn it: fidelity against held-out loss against seconds.

Snapshot 1 of a published data set, learnt from scratch, is brought to snapshot 2 under each setting. Held-out triples
are the half of validation that no weight was fitted on, without those that stand in train now: settings are chosen
here, so that test is not looked at. `--plot` draws the points.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from benchmarks.nights import fidelity, held_out_ranks, mrr
from benchmarks.published import DBPEDIA, TIME_LIMIT, add_source, online_words, published_store, trained
from benchmarks.report import RESULTS, options, publish
from dkge_dist.surfaces import api

POINTS = {
    "default": [],
    "10 epochs": ["online.max_epochs=10"],
    "40 epochs": ["online.max_epochs=40"],
    "replay 1": ["online.replay=1"],
    "replay 16": ["online.replay=16"],
    "rate .05": ["online.learning_rate=0.05"],
    "rate .3": ["online.learning_rate=0.3"],
    "nothing held": ["online.proximal_weight=0"],
    "held five times as much": ["online.proximal_weight=1"],
    "targets hidden as in training": ["online.hide_targets=null"],
    "relations learn too": ["online.hold_relations=false"],
    "one epoch over affected objects": [
        "online.epochs_over=affected", "online.max_epochs=1", "online.learning_rate=0.025",
    ],
}  # fmt: skip
"""Ways to learn a night: the default, and what it is a compromise between. The last one was the default once."""


def measured(store: Path, seed: int, settings: list[str]) -> dict[str, Any]:
    """One update of snapshot 1 to snapshot 2, by vectors alone."""
    base = trained(store, "snapshot1", "default", [f"seed={seed}", TIME_LIMIT])
    updated = api.update(store, to="snapshot2", since_version=str(base["version"]), settings=online_words(settings))
    found = fidelity(store, updated["version"], "snapshot1")
    ranks, leaked = held_out_ranks(store, updated["version"], by_validation=True)["vectors"]
    # The validation triples of both snapshots are the same.
    before, _ = held_out_ranks(store, base["version"], by_validation=True)["vectors"]
    point = {group: values.get("vectors") for group, values in found.items()}
    point |= {f"{group}_with_evidence": values.get("with_evidence") for group, values in found.items()}
    point |= {
        f"{group}_of_before": found[group]["vectors"] / found[group]["before_vectors"]
        for group in ("kept_near", "kept_far")
    }
    point["held_out_of_before"] = mrr(ranks[~leaked]) / mrr(before[~leaked])
    return {**point, "seconds": updated["learn_seconds"], "settings": settings}


def draw(points: dict[str, dict[str, Any]], path: Path) -> None:
    """Added and deleted triples against held-out loss; the size of a point says how long it took."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(12, 4.5), sharex=True, layout="constrained")
    groups = ("added_existing", "deleted")
    for axes, group in zip(panels, groups, strict=True):
        for number, (name, point) in enumerate(points.items(), 1):
            place = point["held_out_of_before"], point[group]
            label = f"{number}: {name}, {point['seconds']:.1f} s"
            axes.scatter(*place, s=40 * max(point["seconds"], 0.5), color=f"C{number - 1}", alpha=0.6, label=label)
            axes.annotate(str(number), place, fontsize=8, ha="center", va="center")
        axes.set_xlabel("held-out MRR / before the night")
        axes.set_ylabel(f"MRR of {group.partition('_')[0]} triples")
        axes.set_ylim(0, 1.05)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside right center", fontsize=8, markerscale=0.6)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = options(__doc__ or "")
    add_source(parser)
    parser.add_argument("--dbpedia", type=Path, default=DBPEDIA, help="folder of DBpedia-3SP, as --source")
    parser.add_argument("--part", choices=("yago", "dbpedia"), default="yago")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot", action="store_true", help="draw it into benchmarks/results")
    parser.add_argument("--point", nargs="+", action="append", metavar="key=value", help="other points than the usual")
    arguments = parser.parse_args()
    if arguments.plot:
        import matplotlib  # noqa: F401  # missing, it should be so now and not after all the work
    store = published_store(arguments, 2, arguments.dbpedia if arguments.part == "dbpedia" else None)
    wanted = {" ".join(words): words for words in arguments.point} if arguments.point else POINTS
    measured(store, arguments.seed, [])  # loads the compiled kernels
    points = {}
    for name, words in wanted.items():
        points[name] = measured(store, arguments.seed, words)
        shown = {key: value for key, value in points[name].items() if isinstance(value, float)}
        print(name, {key: round(value, 3) for key, value in shown.items()}, file=sys.stderr, flush=True)
    if arguments.plot:
        draw(points, RESULTS / f"bench_tradeoff_{arguments.part}.png")
    figures: dict[str, tuple[Any, Any]] = {}
    for name, point in points.items():
        for key in ("added_existing", "added_emerging", "deleted", "kept_near_of_before", "kept_far_of_before"):
            if point[key] is not None:
                figures[f"{name}: {key}"] = (point[key], "")
        figures[f"{name}: held-out MRR / before"] = (point["held_out_of_before"], "")
        figures[f"{name}: seconds of learning"] = (point["seconds"], "")
    publish("bench_tradeoff", {"part": arguments.part, "points": points}, arguments, figures)


if __name__ == "__main__":
    main()
