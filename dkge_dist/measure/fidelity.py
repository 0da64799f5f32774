"""Fidelity: is a night learnt? Ranks of what it added, deleted, replaced and kept.

A night is learnt when its added triples are believed, its deleted ones are not, and everything else is as good as
before. Both sides of a triple are ranked, with train triples filtered.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial

import numpy as np

from dkge_dist.ask.model import joint_embedding, open_model_on
from dkge_dist.ask.ranks import JointEmbedding, Ranks, metrics, rank_among
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.scores import Evidence, combined_score
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Topology
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.csr import Adjacency
from dkge_dist.kernels.ranks import answer_counts, known_answers
from dkge_dist.kernels.sets import distinct
from dkge_dist.kernels.triples import canonical, contains, minus, pack
from dkge_dist.measure.comparison import reciprocal_ranks
from dkge_dist.records import Estimate, Fidelity, FidelityGroup, FidelityRecord, PreviousFidelity, Quality
from dkge_dist.runtime import Runtime
from dkge_dist.store.history import updated_from
from dkge_dist.store.manifest import ModelManifest, SnapshotManifest
from dkge_dist.store.store import Store
from dkge_dist.tables.table import Tables
from dkge_dist.types import ROW, Array, DkgeError, Split, Triples, seconds_since

KEPT = 2000
"""Triples that were kept, near the change or far from it, that are looked at. Around hubs they are very many."""
SIBLINGS = 1 << 22
"""Triples near the change that these are drawn from, on either side."""
STREAM = 6
"""Of random numbers, apart from the other streams of a seed."""


@dataclass(frozen=True)
class Replaced:
    """Questions with one answer before and another one now: the triple that came and the one that went, side by side.

    `asks_tail`: which end was replaced. An answer that is held out now, or dead, was not replaced.
    """

    new: Triples
    old: Triples
    asks_tail: Array

    def take(self, where: Array) -> Replaced:
        """Some of them."""
        return Replaced(self.new.take(where), self.old.take(where), self.asks_tail[where])


@dataclass(frozen=True)
class NightTriples:
    """The triples of a night by what should have become of them.

    `added_existing`: ends and relation existed before; `added_emerging`: the other added ones; `deleted`: in no split
    any more, ends and relation alive; `kept_near`: a sample of those that share (head, relation) or (relation,
    tail) with a changed triple; `kept_far`: a sample of the others.
    """

    added_existing: Triples
    added_emerging: Triples
    deleted: Triples
    kept_near: Triples
    kept_far: Triples
    replaced: Replaced

    def groups(self) -> dict[str, Triples]:
        """All but `replaced`, by name."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "replaced"}

    def there_before(self) -> dict[str, Triples]:
        """The groups that the graph before the night had."""
        return {name: triples for name, triples in self.groups().items() if not name.startswith("added")}

    def sampled(self, limit: int, rng: np.random.Generator) -> NightTriples:
        """At most `limit` triples of every group."""

        def some(count: int) -> Array:
            return np.sort(rng.choice(count, limit, replace=False)) if count > limit else np.arange(count)

        groups = {name: triples.take(some(triples.count)) for name, triples in self.groups().items()}
        return NightTriples(**groups, replaced=self.replaced.take(some(self.replaced.new.count)))


def night_triples(diff: Diff, train: Triples, topology: Topology, snapshot: Snapshot, seed: int) -> NightTriples:
    """The groups of a diff that led to `snapshot`, of which `train` and `topology` are the train graph.

    The cost follows the change.
    """
    added = diff.added
    emerging = (
        np.isin(added.head, diff.emerging_entities)
        | np.isin(added.tail, diff.emerging_entities)
        | np.isin(added.relation, diff.emerging_relations)
    )
    rng = np.random.default_rng([seed, STREAM])
    near = _kept_near(diff, topology, rng)
    far = _kept_far(train, [near, added], rng)
    return NightTriples(
        added.take(~emerging),
        added.take(emerging),
        forgotten(diff.deleted, snapshot),
        _at_most(KEPT, near, rng),
        far,
        _replaced(diff, topology, snapshot),
    )


def forgotten(deleted: Triples, snapshot: Snapshot) -> Triples:
    """The deleted train triples that nobody should believe any more: in no split, ends and relation alive."""
    alive = (
        snapshot.entities_alive[deleted.head]
        & snapshot.entities_alive[deleted.tail]
        & snapshot.relations_alive[deleted.relation]
    )
    moved = snapshot.contains(Split.VALID, deleted) | snapshot.contains(Split.TEST, deleted)
    return deleted.take(alive & ~moved)


def _kept_near(diff: Diff, topology: Topology, rng: np.random.Generator) -> Triples:
    changed = Triples.concat([diff.added, diff.deleted])
    tails = _siblings(topology.outgoing, changed.head, changed.relation, changed.tail, rng)
    heads = _siblings(topology.incoming, changed.tail, changed.relation, changed.head, rng)
    near = Triples.concat([Triples(*tails), Triples(heads[2], heads[1], heads[0])])
    return minus(minus(canonical(near), diff.added), diff.deleted)


def _siblings(
    adjacency: Adjacency, entity: Array, relation: Array, answer: Array, rng: np.random.Generator
) -> tuple[Array, Array, Array]:
    """(entity, relation, answer) of all known answers to some questions, and of the answers given.

    Each question counts once: a night may change thousands of the answers of a hub, each of which has all the others
    beside it. Of questions with too many answers in all, some are drawn.
    """
    _, first = np.unique(pack(entity, relation), return_index=True)
    count = answer_counts(adjacency, entity[first], relation[first], answer[first])
    if count.sum() > SIBLINGS:
        order = rng.permutation(first.shape[0])
        few = max(1, int(np.searchsorted(np.cumsum(count[order]), SIBLINGS, "right")))
        first = first[np.sort(order[:few])]
    known = known_answers(adjacency, entity[first], relation[first], answer[first])
    count = np.diff(known.indptr)
    return np.repeat(entity[first], count).astype(ROW), np.repeat(relation[first], count).astype(ROW), known.rows


def _kept_far(train: Triples, apart: list[Triples], rng: np.random.Generator) -> Triples:
    """A sample of the triples that are not among others; each relation gets its share."""
    drawn = train.take(distinct(rng.integers(0, train.count, 2 * KEPT))) if train.count else train
    for others in apart:
        drawn = drawn.take(~contains(others, drawn))
    return _at_most(KEPT, drawn, rng)


def _at_most(limit: int, triples: Triples, rng: np.random.Generator) -> Triples:
    if triples.count <= limit:
        return triples
    return triples.take(np.sort(rng.choice(triples.count, limit, replace=False)))


def _replaced(diff: Diff, topology: Topology, snapshot: Snapshot) -> Replaced:
    """On both sides: the question had one answer, which is wrong now, and has one now, which came."""
    sides, wrong = [], forgotten(diff.deleted, snapshot)
    for adjacency, entity, answer in ((topology.outgoing, 0, 2), (topology.incoming, 2, 0)):
        came, went = _single(diff.added, entity), _single(diff.deleted, entity)
        _, new, old = np.intersect1d(came[0], went[0], assume_unique=True, return_indices=True)
        new_triples, old_triples = diff.added.take(came[1][new]), diff.deleted.take(went[1][old])
        known = known_answers(adjacency, new_triples[entity], new_triples.relation, new_triples[answer])
        only = (np.diff(known.indptr) == 1) & contains(wrong, old_triples)
        sides.append((new_triples.take(only), old_triples.take(only), np.full(int(only.sum()), answer == 2)))
    new, old, asks_tail = zip(*sides, strict=True)
    return Replaced(Triples.concat(list(new)), Triples.concat(list(old)), np.concatenate(asks_tail))


def _single(triples: Triples, entity: int) -> tuple[Array, Array]:
    """(entity, relation) codes that exactly one triple has, and its position."""
    codes = pack(triples[entity], triples.relation)
    found, first, count = np.unique(codes, return_index=True, return_counts=True)
    return found[count == 1], first[count == 1]


def measure_night(
    embedding: JointEmbedding, night: NightTriples, known: Topology, evidence: Evidence | None
) -> dict[str, FidelityGroup]:
    """Every group against the candidates: by vectors alone, and with evidence where there is some."""
    replaced = night.replaced

    def measure_replaced(found: Evidence | None) -> Quality:
        ranks = _ranks(embedding, replaced.new, known, found)
        asked = Quality.model_validate(metrics(np.where(replaced.asks_tail, ranks.tail, ranks.head)))
        if not replaced.new.count:
            return asked
        return asked.with_(new_above_old=float(_above(embedding, replaced, found).mean()))

    groups = measure_groups(embedding, night.groups(), known, evidence)
    return {**groups, "replaced": _by_both(replaced.new.count, measure_replaced, evidence)}


def measure_groups(
    embedding: JointEmbedding, groups: dict[str, Triples], known: Topology, evidence: Evidence | None
) -> dict[str, FidelityGroup]:
    """Groups of triples, ranked on both sides."""

    def measure(triples: Triples, found: Evidence | None) -> Quality:
        ranks = _ranks(embedding, triples, known, found)
        both = Quality.model_validate(metrics(ranks.both))
        return both.with_(mrr_error=Estimate.of(reciprocal_ranks(ranks)).error) if triples.count else both

    return {name: _by_both(triples.count, partial(measure, triples), evidence) for name, triples in groups.items()}


def _by_both(count: int, measure: Callable[[Evidence | None], Quality], evidence: Evidence | None) -> FidelityGroup:
    """By vectors alone, and with evidence where there is some."""
    by_vectors = FidelityGroup(triples=count, vectors=measure(None))
    return by_vectors if evidence is None else by_vectors.with_(with_evidence=measure(evidence))


def _above(embedding: JointEmbedding, replaced: Replaced, evidence: Evidence | None) -> Array:
    """For each question whose answer was replaced: does the new one score higher than the old?"""
    new, old = replaced.new, replaced.old
    entity = np.where(replaced.asks_tail, new.head, new.tail)
    questions = Questions(entity, new.relation, replaced.asks_tail)
    scores = []
    for triples in (new, old):
        answers = np.where(replaced.asks_tail, triples.tail, triples.head).astype(ROW)
        distance = embedding.distances(questions, np.arange(questions.count + 1), answers)
        scores.append(
            combined_score(distance, evidence.of(questions, answers), evidence.weights.near)
            if evidence is not None
            else -distance
        )
    above: Array = scores[0] > scores[1]
    return above


def _ranks(embedding: JointEmbedding, triples: Triples, known: Topology, evidence: Evidence | None) -> Ranks:
    return rank_among(embedding, triples, known.outgoing, known.incoming, evidence)


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
