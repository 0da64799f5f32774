"""Retention: what questions that have nothing to do with a night lose by it, night after night, against training anew.

A published graph loses a share of its train triples beforehand. It is learnt, and then thirty small nights add some of
these and delete others. After them the same test triples are ranked by the model that was only updated and by one that
was trained anew on the same snapshot, with evidence and by vectors alone; what nights added and deleted is asked, too.
Nights are drawn at random, or where they hurt: at the largest hubs, or with another relation every night.

Choose settings by `--split valid` on some graphs (`--graphs`), and look at the others afterwards. `--quick` takes six
nights. `--plot` draws held-out MRR by night.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.movies import movies
from benchmarks.report import DATA, RESULTS, options, publish
from dkge_dist.surfaces import api

PUBLISHED = {
    "fb15k-237": "FB15k-237",
    "wn18rr": "WN18RR",
    "yago": "YAGO-3SP/snapshot1",
    "dbpedia": "DBpedia-3SP/snapshot1",
}
GRAPHS = (*PUBLISHED, "debian", "movies")
VARIANTS = ("both", "added", "deleted", "hubs", "relations")
WAYS = ("with_evidence", "vectors")
HUBS = 100
ASKED = {"with_evidence": ">= 0.985", "vectors": ">= 0.97"}

Lines = list[str]
"""Triples as `head<TAB>relation<TAB>tail`."""


@dataclass(frozen=True)
class Graph:
    """Triples by split; without a test split, half of the validation triples are one."""

    train: Lines
    valid: Lines
    test: Lines

    @staticmethod
    def of(train: Lines, valid: Lines, test: Lines) -> Graph:
        """The splits of a source, which may have no test triples."""
        return Graph(train, valid, test) if test else Graph(train, valid[::2], valid[1::2])

    def write(self, folder: Path) -> None:
        """As a folder that `dkge ingest` reads."""
        folder.mkdir(parents=True)
        for name, lines in (("train", self.train), ("valid", self.valid), ("test", self.test)):
            (folder / f"{name}.tsv").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def read_openke(folder: Path) -> Graph:
    """A data set in OpenKE layout, by labels."""
    entities, relations = (
        {number: label for label, number in (line.rsplit("\t", 1) for line in _lines(folder / f"{kind}2id.txt"))}
        for kind in ("entity", "relation")
    )
    splits = []
    for name in ("train", "valid", "test"):
        path = folder / f"{name}2id.txt"
        triples = (line.split() for line in _lines(path)) if path.exists() else iter(())
        splits.append(
            [f"{entities[head]}\t{relations[relation]}\t{entities[tail]}" for head, tail, relation in triples]
        )
    return Graph.of(*splits)


def _lines(path: Path) -> Iterator[str]:
    """All but the first, which counts them."""
    return (line.strip() for line in path.read_text(encoding="utf-8").split("\n")[1:] if line.strip())


def read_store(store: Path) -> Graph:
    """What a store holds, with the held-out triples that ingest chose."""
    out = store.with_name(f"{store.name}-triples")
    splits = []
    from dkge_dist.store.store import Store
    from dkge_dist.types import Split

    opened = Store.open(store)
    manifest = opened.current_snapshot()
    assert manifest is not None, f"{out}: nothing was ingested"
    snapshot, (entities, relations) = opened.snapshot(manifest), opened.dictionaries(manifest)
    for split in Split:
        triples = snapshot.triples(split)
        columns = entities.labels(triples.head), relations.labels(triples.relation), entities.labels(triples.tail)
        splits.append(["\t".join(line) for line in zip(*columns, strict=True)])
    return Graph.of(*splits)


def graph_named(name: str, work: Path, debian: list[str], entities: int) -> Graph:
    """One of `GRAPHS`."""
    if name in PUBLISHED:
        folder = Path(os.environ.get(DATA, "")) / PUBLISHED[name]
        if not folder.is_dir():
            raise SystemExit(f"{folder}: not there; set {DATA} to the folder of published data sets")
        return read_openke(folder)
    store = work / f"retention-{name}-source"
    shutil.rmtree(store, ignore_errors=True)
    if name == "debian":
        if not debian:
            raise SystemExit("debian: name its Packages files with --debian")
        api.ingest(store, debian, format="debian", valid=1000, test=1000)
    else:
        source = movies(work, "imdb-30", 1, entities=entities) / "snapshot-000.tsv"
        api.ingest(store, source, valid=1000, test=1000)
    return read_store(store)


@dataclass(frozen=True)
class Nights:
    """The graph before the first night, and what each night adds and deletes."""

    before: Graph
    changes: list[tuple[Lines, Lines]]


def make_nights(graph: Graph, variant: str, nights: int, share: float, rng: np.random.Generator) -> Nights:
    """Nights that add and delete such a share of the train triples each. Every entity keeps a triple at first."""
    count, size = len(graph.train), max(1, round(share * len(graph.train)))
    parts = [line.split("\t") for line in graph.train]
    order = rng.permutation(count)
    if variant == "hubs":
        degree: dict[str, int] = {}
        for head, _, tail in parts:
            degree[head], degree[tail] = degree.get(head, 0) + 1, degree.get(tail, 0) + 1
        hubs = set(sorted(degree, key=lambda label: -degree[label])[:HUBS])
        order = np.array([at for at in order if parts[at][0] in hubs or parts[at][2] in hubs])
    if variant == "relations":
        # A stable sort by relation: a night has the triples of one or two of them.
        names = sorted({relation for _, relation, _ in parts}, key=lambda name: rng.random())
        rank = {name: number for number, name in enumerate(names)}
        order = order[: 4 * nights * size]
        order = order[np.argsort([rank[parts[at][1]] for at in order], kind="stable")]
    wanted = 2 * nights * size
    if order.shape[0] < wanted:
        raise SystemExit(f"{variant}: only {order.shape[0]} triples to change, {wanted} are wanted")
    order = order[np.linspace(0, order.shape[0] - 1, wanted).astype(int)] if variant == "relations" else order[:wanted]
    changed = [graph.train[at] for at in order]
    batches = [changed[first : first + size] for first in range(0, wanted, size)]
    adds, deletes = batches[::2], batches[1::2]
    nothing: Lines = []
    if variant == "deleted":
        return Nights(graph, [(nothing, gone) for gone in deletes])
    reserved = {line for batch in adds for line in batch}
    before = Graph([line for line in graph.train if line not in reserved], graph.valid, graph.test)
    if variant == "added":
        return Nights(before, [(new, nothing) for new in adds])
    return Nights(before, list(zip(adds, deletes, strict=True)))


def play(nights: Nights, work: Path, settings: list[str], split: str, sample: int, every: int) -> dict[str, Any]:
    """Learn the graph, then night after night, then anew; what is asked of each."""
    shutil.rmtree(work, ignore_errors=True)
    nights.before.write(work / "graph")
    asked = nights.before.valid if split == "valid" else nights.before.test
    rng = np.random.default_rng(0)
    chosen = rng.choice(len(asked), min(sample, len(asked)), replace=False)
    (work / "asked.tsv").write_text("".join(f"{asked[at]}\n" for at in np.sort(chosen)), encoding="utf-8")
    store = work / "store"
    api.ingest(store, work / "graph", name="night-0")
    trained = api.train(store, settings=settings)
    version = trained["version"]
    lines = [{"night": 0, "mrr": held_out(store, version, work), "train_seconds": trained["seconds"]}]
    for number, (added, deleted) in enumerate(nights.changes, 1):
        source = work / f"night-{number}.changes"
        changes = [f"+\t{line}\n" for line in added] + [f"-\t{line}\n" for line in deleted]
        source.write_text("".join(changes), encoding="utf-8")
        api.ingest(store, source, name=f"night-{number}", force=True)
        updated = api.update(store, since_version=str(version), settings=settings)
        version = updated["version"]
        line = {"night": number, "seconds": updated["seconds"], "learn_seconds": updated["learn_seconds"]}
        if number % every == 0 or number == len(nights.changes):
            line["mrr"] = held_out(store, version, work)
        lines.append(line)
        print(line, file=sys.stderr, flush=True)
    anew = api.train(store, settings=settings)
    found = {"nights": lines, "anew": held_out(store, anew["version"], work), "train_seconds": anew["seconds"]}
    for name, number in (("online", version), ("anew", anew["version"])):
        found[f"{name}_fidelity"] = fidelity_of(store, number)
    return found


def held_out(store: Path, version: int, work: Path) -> dict[str, float]:
    """MRR of the asked triples, protocol `filtered`, by both ways."""
    report = api.evaluate(store, version=str(version), triples=work / "asked.tsv")
    return {"with_evidence": report["mrr"], "vectors": report["vectors"]["mrr"]}


def fidelity_of(store: Path, version: int) -> dict[str, dict[str, float]]:
    """Exact MRR of all that the nights added and deleted together, by group and way."""
    report = api.fidelity(store, version=str(version), since="night-0")
    return {
        group: {way: report[group][way]["mrr"] for way in WAYS if "mrr" in report[group].get(way, {})}
        for group in ("added_existing", "added_emerging", "deleted", "kept_near", "kept_far")
    }


def draw(runs: dict[str, list[dict[str, Any]]], path: Path) -> None:
    """A panel for each graph and variant: held-out MRR by night, and that of training anew."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(runs), figsize=(3.2 * len(runs), 3), squeeze=False)
    for panel, (name, seeds) in zip(axes[0], runs.items(), strict=True):
        for color, way in enumerate(WAYS):
            for run in seeds:
                points = [(line["night"], line["mrr"][way]) for line in run["nights"] if "mrr" in line]
                panel.plot(*zip(*points, strict=True), color=f"C{color}", label=way.replace("_", " "))
                panel.plot(points[-1][0], run["anew"][way], "o", color=f"C{color}", markersize=4)
        panel.set(title=name, xlabel="night")
        panel.set_ylim(bottom=0)
    axes[0][0].set_ylabel("held-out MRR (dots: trained anew)")
    axes[0][0].legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def figures_of(name: str, runs: list[dict[str, Any]]) -> dict[str, tuple[Any, Any]]:
    """Means over the seeds."""
    figures: dict[str, tuple[Any, Any]] = {}
    for way in WAYS:
        shown = f"{name}, {way.replace('_', ' ')}"
        ratio = statistics.mean(run["nights"][-1]["mrr"][way] / run["anew"][way] for run in runs)
        figures[f"{shown}: held-out MRR / trained anew"] = (ratio, ASKED[way])
        for moment, value in (
            ("before", statistics.mean(run["nights"][0]["mrr"][way] for run in runs)),
            ("after the nights", statistics.mean(run["nights"][-1]["mrr"][way] for run in runs)),
            ("trained anew", statistics.mean(run["anew"][way] for run in runs)),
        ):
            figures[f"{shown}: MRR {moment}"] = (value, "")
        for group, side in product(runs[0]["online_fidelity"], ("online", "anew")):
            found = [run[f"{side}_fidelity"][group].get(way) for run in runs]
            if all(value is not None for value in found):
                figures[f"{shown}: {group}, {side}"] = (statistics.mean(found), "")
    seconds = [line["learn_seconds"] for run in runs for line in run["nights"] if "learn_seconds" in line]
    figures[f"{name}: seconds of learning a night (median)"] = (statistics.median(seconds), "<= 1.5")
    return figures


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(PUBLISHED))
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=["both"])
    parser.add_argument("--nights", type=int, default=30)
    parser.add_argument("--share", type=float, default=0.001, help="of the train triples, added and deleted a night")
    parser.add_argument("--seeds", type=int, nargs="*", default=[1])
    parser.add_argument("--split", choices=("valid", "test"), default="test")
    parser.add_argument("--sample", type=int, default=3000, help="held-out triples that are asked at most")
    parser.add_argument("--every", type=int, default=5, help="nights between two looks at held-out triples")
    parser.add_argument("--entities", type=int, default=8000, help="of the movie graph")
    parser.add_argument("--debian", nargs="*", default=[], help="Packages files of a release")
    parser.add_argument("--quick", action="store_true", help="six nights")
    parser.add_argument("--plot", action="store_true", help="draw it into benchmarks/results")
    parser.add_argument("settings", nargs="*", metavar="key=value")
    arguments = parser.parse_args()
    runs: dict[str, list[dict[str, Any]]] = {}
    figures: dict[str, tuple[Any, Any]] = {}
    for name, variant in product(arguments.graphs, arguments.variants):
        graph = graph_named(name, arguments.work, arguments.debian, arguments.entities)
        shown = name if variant == "both" else f"{name}, {variant}"
        for seed in arguments.seeds:
            rng = np.random.default_rng(seed)
            nights = make_nights(graph, variant, 6 if arguments.quick else arguments.nights, arguments.share, rng)
            folder = arguments.work / f"retention-{name}-{variant}-{seed}"
            words = [*arguments.settings, f"seed={seed}"]
            found = play(nights, folder, words, arguments.split, arguments.sample, arguments.every)
            runs.setdefault(shown, []).append(found)
            print(json.dumps({shown: found["anew"]}), file=sys.stderr, flush=True)
        figures |= figures_of(shown, runs[shown])
    if arguments.plot:
        draw(runs, RESULTS / "bench_retention.png")
    publish("bench_retention", {"runs": runs}, arguments, figures)


if __name__ == "__main__":
    main()
