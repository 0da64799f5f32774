"""How long a night takes: static systems learn the snapshot anew, puTransE and ours learn what changed.

Static systems and puTransE were timed by the comparison, which this part runs where it has not been. Ours takes
seconds, so that a night is timed several times, after one that loads the compiled kernels, and the median is told. A
system that learns nothing is fast: the fidelity of each night stands beside its time.
"""

from __future__ import annotations

import statistics

from benchmarks.study import comparison
from benchmarks.study.cells import Cell, Result
from benchmarks.study.graphs import DataSet, Study
from benchmarks.study.systems import ours_online

PART = "efficiency"
TIMES = 3


def run(study: Study) -> None:
    """The comparison, and the nights of ours timed on their own."""
    comparison.run(study)
    for data in comparison.data_sets(study):
        for preset, name in comparison.OURS.items():
            if name in comparison.systems(study):
                for seed in study.all_seeds:
                    _nights(study, data, preset, name, seed)


def _nights(study: Study, data: DataSet, preset: str, name: str, seed: int) -> None:
    for night, snapshot in enumerate(data.snapshots[1:], 1):
        cell = Cell(PART, name + comparison.ONLINE, data.name, snapshot, seed, budget=study.budget)
        study.ledger.run(cell, lambda night=night: _timed(study, data, preset, seed, night))  # type: ignore[misc]


def _timed(study: Study, data: DataSet, preset: str, seed: int, night: int) -> Result:
    """Medians of several updates from the same version; the first one of a process is not counted."""
    since = comparison.version_after(study, data, preset, seed, data.snapshots[1:night])
    snapshot = data.snapshots[night]
    ours_online(data, snapshot, since)
    runs = []
    for _ in range(TIMES):
        report, version = ours_online(data, snapshot, since)
        runs.append(report)
    medians = {
        name: statistics.median(run[name] for run in runs) for name in ("seconds", "learn_seconds", "measure_seconds")
    }
    return {**medians, "runs": runs, "version": version, "since": since}
