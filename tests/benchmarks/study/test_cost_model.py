"""The cost model finds the coefficients that made its points, and says which resource ends first."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.study.cost_model import Cluster, Point, bottleneck, fit, left_out


def point(rows: float, changed: float, noise: float = 1.0, dim: float = 100) -> Point:
    trained, triples = 30 * changed, 2.5 * rows
    return Point(
        f"{rows:g}, {changed:g}", rows, triples, changed, trained, dim,
        cpu_seconds=noise * (2 + 3e-6 * trained * dim + 1e-6 * rows),
        memory=noise * (4e8 + 12 * rows * dim + 40 * triples),
        moved=noise * (1e5 + 90 * changed * dim),
    )  # fmt: skip


POINTS = [point(rows, changed) for rows in (3e4, 3e5, 3e6) for changed in (1e2, 1e3, 1e4, 1e5)]
# Vectors and triples grow together with a graph: only another dimension tells them apart.
POINTS += [point(rows, changed, dim=50) for rows in (3e4, 3e6) for changed in (1e2, 1e5)]


@pytest.mark.parametrize("cost", ["cpu_seconds", "memory", "moved"])
def test_points_of_a_law_are_predicted(cost: str) -> None:
    errors = left_out(cost, POINTS)
    assert len(errors) == 16, "every size is there more than once"
    assert max(abs(error) for _, error in errors) < 0.01
    far = point(3e7, 1e6)
    assert fit(cost, POINTS).predict(far) == pytest.approx(getattr(far, cost), rel=0.01)


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
    roomy = Cluster(32, 16, 256e9, 1e9)
    assert bottleneck(fits, night, roomy)["bottleneck"] == "CPU"
    assert bottleneck(fits, night, replace(roomy, bytes_per_second=1e3))["bottleneck"] == "network"
    small = bottleneck(fits, night, replace(roomy, memory=1e9))
    assert small["bottleneck"] == "memory"
    term, share = fits["memory"].most(night)
    assert (term, share) == ("vectors", pytest.approx(1200 / (1200 + 100), abs=0.02))
    assert fits["moved"].most(replace(night, changed=1.0))[0] == "starting"
    assert small["memory_a_machine"] == pytest.approx(night.memory / 32, rel=0.01)
