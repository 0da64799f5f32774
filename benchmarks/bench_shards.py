"""Shards in Ray actors against a table in the process: throughput, CPU, bytes, and what a one-shard change writes.

Each case is an epoch of the real trainer with one worker (this process), no validation, repeated in turns. CPU seconds
are those of this process, of Ray's servers, and of the shards of the case: an actor of another case that waits for its
turn uses some too, and is not counted.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.compare import add_before, compared
from benchmarks.epochs import CurrentEpochs, Make
from benchmarks.processes import cpu_by_process, cpu_since
from benchmarks.published import add_source, published_store
from benchmarks.report import options, publish
from dkge_dist.cluster.session import ClusterConfig, ray_session
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api

PRESETS = (("paper", ["train.max_epochs=2"]), ("default", ["model.dim=100", "train.max_epochs=1"]))


@dataclass(frozen=True)
class Case:
    """Epochs on tables of one kind; `processes` are its shards."""

    epochs: CurrentEpochs
    make: Make
    processes: set[int]

    def epoch(self, every: set[int]) -> dict[str, Any]:
        """Triples a second, CPU seconds a million triples, and what was moved; `every` shard of any case is known."""
        tables, settings = self.make(), self.epochs.settings
        before = cpu_by_process()
        rate = self.epochs.run(tables).triples_per_second
        used = cpu_since(before, every - self.processes)
        trained = self.epochs.triples * settings.train.max_epochs
        result: dict[str, Any] = {"triples_per_second": rate, "cpu_per_million": used / trained * 1e6}
        if self.processes:
            size, _ = settings.train.batch_for(self.epochs.triples)
            batches = -(-self.epochs.triples // size) * settings.train.max_epochs
            result |= _moved(tables.entities.stats(), settings.model.dim, batches)
        tables.entities.close()
        return result


def _moved(stats: list[dict[str, int]], dim: int, batches: int) -> dict[str, float]:
    """Bytes against those that distinct rows need each way, and calls a shard and batch."""
    moved = sum(shard["bytes_pulled"] + shard["bytes_pushed"] for shard in stats)
    distinct = sum(shard["rows_pushed"] for shard in stats)
    calls = sum(shard["pull_calls"] + shard["push_calls"] for shard in stats)
    return {
        "bytes_ratio": moved / (distinct * (4 * dim + 4 * dim + 8)),
        "calls_per_shard_and_batch": calls / len(stats) / batches,
    }


def throughput(store: Path, words: list[str], preset: str, counts: list[int], turns: int) -> dict[str, Any]:
    """Medians by number of shards; `here` is without."""
    epochs = CurrentEpochs(store, preset, words)
    lines: dict[str, list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        cases = {}
        for count in (0, *counts):
            make = stack.enter_context(epochs.tables(count, _block_rows(store)))
            tables = make()
            processes = {shard["pid"] for shard in tables.entities.stats()} if count else set()
            tables.entities.close()
            cases[str(count) if count else "here"] = Case(epochs, make, processes)
        every = {process for case in cases.values() for process in case.processes}
        for turn in range(turns + 1):
            for name, case in cases.items():
                line = case.epoch(every)
                if turn:  # The first turn compiles and warms up.
                    lines.setdefault(name, []).append(line)
    return {
        name: {key: statistics.median(line[key] for line in some) for key in some[0]} for name, some in lines.items()
    }


def _block_rows(store: Path) -> int:
    manifest = Store.open(store).current_snapshot()
    assert manifest is not None, "the store holds a snapshot"
    return manifest.block_rows


def one_shard_change(work: Path, shards: int) -> dict[str, Any]:
    """Two new entities are linked: their rows are in the last block, so in one shard."""
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


def publish_comparison(store: Path, arguments: argparse.Namespace) -> None:
    """The same epochs in an older checkout and here."""
    cases = {}
    for preset, extra in PRESETS:
        for batch in arguments.batch:
            for count in (0, *arguments.shards):
                words = [str(store.resolve()), preset, str(count), str(_block_rows(store))]
                name = f"{preset}, batch {batch}, {count} shards" if count else f"{preset}, batch {batch}, in process"
                cases[name] = [*words, *extra, f"train.batch_size={batch}"]
    result, figures = compared(cases, arguments)
    publish("bench_shards", result, arguments, figures)


def main() -> None:
    parser = options(__doc__ or "")
    add_source(parser)
    parser.add_argument("--batch", type=int, nargs="*", default=[4000, 16000])
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--shards", type=int, nargs="*", default=[1, 4, 16])
    add_before(parser)
    arguments = parser.parse_args()
    store = published_store(arguments)
    if arguments.before is not None:
        publish_comparison(store, arguments)
        return
    result: dict[str, Any] = {}
    figures: dict[str, tuple[Any, Any]] = {}
    with ray_session(ClusterConfig(1), 1):
        for preset, extra in PRESETS:
            for batch in arguments.batch:
                words = [*extra, f"train.batch_size={batch}"]
                found = throughput(store, words, preset, arguments.shards, arguments.turns)
                result[f"{preset}, batch {batch}"] = found
                print(preset, batch, found, file=sys.stderr, flush=True)
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
