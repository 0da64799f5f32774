"""Affected sets of a night: seconds at IMDB-13 size, and what one and the same change costs in graphs of other sizes.

The flatness part generates a graph of 32,000 entities with a night as large as one of IMDB-13, and embeds it in larger
graphs: the same triples and the same change, its entities scattered at random over the rows of the larger graph, the
rest another movie graph. Nothing but distance in memory tells the graphs apart.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.movies import store_of
from benchmarks.report import median_seconds, options, publish
from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.training_graph import TrainingGraph, find_affected
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.triples import canonical
from dkge_dist.store.store import Store
from dkge_dist.synthetic import PRESETS, EvolvingGraph
from dkge_dist.types import ROW, Array, Triples

SAMPLING = Sampling(seed=7, cap=35, hops=1)
PATH_LENGTH = 2
SMALL, RELATIONS = 32_000, 14


def night_at_full_size(work: Any, preset: str, times: int) -> dict[str, Any]:
    store = Store.open(store_of(work, preset))
    first, second = store.snapshot_manifest(1), store.snapshot_manifest(2)
    names = store.dictionaries(second)
    graph = TrainingGraph.of(store.snapshot(first), (names[0].digests, names[1].digests), SAMPLING, PATH_LENGTH)
    diff, target = store.diff(first, second), store.snapshot(second)
    found, _ = find_affected(graph, diff, target)
    seconds = median_seconds(lambda: find_affected(graph, diff, target), times)
    return {
        "seconds": seconds,
        "changed_triples": diff.added.count + diff.deleted.count,
        "affected_entities": len(found.entities()),
        "context_changed_entities": len(found.entities_by_context),
    }


def moved(triples: Triples, row: Array) -> Triples:
    return canonical(Triples(row[triples.head], triples.relation, row[triples.tail]))


def embedded(base: Triples, change: Change, rows: int, around: Triples) -> tuple[TrainingGraph, Diff, Snapshot]:
    """`base` and `change` at scattered rows among `rows`, together with the triples `around` on the other rows."""
    used = int(max(base.head.max(), base.tail.max(), change.added.head.max(), change.added.tail.max())) + 1
    order = np.random.default_rng(3).permutation(rows).astype(ROW)
    here, elsewhere = order[:used], order[used:]
    digest = np.random.default_rng(4).integers(0, 2**64, rows, np.uint64)
    digest[here] = np.random.default_rng(5).integers(0, 2**64, used, np.uint64)
    parts = [Triples(here[base.head], base.relation, here[base.tail])]
    if around.count:
        inside = (around.head < elsewhere.shape[0]) & (around.tail < elsewhere.shape[0])
        rest = around.take(inside)
        parts.append(Triples(elsewhere[rest.head], rest.relation, elsewhere[rest.tail]))
    nothing = Triples.empty()
    snapshot = Snapshot.full((canonical(Triples.concat(parts)), nothing, nothing), rows, RELATIONS)
    digests = (digest, np.random.default_rng(6).integers(0, 2**64, RELATIONS, np.uint64))
    shifted = Change(moved(change.added, here), moved(change.deleted, here))
    diff = Diff.of([shifted, Change.none(), Change.none()])
    graph = TrainingGraph.of(snapshot, digests, SAMPLING, PATH_LENGTH)
    return graph, diff, snapshot.after(diff, rows, RELATIONS)


def flatness(times: int, sizes: tuple[int, ...], small_night: bool) -> dict[int, dict[str, Any]]:
    whole = PRESETS["imdb-13"]
    small = whole.resized(entities=SMALL, nights=1)
    graph = EvolvingGraph(small if small_night else replace(small, added=whole.added, deleted=whole.deleted))
    base = graph.triples
    change = Change(*graph.advance())
    cold = np.zeros(1 << 24, np.int64)  # 128 MB: more than the caches hold
    out = {}
    for size in sizes:
        around = (
            EvolvingGraph(PRESETS["imdb-13"].resized(entities=size, nights=0, seed=1)).triples
            if size > SMALL
            else Triples.empty()
        )
        rows = max(size, graph.kinds.shape[0])
        case = embedded(base, change, rows, around)
        found, _ = find_affected(*case)  # What follows the size of the graph is computed once, and kept.

        def run(case: tuple[TrainingGraph, Diff, Snapshot] = case) -> None:
            find_affected(*case)

        out[size] = {
            "entities": rows,
            "changed_triples": change.size,
            "affected": len(found.entities()),
            "seconds": median_seconds(run, times),
            "cold_seconds": median_seconds(run, times, before=lambda: cold.__iadd__(1)),
        }
    return out


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--times", type=int, default=15)
    parser.add_argument("--flatness-only", action="store_true")
    parser.add_argument("--preset", default="imdb-13", help="the graph of the first part")
    parser.add_argument("--largest", type=int, default=3_200_000, help="entities of the largest graph of the second")
    parser.add_argument("--small-night", action="store_true", help="a night in proportion to the 32,000 entities")
    arguments = parser.parse_args()
    sizes = tuple(sorted({SMALL, min(320_000, arguments.largest), arguments.largest}))
    flat = flatness(arguments.times, sizes, arguments.small_night)
    night = {} if arguments.flatness_only else night_at_full_size(arguments.work, arguments.preset, arguments.times)
    figures: dict[str, tuple[Any, Any]] = {}
    if night:
        figures[f"affected sets of an {arguments.preset} night, s"] = (night["seconds"], "<= 2")
        figures["  entities affected"] = (night["affected_entities"], "")
    for kind in ("seconds", "cold_seconds"):
        label = "same change, caches flushed" if kind == "cold_seconds" else "same change"
        for size in sizes:
            figures[f"{label}, {size:,} entities, s"] = (flat[size][kind], "")
        figures[f"{label}: {sizes[-1]:,} against {SMALL:,}"] = (flat[sizes[-1]][kind] / flat[sizes[0]][kind], "<= 1.3")
    publish("bench_affected", {"night": night, "flatness": flat}, arguments, figures)


if __name__ == "__main__":
    main()
