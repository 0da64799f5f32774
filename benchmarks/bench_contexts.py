"""Contexts a second on the IMDB-13 graph: padded blocks and the ragged form, against the plain Python twin."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.movies import store_of
from benchmarks.report import options, publish
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.adjacency import WIDTHS, padded_blocks, ragged
from dkge_dist.kernels.contexts import Contexts, Sampling, build_contexts
from dkge_dist.kernels.csr import list_sizes
from dkge_dist.store.store import Store
from dkge_dist.types import Array, Split
from tests import reference

BATCH = 16_384
SAMPLING = Sampling(seed=7, cap=35, hops=1)


def contexts_per_second(topology: Topology, digest: Array, rows: Array, finish: Callable[[Contexts], Any]) -> float:
    began = time.perf_counter()
    for first in range(0, rows.shape[0], BATCH):
        finish(build_contexts(topology.neighbours, digest, SAMPLING, rows[first : first + BATCH]))
    return rows.shape[0] / (time.perf_counter() - began)


def plain_python(topology: Topology, digest: Array, rows: Array) -> float:
    """Padded contexts a second of the twin in tests/reference.py, on the same graph given as sets."""
    base = topology.neighbours
    near = {int(r): set(base.entries[base.indptr[r] : base.indptr[r + 1]].tolist()) for r in rows}
    for r in {v for vertices in near.values() for v in vertices} - near.keys():
        near[r] = set(base.entries[base.indptr[r] : base.indptr[r + 1]].tolist())
    began = time.perf_counter()
    for row in rows:
        context = reference.entity_context(near, digest, *SAMPLING, int(row))
        reference.padded_adjacency(context, next(width for width in WIDTHS if width >= len(context[0])))
    return rows.shape[0] / (time.perf_counter() - began)


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--preset", default="imdb-13")
    parser.add_argument("--contexts", type=int, default=1_000_000)
    arguments = parser.parse_args()
    store = Store.open(store_of(arguments.work, arguments.preset))
    manifest = store.manifest(1)
    digest = store.dictionaries(manifest)[0].digests
    snapshot = store.snapshot(manifest)
    topology = Topology.of(snapshot.triples(Split.TRAIN), digest.shape[0])
    rows = np.flatnonzero(snapshot.entities_alive).astype(np.int32)
    np.random.default_rng(0).shuffle(rows)
    rows = rows[: arguments.contexts]

    forms: dict[str, Callable[[Contexts], Any]] = {"padded": padded_blocks, "ragged": ragged, "masks": lambda c: c}
    for finish in forms.values():
        contexts_per_second(topology, digest, rows[:BATCH], finish)  # loads the compiled kernels
    rates = {
        name: [contexts_per_second(topology, digest, rows, finish) for _ in range(3)] for name, finish in forms.items()
    }
    twin = plain_python(topology, digest, rows[:3000])
    best = {name: sorted(rate)[1] for name, rate in rates.items()}
    sizes = np.minimum(list_sizes(topology.neighbours, rows), SAMPLING.cap) + 1
    publish(
        "bench_contexts",
        {
            "rates": rates,
            "twin": twin,
            "mean_vertices": float(sizes.mean()),
            "sampled": float((sizes > SAMPLING.cap).mean()),
        },
        arguments,
        {
            "padded blocks, contexts/s": (best["padded"], ">= 1,000,000"),
            "times the plain Python twin": (best["padded"] / twin, ">= 200"),
            "ragged, contexts/s": (best["ragged"], ""),
            "vertices and edges alone, contexts/s": (best["masks"], ""),
            "plain Python, contexts/s": (twin, ""),
            "mean vertices of a context": (float(sizes.mean()), ""),
        },
    )


if __name__ == "__main__":
    main()
