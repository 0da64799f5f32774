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
from dkge_dist.graph.affected import GraphState, find_affected
from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.relation_paths import PathCounts
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.triples import canonical
from dkge_dist.store.store import Store
from dkge_dist.synthetic import PRESETS, EvolvingGraph
from dkge_dist.types import ROW, Array, Split, Triples

SAMPLING = Sampling(seed=7, cap=35, hops=1)
SMALL = 32_000


def night_at_full_size(work: Any, times: int) -> dict[str, Any]:
    store = Store.open(store_of(work, "imdb-13"))
    first, second = store.manifest(1), store.manifest(2)
    names = store.dictionaries(second)
    digests = (names[0].digests, names[1].digests)
    train = store.snapshot(first).triples(Split.TRAIN)
    topology = Topology.of(train, len(names[0]))
    state = GraphState(topology, PathCounts.of(topology, train, len(names[1])))
    diff = store.diff(first, second)
    found, _ = find_affected(state, diff, digests, SAMPLING)
    seconds = median_seconds(lambda: find_affected(state, diff, digests, SAMPLING), times)
    return {
        "seconds": seconds,
        "changed_triples": diff.added.count + diff.deleted.count,
        "affected_entities": len(found.entities()),
        "context_changed_entities": len(found.entities_by_context),
    }


def moved(triples: Triples, place: Array) -> Triples:
    return canonical(Triples(place[triples.head], triples.relation, place[triples.tail]))


def embedded(base: Triples, change: Change, rows: int, around: Triples) -> tuple[GraphState, Diff, tuple[Array, Array]]:
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
    train = canonical(Triples.concat(parts))
    topology = Topology.of(train, rows)
    state = GraphState(topology, PathCounts.of(topology, train, 14))
    nobody = np.empty(0, ROW)
    shifted = Change(moved(change.added, here), moved(change.deleted, here))
    diff = Diff(shifted, Change.none(), Change.none(), nobody, nobody, nobody, nobody)
    return state, diff, (digest, np.random.default_rng(6).integers(0, 2**64, 14, np.uint64))


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
        state, diff, digests = embedded(base, change, rows, around)
        found, _ = find_affected(state, diff, digests, SAMPLING)

        def run(state: GraphState = state, diff: Diff = diff, digests: tuple[Array, Array] = digests) -> None:
            find_affected(state, diff, digests, SAMPLING)

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
    parser.add_argument("--small-night", action="store_true", help="a night in proportion to the 32,000 entities")
    arguments = parser.parse_args()
    sizes = (SMALL, 320_000, 3_200_000)
    flat = flatness(arguments.times, sizes, arguments.small_night)
    night = {} if arguments.flatness_only else night_at_full_size(arguments.work, arguments.times)
    figures: dict[str, tuple[Any, Any]] = {}
    if night:
        figures["affected sets of an imdb-13 night, s"] = (night["seconds"], "<= 2")
        figures["  entities affected"] = (night["affected_entities"], "")
    for kind in ("seconds", "cold_seconds"):
        label = "same change, caches flushed" if kind == "cold_seconds" else "same change"
        for size in sizes:
            figures[f"{label}, {size:,} entities, s"] = (flat[size][kind], "")
        figures[f"{label}: 3,200,000 against 32,000"] = (flat[sizes[-1]][kind] / flat[sizes[0]][kind], "<= 1.3")
    publish("bench_affected", {"night": night, "flatness": flat}, arguments, figures)


if __name__ == "__main__":
    main()
