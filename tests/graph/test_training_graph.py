"""The graph that learning sees: built from a snapshot, or from the one before and the change; both are the same."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.contexts import Sampling, build_contexts, contexts_differ
from dkge_dist.kernels.csr import list_sizes
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import ROW, DkgeError, Split, Triples
from tests.strategies import Evolution, RandomGraph, digests, evolutions, graphs, to_list, to_triples
from tests.training_graphs import graph_of_labels, graph_of_rows, snapshot_of

SAMPLING = Sampling(7, 5, 1)


@given(graphs(), st.integers(1, 3))
def test_it_shows_the_train_split_of_a_snapshot(graph: RandomGraph, length: int) -> None:
    assume(graph.triples)
    made = graph_of_rows(graph.triples, graph.rows, graph.relations, SAMPLING, length)
    assert to_list(made.train) == sorted(set(graph.triples), key=lambda t: (t[0], t[2], t[1]))
    assert made.valid.count == 0
    assert set(made.entities.tolist()) == {end for h, _, t in graph.triples for end in (h, t)}
    assert set(made.relations.tolist()) == {r for _, r, _ in graph.triples}
    assert (made.entity_rows, made.relation_rows) == (graph.rows, graph.relations)
    assert (made.sampling, made.paths.length) == (SAMPLING, length)


def test_validation_triples_are_alive_but_out_of_sight() -> None:
    """Contexts and supports come from train alone; candidates are all entities of the snapshot."""
    made = graph_of_rows([(0, 0, 1)], 4, 2, SAMPLING, valid=[(1, 1, 2)])
    assert to_list(made.valid) == [(1, 1, 2)]
    assert (made.entities.tolist(), made.relations.tolist()) == ([0, 1, 2], [0, 1])
    assert list_sizes(made.topology.neighbours, np.arange(4, dtype=ROW)).tolist() == [1, 1, 0, 0]
    assert made.paths.contexts(made.digests[1], SAMPLING, np.array([1], ROW)).size.tolist() == [1]


def test_labels_that_came_later_have_rows_without_triples() -> None:
    snapshot = snapshot_of([(0, 0, 1)], 2, 1)
    made = TrainingGraph.of(snapshot, (digests(9), digests(3, 1)), SAMPLING, 2)
    assert (made.entity_rows, made.relation_rows) == (9, 3)
    assert made.entities.tolist() == [0, 1]
    assert list_sizes(made.topology.outgoing, np.arange(9, dtype=ROW)).tolist() == [1, *[0] * 8]


@pytest.mark.parametrize("valid", [[], [(0, 0, 1)]])
def test_a_snapshot_without_train_triples_is_refused(valid: list[tuple[int, int, int]]) -> None:
    with pytest.raises(DkgeError, match="no train triples to learn from"):
        graph_of_rows([], 2, 1, SAMPLING, valid=valid)


def test_labels_give_the_digests() -> None:
    made = graph_of_labels([("a", "r", "b")], [("b", "s", "c")], SAMPLING)
    assert made.entity_rows == 3
    assert made.relation_rows == 2
    assert len(set(made.digests[0].tolist())) == 3


@given(evolutions(), st.integers(1, 3), st.integers(1, 2))
def test_after_a_change_it_is_as_built_from_nothing(night: Evolution, length: int, hops: int) -> None:
    assume(night.before.triples and night.after)
    rows, relations = night.before.rows, night.before.relations
    sampling = Sampling(7, 5, hops)
    before = graph_of_rows(night.before.triples, rows, relations, sampling, length)
    change = Change.between(before.train, canonical(to_triples(night.after)))
    snapshot = snapshot_of(night.after, rows, relations)
    found, toggles, _ = before.after(Diff.of([change, Change.none(), Change.none()]), snapshot)
    expected = graph_of_rows(night.after, rows, relations, sampling, length)

    for column, other in zip(found.train, expected.train, strict=True):
        assert np.array_equal(column, other)
    assert np.array_equal(found.entities, expected.entities)
    assert np.array_equal(found.relations, expected.relations)
    assert (found.sampling, found.digests) == (sampling, before.digests)
    everyone = np.arange(rows, dtype=ROW)
    contexts = [build_contexts(g.topology.neighbours, g.digests[0], sampling, everyone) for g in (found, expected)]
    assert not contexts_differ(*contexts).any()
    kinds = np.arange(relations, dtype=ROW)
    related = [g.paths.contexts(g.digests[1], sampling, kinds) for g in (found, expected)]
    assert not contexts_differ(*related).any()
    simple = [{frozenset((h, t)) for h, _, t in some if h != t} for some in (night.before.triples, night.after)]
    sides = (toggles.come, toggles.gone)
    come, gone = ({frozenset(pair) for pair in zip(*(c.tolist() for c in side), strict=True)} for side in sides)
    assert (come, gone) == (simple[1] - simple[0], simple[0] - simple[1])


def test_the_graph_before_stays_as_it_is() -> None:
    before = graph_of_rows([(0, 0, 1), (1, 0, 2)], 4, 1, SAMPLING)
    change = Change(to_triples([(2, 0, 3)]), to_triples([(0, 0, 1)]))
    splits = (to_triples([(1, 0, 2), (2, 0, 3)]), to_triples([(0, 0, 3)]), Triples.empty())
    after, *_ = before.after(Diff.of([change, Change.none(), Change.none()]), Snapshot.full(splits, 4, 1))
    assert to_list(before.train) == [(0, 0, 1), (1, 0, 2)]
    assert list_sizes(before.topology.outgoing, np.arange(4, dtype=ROW)).tolist() == [1, 1, 0, 0]
    assert list_sizes(after.topology.outgoing, np.arange(4, dtype=ROW)).tolist() == [0, 1, 1, 0]
    assert to_list(after.valid) == to_list(splits[Split.VALID])
