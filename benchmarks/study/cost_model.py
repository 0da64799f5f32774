"""What a night costs, as a sum of simple terms with coefficients that are not negative. Pure: numbers in, numbers out.

    CPU seconds  = a + b · rows of the graph + (c · passes over all that changed + d · passes over what is not learnt)
                   · (dimension + 100) + e · trained triples · dimension + f · (weights of evidence are fitted anew)
    memory bytes = a + b · rows · dimension + c · triples of the graph + d · trained triples · dimension
    bytes moved  = (a + b · passes + c · trained triples) · dimension

A night passes over all that changed until it made `online.narrow_after` batches of them, and then over what is left.
Bytes are moved between a worker and its shards; a night without shards moves none. All of them are vectors: those of
samples that are measured, of batches, and, once, of what the contexts of those that learn show.

Coefficients are fitted to relative errors, so that small measurements count as much as large ones. A model is believed
if it predicts a point that it was not fitted on within 25%.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from dkge_dist.settings import load_settings
from dkge_dist.types import Array

BELIEVED = 0.25


@dataclass(frozen=True)
class Point:
    """A night: its size, its graph, and what was measured of it."""

    name: str
    rows: float
    triples: float
    changed: float
    trained: float
    dim: float
    cpu_seconds: float
    memory: float
    moved: float
    stopped: bool = False
    """By the budget: its seconds and bytes say nothing, its memory does."""
    shards: int = 0
    refitted: bool = False
    """So much changed since the weights of evidence were fitted that the night fits them anew."""

    def tells(self, cost: str) -> bool:
        """May this cost be fitted to it? Of nights on shards only the bytes are known."""
        return (cost == "moved") == (self.shards > 0) and (cost == "memory" or not self.stopped)

    @property
    def passes(self) -> tuple[float, float]:
        """Changed triples that epochs pass over: in all of them, and in what is not learnt if that were all."""
        online = load_settings().online
        epoch = self.changed / online.batch_size
        whole = min(max(online.narrow_after, epoch), online.max_epochs * epoch)
        return online.batch_size * whole, online.batch_size * (online.max_epochs * epoch - whole)


PLAIN = 100
"""Dimensions that cost as much as what a pass over a triple costs without any: making the batch, walking its lists."""

Terms = Callable[[Point], list[float]]
COSTS: dict[str, Terms] = {
    "cpu_seconds": lambda p: [
        1.0,
        p.rows,
        *(count * (p.dim + PLAIN) for count in p.passes),
        p.trained * p.dim,
        float(p.refitted),
    ],
    "memory": lambda p: [1.0, p.rows * p.dim, p.triples, p.trained * p.dim],
    "moved": lambda p: [p.dim, sum(p.passes) * p.dim, p.trained * p.dim],
}
"""By what is predicted: the terms that are added up."""
TERMS = {
    "cpu_seconds": (
        "starting",
        "rows of the graph",
        "learning all that changed",
        "learning what is left",
        "contexts of who learns",
        "weights of evidence",
    ),
    "memory": ("starting", "vectors", "triples of the graph", "contexts of who learns"),
    "moved": ("samples that are measured", "rows of batches", "contexts of who learns"),
}
"""What these terms are."""
SPREAD = "vectors"
"""What shards divide among the machines."""


@dataclass(frozen=True)
class Fitted:
    """Coefficients of the terms of one cost."""

    cost: str
    coefficients: Array

    def parts(self, point: Point) -> dict[str, float]:
        """The cost of a night by term, whatever was measured of it."""
        values = np.array(COSTS[self.cost](point)) * self.coefficients
        return dict(zip(TERMS[self.cost], values.tolist(), strict=True))

    def predict(self, point: Point) -> float:
        """All terms together."""
        return sum(self.parts(point).values())


def fit(cost: str, points: list[Point]) -> Fitted:
    """Least squares of relative errors, no coefficient below zero."""
    points = [point for point in points if point.tells(cost)]
    terms = np.array([COSTS[cost](point) for point in points])
    measured = np.array([getattr(point, cost) for point in points])
    # Terms are brought to one scale first: rows times dimension is a large number, and nnls has tolerances.
    relative = terms / measured[:, None]
    # A term that none of these nights has is none.
    scale = np.where(relative.max(0) > 0, relative.max(0), 1.0)
    found, _ = nnls(relative / scale, np.ones(len(points)))
    return Fitted(cost, found / scale)


def left_out(cost: str, points: list[Point]) -> list[tuple[str, float]]:
    """Every point like others and between them, predicted by a fit to the rest: its name, and predicted / measured − 1.

    Several points may have one name: nights of the same size.
    """
    errors = []
    points = [point for point in points if point.tells(cost)]
    for number, point in enumerate(points):
        rest = [*points[:number], *points[number + 1 :]]
        sizes = [(other.rows, other.changed) for other in rest]
        inside = all(
            min(size[axis] for size in sizes) <= (point.rows, point.changed)[axis] <= max(size[axis] for size in sizes)
            for axis in range(2)
        )
        known = point.refitted <= any(other.refitted for other in rest)
        if inside and known and len(rest) >= len(COSTS[cost](point)):
            errors.append((point.name, fit(cost, rest).predict(point) / getattr(point, cost) - 1))
    return errors


@dataclass(frozen=True)
class Cluster:
    """Machines, and what each has."""

    machines: int
    cores: int
    memory: float
    bytes_per_second: float


def bottleneck(fits: dict[str, Fitted], night: Point, cluster: Cluster) -> dict[str, float | str]:
    """A night on a cluster: the seconds or bytes of each resource, which is the bottleneck, and its largest term.

    One worker learns a night, at best on all cores of its machine, and every row that it reads comes over that
    machine's network. Vectors are spread over all machines; the graph is whole on each.
    """
    parts = {cost: found.parts(night) for cost, found in fits.items()}
    held = {term: size / (cluster.machines if term == SPREAD else 1) for term, size in parts["memory"].items()}
    cpu = sum(parts["cpu_seconds"].values()) / cluster.cores
    network = sum(parts["moved"].values()) / cluster.bytes_per_second
    memory = sum(held.values())
    worst = "memory" if memory > cluster.memory else "CPU" if cpu >= network else "network"
    terms = {"memory": held, "CPU": parts["cpu_seconds"], "network": parts["moved"]}[worst]
    term = max(terms, key=lambda name: terms[name])
    found = {"cpu_seconds": cpu, "network_seconds": network, "memory_a_machine": memory}
    return {**found, "bottleneck": worst, "term": term, "share": terms[term] / sum(terms.values())}
