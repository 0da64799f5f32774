"""What the graph says of a question, against a slow twin; without a leak, alike on both sides, and bounded."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dkge_dist.evidence.counts import PathShares
from dkge_dist.evidence.walks import KINDS, GraphEvidence, WalkLimits
from dkge_dist.graph.diff import Change
from dkge_dist.graph.topology import PathCounts
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.evidence.walks import COLUMNS, COMPANY, LINK, PATH, SHARE, SIMILAR
from dkge_dist.kernels.jit import set_threads, threads
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import ROW, Array
from tests.evidence.building import every_pair, every_question, evidence_of, limits, questions_of
from tests.learn.nights import diff_between
from tests.reference import Triple
from tests.reference_evidence import SlowEvidence, reversed_graph
from tests.strategies import Evolution, RandomGraph, digests, evolutions, related_graphs, to_triples
from tests.training_graphs import graph_of_rows, snapshot_of


def twins(graph: RandomGraph, bounds: WalkLimits) -> dict[bool, SlowEvidence]:
    """The slow twin of either side."""
    each = bounds.max_candidates // KINDS
    given = (bounds.seed, bounds.max_neighbours, each, each - 1)
    sides = {True: graph.triples, False: reversed_graph(graph.triples)}
    digest = digests(graph.rows).tolist()
    return {asks_tail: SlowEvidence.read(triples, digest, given) for asks_tail, triples in sides.items()}


@settings(max_examples=60)
@given(graph=related_graphs(), bounds=limits, data=st.data())
def test_candidates_and_given_pairs_are_those_of_the_slow_twin(
    graph: RandomGraph, bounds: WalkLimits, data: st.DataObject
) -> None:
    evidence, slow = evidence_of(graph.triples, graph.rows, graph.relations, bounds), twins(graph, bounds)
    asked = every_question(graph)
    asked = data.draw(st.lists(st.sampled_from(asked), min_size=1, max_size=6))
    found = evidence.candidates(questions_of(asked))
    for number, (entity, relation, asks_tail) in enumerate(asked):
        part = slice(found.indptr[number], found.indptr[number + 1])
        expected = slow[asks_tail].candidates(entity, relation, graph.rows)
        assert found.rows[part].tolist() == sorted(expected)
        np.testing.assert_allclose(
            found.values[part], np.array([expected[row] for row in sorted(expected)]).reshape(-1, COLUMNS), rtol=1e-6
        )
        every = np.arange(graph.rows, dtype=ROW)
        pairs = evidence.of_pairs(questions_of([(entity, relation, asks_tail)] * graph.rows), every)
        np.testing.assert_allclose(
            pairs, [slow[asks_tail].of(entity, relation, row) for row in every.tolist()], rtol=1e-6
        )


@settings(max_examples=60)
@given(graph=related_graphs(max_rows=14, max_triples=50), bounds=limits)
def test_walks_and_given_pairs_agree_to_the_bit(graph: RandomGraph, bounds: WalkLimits) -> None:
    """A candidate of a walk has what it has by itself; whoever is none, and no known answer, has nothing."""
    evidence = evidence_of(graph.triples, graph.rows, graph.relations, bounds)
    asked, known = every_question(graph), set(graph.triples)
    found = evidence.candidates(questions_of(asked))
    pairs = evidence.of_pairs(*every_pair(graph)).reshape(len(asked), graph.rows, COLUMNS)
    for number, (entity, relation, asks_tail) in enumerate(asked):
        part = slice(found.indptr[number], found.indptr[number + 1])
        rows = found.rows[part]
        assert (np.diff(rows) > 0).all() and entity not in rows
        assert found.values[part].tobytes() == pairs[number, rows].tobytes()
        answers = {row for row in range(graph.rows) if one_triple(entity, relation, row, asks_tail) in known}
        assert not answers & set(rows.tolist())
        others = sorted(set(range(graph.rows)) - answers - set(rows.tolist()))
        assert not pairs[number, others].any()
        assert pairs[number, rows][:, :SHARE].any(1).all()


def one_triple(entity: int, relation: int, other: int, asks_tail: bool) -> Triple:
    return (entity, relation, other) if asks_tail else (other, relation, entity)


@settings(max_examples=60)
@given(graph=related_graphs(max_rows=12, max_triples=40), bounds=limits, data=st.data())
def test_what_a_triple_says_does_not_depend_on_whether_it_is_in_train(
    graph: RandomGraph, bounds: WalkLimits, data: st.DataObject
) -> None:
    """No leak. Only as a leg of other pairs' paths it counts, so the paths are those with it, less its own pair."""
    assume(graph.triples)
    head, relation, tail = triple = data.draw(st.sampled_from(sorted(set(graph.triples))))
    with_it = evidence_of(graph.triples, graph.rows, graph.relations, bounds)
    rest = [other for other in graph.triples if other != triple]
    without = evidence_of(rest, graph.rows, graph.relations, bounds)
    without = GraphEvidence(without.graph, without.counts, less_pair(graph, triple), without.digest, bounds)
    for entity, other, asks_tail in ((head, tail, True), (tail, head, False)):
        asked = questions_of([(entity, relation, asks_tail)])
        here, there = (one.of_pairs(asked, np.array([other])) for one in (with_it, without))
        assert here.tobytes() == there.tobytes()
        # Unknown now, so a walk finds it, or there is nothing to be found.
        found = without.candidates(asked)
        place = np.flatnonzero(found.rows == other)
        assert place.shape[0] == (1 if there.any() else 0)
        assert found.values[place].tobytes() == there[: place.shape[0]].tobytes()


def less_pair(graph: RandomGraph, triple: Triple) -> PathShares:
    """The paths of a graph, with one relation of one pair not counted."""
    head, relation, tail = triple
    whole = evidence_of(graph.triples, graph.rows, graph.relations, WalkLimits(0, 1, 8)).paths
    steps = {
        (one, other)
        for h, one, m in graph.triples if h == head
        for m2, other, t in graph.triples if (m2, t) == (m, tail)
    }  # fmt: skip
    support, total = whole.support.copy(), whole.total.copy()
    for place, code in enumerate(whole.codes.tolist()):
        asked, first, second = code >> 42, code >> 21 & 0x1FFFFF, code & 0x1FFFFF
        if (first, second) in steps:
            total[place] -= 1
            support[place] -= asked == relation
    return PathShares(whole.codes, support, total)


@settings(max_examples=60)
@given(graph=related_graphs(max_rows=12, max_triples=40), bounds=limits)
def test_links_alone_are_those_of_the_whole_evidence(graph: RandomGraph, bounds: WalkLimits) -> None:
    """Those of candidates with other evidence too, and of known answers."""
    evidence = evidence_of(graph.triples, graph.rows, graph.relations, bounds)
    asked = every_pair(graph)
    assert evidence.links_of_pairs(*asked).tobytes() == evidence.of_pairs(*asked)[:, LINK].tobytes()


@settings(max_examples=40)
@given(graph=related_graphs(max_rows=12, max_triples=40), bounds=limits)
def test_both_sides_are_mirror_images(graph: RandomGraph, bounds: WalkLimits) -> None:
    """All triples reversed and the other side asked: the same bits."""
    one = evidence_of(graph.triples, graph.rows, graph.relations, bounds)
    other = evidence_of(reversed_graph(graph.triples), graph.rows, graph.relations, bounds)
    questions, candidates = every_pair(graph)
    mirrored = questions._replace(asks_tail=~questions.asks_tail)
    assert one.of_pairs(questions, candidates).tobytes() == other.of_pairs(mirrored, candidates).tobytes()
    for mine, theirs in zip(one.candidates(questions), other.candidates(mirrored), strict=True):
        assert mine.tobytes() == theirs.tobytes()


@settings(max_examples=60)
@given(graph=related_graphs(max_rows=25, max_relations=2, max_triples=90), bounds=limits)
def test_no_question_has_more_candidates_than_the_limit(graph: RandomGraph, bounds: WalkLimits) -> None:
    evidence = evidence_of(graph.triples, graph.rows, graph.relations, bounds)
    found = evidence.candidates(questions_of(every_question(graph)))
    assert np.diff(found.indptr).max(initial=0) <= bounds.max_candidates
    each = bounds.max_candidates // KINDS
    for column in (LINK, COMPANY, SIMILAR, PATH):
        sums = np.append(0, np.cumsum(found.values[:, column] > 0))
        assert np.diff(sums[found.indptr]).max(initial=0) <= each


def test_a_neighbour_that_steps_in_for_a_candidate_brings_none_beyond_the_limit() -> None:
    """Walks from 0 begin with 1 alone, to whom 5 and 6 are company by halves; for 1 itself they begin with 2.

    So it is for some seeds. Of eight candidates each kind may bring two: three would be too many.
    """
    triples = [(0, 0, 1), (0, 0, 2), (1, 0, 3), (1, 0, 4), (3, 1, 5), (4, 1, 6), (2, 0, 7), (7, 1, 1)]
    most = 0
    for seed, bound in product(range(60), (8, 12)):
        found = evidence_of(triples, 8, 2, WalkLimits(seed, 1, bound)).candidates(questions_of([(0, 1, True)]))
        company = int((found.values[:, COMPANY] > 0).sum())
        assert company <= bound // KINDS
        most = max(most, company)
    assert most == 2


@settings(max_examples=40)
@given(graph=related_graphs(max_rows=14, max_triples=50), bounds=limits, seed=st.integers(0, 99))
def test_rows_may_be_in_any_order(graph: RandomGraph, bounds: WalkLimits, seed: int) -> None:
    """Labels decide what is sampled, by their digests: an ingest in another order gives the same evidence."""
    order = np.random.default_rng(seed).permutation(graph.rows)
    one = evidence_of(graph.triples, graph.rows, graph.relations, bounds)
    digest = np.empty(graph.rows, np.uint64)
    digest[order] = digests(graph.rows)
    moved = [(int(order[h]), r, int(order[t])) for h, r, t in graph.triples]
    other = evidence_of(moved, graph.rows, graph.relations, bounds, digest)
    questions, candidates = every_pair(graph)
    there = other.of_pairs(questions._replace(entity=order[questions.entity].astype(ROW)), order[candidates])
    here = one.of_pairs(questions, candidates)
    assert np.array_equal(here > 0, there > 0)
    np.testing.assert_allclose(here, there, rtol=1e-6)


def test_equal_shares_are_equal_in_whatever_order_they_are_added() -> None:
    """A candidate has a half of the walks from one start, a third from another and a sixth from the last one.

    In floats that is 1 in one order and less in another. It is just enough: a third of all walks, of which 3 count.
    """
    assert 3 * (1 / 2 + 1 / 3 + 1 / 6) < 3 == 3 * (1 / 6 + 1 / 3 + 1 / 2)
    candidate, entity = 4, 0
    for order in permutations([1, 2, 3]):
        triples, row = [(entity, 1, m) for m in order], 5
        for m, others in zip(order, (2, 3, 6), strict=True):
            triples += [(row, 0, candidate), *((row + more, 1, m) for more in range(others))]
            row += others
        found = evidence_of(triples, row, 2, WalkLimits(1, 16, 16))
        assert found.of_pairs(questions_of([(entity, 0, True)]), np.array([candidate]))[0, COMPANY] > 0
        assert candidate in found.candidates(questions_of([(entity, 0, True)])).rows


def test_threads_change_nothing() -> None:
    rng = np.random.default_rng(0)
    triples = [(int(h), int(r), int(t)) for h, r, t in rng.integers(0, [40, 4, 40], (300, 3))]
    graph, before, found = RandomGraph(40, 4, triples), threads(), []
    try:
        for count in (1, 2):
            set_threads(count)
            evidence = evidence_of(triples, 40, 4, WalkLimits(3, 4, 400))
            pairs = evidence.of_pairs(*every_pair(graph))
            found.append([*evidence.candidates(questions_of(every_question(graph))), pairs])
    finally:
        set_threads(before)
    assert all(one.tobytes() == other.tobytes() for one, other in zip(*found, strict=True))
    assert (found[0][3] > 0).any(0).all(), "every kind of evidence comes up"


@settings(max_examples=20)
@given(evolution=evolutions(max_triples=40), bounds=limits)
def test_evidence_after_a_change_is_that_counted_from_nothing(evolution: Evolution, bounds: WalkLimits) -> None:
    """Over several changes, which share the base of their lists."""
    before, after = evolution
    assume(before.triples and after)
    graph = graph_of_rows(before.triples, before.rows, before.relations, Sampling(1, 5, 1))
    evidence = GraphEvidence.of(graph, bounds)
    asked = RandomGraph(before.rows, before.relations, [])
    for triples in (after, before.triples, after):
        evidence, graph = night(evidence, graph, triples, before)
        rebuilt = evidence_of(triples, before.rows, before.relations, bounds)
        assert_same_counts(evidence, rebuilt)
        for mine, theirs in zip(evidence.candidates(every_pair(asked)[0]), rebuilt.candidates(every_pair(asked)[0]),
                                strict=True):  # fmt: skip
            assert np.array_equal(mine, theirs)
        assert np.array_equal(evidence.of_pairs(*every_pair(asked)), rebuilt.of_pairs(*every_pair(asked)))


def night(
    evidence: GraphEvidence, graph: TrainingGraph, triples: list[Triple], size: RandomGraph
) -> tuple[GraphEvidence, TrainingGraph]:
    """The evidence and the graph after a night."""
    was = [(int(h), int(r), int(t)) for h, r, t in zip(*graph.train, strict=True)]
    diff = diff_between(was, triples)
    now, _, _ = graph.after(diff, snapshot_of(triples, size.rows, size.relations))
    return evidence.after(now, diff.train), now


def assert_same_counts(one: GraphEvidence, other: GraphEvidence) -> None:
    for name in ("pairs", "loops", "codes", "joint"):
        assert np.array_equal(getattr(one.counts, name), getattr(other.counts, name)), name
    for mine, theirs in ((one.paths, other.paths), (one.graph.hubs, other.graph.hubs)):
        assert all(np.array_equal(*columns) for columns in zip(mine, theirs, strict=True))


def test_entities_and_relations_without_triples_and_no_questions_at_all() -> None:
    evidence = evidence_of([(0, 0, 1)], 5, 3, WalkLimits(0, 2, 8))
    asked = questions_of([(4, 0, True), (4, 2, False), (0, 2, True), (1, 1, False)])
    found = evidence.candidates(asked)
    assert (found.indptr.tolist(), found.rows.shape, found.values.shape) == ([0] * 5, (0,), (0, COLUMNS))
    assert not evidence.of_pairs(asked, np.array([0, 1, 1, 0])).any()
    nothing = questions_of([])
    assert evidence.candidates(nothing).indptr.tolist() == [0]
    assert evidence.of_pairs(nothing, np.empty(0, ROW)).shape == (0, COLUMNS)
    empty = evidence_of([], 5, 3, WalkLimits(0, 2, 8))
    assert empty.candidates(asked).rows.shape == (0,)
    assert not empty.of_pairs(asked, np.array([0, 1, 1, 0])).any()


def test_a_relation_that_was_not_counted_never_gets_to_a_kernel() -> None:
    evidence = evidence_of([(0, 0, 1)], 3, 2, WalkLimits(0, 2, 8))
    asked = questions_of([(0, 1, True), (0, 2, True)])
    with pytest.raises(AssertionError, match="beyond those counted"):
        evidence.candidates(asked)
    with pytest.raises(AssertionError, match="beyond those counted"):
        evidence.of_pairs(asked, np.array([1, 1]))


def test_new_entities_have_evidence_at_once() -> None:
    """Rows and relations beyond those that the base of the lists was made for."""
    base = [(0, 0, 1), (2, 0, 1), (0, 1, 1), (2, 1, 1)]
    rows, bounds = 6, WalkLimits(0, 4, 40)
    before = evidence_of(base, 3, 2, bounds)
    added = canonical(to_triples([(4, 1, 5), (0, 2, 4), (5, 2, 0)]))
    topology, _ = before.graph.full.after(Change(added, to_triples([])))
    counts = before.counts.after(before.graph.full, topology, Change(added, to_triples([])), 3)
    train = canonical(to_triples([*base, *zip(*(column.tolist() for column in added), strict=True)]))
    paths = PathShares.of(PathCounts.of(topology, train, 3))
    grown = GraphEvidence.counted(topology, counts, paths, digests(rows), bounds)
    rebuilt = evidence_of(list(zip(*(column.tolist() for column in train), strict=True)), rows, 3, bounds)
    assert_same_counts(grown, rebuilt)
    graph = RandomGraph(rows, 3, [])
    here, there = (one.of_pairs(*every_pair(graph)) for one in (grown, rebuilt))
    assert np.array_equal(here, there)
    asked = questions_of([(4, 0, True)])
    link: Array = grown.of_pairs(asked, np.array([5]))[:, LINK]
    assert link == pytest.approx(5 * (2 / 2) / 5), "both other pairs of relation 1 have relation 0 too"
