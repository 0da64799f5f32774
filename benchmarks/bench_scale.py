"""Does a training step cost the same in a graph a hundred times larger? Per distinct context row, and per triple.

The step itself is the same; rows lie further apart. Peak memory is that of the whole command in its own process.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.movies import store_of
from benchmarks.processes import measured_command
from benchmarks.published import add_source, published_store
from benchmarks.report import options, publish
from dkge_dist.graph.training_graph import training_graph
from dkge_dist.jobs.train import random_start
from dkge_dist.learn.loop import Learning
from dkge_dist.learn.machine import use_machine
from dkge_dist.learn.plan import Plan
from dkge_dist.learn.prefetch import PreparedBatch
from dkge_dist.learn.task import LearnTask, learning_of, model_of
from dkge_dist.runtime import LocalCommunicator, Monitor
from dkge_dist.settings import load_settings
from dkge_dist.store.store import Store
from dkge_dist.tables.shard import Optimizer
from dkge_dist.tables.table import LocalTable, Tables

BATCH = 4000
ROUNDS = 5


def trainer_of(path: Path) -> Learning:
    """A trainer of the first snapshot of a store, at its start."""
    store = Store.open(path)
    manifest = store.snapshot_manifest(1)
    settings = load_settings(None, ["model.dim=100", f"train.batch_size={BATCH}"])
    names = store.dictionaries(manifest)
    graph = training_graph(store.snapshot(manifest), (names[0].digests, names[1].digests), settings)
    folder = Path(tempfile.gettempdir()) / "never-written"
    task = LearnTask(Plan.from_scratch(graph), graph, settings, graph.valid, folder)
    tables = Tables(*map(LocalTable.initialized, random_start(graph, settings)))
    device = use_machine(settings.threads, settings.device)
    return learning_of(LocalCommunicator(Monitor()), tables, task, model_of(task, device), device)


def cost(trainer: Learning, steps: int, seed: int) -> dict[str, float]:
    """Seconds of some steps, everything counted, one after the other."""
    rng = np.random.default_rng(seed)
    assert trainer.step.dense is not None
    trainer.step.dense.set_rate(0.01)
    rows = 0
    began = time.perf_counter()
    for _ in range(steps):
        batch = trainer.maker.make(rng.integers(0, trainer.maker.triples.count, BATCH), rng)
        trainer.step.learn(PreparedBatch(batch, BATCH), Optimizer("adagrad", 0.1))
        rows += batch.entities.vertex_rows.shape[0]
    seconds = time.perf_counter() - began
    return {"us_per_row": 1e6 * seconds / rows, "us_per_triple": 1e6 * seconds / (steps * BATCH), "rows": rows / steps}


def peak_memory(path: Path, seconds: float) -> tuple[float, dict[str, Any]]:
    """Peak gigabytes of `dkge train`, and what it reported."""
    words = ["model.dim=100", f"train.max_seconds={seconds}", f"train.batch_size={BATCH}"]
    done = measured_command(["train", str(path), "--snapshot", "1", "--fresh", *words])
    return done["peak_bytes"] / 1e9, done["report"]


def main() -> None:
    parser = options(__doc__ or "")
    add_source(parser)
    parser.add_argument("--preset", default="imdb-13")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--train-seconds", type=float, default=120)
    arguments = parser.parse_args()
    large_store = store_of(arguments.work, arguments.preset)
    memory, trained = peak_memory(large_store, arguments.train_seconds)
    trainers = {"small": trainer_of(published_store(arguments)), "large": trainer_of(large_store)}
    for trainer in trainers.values():
        cost(trainer, 2, 0)
    # Taken in turns: whatever else the machine does, it does to both.
    rounds = [
        {name: cost(trainer, arguments.steps, seed) for name, trainer in trainers.items()} for seed in range(ROUNDS)
    ]
    measured = {
        name: {key: float(np.median([each[name][key] for each in rounds])) for key in rounds[0][name]}
        for name in trainers
    }
    by_row = measured["large"]["us_per_row"] / measured["small"]["us_per_row"]
    by_triple = measured["large"]["us_per_triple"] / measured["small"]["us_per_triple"]
    figures = {
        "cost per distinct context row, large / small": (by_row, "<= 2.5"),
        "cost per triple, large / small": (by_triple, "reported"),
        "peak GB of training": (memory, "<= 8"),
        "triples/s of training": (float(trained["triples_per_second"]), "reported"),
    }
    publish("bench_scale", {"batch": BATCH, **measured, "trained": trained}, arguments, figures)


if __name__ == "__main__":
    main()
