"""Questions (h, r, ?) about a night, asked of the versions before and after it, as of each.

Facts that the night added, deleted and replaced, facts that stayed in train, and held-out facts that stand in no train.
A version ranks the entities of its own snapshot, and the other answers that it knows do not compete. The version after
is learnt online, from scratch, and by the literal method both ways. Three graphs: DBpedia-3SP replaces few answers, the
movie graph many; Debian's comes with the part `debian`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.published import trained
from benchmarks.study.cells import Cell, Result
from benchmarks.study.comparison import OURS, our_words
from benchmarks.study.graphs import DataSet, Study, dbpedia, movie_graph
from benchmarks.study.systems import night_of
from dkge_dist.ask.model import Model, open_model
from dkge_dist.ask.ranks import metrics, rank_among
from dkge_dist.evidence.fitting import validation_half
from dkge_dist.evidence.scores import Evidence
from dkge_dist.graph.training_graph import training_graph
from dkge_dist.kernels.csr import incoming, outgoing
from dkge_dist.kernels.triples import contains
from dkge_dist.settings import settings_of_model
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import Split, Triples

PART = "questions"
MOVIES = 60_000
"""Entities of the movie graph: its night has a thousand replaced answers, and it is learnt within the budget."""
MOST = 3000
"""Facts of a kind that are asked about: a sample of them, the same for all versions."""


def run(study: Study) -> None:
    """Two graphs, both presets."""
    graphs = [dbpedia(study, 2)]
    if not study.quick:
        graphs.append(movie_graph(study, nights=1, entities=MOVIES))
    for data in graphs:
        ask_about(study, data, PART)


def ask_about(study: Study, data: DataSet, part: str) -> None:
    """All cells of a graph, whose first night is asked about. The part `debian` asks the same."""
    for preset in OURS:
        for seed in study.all_seeds:
            _ask_preset(study, data, part, preset, seed)


def _ask_preset(study: Study, data: DataSet, part: str, preset: str, seed: int) -> None:
    words = our_words(study, data, preset, seed)
    before, after = data.snapshots[:2]

    def cell(as_of: str) -> Cell:
        return Cell(part, OURS[preset], data.name, after, seed, as_of, study.budget)

    def asked(learnt: dict[str, Any]) -> Result:
        found = answers(data, learnt["version"], seed)
        return {"version": learnt["version"], "learn_seconds": learnt["seconds"], **found}

    def online() -> Result:
        base = trained(data.store, before, preset, words)
        # The budget is one of every training: the literal method learns a night in a hundred epochs.
        limit = [f"online.max_seconds={study.budget:g}"]
        return asked(api.update(data.store, to=after, since_version=str(base["version"]), settings=limit))

    study.ledger.run(cell("before"), lambda: asked(trained(data.store, before, preset, words)))
    study.ledger.run(cell("online"), online)
    study.ledger.run(cell("from scratch"), lambda: asked(trained(data.store, after, preset, words)))


def answers(data: DataSet, version: int, seed: int) -> dict[str, Any]:
    """By way and group: MRR, P@1 and mean rank of the tails of a night's facts, by one version."""
    opened = open_model(Store.open(data.store), str(version))
    evidence, groups = opened.evidence, askable(opened, groups_of(data, data.snapshots[1], seed))
    groups["held out, not in train"] = _held_out(opened)
    train = opened.snapshot.triples(Split.TRAIN)
    known = outgoing(train, opened.snapshot.entity_rows), incoming(train, opened.snapshot.entity_rows)
    found: dict[str, Any] = {}
    embedding = opened.embedding
    for way, by in (("vectors", None), ("with_evidence", evidence)):
        if way == "with_evidence" and evidence is None:
            continue
        found[way] = {name: _asked(embedding, some, known, by) for name, some in groups.items() if some.count}
    return found


def groups_of(data: DataSet, snapshot: str, seed: int) -> dict[str, Triples]:
    """The facts of a night, at most `MOST` of a kind."""
    night = night_of(data, snapshot, seed)
    assert night is not None, "the first snapshot has no night"
    tails = night.replaced.asks_tail
    groups = {
        "added": Triples.concat([night.added_existing, night.added_emerging]),
        "deleted": night.deleted,
        "replaced: the new answer": night.replaced.new.take(tails),
        "replaced: the old answer": night.replaced.old.take(tails),
        "stayed, near": night.kept_near,
        "stayed, far": night.kept_far,
    }
    return {name: _some(triples, seed) for name, triples in groups.items()}


def _some(triples: Triples, seed: int) -> Triples:
    """A sample that follows from their number: the new and the old answers are of the same questions."""
    if triples.count <= MOST:
        return triples
    return triples.take(np.sort(np.random.default_rng(seed).choice(triples.count, MOST, replace=False)))


def askable(opened: Model, groups: dict[str, Triples]) -> dict[str, Triples]:
    """Only what a version can be asked: its objects are in its snapshot."""
    snapshot = opened.snapshot
    found = {}
    for name, triples in groups.items():
        known = (triples.head < snapshot.entity_rows) & (triples.tail < snapshot.entity_rows)
        some = triples.take(known & (triples.relation < snapshot.relation_rows))
        alive = snapshot.entities_alive[some.head] & snapshot.entities_alive[some.tail]
        found[name] = some.take(alive & snapshot.relations_alive[some.relation])
    return found


def _held_out(opened: Model) -> Triples:
    """Test triples, or the half of validation that fitted no weight, that do not stand in train."""
    triples = opened.snapshot.triples(Split.TEST)
    if not triples.count:
        digests = (opened.names[0].digests, opened.names[1].digests)
        settings = settings_of_model(opened.entry.settings)
        triples = validation_half(training_graph(opened.snapshot, digests, settings))
    return triples.take(~contains(opened.snapshot.triples(Split.TRAIN), triples))


def _asked(embedding: Any, triples: Triples, known: Any, evidence: Evidence | None) -> dict[str, float]:
    ranks = rank_among(embedding, triples, known[0], known[1], evidence).tail
    found = metrics(np.asarray(ranks))
    return {"questions": triples.count, "mrr": found["mrr"], "p@1": found["hits@1"], "mr": found["mr"]}
