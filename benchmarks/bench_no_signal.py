"""Evidence where the graph says nothing: does it hurt?

The tails of one relation (the most frequent one by default) are shuffled, in each split by itself, so that which pair
it joins has nothing to do with other relations any more. A model is learnt with evidence and ranks the test triples
with it and by vectors alone: those of that relation, and all of them. The graph is that of --source with --published,
else a movie graph.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.movies import store_of
from benchmarks.published import TIME_LIMIT, add_source, published_store, trained
from benchmarks.report import options, publish
from dkge_dist.kernels.triples import canonical, minus
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import Split, Triples


def shuffled_splits(splits: list[Triples], relation: int, seed: int) -> list[Triples]:
    """The splits with the tails of one relation permuted; what is in an earlier split already is left out."""
    rng = np.random.default_rng(seed)
    out: list[Triples] = []
    for triples in splits:
        tail = triples.tail.copy()
        where = np.flatnonzero(triples.relation == relation)
        tail[where] = tail[rng.permutation(where)]
        mixed = canonical(Triples(triples.head, triples.relation, tail))
        for before in out:
            mixed = minus(mixed, before)
        out.append(mixed)
    return out


def shuffled_store(source: Path, wanted: str | None, store: Path) -> tuple[str, int]:
    """Ingest the first snapshot of a store with one relation shuffled; (its label, its test triples)."""
    opened = Store.open(source)
    manifest = opened.snapshot_manifest(1)
    entities, relations = opened.dictionaries(manifest)
    snapshot = opened.snapshot(manifest)
    splits = [snapshot.triples(split) for split in Split]
    labels = relations.labels(np.arange(len(relations)))
    if wanted is not None and wanted not in labels:
        raise SystemExit(f"no relation {wanted!r}: one of {', '.join(labels[:20])}")
    counts = np.bincount(splits[Split.TRAIN].relation)
    relation = labels.index(wanted) if wanted is not None else int(counts.argmax())
    mixed = shuffled_splits(splits, relation, 0)
    if not store.exists():
        folder = store.with_suffix(".source")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for split, triples in zip(Split, mixed, strict=True):
            columns = entities.labels(triples.head), relations.labels(triples.relation), entities.labels(triples.tail)
            lines = "".join("\t".join(row) + "\n" for row in zip(*columns, strict=True))
            (folder / f"{split.label}.tsv").write_text(lines, encoding="utf-8")
        api.ingest(store, folder, name="shuffled")
        shutil.rmtree(folder)
    return labels[relation], int((mixed[Split.TEST].relation == relation).sum())


def one_seed(store: Path, relation: str, words: list[str]) -> dict[str, Any]:
    """Metrics of one model with evidence and by vectors alone: of the relation, and of all triples."""
    done = trained(store, "shuffled", "default", words)
    found: dict[str, Any] = {"seconds": done["seconds"], "epochs": done["epochs"]}
    for way, evidence in (("with evidence", True), ("vectors alone", False)):
        report = api.evaluate(store, version=str(done["version"]), evidence=evidence, relations=True)
        lines = {line["relation"]: line for line in report["relations"]}
        found[way] = {"relation": lines[relation]["mrr"], "all": report["mrr"], "by_relation": lines[relation]}
    return found


def source_store(arguments: argparse.Namespace) -> Path:
    """The graph before it is shuffled."""
    if arguments.published:
        return published_store(arguments)
    return store_of(arguments.work, arguments.preset, 0, arguments.entities, arguments.held_out)


def main() -> None:
    parser = options(__doc__ or "")
    add_source(parser)
    parser.add_argument("--published", action="store_true", help="shuffle --source instead of a movie graph")
    parser.add_argument("--preset", default="imdb-30")
    parser.add_argument("--entities", type=int, default=20_000)
    parser.add_argument("--held-out", type=int, default=3000, help="valid and test triples of the movie graph")
    parser.add_argument("--relation", help="its label; the most frequent one by default")
    parser.add_argument("--seeds", type=int, default=3, help="how many: 1, 2, ...")
    parser.add_argument("--set", dest="settings", nargs="*", default=[], metavar="key=value")
    arguments = parser.parse_args()
    began = time.perf_counter()
    source = source_store(arguments)
    store = arguments.work / f"no-signal-{arguments.relation or 'first'}-{source.name}"
    relation, tested = shuffled_store(source, arguments.relation, store)
    if not tested:
        raise SystemExit(f"{relation!r} has no test triples: hold out more, or name another relation")
    runs = []
    for seed in range(1, arguments.seeds + 1):
        runs.append(one_seed(store, relation, [f"seed={seed}", TIME_LIMIT, *arguments.settings]))
        print(f"seed {seed}: {runs[-1]}", file=sys.stderr, flush=True)
    figures: dict[str, tuple[Any, Any]] = {}
    for what, name in (("relation", f"test triples of {relation}, shuffled"), ("all", "all test triples")):
        mean = {way: statistics.mean(run[way][what] for run in runs) for way in ("with evidence", "vectors alone")}
        figures[f"{name}: mrr with evidence / by vectors alone"] = (
            mean["with evidence"] / mean["vectors alone"], ">= 0.99",
        )  # fmt: skip
        figures |= {f"{name}: mrr, {way}": (value, "") for way, value in mean.items()}
    figures["test triples of that relation"] = (tested, "")
    figures["seeds"] = (arguments.seeds, "")
    figures["seconds of all this"] = (time.perf_counter() - began, "")
    result = {"relation": relation, "seeds": list(range(1, arguments.seeds + 1)), "runs": runs}
    publish("bench_no_signal", result, arguments, figures)


if __name__ == "__main__":
    main()
