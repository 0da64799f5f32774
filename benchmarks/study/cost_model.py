"""What a night costs, as a sum of simple terms with coefficients that are not negative. Pure: numbers in, numbers out.

    CPU seconds  = a + b · trained triples · dimension + c · rows of the graph + d · changed triples
    memory bytes = a + b · rows · dimension + c · triples of the graph
    bytes moved  = a + b · changed triples · dimension

Coefficients are fitted to relative errors, so that small measurements count as much as large ones. A model is believed
if it predicts a point that it was not fitted on within 25%.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

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
    """By the budget: its seconds say nothing, its memory and bytes do."""

    def tells(self, cost: str) -> bool:
        """May this cost be fitted to it?"""
        return cost != "cpu_seconds" or not self.stopped


Terms = Callable[[Point], list[float]]
COSTS: dict[str, Terms] = {
    "cpu_seconds": lambda p: [1.0, p.trained * p.dim, p.rows, p.changed],
    "memory": lambda p: [1.0, p.rows * p.dim, p.triples],
    "moved": lambda p: [1.0, p.changed * p.dim],
}
"""By what is predicted: the terms that are added up."""
TERMS = {
    "cpu_seconds": ("starting", "learning triples", "rows of the graph", "changed triples"),
    "memory": ("starting", "vectors", "triples of the graph"),
    "moved": ("starting", "rows of changed triples"),
}
"""What these terms are."""


@dataclass(frozen=True)
class Fitted:
    """Coefficients of the terms of one cost."""

    cost: str
    coefficients: Array

    def predict(self, point: Point) -> float:
        """The cost of a night, whatever was measured of it."""
        return float(np.dot(COSTS[self.cost](point), self.coefficients))

    def most(self, point: Point) -> tuple[str, float]:
        """The largest term of the cost of a night, and its share."""
        parts = np.array(COSTS[self.cost](point)) * self.coefficients
        return TERMS[self.cost][int(parts.argmax())], float(parts.max() / parts.sum())


def fit(cost: str, points: list[Point]) -> Fitted:
    """Least squares of relative errors, no coefficient below zero."""
    points = [point for point in points if point.tells(cost)]
    terms = np.array([COSTS[cost](point) for point in points])
    measured = np.array([getattr(point, cost) for point in points])
    # Terms are brought to one scale first: rows times dimension is a large number, and nnls has tolerances.
    relative = terms / measured[:, None]
    scale = relative.max(0)
    found, _ = nnls(relative / scale, np.ones(len(points)))
    return Fitted(cost, found / scale)


def left_out(cost: str, points: list[Point]) -> list[tuple[str, float]]:
    """Every point that lies between others, predicted by a fit to the rest: its name, and predicted / measured − 1.

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
        if inside and len(rest) >= len(COSTS[cost](point)):
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
    """A night on a cluster, its CPU, memory and network spread evenly: the seconds of each, and which is the most."""
    cpu = fits["cpu_seconds"].predict(night) / (cluster.machines * cluster.cores)
    network = fits["moved"].predict(night) / (cluster.machines * cluster.bytes_per_second)
    memory = fits["memory"].predict(night) / cluster.machines
    worst = "memory" if memory > cluster.memory else "CPU" if cpu >= network else "network"
    return {"cpu_seconds": cpu, "network_seconds": network, "memory_a_machine": memory, "bottleneck": worst}
