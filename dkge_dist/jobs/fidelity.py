"""What a version learnt of its night: the added believed, the deleted forgotten, the rest kept."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from dkge_dist.ask.model import joint_embedding, open_model_on
from dkge_dist.evaluation.fidelity import NightTriples, measure_groups, measure_night, night_triples
from dkge_dist.evidence.scores import Evidence
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.jobs.report import seconds_since
from dkge_dist.records import Fidelity, FidelityRecord, PreviousFidelity
from dkge_dist.runtime import Runtime
from dkge_dist.store.history import updated_from
from dkge_dist.store.manifest import ModelManifest, SnapshotManifest
from dkge_dist.store.store import Store
from dkge_dist.tables.table import Tables
from dkge_dist.types import DkgeError, Split

SAMPLE = 250
"""Triples of a group in the report of a night."""
STREAM = 13
"""Of random numbers, apart from the other streams of a seed."""


@dataclass(frozen=True)
class FidelityOptions:
    """`since` names the snapshot that the night began with; by default the one that the model was updated from."""

    since: str | None = None
    evidence: bool = True


def fidelity(store: Store, runtime: Runtime, version: str | None, options: FidelityOptions) -> FidelityRecord:
    """Exact: all triples of the night against all entities."""
    began = time.monotonic()
    with open_model_on(runtime, store, version) as model:
        parent, snapshot = updated_from(store, model.manifest), model.snapshot
        before = store.find_snapshot(options.since) if options.since else night_began(store, model.manifest)
        diff, seed = store.diff(before, model.snapshot_manifest), model.entry.settings.get("seed", 0)
        night = night_triples(diff, snapshot.triples(Split.TRAIN), model.topology, snapshot, seed)
        found = measure_night(model.embedding, night, model.topology, model.evidence_if(options.evidence))
    previous = {}
    if parent is not None and parent.model.snapshot == before.version:
        previous["before"] = _before(store, runtime, parent, night, options.evidence)
    return FidelityRecord(
        version=model.version,
        snapshot=model.snapshot_name,
        since=before.snapshot.name,
        added=diff.added.count,
        deleted_triples=diff.deleted.count,
        sampled=False,
        seconds=seconds_since(began),
    ).with_(**found, **previous)


def night_began(store: Store, model: ModelManifest) -> SnapshotManifest:
    """The snapshot that a model was updated from; of one trained from scratch, the one before its own."""
    parent = updated_from(store, model)
    if parent is not None:
        return store.snapshot_manifest(parent.model.snapshot)
    now = store.snapshot_manifest(model.model.snapshot)
    if now.snapshot.parent is None:
        raise DkgeError(f"{store}: version {model.version} is of the first snapshot: there was no night before it")
    return store.snapshot_manifest(now.snapshot.parent)


def _before(
    store: Store, runtime: Runtime, parent: ModelManifest, night: NightTriples, by_evidence: bool
) -> PreviousFidelity:
    """What the model before the night said of the triples that were there then, in the graph that was there then."""
    with open_model_on(runtime, store, str(parent.version)) as model:
        evidence = model.evidence_if(by_evidence)
        found = measure_groups(model.embedding, night.there_before(), model.topology, evidence)
    return PreviousFidelity.model_validate({"version": parent.version, **found})


def sampled_fidelity(
    graph: TrainingGraph, snapshot: Snapshot, diff: Diff, tables: Tables, evidence: Evidence | None, candidates: int
) -> Fidelity:
    """Of at most 250 triples a group against so many entities: the cost follows the change."""
    seed = graph.sampling.seed
    rng = np.random.default_rng([seed, STREAM])
    every = night_triples(diff, graph.train, graph.topology, snapshot, seed)
    night = every.sampled(SAMPLE, rng)
    embedding = joint_embedding(tables, snapshot)
    if embedding.candidates.shape[0] > candidates:
        drawn = rng.choice(embedding.candidates.shape[0], candidates, replace=False)
        embedding = embedding.among(embedding.candidates[np.sort(drawn)])
    groups = measure_night(embedding, night, graph.topology, evidence)
    for name in (*Fidelity.ADDED, *Fidelity.DELETED):
        groups[name] = groups[name].with_(of=every.groups()[name].count)
    return Fidelity.model_validate({**groups, "sampled": True})
