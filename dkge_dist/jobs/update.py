"""Learning online: from the snapshot of a model to a later one, touching only what changed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from dkge_dist.ask.calibration import kept_calibration
from dkge_dist.ask.model import Model, joint_embedding
from dkge_dist.evidence.counts import PathShares
from dkge_dist.evidence.fitting import EvidenceFitting, sampled, validation_half
from dkge_dist.evidence.questions import Distances
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.stored import counts_of, current_lists, to_arrays, weights_of
from dkge_dist.evidence.walks import GraphEvidence, WalkLimits
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.training_graph import find_affected, training_graph
from dkge_dist.learn.loop import Progress
from dkge_dist.learn.machine import use_machine
from dkge_dist.learn.plan import Plan, RelationIndex, plan_update
from dkge_dist.learn.task import LearnTask, learn
from dkge_dist.measure.drift import baseline_after, find_drift, load_ranked
from dkge_dist.measure.fidelity import forgotten, sampled_fidelity
from dkge_dist.measure.validation import measure_validation
from dkge_dist.records import Fidelity, NightRecord, UpdatePlanRecord
from dkge_dist.runtime import LocalCommunicator, Monitor, Runtime
from dkge_dist.settings import Settings
from dkge_dist.store.manifest import ModelManifest, SnapshotManifest
from dkge_dist.store.models import (
    ModelMetadata,
    ModelReplacedError,
    load_arrays,
    publish_model,
    save_compact,
    save_update,
    wants_compaction,
)
from dkge_dist.store.store import Store
from dkge_dist.tables.table import Tables
from dkge_dist.types import Array, DkgeError, Split, seconds_since

FINE = 6
"""Digits of seconds that follow the change alone: in a small night they are milliseconds."""


@dataclass(frozen=True)
class SnapshotChange:
    """A model, the snapshot it was learnt from, the one it is brought to, and the change between them.

    `current` is the version of the model that this one replaces; `digests` are those of all labels known now; `paths`
    is what the model keeps of the relation paths of its snapshot.
    """

    parent: ModelManifest
    current: int | None
    base_name: str
    base: Snapshot
    target_manifest: SnapshotManifest
    target: Snapshot
    diff: Diff
    digests: tuple[Array, Array]
    paths: dict[str, Array] | None


def load_change(store: Store, parent: ModelManifest, target: SnapshotManifest) -> SnapshotChange:
    """The change from the snapshot of a model to another one, read from the store."""
    base, head = store.snapshot_manifest(parent.model.snapshot), store.head()
    assert head is not None, "a store with a model has a head"
    names = store.dictionaries(head)
    return SnapshotChange(
        parent,
        head.current.model,
        base.snapshot.name,
        store.snapshot(base, head),
        target,
        store.snapshot(target, head),
        store.diff(base, target),
        (names[0].digests, names[1].digests),
        kept_paths(store, parent),
    )


def kept_paths(store: Store, model: ModelManifest) -> dict[str, Array] | None:
    """The counts of relation paths that a model keeps; versions of older programs keep none."""
    return load_arrays(store, model.model.paths) if model.model.paths is not None else None


def update(
    store: Store, runtime: Runtime, parent: ModelManifest, to: str | None, settings: Settings, monitor: Monitor
) -> NightRecord:
    """Bring a model to a snapshot (the current one by default) and publish it."""
    began = time.monotonic()
    target = _target(store, to)
    if target.version == parent.model.snapshot:
        return _nothing_to_do(parent, target, runtime.shards, began)
    with updated(store, runtime, load_change(store, parent, target), settings, monitor) as (record, _):
        return record.with_(seconds=seconds_since(began))


def plan(store: Store, parent: ModelManifest, to: str | None, settings: Settings, shards: int) -> UpdatePlanRecord:
    """What an update would do, and on which of so many shards."""
    began = time.monotonic()
    target = _target(store, to)
    if target.version == parent.model.snapshot:
        return _nothing_to_do(parent, target, 1, began)
    night = Night(load_change(store, parent, target), settings)
    block = parent.block_rows
    return UpdatePlanRecord(
        **night.sizes(),
        open_seconds=night.open_seconds,
        plan_seconds=night.plan_seconds,
        shards_touched=len(night.plan.shards(block, shards)),
        shards_total=shards,
        blocks_touched=len(night.plan.blocks(block)),
        blocks_total=-(-night.graph.entity_rows // block),
        shards=night.plan.shards(block, shards),
        seconds=seconds_since(began),
    )


def _target(store: Store, to: str | None) -> SnapshotManifest:
    target = store.find_snapshot(to) if to else store.current_snapshot()
    assert target is not None, "a store with a model has a snapshot"
    return target


class Night:
    """A change with the graph before and after it, and the plan of its update.

    Everything whose cost follows the size of the graph is done first and timed apart, as opening.
    """

    def __init__(self, change: SnapshotChange, settings: Settings) -> None:
        opening = time.monotonic()
        use_machine(settings.threads, settings.device)
        train = change.target.triples(Split.TRAIN)
        if not train.count:
            raise DkgeError(f"snapshot {change.target_manifest.snapshot.name!r} has no train triples")
        before = training_graph(change.base, change.digests, settings, change.paths)
        by_relation = RelationIndex(train, before.relation_rows)
        # Materialised now: these follow the graph, the plan follows the change.
        _ = change.target.triples(Split.VALID), change.target.alive_entities, change.target.alive_relations
        self.change, self.settings, self.before = change, settings, before
        self.open_seconds = seconds_since(opening)
        planning = time.monotonic()
        affected, self.graph = find_affected(before, change.diff, change.target)
        online = settings.online
        self.plan: Plan = plan_update(
            change.diff,
            affected,
            self.graph,
            by_relation,
            online.affected_by,
            online.max_triples_per_object,
            forgotten(change.diff.train.deleted, change.target),
            online.hold_relations,
            online.global_sample,
        )
        self.plan_seconds = seconds_since(planning, FINE)

    def sizes(self) -> dict[str, Any]:
        """Sizes of the change and of the plan, as records name them."""
        return {
            "snapshot": self.change.target_manifest.snapshot.name,
            "from": self.change.base_name,
            "added": self.change.diff.added.count,
            "deleted": self.change.diff.deleted.count,
            **self.plan.summary(),
        }


@contextmanager
def updated(
    store: Store, runtime: Runtime, change: SnapshotChange, settings: Settings, monitor: Monitor
) -> Iterator[tuple[NightRecord, Model]]:
    """Learn a change online and publish the model."""
    began = time.monotonic()
    night = Night(change, settings)
    evidence = _evidence_after(store, night)
    baseline = baseline_after(store, change.parent)
    trained = load_ranked(store, baseline.validation)
    rows = (night.graph.entity_rows, night.graph.relation_rows)
    loading = time.monotonic()
    with runtime.open_tables(store, change.parent, rows) as tables:
        dense = load_arrays(store, change.parent.model.dense)
        open_seconds = round(night.open_seconds + seconds_since(loading), 3)
        learning = time.monotonic()
        done = _learn(night, tables, dense, evidence, monitor)
        learn_seconds, measuring = seconds_since(learning, FINE), time.monotonic()
        if evidence is not None:
            evidence = _beside(night, evidence, joint_embedding(tables, change.target).distances, monitor)
        valid, ranked = measure_validation(night.graph, tables, settings, evidence)
        sizes = (evidence, settings.online.valid_candidates)
        fidelity = sampled_fidelity(night.graph, change.target, change.diff, tables, *sizes)
        record = NightRecord(
            **night.sizes(),
            epochs=done.epoch,
            valid=valid,
            fidelity=fidelity,
            drift=find_drift(baseline.version, trained, ranked, fidelity),
            open_seconds=open_seconds,
            plan_seconds=night.plan_seconds,
            learn_seconds=learn_seconds,
            measure_seconds=seconds_since(measuring, FINE),
            shards_total=runtime.shards,
        )
        publishing = time.monotonic()
        with store.storage.staging() as staging:
            deltas = (
                tables.entities.save_deltas(staging, night.plan.entities.write_set),
                tables.relations.save_deltas(staging, night.plan.relations.write_set),
            )
            stats = tables.entities.stats()
            written = [number for number, shard in enumerate(stats) if shard["push_calls"] or shard["write_calls"]]
            record = record.with_(
                shards_touched=len(written),
                bytes_pulled=sum(shard["bytes_pulled"] for shard in stats),
                bytes_pushed=sum(shard["bytes_pushed"] for shard in stats),
            )
            metadata = ModelMetadata(
                settings.of_the_model(),
                record,
                done.history,
                to_arrays(evidence) if evidence is not None else None,
                {**ranked.to_arrays(), **kept_calibration(store, change.parent.model)} if ranked is not None else None,
                baseline,
                night.graph.paths.to_arrays(),
                current_lists(
                    store,
                    staging,
                    change.target_manifest,
                    change.target,
                    night.graph.digests[0],
                    evidence.graph.limits if evidence is not None else None,
                    change.parent.model.lists,
                ),
            )
            entry = save_update(staging, change.parent, change.target_manifest.version, rows, deltas, metadata)
            published = publish_model(store, entry, seconds_since(began), change.current)
        publish_seconds = seconds_since(publishing, FINE)
        published = _compacted(store, published)
        record = record.with_(
            version=published.version,
            parent=change.parent.version,
            shards=[{"shard": number, "touched": number in written, **shard} for number, shard in enumerate(stats)],
            bytes_written=staging.written,
            publish_seconds=publish_seconds,
            seconds=seconds_since(began),
        )
        embedding = joint_embedding(tables, change.target)
        yield record, Model(store, published, change.target, embedding=embedding, evidence=evidence)


def _compacted(store: Store, published: ModelManifest) -> ModelManifest:
    """Fold the deltas into a version of the same content once they are many; the version that is current then."""
    if not wants_compaction(published.model):
        return published
    began = time.monotonic()
    with store.storage.staging() as staging, suppress(ModelReplacedError):
        compact = save_compact(store, staging, published)
        return publish_model(store, compact, seconds_since(began), published.version)
    return published


def _nothing_to_do(parent: ModelManifest, target: SnapshotManifest, shards: int, began: float) -> NightRecord:
    return NightRecord(
        version=parent.version,
        snapshot=target.snapshot.name,
        unchanged=True,
        epochs=0,
        shards_touched=0,
        shards_total=shards,
        bytes_written=0,
        fidelity=Fidelity(),
        seconds=seconds_since(began),
    )


def _evidence_after(store: Store, night: Night) -> Evidence | None:
    """The evidence of the new snapshot, under the weights of the model that is updated."""
    part = night.change.parent.model.evidence
    if part is None:
        return None
    arrays, before, graph = load_arrays(store, part), night.before, night.graph
    change = night.change.diff.train
    counts = counts_of(arrays).after(before.topology, graph.topology, change, graph.relation_rows)
    limits = WalkLimits.of(night.settings)
    found = GraphEvidence.counted(graph.topology, counts, PathShares.of(graph.paths), graph.digests[0], limits)
    weights = weights_of(arrays)
    return Evidence(found, replace(weights, changed=weights.changed + change.added.count + change.deleted.count))


def _beside(night: Night, evidence: Evidence, distances: Distances, monitor: Monitor) -> Evidence:
    """The evidence beside the vectors of tonight. Its weights suit the graph that they were fitted on: once much of it
    changed, they are fitted anew."""
    graph, settings = night.graph, night.settings
    if 0 < settings.online.refit_evidence * graph.train.count <= evidence.weights.changed:
        monitor.progress(1.0, "fitting the weights of evidence")
        return EvidenceFitting.of(graph, WalkLimits.of(settings), evidence.graph).fitted(distances)
    known = (graph.train, night.plan.triples.take(night.plan.added))
    return evidence.beside(distances, *(sampled(triples, WalkLimits.of(settings)) for triples in known))


def _learn(
    night: Night, tables: Tables, dense: dict[str, Array], evidence: Evidence | None, monitor: Monitor
) -> Progress:
    graph, settings = night.graph, night.settings
    held_out = validation_half(graph) if evidence is not None else graph.valid
    task = LearnTask(night.plan, graph, settings, held_out, dense=dense)
    return learn(LocalCommunicator(monitor, settings.threads, settings.device), tables, task).progress
