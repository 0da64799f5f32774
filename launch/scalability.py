"""Speed of the same training with different numbers of shards and workers.

    ray job submit --working-dir . -- python launch/scalability.py STORE --pairs 1:1,8:1,8:4 --seconds 120 --json
    python launch/scalability.py --synth demo --pairs 0:1,1:1,4:2 --seconds 20 --address local

A pair is SHARDS:WORKERS; 0:1 trains in this process without shards. Each pair trains from scratch for the given seconds
and reports triples per second (median of its epochs), CPU seconds (of the shards, of the workers, and of the rest of
the job, this process included; their start counts, so train for minutes), and bytes moved and held by shard.

STORE is not changed: the training runs on a copy of hard links beside it (`--work` puts it elsewhere, on a file system
that all nodes share), which is removed in the end. `ray submit` copies only this file: the package is installed.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

import dkge_dist
from dkge_dist.cluster.session import ClusterConfig, ray_session
from dkge_dist.surfaces.cli.output import print_json, print_table, stop_requested
from dkge_dist.types import DkgeError, UsageError

SAMPLE_SECONDS = 0.2
"""Seconds between two samples of the processes of a node; what a process uses after its last sample is missed."""

COLUMNS = ("shards", "workers", "triples/s", "epochs", "CPU s", "of shards", "of workers", "MB pulled", "MB pushed")


class CpuMeter:
    """CPU seconds of the job's Ray processes on the node that this actor runs on, those that have ended included."""

    def __init__(self, job: str) -> None:
        """For the processes of this job."""
        self._job, self._raylet = job, os.getppid()
        self._seconds: dict[tuple[str, str], tuple[str, float]] = {}
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            self._look()
            time.sleep(SAMPLE_SECONDS)

    def _look(self) -> None:
        for folder in Path("/proc").glob("[0-9]*"):
            if folder.name == str(os.getpid()):
                continue
            try:
                # The name in brackets may contain anything; the fields follow the last bracket.
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) != self._raylet:
                    continue
                if f"RAY_JOB_ID={self._job}\0".encode() not in (folder / "environ").read_bytes():
                    continue
                title = (folder / "cmdline").read_bytes().decode(errors="replace")
            except OSError:
                continue  # It has ended, or belongs to another user.
            seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
            kind = "shards" if "ShardActor" in title else "workers" if "RayTrainWorker" in title else "rest"
            before = self._seconds.get((folder.name, fields[19]), ("rest", 0.0))
            self._seconds[folder.name, fields[19]] = (kind if kind != "rest" else before[0], seconds)

    def read(self) -> dict[str, float]:
        """By kind of process, since the actor was made."""
        self._look()
        total = {"shards": 0.0, "workers": 0.0, "rest": 0.0}
        for kind, seconds in list(self._seconds.values()):
            total[kind] += seconds
        return total


@contextmanager
def cpu_seconds() -> Iterator[Callable[[], dict[str, float]]]:
    """Gives a function that returns the CPU seconds of the job so far, on all nodes and in this process."""
    job = ray.get_runtime_context().get_job_id()
    began = time.process_time()
    kind: Any = ray.remote(CpuMeter)
    there = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in ray.nodes() if node["Alive"]]
    meters = [kind.options(num_cpus=0, scheduling_strategy=node).remote(job) for node in there]

    def read() -> dict[str, float]:
        found = ray.get([meter.read.remote() for meter in meters])
        total = {name: sum(one[name] for one in found) for name in ("shards", "workers", "rest")}
        total["rest"] += time.process_time() - began
        return total

    ray.get([meter.read.remote() for meter in meters])
    try:
        yield read
    finally:
        for meter in meters:
            ray.kill(meter)


@contextmanager
def working_copy(options: argparse.Namespace) -> Iterator[Path]:
    """A store that may be written to: parts of STORE by hard links, or a synthetic graph."""
    beside = options.work or (options.store.resolve().parent if options.store else None)
    with tempfile.TemporaryDirectory(prefix=".scalability-", dir=beside) as folder:
        copy = Path(folder) / "store"
        if options.synth:
            dkge_dist.synth(Path(folder) / "graph", options.synth, nights=0)
            dkge_dist.ingest(copy, Path(folder) / "graph" / "snapshot-000.tsv", valid=200, test=200)
        else:
            copy_store(options.store, copy)
        yield copy


def copy_store(store: Path, copy: Path) -> None:
    """Versions first, so that all parts that they name exist when parts are copied."""
    if not (store / "store.json").is_file():
        raise UsageError(f"{store}: not a store")
    copy.mkdir()
    shutil.copy2(store / "store.json", copy)
    shutil.copytree(store / "versions", copy / "versions")
    shutil.copytree(store / "parts", copy / "parts", copy_function=_link)


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def measure(
    store: Path, pair: tuple[int, int], options: argparse.Namespace, stop: Callable[[], bool]
) -> dict[str, Any]:
    """Train with these numbers of shards and workers; what it moved and used."""
    shards, workers = pair
    words = [f"train.max_seconds={options.seconds}", "train.patience=0", *options.settings]
    with cpu_seconds() as used:
        done = dkge_dist.train(
            store, preset=options.preset, settings=words, fresh=True, shards=shards or None, workers=workers,
            wait_seconds=options.wait if shards else None, stop=stop,
        )  # fmt: skip
        cpu = used()
    stats = done.get("shard_stats", [])
    moved = ("bytes_pulled", "bytes_pushed", "bytes_held", "pull_calls", "push_calls")
    return {
        "shards": shards,
        "workers": workers,
        "triples_per_second": done["triples_per_second"],
        "epochs": done["epochs"],
        "train_seconds": done["seconds"],
        "total_seconds": done["total_seconds"],
        "cpu_seconds": {**cpu, "total": sum(cpu.values())},
        "bytes_pulled": sum(of["bytes_pulled"] for of in stats),
        "bytes_pushed": sum(of["bytes_pushed"] for of in stats),
        "by_shard": [{"shard": number, **{key: of[key] for key in moved}} for number, of in enumerate(stats)],
    }


def show(runs: list[dict[str, Any]]) -> None:
    """A table of the pairs, then one of the shards of each."""
    print_table(
        COLUMNS,
        [
            (
                run["shards"], run["workers"], run["triples_per_second"], run["epochs"], run["cpu_seconds"]["total"],
                run["cpu_seconds"]["shards"], run["cpu_seconds"]["workers"], run["bytes_pulled"] / 1e6,
                run["bytes_pushed"] / 1e6,
            )
            for run in runs if "error" not in run
        ],
    )  # fmt: skip
    for run in runs:
        if "error" in run:
            print(f"\n{run['shards']}:{run['workers']}: {run['error']}")
        elif run["by_shard"]:
            print(f"\n{run['shards']}:{run['workers']}, by shard")
            columns = ("MB pulled", "MB pushed", "MB held")
            sizes = ("bytes_pulled", "bytes_pushed", "bytes_held")
            print_table(
                ("shard", *columns), [(of["shard"], *(of[key] / 1e6 for key in sizes)) for of in run["by_shard"]]
            )


def pairs_of(text: str) -> list[tuple[int, int]]:
    """`1:1,8:4` as numbers."""
    pairs = [(int(shards), int(workers)) for shards, workers in (word.split(":") for word in text.split(","))]
    if any(shards < 0 or workers < 1 or (shards == 0 and workers > 1) for shards, workers in pairs):
        raise ValueError(text)
    return pairs


def parsed(words: list[str]) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scalability.py", description="Training with other numbers of shards.")
    parser.add_argument("store", nargs="?", type=Path, metavar="STORE")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="as for `dkge train`")
    parser.add_argument("--pairs", type=pairs_of, default=[(1, 1), (4, 1), (4, 2)], metavar="S:W,...")
    parser.add_argument("--seconds", type=float, default=60.0, help="to train each pair")
    parser.add_argument("--preset", default="default", help="start values of the settings")
    parser.add_argument("--synth", choices=("demo", "imdb-30", "imdb-13"), help="a synthetic graph instead of STORE")
    parser.add_argument("--work", type=Path, help="where to put the copy")
    parser.add_argument("--address", help="the Ray cluster; `local` starts one here")
    parser.add_argument("--wait", type=float, default=120.0, metavar="SECONDS", help="for room on the cluster")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    options = parser.parse_intermixed_args(words)
    if options.store is not None and "=" in str(options.store):
        options.settings.insert(0, str(options.store))
        options.store = None
    if (options.store is None) == (options.synth is None):
        parser.error("either STORE or --synth")
    return options


def run(options: argparse.Namespace) -> list[dict[str, Any]]:
    """All pairs, one after the other. One that fails does not keep the others from running."""
    runs: list[dict[str, Any]] = []
    shards, workers = (max(1, *numbers) for numbers in zip(*options.pairs, strict=True))
    cluster = ClusterConfig(shards, workers, options.address)
    with stop_requested() as stop, working_copy(options) as store, ray_session(cluster, workers):
        for pair in options.pairs:
            if stop():
                raise DkgeError("interrupted")
            try:
                runs.append(measure(store, pair, options, stop))
            except DkgeError as error:
                runs.append({"shards": pair[0], "workers": pair[1], "error": str(error)})
            print(f"{pair[0]}:{pair[1]} done", file=sys.stderr)
    return runs


def main() -> None:
    """Print what was measured. Exit code 0 if all pairs were, 1 if not, 2 for wrong usage."""
    # Join the cluster of this node; a Ray of its own is started only with `--address local`.
    os.environ.setdefault("RAY_ADDRESS", "auto")
    options = parsed(sys.argv[1:])
    try:
        runs = run(options)
    except DkgeError as error:
        if options.json:
            print_json({"error": str(error)})
        print(f"scalability: {error}", file=sys.stderr)
        sys.exit(2 if isinstance(error, UsageError) else 1)
    if options.json:
        print_json({"runs": runs})
    else:
        show(runs)
    sys.exit(any("error" in one for one in runs))


if __name__ == "__main__":
    main()
