"""Our transport against pyzmq (ipc) and Arrow Flight (Unix socket): rows of a batch between a worker and its shards.

Work: what a sharded table does for a batch of 4,000 triples. Of 22,000 distinct rows of dimension 100, those that the
batch before did not change are pulled early; then its gradients are pushed, and the rows that it changed come back with
the push. Nothing is computed in between. Shards are plain processes with the same server and the same checks; only what
carries the messages differs.

Every contender is a process of its own with its shards below it. They take turns, so that each meets the same machine;
ratios are medians of the turns' ratios. CPU seconds are those of the worker and of its shards.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.report import options, publish
from benchmarks.transport_peers import ATTEMPT, CONTENDERS, Carrier
from dkge_dist.cluster.requests import pull_request, push_request, read_pulled, read_reply
from dkge_dist.cluster.server import ShardServer
from dkge_dist.cluster.transport import Payload, RowSelection
from dkge_dist.learn.machine import keep_freed_memory
from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.plan import Partitioned, ShardPlan
from dkge_dist.tables.shard import Optimizer
from dkge_dist.types import ROW, Array, Field

ROWS, DIM, BLOCK = 200_000, 100, 1024
BATCH = {Field.KNOWLEDGE: 9_000, Field.CONTEXT: 13_000}
BATCHES = 8
OPTIMIZER = Optimizer("adagrad", 1e-3)
PARENT = os.getpid()


class Slice(NamedTuple):
    """Some rows of a batch by shard: where they lie there, and which rows of the batch they are."""

    parts: dict[Field, Partitioned]
    numbers: dict[Field, Array]

    @classmethod
    def of(cls, plan: ShardPlan, batch: dict[Field, Array], chosen: dict[Field, Array]) -> Slice:
        """The chosen ones of a batch."""
        parts = {field: plan.partition(rows[chosen[field]]) for field, rows in batch.items()}
        return cls(parts, {field: chosen[field][part.order] for field, part in parts.items()})

    def rows(self, shard: int) -> dict[Field, Array]:
        """As a shard numbers them."""
        return {field: part.local[part.of(shard)] for field, part in self.parts.items()}

    def order(self, shard: int, field: Field) -> Array:
        """As the batch numbers them."""
        return self.numbers[field][self.parts[field].of(shard)]

    def place(self, shard: int, values: dict[Field, Array], out: dict[Field, Array]) -> None:
        """Put the values of a shard where they belong in the batch."""
        for field, some in values.items():
            out[field][self.order(shard, field)] = some


class Step(NamedTuple):
    """A batch, and what of the next one is pulled early and what comes back with the push."""

    whole: Slice
    early: Slice
    late: Slice


def steps(plan: ShardPlan) -> list[Step]:
    rng = np.random.default_rng(0)
    batches = [{f: rng.permutation(ROWS)[:size].astype(ROW) for f, size in BATCH.items()} for _ in range(BATCHES)]
    made = []
    for before, batch in zip(batches, batches[1:] + batches[:1], strict=True):
        again = {field: np.isin(rows, before[field]) for field, rows in batch.items()}
        made.append(
            Step(
                Slice.of(plan, before, {field: np.arange(rows.shape[0]) for field, rows in before.items()}),
                Slice.of(plan, batch, {field: np.flatnonzero(~there) for field, there in again.items()}),
                Slice.of(plan, batch, {field: np.flatnonzero(there) for field, there in again.items()}),
            )
        )
    return made


class Worker:
    """One worker, batch by batch."""

    def __init__(self, plan: ShardPlan, carrier: Carrier) -> None:
        """Make all that does not belong to the transport beforehand."""
        self._shards, self._carrier, self._steps, self._step = range(plan.shards), carrier, steps(plan), 0
        self._gradients = {field: np.full((size, DIM), 1e-3, np.float32) for field, size in BATCH.items()}
        self._out = {field: np.empty((size, DIM), np.float32) for field, size in BATCH.items()}

    def run(self, batches: int) -> None:
        """Go on with so many batches."""
        for _ in range(batches):
            self._batch(self._steps[self._step % BATCHES])
            self._step += 1

    def _batch(self, step: Step) -> None:
        ask, answer = self._carrier.ask, self._carrier.answer
        pulls = [ask(s, pull_request(step.early.rows(s), self._step, None)) for s in self._shards]
        pushes = []
        for shard in self._shards:
            gradients = {f: (rows, self._part(step.whole, shard, f)) for f, rows in step.whole.rows(shard).items()}
            pushes.append(ask(shard, push_request(self._step, 0, gradients, OPTIMIZER, step.late.rows(shard))))
        for shard, asked in enumerate(pulls):
            step.early.place(shard, read_pulled(answer(shard, asked)), self._out)
        for shard, asked in enumerate(pushes):
            step.late.place(shard, read_reply(answer(shard, asked)).late, self._out)

    def _part(self, whole: Slice, shard: int, field: Field) -> Payload:
        """The gradients of a shard; with one shard all of them are, as they lie."""
        every = self._gradients[field]
        return every if len(self._shards) == 1 else RowSelection(every, whole.order(shard, field))


def shard_process(name: str, plan: ShardPlan, number: int, folder: Path, places: int) -> None:
    keep_freed_memory()
    server = ShardServer(number, plan)
    server.open(ATTEMPT, 1, RowInitializer((1,), ROWS, DIM, 1.0))
    os.write(places, json.dumps(CONTENDERS[name][0](server, folder)).encode() + b"\n")
    while os.getppid() == PARENT:
        time.sleep(1)
    os._exit(0)


def cpu_seconds(process: int) -> float:
    """Of all threads, in nanoseconds: the usual clock has ticks of 10 ms, more than a shard uses in a turn."""
    return (
        sum(int((task / "schedstat").read_text().split()[0]) for task in Path(f"/proc/{process}/task").iterdir()) / 1e9
    )


def contend(name: str, shards: int) -> None:
    """A contender's process: for every number of batches on stdin, a line about them on stdout."""
    plan = ShardPlan(ROWS, BLOCK, shards)
    with tempfile.TemporaryDirectory() as folder:
        places, processes = [], []
        for number in range(shards):  # Before anything has threads.
            reading, writing = os.pipe()
            processes.append(os.fork())
            if not processes[-1]:
                shard_process(name, plan, number, Path(folder), writing)
            os.close(writing)
            with os.fdopen(reading) as told:
                places.append(json.loads(told.readline()))
        keep_freed_memory()
        worker = Worker(plan, CONTENDERS[name][1](places))
        print(json.dumps({"started": name}), flush=True)
        for line in sys.stdin:
            before, began, used = [cpu_seconds(p) for p in processes], time.perf_counter(), time.process_time()
            worker.run(int(line))
            seconds, client = time.perf_counter() - began, time.process_time() - used
            server = sum(cpu_seconds(p) for p in processes) - sum(before)
            print(json.dumps({"seconds": seconds, "worker_cpu": client, "shards_cpu": server}), flush=True)
    for process in processes:
        os.kill(process, signal.SIGKILL)
    os._exit(0)  # Libraries would complain of their shards' end.


class Contender:
    """A contender's process, as the benchmark sees it."""

    def __init__(self, name: str, shards: int, tree: Path | None = None) -> None:
        """Start it, with the code of another checkout if one is given."""
        where = {} if tree is None else {"cwd": tree, "env": {**os.environ, "PYTHONPATH": str(tree)}}
        command = [sys.executable, "-m", "benchmarks.bench_transport", "--contender", name, "--shards", str(shards)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, **where)
        self._hear()

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())  # type: ignore[no-any-return]

    def run(self, batches: int) -> dict[str, float]:
        """Let it run so many batches; figures a batch."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{batches}\n")
        self._process.stdin.flush()
        told = self._hear()
        return {
            "batches_per_second": batches / told["seconds"],
            "worker_cpu_ms": told["worker_cpu"] / batches * 1e3,
            "shards_cpu_ms": told["shards_cpu"] / batches * 1e3,
            "cpu_ms": (told["worker_cpu"] + told["shards_cpu"]) / batches * 1e3,
        }

    def close(self) -> None:
        """End it and its shards."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)


def measure(contenders: dict[str, Contender], batches: int, turns: int) -> dict[str, Any]:
    lines: dict[str, list[dict[str, float]]] = {name: [] for name in contenders}
    names = list(contenders)
    for turn in range(turns + 1):
        for name in names:
            line = contenders[name].run(batches)
            if turn:  # The first turn warms up.
                lines[name].append(line)
        names = names[1:] + names[:1]  # Nobody always comes after the same one.
    found = {name: {key: statistics.median(x[key] for x in some) for key in some[0]} for name, some in lines.items()}
    for name, some in lines.items():
        for key in ("batches_per_second", "cpu_ms"):
            ratios = [one[key] / ours[key] for one, ours in zip(some, lines["ours"], strict=True)]
            found[name][f"{key} / ours"] = statistics.median(ratios)
    return found


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--contender", help=argparse.SUPPRESS)
    parser.add_argument("--shards", type=int, nargs="*", default=[1, 16])
    parser.add_argument("--batches", type=int, default=20, help="a turn")
    parser.add_argument("--only", nargs="*", default=list(CONTENDERS), help="ours is always measured")
    parser.add_argument("--turns", type=int, default=40)
    parser.add_argument("--against", type=Path, help="another checkout of this project, to be measured as `before`")
    arguments = parser.parse_args()
    if arguments.contender:
        contend(arguments.contender, arguments.shards[0])
        return
    result: dict[str, Any] = {"pyzmq": version("pyzmq")}
    figures: dict[str, tuple[Any, Any]] = {}
    for shards in arguments.shards:
        contenders = {name: Contender(name, shards) for name in CONTENDERS if name == "ours" or name in arguments.only}
        if arguments.against:
            contenders["before"] = Contender("ours", shards, arguments.against.resolve())
        found = measure(contenders, arguments.batches, arguments.turns)
        for contender in contenders.values():
            contender.close()
        result[f"{shards} shards"] = found
        for name in found.keys() - {"ours"}:
            limit = ("< 0.97, or it replaces ours", "at no more CPU")
            for key, asked in zip(("batches_per_second", "cpu_ms"), limit, strict=True):
                figures[f"{shards} shards: {key} of {name} / ours"] = (found[name][f"{key} / ours"], asked)
    publish("bench_transport", result, arguments, figures)


if __name__ == "__main__":
    main()
