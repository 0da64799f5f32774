"""Training steps a second with the published settings, everything counted, and how near the machine's limit that is.

The real trainer runs epoch by epoch: sampling, contexts, forward, backward, optimizer, with the next batch made
meanwhile. Between its epochs the dense padded peer (`dense_padded.py`) takes steps on batches of the same trainer, with
contexts made beforehand; on the first batch the losses of both have to agree.

The limit is what the arithmetic and the memory of this machine allow, both measured in the same run: floating point
operations at the rate of a large matrix product, plus every array of a step once through memory for each time that it
is written or read. The phases of a step wait for each other, so the times add up. Making batches is not in the limit.
It is told twice: with everything in float32, and with products in what the settings have them in (bfloat16 where the
processor multiplies it), which allows more. Where arrays of a small batch stay in a cache, a step may pass it.
"""

from __future__ import annotations

# First of all: it says how idle threads wait, which torch reads when it is loaded.
from dkge_dist.surfaces import api  # isort: split

import argparse
import importlib
import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch

from benchmarks.compare import add_before, compared
from benchmarks.dense_padded import DensePadded, PaddedTriples, padded_triples
from benchmarks.epochs import CurrentEpochs
from benchmarks.published import SOURCE
from benchmarks.report import median_seconds, options, publish
from dkge_dist.kernels.jit import set_threads, threads
from dkge_dist.kernels.ragged import RaggedBatch
from dkge_dist.learn.batches import Batch
from dkge_dist.learn.contexts import ObjectBatch
from dkge_dist.learn.encode import TrainedObjects, encode
from dkge_dist.learn.machine import use_machine
from dkge_dist.learn.plan import Plan
from dkge_dist.learn.step import batch_loss
from dkge_dist.learn.task import LearnTask, learning_of, model_of
from dkge_dist.model.products import by_bfloat16
from dkge_dist.runtime import LocalCommunicator, Monitor
from dkge_dist.settings import Settings
from dkge_dist.store.store import Store
from dkge_dist.tables.shard import Optimizer
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import DkgeError, Split, UsageError

SIZES = (500, 4000)
AGREE = 1e-4
ONE_EPOCH = ["train.max_epochs=1", "device=cpu"]


def store_of(source: Path, work: Path) -> Path:
    """A store that holds `source` alone; made if it is not there yet."""
    path = work / f"{source.resolve().parent.name}-{source.resolve().name}-store"
    if not path.exists() or not api.log(path)["versions"]:
        if not source.exists():
            raise UsageError(f"--source {source}: no such folder; give a folder or file that `dkge ingest` reads")
        # A file brings no splits: all of it is trained on.
        none = 0 if source.is_file() else None
        api.ingest(path, source, valid=none, test=none)
    return path


class Bench:
    """One batch size: the trainer and its peer, to be run in turns."""

    def __init__(self, store: Path, preset: str, words: list[str]) -> None:
        """With settings that `words` change."""
        self.epochs = CurrentEpochs(store, preset, [*words, *ONE_EPOCH])
        self.settings: Settings = self.epochs.settings
        with self.epochs.tables(0, 0) as make:
            self._make = make
        graph = self.epochs.graph
        task = LearnTask(Plan.from_scratch(graph), graph, self.settings, graph.valid, store / "never-written")
        device = use_machine(self.settings.threads, self.settings.device)
        self.model, self.tables = model_of(task, device), self._make()
        run = learning_of(LocalCommunicator(Monitor()), self.tables, task, self.model, device)
        self.maker, self.step = run.maker, run.step

    def batches(self, count: int) -> list[Batch[ObjectBatch]]:
        """Batches of random train triples."""
        triples = self.maker.triples.count
        size, _ = self.settings.train.batch_for(triples)
        draws = (np.random.default_rng([11, number]) for number in range(count))
        return [self.maker.make(rng.permutation(triples)[:size], rng) for rng in draws]

    def epoch(self) -> float:
        """An epoch, or as much of it as there is time for, by the real trainer; triples a second, by its own count."""
        return self.epochs.run(self._make()).triples_per_second

    def peer(self) -> DensePadded:
        """The dense padded twin of the learner as it stands."""
        return DensePadded(self.model, cast(tuple[LocalTable, LocalTable], self.tables))

    def loss(self, batch: Batch[ObjectBatch]) -> float:
        """Of a batch, without learning from it."""
        entities, _ = self.step.entities.encode(batch.entities)
        relations, _ = self.step.relations.encode(batch.relations)
        return float(batch_loss(entities, relations, batch, self.step.loss).detach())


def agreement(bench: Bench) -> float:
    """Relative difference of both losses on one batch."""
    (batch,) = bench.batches(1)
    mine = bench.loss(batch)
    with torch.no_grad():
        theirs = float(bench.peer()(padded_triples(bench.maker, batch), bench.settings.train.margin))
    if not abs(mine - theirs) <= AGREE * abs(theirs):
        raise DkgeError(f"the losses of one batch differ: {mine} here, {theirs} by the dense padded peer")
    return abs(mine - theirs) / abs(theirs)


def dense_rate(peer: DensePadded, triples: PaddedTriples, settings: Settings, steps: int) -> float:
    """Triples a second of the peer: forward, backward and descent."""
    descent = torch.optim.SGD(peer.parameters(), lr=settings.train.learning_rate)
    began = time.perf_counter()
    for _ in range(steps):
        descent.zero_grad()
        peer(triples, settings.train.margin).backward()
        descent.step()
    return steps * triples.positive[0].rows_B.shape[0] / (time.perf_counter() - began)


def breakdown(bench: Bench, count: int) -> dict[str, float]:
    """Milliseconds a batch of every part, one after the other; making a batch by one thread, as it is prefetched."""
    step, seconds = bench.step, [dict[str, float]() for _ in range(count)]
    before = threads()
    set_threads(1)
    make = median_seconds(lambda: bench.batches(1), count)
    set_threads(before)
    kinds = [cast(TrainedObjects, objects) for objects in (step.entities, step.relations)]
    assert step.dense is not None
    for batch, spent in zip(bench.batches(count), seconds, strict=True):
        objects = (batch.entities, batch.relations)
        clock = _Laps(spent)
        leaves = [kind.pull(part) for kind, part in zip(kinds, objects, strict=True)]
        clock.lap("pull")
        joint = [encode(kind.encoder, leaf, part) for kind, leaf, part in zip(kinds, leaves, objects, strict=True)]
        clock.lap("forward")
        total = batch_loss(joint[0], joint[1], batch, step.loss)
        clock.lap("loss")
        step.dense.optimizer.zero_grad(set_to_none=True)
        total.backward()  # type: ignore[no-untyped-call]
        clock.lap("backward")
        for kind, leaf, part in zip(kinds, leaves, objects, strict=True):
            kind.table.push(kind.gradients(part, leaf), Optimizer("sgd", 0.0))
        clock.lap("push")
    parts = {name: statistics.median(spent[name] for spent in seconds) for name in seconds[0]}
    return {name: round(1e3 * value, 3) for name, value in {"make": make, **parts}.items()}


class _Laps:
    """A stopwatch with names."""

    def __init__(self, spent: dict[str, float]) -> None:
        """Starts at once."""
        self.spent, self.before = spent, time.perf_counter()

    def lap(self, name: str) -> None:
        """What passed since the lap before goes under `name`."""
        now = time.perf_counter()
        self.spent[name], self.before = now - self.before, now


class Rates(NamedTuple):
    """Operations a second of large matrix products, in float32 and in what products are in, and bytes of a copy."""

    sgemm: float
    product: float
    copy: float

    @staticmethod
    def now(settings: Settings) -> Rates:
        """Of this minute."""
        return Rates(product_rate(), product_rate(product_type(settings)), copy_rate())


def product_type(settings: Settings) -> torch.dtype:
    """What the products of a training's steps are in."""
    is_rounded = by_bfloat16(settings.train.products, torch.device("cpu"))
    return torch.bfloat16 if is_rounded else torch.float32


def product_rate(dtype: torch.dtype = torch.float32) -> float:
    """Operations a second of a large matrix product."""
    one = torch.rand(2048, 2048).to(dtype)
    out = torch.empty_like(one)
    return 2 * 2048**3 / median_seconds(lambda: torch.mm(one, one, out=out), 7)


def copy_rate() -> float:
    """Bytes a second, read and written, of a copy that no cache holds."""
    one = torch.rand(64 * 2**20)
    out = torch.empty_like(one)
    return 2 * 4 * one.shape[0] / median_seconds(lambda: out.copy_(one), 7)


class Needs(NamedTuple):
    """What a step on a batch needs for one layer each: operations of products and others, and bytes."""

    products: float
    others: float
    moved: float

    def seconds(self, rates: Rates, in_float32: bool = False) -> float:
        """At the least."""
        product = rates.sgemm if in_float32 else rates.product
        return self.products / product + self.others / rates.sgemm + self.moved / rates.copy


def needs(batches: Sequence[Batch[ObjectBatch]], settings: Settings, in_float32: bool = False) -> Needs:
    """Of a triple, in the mean of some batches."""
    size = 4 if in_float32 else product_type(settings).itemsize
    every = [_needs(batch, settings.model.dim, size) for batch in batches]
    return Needs(*(float(value) for value in np.sum(every, 0) / sum(batch.head.shape[0] for batch in batches)))


def _needs(batch: Batch[ObjectBatch], dim: int, product_size: int) -> Needs:
    products = others = moved = 0.0
    for part in (batch.entities, batch.relations):
        rows, context, features, slots, entries = _sizes(part)
        # One matrix product forward and two back; every entry of Â forward and back; scores, softmax and sums of the
        # attention (2 products forward, 4 back); the gate and a descent of every row.
        products += 6 * features * dim**2
        others += 4 * entries * dim + 12 * slots * dim + (8 * rows + 2 * context) * dim
        # Rows are read for the step, read and written by the descent; their gradients are written and read. Features
        # times W are written once, and read forward and back; gradients at the slots, written and read. H of a
        # context fits into a cache. Entries of Â (a slot and a weight) are read forward and back.
        moved += dim * (4 * (5 * (rows + context) + 2 * slots) + product_size * 3 * features) + 8 * 2 * entries
    others += 12 * batch.head.shape[0] * dim
    return Needs(products, others, moved)


def _sizes(part: ObjectBatch) -> tuple[int, int, int, int, int]:
    """Objects, distinct context rows, distinct features made of those, vertex slots, entries of Â."""
    contexts = part.contexts
    assert isinstance(contexts, RaggedBatch)
    features = contexts.row_ptr.shape[0] - 1
    entries = contexts.entry_slot.shape[0]
    return part.rows.shape[0], part.vertex_rows.shape[0], features, contexts.slot_row.shape[0], entries


def rotate_rate(path: Path, size: int, dim: int) -> float:
    """Triples a second of RotatE in PyKEEN: no contexts, one Bernoulli negative, the same triples."""
    try:
        pykeen = {name: importlib.import_module(f"pykeen.{name}") for name in ("triples", "models", "training")}
    except ImportError:
        raise UsageError("--peer needs PyKEEN: pip install pykeen") from None
    store = Store.open(path)
    manifest = store.current_snapshot()
    assert manifest is not None, "the store holds a snapshot"
    train = store.snapshot(manifest).triples(Split.TRAIN)
    mapped = torch.from_numpy(np.stack(train, axis=1).astype(np.int64))
    factory = pykeen["triples"].CoreTriplesFactory.create(mapped)
    model = pykeen["models"].RotatE(triples_factory=factory, embedding_dim=dim // 2, random_seed=0)
    loop = pykeen["training"].SLCWATrainingLoop(
        model=model,
        triples_factory=factory,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.005),
        negative_sampler="bernoulli",
        negative_sampler_kwargs={"num_negs_per_pos": 1},
    )

    def epoch() -> None:
        loop.train(factory, num_epochs=1, batch_size=size, use_tqdm=False)

    epoch()
    return train.count / median_seconds(epoch, 3)


def publish_comparison(store: Path, arguments: argparse.Namespace) -> None:
    """The same epochs in an older checkout and here; of the default preset as each of them has it."""
    place, in_process = str(store.resolve()), ["0", "0"]
    cases = {
        f"paper, batch {size:,}": [place, "paper", *in_process, f"train.batch_size={size}", *ONE_EPOCH]
        for size in SIZES
    }
    cases["default"] = [place, "default", *in_process, *ONE_EPOCH]
    result, figures = compared(cases, arguments)
    publish("bench_train", result, arguments, figures)


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--source", type=Path, default=SOURCE / "snapshot1", help="what to train on")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each batch size")
    parser.add_argument("--seconds", type=float, default=4.0, help="of each turn, at most an epoch")
    parser.add_argument("--peer", action="store_true", help="run PyKEEN's RotatE too")
    add_before(parser)
    arguments = parser.parse_args()
    try:
        store = store_of(arguments.source, arguments.work)
        if arguments.before is not None:
            publish_comparison(store, arguments)
            return
        time_limit = f"train.max_seconds={arguments.seconds}"
        benches = {size: Bench(store, "paper", [f"train.batch_size={size}", time_limit]) for size in SIZES}
        shared = Bench(store, "default", [time_limit])
        differs = max(agreement(bench) for bench in benches.values())
        rotate = {size: rotate_rate(store, size, benches[size].settings.model.dim) for size in SIZES * arguments.peer}
    except DkgeError as error:
        parser.exit(2 if isinstance(error, UsageError) else 1, f"{error}\n")

    rates: dict[int, list[float]] = {size: [] for size in SIZES}
    dense: dict[int, list[float]] = {size: [] for size in SIZES}
    by_softmax: list[float] = []
    limits: list[Rates] = []
    ready = {size: padded_triples(bench.maker, bench.batches(1)[0]) for size, bench in benches.items()}
    peers = {size: bench.peer() for size, bench in benches.items()}
    for number in range(arguments.rounds + 1):  # the first loads the compiled kernels
        found = {size: bench.epoch() for size, bench in benches.items()}
        padded = {s: dense_rate(peers[s], ready[s], benches[s].settings, max(1, 2000 // s)) for s in SIZES}
        softmax = shared.epoch()
        if number:
            limits.append(Rates.now(shared.settings))
            by_softmax.append(softmax)
            for size in SIZES:
                rates[size].append(found[size])
                dense[size].append(padded[size])
    fastest = Rates(*(statistics.median(column) for column in zip(*limits, strict=True)))

    result: dict[str, Any] = {"rates": rates, "dense_padded": dense, "shared_softmax": by_softmax, "rotate": rotate}
    result |= {"sgemm_gflops": fastest.sgemm / 1e9, "copy_gb_per_s": fastest.copy / 1e9, "losses_differ": differs}
    asked: dict[str, tuple[Any, str]] = {}
    least: dict[int, str] = {500: ">= 20,000 (aim 40,000)", 4000: ">= 45,000 (aim 90,000)"}
    for size, bench in benches.items():
        name, rate = f"batch {size:,}", statistics.median(rates[size])
        times = statistics.median(one / other for one, other in zip(rates[size], dense[size], strict=True))
        needed, in_float32 = (needs(bench.batches(8), bench.settings, plain) for plain in (False, True))
        limit, before = 1 / needed.seconds(fastest), 1 / in_float32.seconds(fastest, in_float32=True)
        asked[f"{name}: triples/s, everything counted"] = (rate, least[size])
        asked[f"{name}: times the dense padded peer"] = (times, ">= 10")
        asked[f"{name}: limit, triples/s"] = (limit, "")
        asked[f"{name}: share of the limit"] = (rate / limit, "")
        asked[f"{name}: share of the limit of float32"] = (rate / before, "")
        asked[f"{name}: operations a triple"] = (needed.products + needed.others, "")
        asked[f"{name}: bytes a triple"] = (needed.moved, "")
        if rotate:
            asked[f"{name}: RotatE in PyKEEN, triples/s"] = (rotate[size], "no contexts")
        result[f"milliseconds_{size}"] = parts = breakdown(bench, max(8, 8000 // size))
        for part, milliseconds in parts.items():
            asked[f"{name}: {part}, ms a batch"] = (milliseconds, "one thread, meanwhile" if part == "make" else "")
    asked["1,024 shared negatives, softmax, batch 1,000: triples/s"] = (statistics.median(by_softmax), "")
    asked["sgemm, GFLOP/s"] = (fastest.sgemm / 1e9, "")
    asked["products of steps, GFLOP/s"] = (fastest.product / 1e9, "")
    asked["copy, GB/s"] = (fastest.copy / 1e9, "")
    asked["losses of both differ by"] = (differs, f"<= {AGREE}")
    publish("bench_train", result, arguments, asked)


if __name__ == "__main__":
    main()
