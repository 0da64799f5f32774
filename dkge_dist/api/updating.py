"""Learning online: from the snapshot a model was learnt from to a later one, touching only what changed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from dkge_dist.api.places import place_of
from dkge_dist.api.reports import PathLike, Progress, Report, since
from dkge_dist.api.tables import save_rows, tables_here, tables_on
from dkge_dist.api.training import use_machine, validation_of
from dkge_dist.config import Settings, settings_of_model
from dkge_dist.evaluation.validation import Validation
from dkge_dist.graph.affected import GraphState, find_affected
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.relation_paths import PathCounts
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.batches import bernoulli_head_chance
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.learning.batches import BatchMaker
from dkge_dist.learning.contexts import EntityContexts, RelationContexts
from dkge_dist.learning.step import Loss
from dkge_dist.model.dkge import Dkge
from dkge_dist.online.encoder import OnlineObjects
from dkge_dist.online.plan import ObjectPlan, RelationIndex, UpdatePlan, plan_update
from dkge_dist.online.start import random_start
from dkge_dist.online.updater import Updated, Updater
from dkge_dist.store.manifest import ModelManifest, SnapshotManifest
from dkge_dist.store.models import (
    ModelMetadata,
    ModelReplacedError,
    load_dense,
    publish_model,
    save_compact,
    save_update,
    wants_compaction,
)
from dkge_dist.store.store import Store
from dkge_dist.tables.table import Table
from dkge_dist.types import ROW, Array, DkgeError, Field, Split, Triples

Digests = tuple[Array, Array]
FINE = 6
"""Digits of seconds that follow the change alone: in a small night they are milliseconds."""


@dataclass(frozen=True)
class Night:
    """The graph before and after, as an update sees it. Only negatives that are drawn one by one need a head chance."""

    diff: Diff
    before: GraphState
    snapshot: Snapshot
    alive: Array
    head_chance: Array
    by_relation: RelationIndex
    digests: Digests
    sampling: Sampling


def update(
    store: PathLike,
    *,
    to: str | None = None,
    since_version: str | None = None,
    plan: bool = False,
    config: PathLike | None = None,
    settings: Iterable[str] = (),
    shards: int | None = None,
    address: str | None = None,
    wait_seconds: float | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Report:
    """Bring the model in force (or the one of `since_version`) to a later snapshot, and publish it.

    With `plan` nothing is done: the report says what would be. With `shards` the entities lie in so many Ray actors; a
    plan tells which of them would be written to. `stop` is asked after every batch; when it says yes, the store stays
    as it is.
    """
    began = time.monotonic()
    place = None if plan else place_of(shards, 1, address, wait_seconds)
    count = shards or 1
    opened = Store.open(Path(store))
    head = opened.head()
    parent, in_force = opened.find_model(since_version), head.current.model if head else None
    target = opened.find_snapshot(to) if to else opened.current_snapshot()
    assert target is not None, "a model stands on a snapshot"
    chosen = settings_of_model(parent.model.settings, Path(config) if config else None, settings)
    use_machine(chosen)
    if target.version == parent.model.snapshot:
        return _nothing_to_do(parent, target, began)
    night = _open_night(opened, parent, target, chosen)
    open_seconds = since(began)
    planned = time.monotonic()
    state, todo = _plan(night, chosen)
    report: Report = {
        "snapshot": target.snapshot.name,
        "from": opened.snapshot_manifest(parent.model.snapshot).snapshot.name,
        "added": night.diff.added.count,
        "deleted": night.diff.deleted.count,
        **todo.summary(),
        "shards_touched": len(todo.shards(parent.block_rows, count)),
        "shards_total": count,
        "open_seconds": open_seconds,
        "plan_seconds": since(planned, FINE),
    }
    if plan:
        blocks = todo.blocks(parent.block_rows)
        shown = {"blocks_touched": len(blocks), "blocks_total": -(-len(night.digests[0]) // parent.block_rows)}
        return {**report, **shown, "shards": todo.shards(parent.block_rows, count), "seconds": since(began)}
    loading = time.monotonic()
    rows = (len(night.digests[0]), len(night.digests[1]))
    opening = tables_here(opened, parent, rows) if place is None else tables_on(place, opened, parent, rows)
    with opening as tables:
        model = _load_model(opened, parent, chosen)
        report["open_seconds"] = round(open_seconds + since(loading), 3)
        learning = time.monotonic()
        both = (tables.entities, tables.relations)
        done = _learn(night, state, todo, both, model, chosen, progress, stop)
        metrics = _measure(night, state, both, chosen)
        report |= {"epochs": done.epochs, "learn_seconds": since(learning, FINE), "valid": metrics}
        publishing = time.monotonic()
        with opened.storage.staging() as staging:
            deltas = (
                tables.save(staging, _write_set(todo.entities)),
                save_rows(staging, tables.relations, _write_set(todo.relations)),
            )
            report |= tables.moved(report["shards_touched"])
            counted = {key: report[key] for key in ("added", "deleted", *todo.summary(), "epochs", "shards_touched")}
            about = ModelMetadata(
                chosen.model_dump(mode="json"), metrics, {"origin": "online", **counted}, done.history
            )
            entry = save_update(staging, parent, target.version, rows, deltas, about)
            published = publish_model(opened, entry, since(began), in_force)
    report["publish_seconds"] = since(publishing, FINE)
    return {
        "version": _compacted(opened, published),
        **report,
        "parent": parent.version,
        "bytes_written": staging.written,
        "seconds": since(began),
    }


def _plan(night: Night, settings: Settings) -> tuple[GraphState, UpdatePlan]:
    """The graph after the night, and what is to be learnt of it."""
    affected, state = find_affected(night.before, night.diff, night.digests, night.sampling)
    online = settings.online
    limit = online.max_triples_per_object
    return state, plan_update(
        night.diff, affected, state.topology, night.by_relation, online.affected_by, limit, settings.seed
    )


def _compacted(store: Store, published: ModelManifest) -> int:
    """Fold the deltas into a version of the same content once they are many; the version then in force."""
    if not wants_compaction(published.model):
        return published.version
    began = time.monotonic()
    with store.storage.staging() as staging, suppress(ModelReplacedError):
        compact = save_compact(store, staging, published)
        return publish_model(store, compact, since(began), published.version).version
    return published.version


def _nothing_to_do(parent: ModelManifest, target: SnapshotManifest, began: float) -> Report:
    nobody = ObjectPlan(*(np.empty(0, ROW) for _ in range(3)))
    return {
        "version": parent.version,
        "snapshot": target.snapshot.name,
        "unchanged": True,
        "added": 0,
        "deleted": 0,
        **UpdatePlan(nobody, nobody, Triples.empty()).summary(),
        "epochs": 0,
        "shards_touched": 0,
        "shards_total": 1,
        "bytes_pulled": 0,
        "bytes_pushed": 0,
        "bytes_written": 0,
        "seconds": since(began),
    }


def _open_night(store: Store, parent: ModelManifest, target: SnapshotManifest, settings: Settings) -> Night:
    """Everything whose cost follows the size of the graph: reported apart as opening."""
    base = store.snapshot_manifest(parent.model.snapshot)
    head = store.head()
    names = store.dictionaries(head)
    digests = (names[0].digests, names[1].digests)
    snapshot = store.snapshot(target, head)
    train_before, train = store.snapshot(base, head).triples(Split.TRAIN), snapshot.triples(Split.TRAIN)
    if not train.count:
        raise DkgeError(f"{store.path}: snapshot {target.snapshot.name!r} has no train triples")
    topology = Topology.of(train_before, len(names[0]))
    paths = PathCounts.of(topology, train_before, len(names[1]), settings.context.path_length)
    bernoulli = settings.train.sampler == "bernoulli"
    return Night(
        store.diff(base, target),
        GraphState(topology, paths),
        snapshot,
        np.flatnonzero(snapshot.entities_alive).astype(ROW),
        bernoulli_head_chance(*train, len(names[1])) if bernoulli else np.empty(0),
        RelationIndex(train, len(names[1])),
        digests,
        Sampling(settings.seed, settings.context.cap, settings.context.hops),
    )


def _load_model(store: Store, parent: ModelManifest, settings: Settings) -> Dkge:
    """The dense parameters, frozen."""
    shape = settings.model
    model = Dkge(shape.dim, shape.entity_layers, shape.relation_layers)
    stored = {name: torch.from_numpy(value) for name, value in load_dense(store, parent.model.dense).items()}
    model.load_state_dict(stored)
    return model.requires_grad_(False)


def _learn(
    night: Night,
    state: GraphState,
    plan: UpdatePlan,
    tables: tuple[Table, Table],
    model: Dkge,
    settings: Settings,
    progress: Progress | None,
    stop: Callable[[], bool] | None,
) -> Updated:
    contexts = (
        EntityContexts(state.topology, night.digests[0], night.sampling),
        RelationContexts(state.paths, night.digests[1], night.sampling),
    )
    random_start(tables, plan, settings.model.dim, settings.train.init_scale, settings.seed)
    entities, relations = (
        OnlineObjects(encoder, table, around, state.topology, objects.trained, objects.emerging)
        for encoder, table, around, objects in (
            (model.entity, tables[0], contexts[0], plan.entities),
            (model.relation, tables[1], contexts[1], plan.relations),
        )
    )
    maker = BatchMaker(
        plan.triples,
        entities,
        relations,
        night.alive,
        night.head_chance,
        settings.train.sampler,
        settings.train.negatives,
        hide_targets=settings.train.hide_targets,
        frequent=night.by_relation.train,
        logq_correction=settings.train.logq_correction,
    )
    limits = (settings.online.valid_triples, settings.online.valid_candidates)
    rng = np.random.default_rng([settings.seed, 3])
    validation = Validation(night.snapshot.triples(Split.VALID), state.topology, night.alive, *limits, rng)
    updater = Updater(
        plan,
        entities,
        relations,
        maker,
        validation,
        Loss(settings.train.loss, settings.train.margin),
        settings.online,
        settings.seed,
        progress or (lambda done, words: None),
        stop or (lambda: False),
    )
    return updater.run()


def _measure(night: Night, state: GraphState, tables: tuple[Table, Table], settings: Settings) -> dict[str, float]:
    """Validation just as a training from scratch measures it, so that drift can be told."""
    validation = validation_of(night.snapshot.triples(Split.VALID), state.topology, night.alive, settings)
    every = np.arange(night.digests[1].shape[0], dtype=ROW)
    joints = [
        table.pull({Field.JOINT: rows})[Field.JOINT]
        for table, rows in zip(tables, (validation.rows, every), strict=True)
    ]
    return validation.measure(*joints)


def _write_set(plan: ObjectPlan) -> dict[Field, Array]:
    """What an update writes of one kind of objects."""
    return {Field.KNOWLEDGE: plan.trained, Field.CONTEXT: plan.emerging.astype(ROW), Field.JOINT: plan.trained}
