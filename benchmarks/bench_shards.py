"""Shards in Ray actors against a table in the process: throughput, CPU, bytes, and what a one-shard change writes.

Each case is an epoch of the real trainer with one worker (this process), no validation, repeated in turns. CPU seconds
are those of this process, of Ray's servers, and of the shards of the case: an actor of another case that waits for its
turn uses some too, and is not counted.
"""

from __future__ import annotations

import secrets
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from benchmarks.bench_train import NoValidation
from benchmarks.processes import cpu_by_process, cpu_since
from benchmarks.published import add_source, published_store
from benchmarks.report import options, publish
from dkge_dist import api
from dkge_dist.api.training import Ground, assemble, local_tables, start_of, use_machine
from dkge_dist.cluster.session import Place, connected, shard_actors
from dkge_dist.cluster.table import RayTable
from dkge_dist.config import Settings, load_settings
from dkge_dist.store.store import Store
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.training.checkpoints import Checkpoints
from dkge_dist.training.trainer import Trainer
from dkge_dist.types import Field


def epoch(ground: Ground, settings: Settings, tables: Any, idle: set[int]) -> dict[str, float]:
    """Triples a second and CPU seconds a million triples of one epoch; `idle` processes belong to other cases."""
    prepared = assemble(ground, settings, use_machine(settings), tables)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder) / "training")
        trainer = Trainer(prepared.maker, prepared.learner, NoValidation(), checkpoints, settings.train, settings.seed)
        before = cpu_by_process()
        rate = trainer.run().history[-1]["triples_per_second"]
        used = cpu_since(before, idle)
    trained = ground.train.count * settings.train.max_epochs
    return {"triples_per_second": rate, "cpu_per_million": used / trained * 1e6}


@dataclass(frozen=True)
class Sharded:
    """A table in actors that stay, so that they start and load their kernels before anything is counted."""

    ground: Ground
    settings: Settings
    plan: ShardPlan
    actors: list[Any]
    processes: set[int]

    def epoch(self, every: set[int]) -> dict[str, Any]:
        """As `epoch`, and what was moved; `every` shard of any case is a process."""
        dim, shards = self.settings.model.dim, self.plan.shards
        table = RayTable(self.plan, self.actors, secrets.token_hex(8), dim)
        table.open(start_of(self.ground, self.settings, 0))
        table.pull({Field.KNOWLEDGE: self.ground.alive[0][:1]})
        tables = (table, local_tables(self.ground, self.settings)[1])
        result: dict[str, Any] = epoch(self.ground, self.settings, tables, every - self.processes)
        stats = table.stats()
        moved = sum(of["bytes_pulled"] + of["bytes_pushed"] for of in stats)
        distinct = sum(of["rows_pushed"] for of in stats)
        result["bytes_ratio"] = moved / (distinct * (4 * dim + 4 * dim + 8))
        calls = sum(of["pull_calls"] + of["push_calls"] for of in stats)
        batches = -(-self.ground.train.count // self.settings.train.batch_size) * self.settings.train.max_epochs
        result["calls_per_shard_and_batch"] = calls / shards / batches
        return result


def throughput(store: Path, words: list[str], preset: str, counts: list[int], turns: int) -> dict[str, Any]:
    opened = Store.open(store)
    manifest = opened.current_snapshot()
    assert manifest is not None
    settings = load_settings(None, words, preset)
    ground = Ground.of(opened.snapshot(manifest), opened.dictionaries(manifest), settings)
    cases: dict[str, Callable[[set[int]], dict[str, Any]]] = {
        "here": lambda every: epoch(ground, settings, local_tables(ground, settings), every)
    }
    every: set[int] = set()
    lines: dict[str, list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        for count in counts:
            plan = ShardPlan(ground.digests[0].shape[0], manifest.block_rows, count)
            actors = stack.enter_context(shard_actors(Place(count), plan, 4 * settings.model.dim * len(Field)))
            processes = {of["pid"] for of in ray.get([actor.ask.remote("stats") for actor in actors])}
            cases[str(count)] = Sharded(ground, settings, plan, actors, processes).epoch
            every |= processes
        for turn in range(turns + 1):
            for name, case in cases.items():
                line = case(every)
                if turn:  # The first turn compiles and warms up.
                    lines.setdefault(name, []).append(line)
    return {
        name: {key: statistics.median(line[key] for line in some) for key in some[0]} for name, some in lines.items()
    }


def one_shard_change(work: Path, shards: int) -> dict[str, Any]:
    """Two entities nobody knew are linked: their rows are in the last block, so in one shard."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        store, movies = Path(folder) / "store", Path(folder) / "movies"
        api.synth(movies, "demo")
        api.ingest(store, movies / "snapshot-000.tsv", valid=50)
        api.train(store, settings=["model.dim=32", "train.max_epochs=2"])
        night = Path(folder) / "night.changes"
        night.write_text("+\tnobody\tdirector\tno one\n+\tno one\tknownFor\tnobody\n", encoding="utf-8")
        api.ingest(store, night)
        done = api.update(store, shards=shards)
    quiet = [of for of in done["shards"] if not of["touched"]]
    return {
        "shards_touched": done["shards_touched"],
        "calls_elsewhere": sum(of["push_calls"] + of["write_calls"] for of in quiet),
        "bytes_written_elsewhere": sum(of["bytes_written"] + of["bytes_pushed"] for of in quiet),
    }


def main() -> None:
    parser = options(__doc__ or "")
    add_source(parser)
    parser.add_argument("--batch", type=int, nargs="*", default=[4000, 16000])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--shards", type=int, nargs="*", default=[1, 4, 16])
    arguments = parser.parse_args()
    store = published_store(arguments)
    result: dict[str, Any] = {}
    figures: dict[str, tuple[Any, Any]] = {}
    with connected(Place(1), 1):
        for preset, extra in (("paper", ["train.max_epochs=2"]), ("default", ["model.dim=100", "train.max_epochs=1"])):
            for batch in arguments.batch:
                words = [*extra, f"train.batch_size={batch}"]
                found = throughput(store, words, preset, arguments.shards, arguments.turns)
                result[f"{preset}, batch {batch}"] = found
                print(preset, batch, found, flush=True)
                least, most = str(min(arguments.shards)), str(max(arguments.shards))
                for count in map(str, arguments.shards):
                    ratio = found[count]["triples_per_second"] / found["here"]["triples_per_second"]
                    figures[f"{preset}, batch {batch}: throughput of {count} shards / in process"] = (
                        ratio,
                        ">= 0.75 (aim 0.95)",
                    )
                cpu = found[most]["cpu_per_million"] / found[least]["cpu_per_million"]
                figures[f"{preset}, batch {batch}: CPU of {most} shards / {least}"] = (cpu, "<= 1.2")
                bytes_ = max(found[str(count)]["bytes_ratio"] for count in arguments.shards)
                figures[f"{preset}, batch {batch}: bytes moved / needed"] = (bytes_, "<= 1.1")
        result["one shard of 16"] = one_shard_change(arguments.work, 16)
    change = result["one shard of 16"]
    figures["shards of 16 that a one-shard change touches"] = (change["shards_touched"], "1")
    figures["push and write calls to the others"] = (change["calls_elsewhere"], "0")
    figures["bytes pushed and written to the others"] = (change["bytes_written_elsewhere"], "0")
    publish("bench_shards", result, arguments, figures)


if __name__ == "__main__":
    main()
