"""What is around a few questions says all that the whole graph says of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.evidence.surroundings import triples_around
from dkge_dist.evidence.walks import GraphEvidence, WalkLimits
from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.triples import canonical, minus
from dkge_dist.types import ROW, Split, Triples
from tests.evidence.building import evidence_of, limits, questions_of
from tests.strategies import RandomGraph, digests, related_graphs, to_list, to_triples


def full(train: Triples, rows: int) -> Snapshot:
    """A snapshot of train triples alone."""
    return Snapshot.full((train, Triples.empty(), Triples.empty()), rows, 8)


def changed(train: Triples, rows: int, keeps: list[bool], gone: Triples) -> Snapshot:
    """The same as a base with a change: what is not kept came later, and what is `gone` was there before."""
    kept = np.array(keeps[: train.count], bool)
    deleted = minus(gone, train)
    base = canonical(Triples.concat([train.take(kept), deleted]))
    change = Change(train.take(~kept), deleted)
    return full(base, rows).after(Diff.of([change, Change.none(), Change.none()]), rows, 8)


def around(whole: GraphEvidence, snapshot: Snapshot, entities: list[int]) -> GraphEvidence:
    """The same evidence over what surrounds some entities; what was counted is kept with a model, and is the same."""
    some = triples_around(snapshot, whole.digest, np.array(entities, ROW), whole.limits)
    kept = set(to_list(some))
    train = to_list(snapshot.triples(Split.TRAIN))
    assert to_list(some) == [triple for triple in train if triple in kept], "in the order of train"
    return GraphEvidence.counted(Topology.of_few(some), whole.counts, whole.paths, whole.digest, whole.limits)


@settings(max_examples=150)
@given(graph=related_graphs(max_rows=25, max_triples=60), bounds=limits, data=st.data())
def test_evidence_of_the_asked_entities_is_that_of_the_whole_graph(
    graph: RandomGraph, bounds: WalkLimits, data: st.DataObject
) -> None:
    """Candidates and all pairs, to the bit: with hubs over the limit, self loops and entities without triples.

    However the snapshot is stored: in full, or as a base with a change.
    """
    entities = data.draw(st.lists(st.integers(0, graph.rows - 1), min_size=1, max_size=3))
    whole = evidence_of(graph.triples, graph.rows, graph.relations, bounds)
    train = canonical(to_triples(graph.triples))
    keeps = data.draw(st.lists(st.booleans(), min_size=train.count, max_size=train.count))
    row = st.integers(0, graph.rows - 1)
    gone = data.draw(st.lists(st.tuples(row, st.integers(0, graph.relations - 1), row), max_size=20))
    snapshot = changed(train, graph.rows, keeps, canonical(to_triples(gone)))
    assert to_list(snapshot.triples(Split.TRAIN)) == to_list(train)
    part = around(whole, snapshot, entities)
    questions = questions_of([(e, r, side) for e in entities for r in range(graph.relations) for side in (True, False)])
    for mine, theirs in zip(part.candidates(questions), whole.candidates(questions), strict=True):
        assert mine.tobytes() == theirs.tobytes()
    every = questions.take(np.repeat(np.arange(questions.count), graph.rows))
    answers = np.tile(np.arange(graph.rows, dtype=ROW), questions.count)
    assert part.of_pairs(every, answers).tobytes() == whole.of_pairs(every, answers).tobytes()


def test_far_triples_and_most_of_a_hub_are_left_out() -> None:
    """A chain that leads to a hub of two hundred: its other neighbours' own triples are not looked at."""
    hub = [(5, 0, 100 + n) for n in range(200)]
    beyond = [(100 + n, 1, 400 + n) for n in range(200)]
    chain = [(n, 0, n + 1) for n in range(5)]
    train = canonical(to_triples(chain + hub + beyond))
    found = to_list(triples_around(full(train, 700), digests(700), np.array([3], ROW), WalkLimits(1, 4, 40)))
    assert set(chain) <= set(found), "three steps in all directions"
    assert set(hub) <= set(found), "all triples of a row whose list is read"
    assert 0 < len(set(beyond) & set(found)) <= 5, "of the sample of its neighbours alone"


def test_an_entity_without_triples_has_nothing_around_it() -> None:
    train = canonical(to_triples([(0, 0, 1), (1, 0, 2)]))
    for some, entities in ((train, [4]), (Triples.empty(), [0, 4])):
        found = triples_around(full(some, 5), digests(5), np.array(entities, ROW), WalkLimits(1, 4, 40))
        assert found.count == 0
