"""`learn(communicator, tables, task) -> Candidate`: what every worker does, in this process or on a cluster.

From scratch, a refresh and a night are the same loop over different plans; here it is put together.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.jit import threads
from dkge_dist.kernels.sets import distinct
from dkge_dist.learn.batches import BatchMaker, EvidenceOffsets, NegativeSampling
from dkge_dist.learn.checkpoints import CheckpointKeeper, Checkpoints, MemoryKeeper
from dkge_dist.learn.contexts import EntityContexts, Form, RelationContexts
from dkge_dist.learn.courses import ChangedCourse, ValidatedCourse, begin_night
from dkge_dist.learn.encode import TrainedObjects
from dkge_dist.learn.frozen import FrozenObjects
from dkge_dist.learn.loop import Course, EarlyStopping, Learning, Progress, Schedule
from dkge_dist.learn.machine import use_machine
from dkge_dist.learn.order import ShuffledOrder
from dkge_dist.learn.plan import Plan
from dkge_dist.learn.step import DenseParameters, Loss, Step
from dkge_dist.measure.validation import Validation
from dkge_dist.model.dkge import Dkge
from dkge_dist.model.products import by_bfloat16
from dkge_dist.runtime import Communicator
from dkge_dist.settings import Settings
from dkge_dist.tables.checkpoint import CheckpointFolder
from dkge_dist.tables.table import Tables
from dkge_dist.types import Array, Triples

ONLINE_VALIDATION = 3
"""Stream of hashes of the validation sample while a night learns: another one than it is measured on."""
COMPETITORS = 1000
"""Draws of entities that learn, and as many of all, that changed triples compete with: are they learnt?"""
SURROUNDINGS = 1000
"""Replayed triples that tell whether what surrounds the change is retained."""
COMPETITOR_STREAM, SURROUNDINGS_STREAM = 7, 8
"""Of random numbers, apart from the other streams of a seed."""


@dataclass(frozen=True)
class LearnTask:
    """What to learn, as all workers are given it.

    `validation` are the triples that stop it, ranked by vectors alone: evidence stays as it is and would hide how they
    get better. `folder` has the checkpoints of a training, and all workers reach it; a night has none. `offsets` are
    what evidence says of the train triples. `dense` are the dense parameters to begin with, instead of random ones.
    `form` is that of contexts; None is what the device wants: padded blocks on a GPU, ragged contexts on a CPU.
    """

    plan: Plan
    graph: TrainingGraph
    settings: Settings
    validation: Triples
    folder: CheckpointFolder | None = None
    offsets: EvidenceOffsets | None = None
    dense: dict[str, Array] | None = None
    form: Form | None = None


@dataclass(frozen=True)
class Candidate:
    """What came of a run: how it went, its dense parameters, and facts of it. The vectors are in the tables."""

    progress: Progress
    dense: dict[str, Array]
    facts: dict[str, Any]


def learn(communicator: Communicator, tables: Tables, task: LearnTask) -> Candidate:
    """Learn a plan to its end; the tables are left with o* of all that changed, by each worker for its share."""
    device = use_machine(communicator.threads, communicator.device)
    model = model_of(task, device)
    progress = learning_of(communicator, tables, task, model, device).run()
    dense = {name: value.detach().cpu().numpy() for name, value in model.state_dict().items()}
    return Candidate(progress, dense, {"threads": threads(), "device": str(device)})


def model_of(task: LearnTask, device: torch.device) -> Dkge:
    """The dense parameters at their start: frozen for a night."""
    settings = task.settings.model
    model = Dkge(settings.dim, settings.entity_layers, settings.relation_layers, task.settings.seed)
    if task.dense is not None:
        model.load_state_dict({name: torch.from_numpy(value) for name, value in task.dense.items()})
    return model.to(device) if task.plan.is_whole else model.requires_grad_(False)


def learning_of(
    communicator: Communicator, tables: Tables, task: LearnTask, model: Dkge, device: torch.device
) -> Learning:
    """A run at its start."""
    put_together = _whole if task.plan.is_whole else _night
    return put_together(communicator, tables, task, model, device)


def _whole(communicator: Communicator, tables: Tables, task: LearnTask, model: Dkge, device: torch.device) -> Learning:
    """Everything learns, dense parameters too."""
    plan, graph, settings, train = task.plan, task.graph, task.settings, task.settings.train
    assert task.folder is not None, "a training has checkpoints"
    form: Form = task.form or ("ragged" if device.type == "cpu" else "padded")
    entity_contexts = EntityContexts(graph.topology, graph.digests[0], graph.sampling, form)
    entity_contexts.keep(graph.entities)
    relation_contexts = RelationContexts(graph.paths, graph.digests[1], graph.sampling, form)
    size, rate_factor = train.batch_for(plan.triples.count)
    # A small batch that lent its own endpoints as negatives would learn from few entities.
    in_batch = size >= train.in_batch_from * train.negatives
    maker = BatchMaker(
        plan.triples,
        entity_contexts,
        relation_contexts,
        NegativeSampling.of(graph, train.sampler, train.negatives, train.logq_correction, in_batch=in_batch),
        train.hide_targets,
        task.offsets,
        own_negative=graph.loopless_relations if train.own_negative else None,
        rank=communicator.rank,
        world=communicator.world,
    )
    for encoder in (model.entity, model.relation):
        encoder.gcn.learns_by_bfloat16 = by_bfloat16(train.products, device)
    mine = plan.entities.refreshed[communicator.rank :: communicator.world]
    entities = TrainedObjects(model.entity, tables.entities, entity_contexts, mine, device)
    relations = TrainedObjects(model.relation, tables.relations, relation_contexts, plan.relations.refreshed, device)
    dense = DenseParameters.of(model, train.optimizer)
    step = Step(entities, relations, Loss(train.loss, train.margin), communicator, dense)
    validation = Validation.of(graph, task.validation, train.valid_triples, train.valid_candidates)
    course = ValidatedCourse(ShuffledOrder(plan.triples.count, size), step, validation, train.eval_every, communicator)
    keeper = CheckpointKeeper(Checkpoints(task.folder), dense, tables, communicator)
    rate = train.learning_rate * rate_factor
    schedule = Schedule(
        train.max_epochs,
        train.max_seconds,
        EarlyStopping(train.early_stopping_metric, train.patience),
        train.optimizer,
        rate,
        train.dense_learning_rate or rate,
        train.schedule,
        train.least_rate,
        train.checkpoint_seconds,
        train.diverged_above,
        train.margin,
    )
    return Learning(maker, step, course, schedule, keeper, communicator, settings.seed)


def refresh_settings(settings: Settings) -> Settings:
    """How a refresh learns: for a few epochs, and without a first step that kicks every row out of its place."""
    online = settings.online
    changed = {
        "max_epochs": online.refresh_epochs,
        "eval_every": online.refresh_epochs,
        "learning_rate": online.refresh_learning_rate,
        "dense_learning_rate": online.refresh_dense_rate,
        "optimizer": "damped_adagrad",
    }
    return settings.model_copy(update={"train": settings.train.model_copy(update=changed)})


def _night(communicator: Communicator, tables: Tables, task: LearnTask, model: Dkge, device: torch.device) -> Learning:
    """A few rows learn; dense parameters and most contexts are frozen."""
    plan, graph, settings = task.plan, task.graph, task.settings
    train, online = settings.train, settings.online
    entity_contexts = EntityContexts(graph.topology, graph.digests[0], graph.sampling)
    entity_contexts.keep(plan.entities.refreshed)
    relation_contexts = RelationContexts(graph.paths, graph.digests[1], graph.sampling)
    proximal = plan.proximal_weights(
        online.proximal_weight, graph.topology, online.stayed_per_changed, online.deleted_weight
    )
    entities = FrozenObjects(model.entity, tables.entities, entity_contexts, graph.topology, plan.entities, proximal)
    relations = FrozenObjects(model.relation, tables.relations, relation_contexts, graph.topology, plan.relations)
    maker = BatchMaker(
        Triples.concat([plan.triples, plan.global_replay]),
        entities,
        relations,
        NegativeSampling.of(
            graph, train.sampler, online.negatives or train.negatives, train.logq_correction, plan.entities.trained
        ),
        train.hide_targets if online.hide_targets is None else online.hide_targets,
        deleted=plan.deleted,
        own_negative=graph.loopless_relations if train.own_negative else None,
    )
    step = Step(entities, relations, Loss(train.loss, train.margin), communicator)
    seed, by_change = settings.seed, online.epochs_over == "changed"

    def begins() -> None:
        begin_night(entities, relations, train.init_scale, seed, by_change)

    course: Course
    if by_change:
        competitors = _competitors(plan, graph, seed)
        check = Validation(plan.changed, graph.topology, competitors)
        around = _surroundings(plan, graph, competitors, seed)
        course = ChangedCourse(plan, step, check, around, online, seed, begins)
    else:
        # A single epoch has nothing to be compared with.
        held_out = task.validation if online.max_epochs > 1 else Triples.empty()
        sizes = (online.valid_triples, online.valid_candidates)
        validation = Validation.of(graph, held_out, *sizes, stream=ONLINE_VALIDATION)
        order = ShuffledOrder(plan.triples.count, online.batch_size)
        course = ValidatedCourse(order, step, validation, 1, communicator, begins)
    stopping = EarlyStopping(online.early_stopping_metric, online.patience)
    schedule = Schedule(
        online.max_epochs,
        online.max_seconds,
        stopping,
        online.optimizer,
        online.learning_rate,
        kind=online.schedule,
    )
    return Learning(maker, step, course, schedule, MemoryKeeper((entities, relations)), communicator, seed)


def _competitors(plan: Plan, graph: TrainingGraph, seed: int) -> Array:
    """A sample of the entities that learn, and of all: ascending rows."""
    rng = np.random.default_rng([seed, COMPETITOR_STREAM])
    sides = (plan.entities.trained, graph.entities)
    return distinct(*(some[rng.integers(0, some.shape[0], COMPETITORS if some.shape[0] else 0)] for some in sides))


def _surroundings(plan: Plan, graph: TrainingGraph, competitors: Array, seed: int) -> Validation:
    """A sample of the triples that are only replayed, among entities that were there before."""
    rng = np.random.default_rng([seed, SURROUNDINGS_STREAM])
    stayed = plan.stayed
    some = plan.triples.take(np.sort(rng.choice(stayed, min(stayed.shape[0], SURROUNDINGS), replace=False)))
    return Validation(some, graph.topology, np.setdiff1d(competitors, plan.entities.emerging))
