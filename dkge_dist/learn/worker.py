"""What a training worker does, whatever the runtime: one function, in this process or in each worker of a cluster."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.jit import threads
from dkge_dist.learn.batches import BatchMaker, EvidenceOffsets, NegativeSampling
from dkge_dist.learn.checkpoints import Checkpoints
from dkge_dist.learn.contexts import EntityContexts, Form, RelationContexts
from dkge_dist.learn.learner import Learner
from dkge_dist.learn.machine import use_machine
from dkge_dist.learn.progress import TrainProgress
from dkge_dist.learn.step import Loss
from dkge_dist.learn.trainer import Trainer
from dkge_dist.measure.validation import Validation
from dkge_dist.model.dkge import Dkge
from dkge_dist.model.products import by_bfloat16
from dkge_dist.runtime import Communicator, WorkerSpec
from dkge_dist.settings import Settings
from dkge_dist.tables.checkpoint import CheckpointFolder
from dkge_dist.tables.initializer import RowInitializer, TableStart
from dkge_dist.tables.table import Tables
from dkge_dist.types import Array, Triples

IN_BATCH = 2
"""A batch of so many times the negatives lends them its own ends. A small one would learn from few entities."""


@dataclass(frozen=True)
class TrainJob:
    """What all workers of a training are given. Checkpoints are in `folder`, which all of them reach.

    `validation` are the triples that stop it, ranked by vectors alone: evidence stays as it is and would hide how they
    get better. `offsets` are what evidence says of the train triples. `form` is that of contexts; None is what the
    device wants: padded blocks on a GPU, ragged contexts on a CPU. `dense` are the dense parameters to start with,
    instead of random ones.
    """

    graph: TrainingGraph
    settings: Settings
    folder: CheckpointFolder
    validation: Triples
    offsets: EvidenceOffsets | None = None
    form: Form | None = None
    dense: dict[str, Array] | None = None


@dataclass(frozen=True)
class TrainResult:
    """How a training went, its dense parameters, and facts of the run. The vectors are in the tables."""

    progress: TrainProgress
    dense: dict[str, Array]
    facts: dict[str, Any]


def random_start(graph: TrainingGraph, settings: Settings) -> tuple[TableStart, TableStart]:
    """Start values of entities and relations, at random."""
    how = (settings.model.dim, settings.train.init_scale)
    return (
        RowInitializer((settings.seed, 0), graph.entity_rows, *how),
        RowInitializer((settings.seed, 1), graph.relation_rows, *how),
    )


def train_spec(job: TrainJob, start: tuple[TableStart, TableStart], block_rows: int, notes: Path) -> WorkerSpec:
    """A training for a runtime to run; `notes` is a folder of this machine."""
    settings = job.settings
    return WorkerSpec(
        train_worker,
        job,
        *start,
        block_rows,
        settings.threads,
        settings.device,
        notes,
    )


def train_worker(communicator: Communicator, tables: Tables, job: TrainJob) -> TrainResult:
    """Train, and materialise o*: each worker that of its share of the entities."""
    device = use_machine(communicator.threads, communicator.device)
    trainer = build_trainer(communicator, tables, job, device)
    progress = trainer.run()
    maker, learner = trainer.maker, trainer.learner
    mine = job.graph.entities[communicator.rank :: communicator.world]
    learner.materialise(maker.entities, maker.relations, mine, job.graph.relations)
    return TrainResult(progress, learner.dense_values(), {"threads": threads(), "device": str(device)})


def build_trainer(communicator: Communicator, tables: Tables, job: TrainJob, device: torch.device) -> Trainer:
    """A trainer at its start."""
    graph, settings, train = job.graph, job.settings, job.settings.train
    form: Form = job.form or ("ragged" if device.type == "cpu" else "padded")
    size, _ = train.batch_for(graph.train.count)
    in_batch = size >= IN_BATCH * train.negatives
    negatives = NegativeSampling.of(graph, train.sampler, train.negatives, train.logq_correction, in_batch=in_batch)
    contexts = EntityContexts(graph.topology, graph.digests[0], graph.sampling, form)
    contexts.keep(graph.entities)
    maker = BatchMaker(
        graph.train,
        contexts,
        RelationContexts(graph.paths, graph.digests[1], graph.sampling, form),
        negatives,
        train.hide_targets,
        job.offsets,
        own_negative=graph.loopless_relations if train.own_negative else None,
        rank=communicator.rank,
        world=communicator.world,
    )
    model = Dkge(settings.model.dim, settings.model.entity_layers, settings.model.relation_layers, settings.seed)
    if job.dense is not None:
        model.load_state_dict({name: torch.from_numpy(value) for name, value in job.dense.items()})
    for encoder in (model.entity, model.relation):
        encoder.gcn.learns_by_bfloat16 = by_bfloat16(train.products, device)
    learner = Learner(model, tables, Loss(train.loss, train.margin), train.optimizer, device, communicator)
    validation = Validation.of(graph, job.validation, train.valid_triples, train.valid_candidates)
    return Trainer(maker, learner, validation, Checkpoints(job.folder), train, settings.seed, communicator)
