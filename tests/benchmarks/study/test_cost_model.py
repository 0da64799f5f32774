"""The cost model finds the coefficients that made its points, and says which resource ends first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.study.cost_model import Cluster, Point, bottleneck, fit, left_out
from dkge_dist.settings import load_settings


def point(rows: float, changed: float, noise: float = 1.0, dim: float = 100, shards: int = 0) -> Point:
    trained, triples = 30 * changed, 2.5 * rows
    bare = Point(f"{rows:g}, {changed:g}", rows, triples, changed, trained, dim, 0, 0, 0, shards=shards)
    whole, left = bare.passes
    return replace(
        bare,
        cpu_seconds=noise * (2 + 1e-6 * rows + (5e-7 * whole + 1e-7 * left) * (dim + 100) + 1e-8 * trained * dim),
        memory=noise * (4e8 + 12 * rows * dim + 40 * triples + 2 * trained * dim),
        moved=noise * (1e3 + 20 * (whole + left) + 4 * trained) * dim if shards else 0,
    )


POINTS = [
    point(rows, changed, shards=shards)
    for rows in (3e4, 3e5, 3e6)
    for changed in (1e2, 1e3, 1e4, 1e5)
    for shards in (0, 8)
]
# Vectors and triples grow together with a graph: only another dimension tells them apart.
POINTS += [
    point(rows, changed, dim=50, shards=shards) for rows in (3e4, 3e6) for changed in (1e2, 1e5) for shards in (0, 8)
]


def test_a_night_passes_over_everything_until_it_made_its_batches() -> None:
    online = load_settings().online
    epochs, batches, size = online.max_epochs, online.narrow_after, online.batch_size
    assert point(3e4, size).passes == (epochs * size, 0), "too small a night to be narrowed"
    assert point(3e4, 16 * size).passes == (batches * size, (epochs * 16 - batches) * size)
    assert point(3e4, 1000 * size).passes == (1000 * size, (epochs - 1) * 1000 * size)


@pytest.mark.parametrize("cost", ["cpu_seconds", "memory", "moved"])
def test_points_of_a_law_are_predicted(cost: str) -> None:
    errors = left_out(cost, POINTS)
    assert len(errors) == 16, "every size is there more than once"
    assert max(abs(error) for _, error in errors) < 0.01
    far = point(3e7, 1e6, shards=8 if cost == "moved" else 0)
    assert fit(cost, POINTS).predict(far) == pytest.approx(getattr(far, cost), rel=0.01)


def test_fitting_weights_of_evidence_is_a_cost_of_its_own() -> None:
    """Of nights that do, if another one did; the others are predicted as before."""
    refitted = [
        replace(some, refitted=True, cpu_seconds=some.cpu_seconds + 4) for some in POINTS if some.changed == 1e4
    ]
    others = [some for some in POINTS if some.changed != 1e4]
    errors = left_out("cpu_seconds", [*others, *refitted])
    assert max(abs(error) for _, error in errors) < 0.01
    alone = left_out("cpu_seconds", [*others, refitted[0]])
    assert refitted[0].name not in {name for name, _ in alone}


def test_noise_shows_in_the_errors() -> None:
    rng = np.random.default_rng(0)
    noisy = [point(rows, changed, rng.uniform(0.4, 2.5)) for rows in (3e4, 3e5, 3e6) for changed in (1e2, 1e3, 1e4)]
    assert max(abs(error) for _, error in left_out("cpu_seconds", noisy)) > 0.25


def test_seconds_of_a_stopped_night_are_not_believed() -> None:
    stopped = replace(point(3e6, 1e6), cpu_seconds=1.0, stopped=True)
    for cost in ("cpu_seconds", "memory"):
        found = fit(cost, [*POINTS, stopped])
        assert found.predict(POINTS[-1]) == pytest.approx(getattr(POINTS[-1], cost), rel=0.01)
    assert len(left_out("cpu_seconds", [*POINTS, stopped])) == len(left_out("cpu_seconds", POINTS))


def test_coefficients_are_not_negative() -> None:
    odd = [replace(one, memory=1e9 - one.rows * 100) for one in POINTS]
    assert (fit("memory", odd).coefficients >= 0).all()


def test_the_bottleneck_is_what_takes_longest_or_does_not_fit() -> None:
    fits, night = {cost: fit(cost, POINTS) for cost in ("cpu_seconds", "memory", "moved")}, point(1e8, 1e6)
    roomy = Cluster(32, 16, 256e9, 1e10)
    assert bottleneck(fits, night, roomy)["bottleneck"] == "CPU"
    assert bottleneck(fits, night, replace(roomy, bytes_per_second=1e3))["bottleneck"] == "network"
    small = bottleneck(fits, night, replace(roomy, memory=1e9))
    assert small["bottleneck"] == "memory"
    per_machine = {"starting": 4e8, "vectors": 12e8 * 100 / 32, "triples of the graph": 40 * night.triples}
    per_machine["contexts of who learns"] = 2 * night.trained * night.dim
    assert small["memory_a_machine"] == pytest.approx(sum(per_machine.values()), rel=0.01)
    assert small["term"] == max(per_machine, key=lambda term: per_machine[term])
    assert small["share"] == pytest.approx(max(per_machine.values()) / sum(per_machine.values()), rel=0.01)
