"""What each of two worker processes does for the tests of this folder, without Ray: they meet by Gloo on loopback.

Both run all of it once; the tests look at the arrays that each of them ended with.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing

from dkge_dist.cluster.communicator import RayCommunicator
from dkge_dist.cluster.table import ReplicatedTable
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.learn.batches import BatchMaker, NegativeSampling
from dkge_dist.learn.checkpoints import Checkpoints
from dkge_dist.learn.contexts import EntityContexts, Form, RelationContexts
from dkge_dist.learn.encode import TrainedObjects
from dkge_dist.learn.loop import Progress
from dkge_dist.learn.plan import Plan
from dkge_dist.learn.prefetch import PreparedBatch
from dkge_dist.learn.step import DenseParameters, Loss, Step
from dkge_dist.learn.task import LearnTask, learning_of
from dkge_dist.model.dkge import Dkge
from dkge_dist.settings import load_settings
from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.shard import Optimizer, Shard
from dkge_dist.tables.table import LocalTable, Tables
from dkge_dist.types import TRAINED, Field
from tests.graphs import Chain, dense
from tests.strategies import digests

WORLD = 2
CPU = torch.device("cpu")
DIM = 12
SIZES = [40, 40, 1, 40, 25]
"""Triples of each batch: one of them has fewer than there are workers."""
SGD = Optimizer("sgd", 0.03)

Arrays = dict[str, np.ndarray]


def run(folder: Path) -> list[Arrays]:
    """Both workers to their end; the arrays of each."""
    torch.multiprocessing.spawn(_in_a_process, (str(folder),), WORLD)
    return [dict(np.load(folder / f"{rank}.npz")) for rank in range(WORLD)]


def alone() -> RayCommunicator:
    """The communicator of a worker that has no others."""
    return RayCommunicator(0, 1, 1, CPU, None)


def _in_a_process(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    meeting = f"file://{folder}/rendezvous"
    dist.init_process_group("gloo", meeting, timedelta(seconds=120), rank=rank, world_size=WORLD)
    communicator = RayCommunicator(rank, WORLD, 1, CPU, None)
    parts: list[Callable[[RayCommunicator], Arrays]] = [
        communicate,
        push_replicated,
        partial(learn, form="ragged"),
        partial(learn, form="padded"),
        partial(save_checkpoint, folder=Path(folder) / "training"),
    ]
    found: Arrays = {}
    for part in parts:
        found |= part(communicator)
    np.savez(f"{folder}/{rank}.npz", **found)
    dist.destroy_process_group()


def communicate(communicator: RayCommunicator) -> Arrays:
    """Sums, the clock, a broadcast, and a wish to stop that rank 0 alone has heard of."""
    rank, clocks = communicator.rank, []
    for _ in range(3):
        communicator.all_reduce([torch.ones(1)])
        clocks.append(communicator.clock())
    tensors = [torch.full((2, 3), float(rank + 1)), torch.full((4,), 10.0 * (rank + 1))]
    communicator.all_reduce(tensors)
    told = communicator.broadcast(lambda: {"rank": rank})
    communicator._stop = rank == 0  # As if it had heard so from the coordinator.
    before = communicator.should_stop()
    communicator.all_reduce([torch.zeros(1)])
    stops = [before, communicator.should_stop()]
    communicator._stop = False
    return {
        "first": tensors[0].numpy(),
        "second": tensors[1].numpy(),
        "clocks": np.array(clocks),
        "told": np.array(told["rank"]),
        "stops": np.array(stops),
    }


def push_replicated(communicator: RayCommunicator) -> Arrays:
    """Rank 0 has gradients of rows 1 and 4, rank 1 of rows 1 and 2."""
    table = ReplicatedTable(Shard({field: np.zeros((5, 2), np.float32) for field in TRAINED}), communicator)
    rows, gradient = (np.array([1, 4]), 2) if communicator.rank == 0 else (np.array([1, 2]), 5)
    table.push({Field.CONTEXT: (rows, np.full((2, 2), gradient, np.float32))}, SGD)
    return {f"replicated {field}": table.shard.values[field] for field in TRAINED}


def graph() -> TrainingGraph:
    chain = Chain()
    chain.full(dense(count=160, entities=40))
    entities, relations = chain.names
    return TrainingGraph.of(chain.snapshot, (digests(len(entities)), digests(len(relations), 1)), Sampling(5, 6, 1), 2)


def tables(train_graph: TrainingGraph, communicator: RayCommunicator) -> tuple[LocalTable, LocalTable]:
    """Both tables as relations are kept: a copy in every worker."""
    sizes = (train_graph.entity_rows, train_graph.relation_rows)
    shards = [Shard(RowInitializer((1, kind), rows, DIM, 1.0).whole()) for kind, rows in enumerate(sizes)]
    if communicator.world == 1:
        return LocalTable(shards[0]), LocalTable(shards[1])
    return ReplicatedTable(shards[0], communicator), ReplicatedTable(shards[1], communicator)


def learn(communicator: RayCommunicator, form: Form) -> Arrays:
    """A few steps as one of the workers; every number that it ends with."""
    train_graph = graph()
    contexts = (
        EntityContexts(train_graph.topology, train_graph.digests[0], train_graph.sampling, form),
        RelationContexts(train_graph.paths, train_graph.digests[1], train_graph.sampling, form),
    )
    maker = BatchMaker(
        train_graph.train,
        *contexts,
        NegativeSampling.of(train_graph, "shared", 16, True),
        0.8,
        own_negative=train_graph.loopless_relations,
        rank=communicator.rank,
        world=communicator.world,
    )
    kinds = dict(zip(("entities", "relations"), tables(train_graph, communicator), strict=True))
    model = Dkge(DIM, 1, 1, seed=3)
    dense = DenseParameters.of(model, "adagrad")
    dense.set_rate(0.01)
    objects = [
        TrainedObjects(encoder, table, source)
        for encoder, table, source in zip((model.entity, model.relation), kinds.values(), contexts, strict=True)
    ]
    step = Step(*objects, Loss("softmax", 0.0), communicator, dense)
    losses = []
    for number, size in enumerate(SIZES):
        rng = np.random.default_rng(number)
        batch = maker.make(rng.permutation(train_graph.train.count)[:size], rng)
        losses.append(step.learn(PreparedBatch(batch, size), Optimizer("adagrad", 0.05)))
    found = {name: value.detach().numpy() for name, value in model.state_dict().items()}
    for kind, table in kinds.items():
        found |= {f"{kind} {field}": table.shard.values[field] for field in TRAINED}
        found |= {f"{kind} {field} state": table.shard.state[field] for field in TRAINED}
    return {f"{form} {name}": values for name, values in {**found, "losses": np.array(losses)}.items()}


def save_checkpoint(communicator: RayCommunicator, folder: Path) -> Arrays:
    """Rank 0 writes a checkpoint; what each of them finds there as soon as it may go on."""
    train_graph = graph()
    settings = load_settings(None, [f"model.dim={DIM}", "threads=1"])
    task = LearnTask(Plan.from_scratch(train_graph), train_graph, settings, train_graph.valid, folder)
    made = learning_of(communicator, Tables(*tables(train_graph, communicator)), task, Dkge(DIM, 1, 1), CPU)
    made.keeper.save("last", Progress(epoch=3, batch=communicator.rank))
    saved = Checkpoints(folder).load("last")
    return {"checkpoint": np.array([saved[1]["epoch"], saved[1]["batch"]] if saved else [])}
