"""Batches: targets are hidden, everything else is shown, what is known is never a negative, and ranks share a batch."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.evidence.walks import LINK
from dkge_dist.kernels.triples import canonical
from dkge_dist.learn.batches import Batch, BatchMaker, EvidenceOffsets, NegativeSampling
from dkge_dist.learn.contexts import ObjectBatch
from dkge_dist.types import ROW, Array
from tests import reference
from tests.evidence.building import evidence_of
from tests.learn.graphs import (
    Sampler,
    assert_same_batch,
    deleted_of,
    maker_of,
    negatives_of,
    offsets_of,
    positives,
    shown_contexts,
    small_graph,
)
from tests.reference import Triple
from tests.strategies import RandomGraph, digests, graphs, related_graphs, to_list, to_triples
from tests.training_graphs import graph_of_rows

pytestmark = pytest.mark.usefixtures("one_thread")

samplings = st.builds(Sampling, st.integers(0, 2**63 - 1), st.integers(1, 8), st.integers(1, 2))
SAMPLERS: list[Sampler] = ["shared", "bernoulli"]


def maker(
    graph: RandomGraph,
    sampling: Sampling,
    sampler: Sampler,
    hide: float,
    candidates: Array | None = None,
    logq_correction: bool = False,
) -> BatchMaker[ObjectBatch]:
    """With ten negatives."""
    made = graph_of_rows(graph.triples, graph.rows, graph.relations, sampling)
    every_row = np.arange(graph.rows, dtype=ROW)
    negatives = negatives_of(
        made,
        sampler,
        count=10,
        candidates=every_row if candidates is None else candidates,
        logq_correction=logq_correction,
    )
    return maker_of(made, negatives, hide)


def some_positions(count: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    return rng.permutation(count)[: rng.integers(1, count + 1)]


@pytest.mark.parametrize("sampler", SAMPLERS)
@settings(max_examples=25)
@given(graph=graphs(max_rows=12), sampling=samplings, seed=st.integers(0, 999), hide=st.booleans())
def test_contexts_show_all_but_the_targets(
    sampler: Sampler, graph: RandomGraph, sampling: Sampling, seed: int, hide: bool
) -> None:
    """Each end of a pair that only the batch links misses in the other's context; no other context is touched."""
    assume(graph.triples)
    batches = maker(graph, sampling, sampler, hide)
    for again in range(2):
        batch = batches.make(some_positions(batches.triples.count, seed + again), np.random.default_rng(seed))
        hidden = reference.hidden_pairs(graph.triples, positives(batch)) if hide else set()
        simple = reference.neighbours(graph.triples)
        found = shown_contexts(batch.entities)
        for row, context in found.items():
            expected = reference.entity_context(simple, digests(graph.rows), *sampling, row)
            for pair in hidden:
                if row in pair:
                    expected = reference.without_vertex(expected, *(pair - {row} or {row}))
            assert context == expected
        if hide:
            outside = {frozenset((h, t)) for h, _, t in set(graph.triples) - set(positives(batch))}
            for head, _, tail in positives(batch):
                if head != tail and frozenset((head, tail)) not in outside:
                    assert tail not in found[head][0]
                    assert head not in found[tail][0]


def test_a_pair_that_a_triple_outside_the_batch_links_too_stays_visible() -> None:
    graph = RandomGraph(4, 3, [(0, 0, 1), (0, 1, 1), (1, 2, 0), (2, 0, 3), (1, 0, 2), (3, 0, 3)])
    batches = maker(graph, Sampling(0, 8, 1), "shared", True)
    position = {triple: number for number, triple in enumerate(to_list(batches.triples))}

    def vertices(*asked: Triple) -> dict[int, list[int]]:
        batch = batches.make(np.array([position[triple] for triple in asked]), np.random.default_rng(0))
        return {row: vertices for row, (vertices, _) in shown_contexts(batch.entities).items()}

    assert vertices((0, 0, 1))[0] == [0, 1]
    assert vertices((0, 0, 1), (0, 1, 1))[0] == [0, 1]
    # All three that link 0 and 1, in both directions.
    alone = vertices((0, 0, 1), (0, 1, 1), (1, 2, 0))
    assert alone[0] == [0]
    assert alone[1] == [1, 2]
    assert vertices((2, 0, 3))[2] == [2, 1]
    assert vertices((3, 0, 3))[3] == [3, 2]


@settings(max_examples=25)
@given(graph=graphs(max_rows=9), seed=st.integers(0, 999))
def test_shared_negatives_that_make_a_known_triple_are_masked(graph: RandomGraph, seed: int) -> None:
    assume(graph.triples)
    batches = maker(graph, Sampling(0, 4, 1), "shared", True)
    batch = batches.make(some_positions(batches.triples.count, seed), np.random.default_rng(seed))
    known = set(graph.triples)
    shared = batch.entities.rows[batch.shared].tolist()
    assert len(set(shared)) == len(shared) > 0
    assert batch.negative.shape == (0,)
    for i, (head, relation, tail) in enumerate(positives(batch)):
        assert batch.known_tail_mask[i].tolist() == [(head, relation, other) in known for other in shared]
        assert batch.known_head_mask[i].tolist() == [(other, relation, tail) in known for other in shared]


@settings(max_examples=25)
@given(graph=graphs(max_rows=9), seed=st.integers(0, 999))
def test_bernoulli_negatives_are_unknown_unless_all_are_known(graph: RandomGraph, seed: int) -> None:
    assume(graph.triples)
    batches = maker(graph, Sampling(0, 4, 1), "bernoulli", True)
    batch = batches.make(some_positions(batches.triples.count, seed), np.random.default_rng(seed))
    known, entities = set(graph.triples), range(graph.rows)
    assert batch.shared.shape == (0,)
    assert batch.negative.shape == batch.corrupts_head.shape == batch.head.shape
    replaced = batch.entities.rows[batch.negative].tolist()
    for (head, relation, tail), other, at_head in zip(positives(batch), replaced, batch.corrupts_head, strict=True):
        made = (other, relation, tail) if at_head else (head, relation, other)
        free = [e for e in entities if (e, relation, tail) not in known or (head, relation, e) not in known]
        # With two free candidates or more of nine, 16 draws on each side practically never miss them all.
        assert made not in known or len(free) < 3


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_negatives_are_candidates(sampler: Sampler) -> None:
    """Entities that are in the dictionary but not in the snapshot are never drawn."""
    graph = RandomGraph(40, 1, [(h, 0, h + 1) for h in range(19)])
    batches = maker(graph, Sampling(0, 4, 1), sampler, True, np.arange(20, dtype=ROW))
    seen: set[int] = set()
    for seed in range(30):
        batch = batches.make(np.arange(19), np.random.default_rng(seed))
        negatives = batch.shared if sampler == "shared" else batch.negative
        seen |= set(batch.entities.rows[negatives].tolist())
    assert seen == set(range(20))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_batch_follows_from_its_generator_alone(sampler: Sampler) -> None:
    """Whatever was made before, by whichever maker."""
    rng = np.random.default_rng(0)
    graph = RandomGraph(20, 3, [(int(h), int(r), int(t)) for h, r, t in rng.integers(0, [20, 3, 20], (80, 3))])
    one, other = (maker(graph, Sampling(0, 4, 1), sampler, True) for _ in range(2))
    one.make(np.arange(5), np.random.default_rng(9))
    positions = np.arange(10, 40)
    batches = [made.make(positions, np.random.default_rng(3)) for made in (one, other)]
    assert shown_contexts(batches[0].entities) == shown_contexts(batches[1].entities)
    assert_same_batch(*batches)
    assert positives(batches[0]) == to_list(one.triples.take(positions))


@given(graph=graphs(max_rows=12), seed=st.integers(0, 999))
def test_a_negative_weighs_by_how_rarely_it_is_drawn(graph: RandomGraph, seed: int) -> None:
    assume(graph.triples)
    batches = maker(graph, Sampling(1, 4, 1), "shared", False, logq_correction=True)
    batch = batches.make(some_positions(batches.triples.count, seed), np.random.default_rng(seed))
    ends = [end for h, _, t in to_list(batches.triples) for end in (h, t)]
    for row, weight in zip(batch.entities.rows[batch.shared].tolist(), batch.log_weight, strict=True):
        expected = 5 / graph.rows + 5 * ends.count(row) / len(ends)
        assert weight == pytest.approx(-np.log(1 - np.exp(-expected)), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("moving", [[3], [3, 8, 20]])
def test_as_many_negatives_again_are_of_entities_that_move(moving: list[int]) -> None:
    """Each weighs by how rarely it is drawn, by any of the ways."""
    graph = graph_of_rows([(0, 0, n) for n in range(1, 50)], 100, 1, Sampling(0, 4, 1))
    negatives = NegativeSampling.of(graph, "shared", 400, True, np.array(moving, ROW))
    drawn = negatives.draw_shared(np.random.default_rng(0), graph.train)
    assert drawn.shape == (800,)
    assert set(drawn[400:].tolist()) == set(moving)
    rows = np.array([0, 3, 8, 40], ROW)
    ends = {0: 49, 3: 1, 8: 1, 40: 1}
    found = negatives.log_weights(graph.topology, rows, graph.train.count)
    for row, weight in zip(rows.tolist(), found.tolist(), strict=True):
        expected = 200 / 50 + 200 * ends[row] / 98 + (400 / len(moving) if row in moving else 0)
        assert weight == pytest.approx(-np.log(1 - np.exp(-expected)), rel=1e-4, abs=1e-6)


def test_without_logq_correction_all_negatives_weigh_the_same() -> None:
    graph = small_graph()
    batch = maker_of(graph, negatives_of(graph, "shared")).make(np.arange(9), np.random.default_rng(0))
    assert batch.log_weight.shape == batch.shared.shape
    assert not batch.log_weight.any()


def test_half_of_the_shared_negatives_are_as_frequent_as_in_the_triples() -> None:
    """Entity 0 stands at one end of every triple: it is half of the frequent half."""
    graph = graph_of_rows([(0, 0, n) for n in range(1, 50)], 100, 1, Sampling(0, 4, 1))
    negatives: NegativeSampling = negatives_of(graph, "shared", count=4001)
    drawn = negatives.draw_shared(np.random.default_rng(0), graph.train.take(np.arange(3)))
    assert drawn.shape == (4001,)
    uniform, frequent = drawn[:2001], drawn[2001:]
    assert set(uniform.tolist()) == set(range(100))
    assert (uniform == 0).sum() < 50
    assert abs((frequent == 0).mean() - 0.5) < 0.05
    assert frequent.max() < 50


@pytest.mark.parametrize(("batch_size", "of_batch"), [(5, 10), (40, 50)])
def test_frequent_negatives_in_batch_are_ends_of_its_triples(batch_size: int, of_batch: int) -> None:
    """Each end at most once; what a small batch lacks is uniform, and weighs so."""
    graph = graph_of_rows([(0, 0, n) for n in range(1, 50)], 100, 1, Sampling(0, 4, 1))
    negatives: NegativeSampling = negatives_of(graph, "shared", count=100, logq_correction=True, in_batch=True)
    batch = graph.train.take(np.arange(batch_size))
    drawn = negatives.draw_shared(np.random.default_rng(0), batch)
    assert drawn.shape == (100,)
    frequent = drawn[100 - of_batch :].tolist()
    ends = Counter([*batch.head.tolist(), *batch.tail.tolist()])
    assert all(times <= ends[row] for row, times in Counter(frequent).items())
    expected = (100 - of_batch) / 100 + of_batch * 49 / 98
    (weight,) = negatives.log_weights(graph.topology, np.array([0], ROW), batch_size)
    assert weight == pytest.approx(-np.log(1 - np.exp(-expected)), rel=1e-4, abs=1e-6)


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_negatives_of_a_graph_are_its_entities(sampler: Sampler) -> None:
    """Those alive; head chances are worked out only where they are used."""
    graph = graph_of_rows([(0, 0, 1), (0, 0, 2), (4, 1, 2)], 9, 2, Sampling(0, 4, 1), valid=[(6, 0, 1)])
    negatives = NegativeSampling.of(graph, sampler, 5, True)
    assert negatives.candidates.tolist() == [0, 1, 2, 4, 6]
    assert (negatives.count, negatives.logq_correction, negatives.frequent.count) == (5, True, 3)
    if sampler == "shared":
        assert negatives.head_chance is None
    else:
        # Relation 0 has two tails a head and one head a tail: tph / (tph + hpt).
        assert negatives.head_chance is not None
        assert negatives.head_chance.tolist() == pytest.approx([2 / 3, 1 / 2])


WORLDS = [1, 2, 3, 4]


def shares(sampler: Sampler, hide: bool, world: int, count: int = 30, seed: int = 1) -> list[Batch[ObjectBatch]]:
    """The shares of one batch, each made by a worker that knows nothing of the others."""
    graph = small_graph()
    positions = np.random.default_rng(seed).permutation(graph.train.count)[:count]
    negatives = negatives_of(graph, sampler, logq_correction=True)
    return [
        maker_of(graph, negatives, hide, rank=rank, world=world).make(positions, np.random.default_rng(seed + 1))
        for rank in range(world)
    ]


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("hide", [False, True])
@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("count", [1, 2, 3, 30])
def test_the_shares_of_all_ranks_are_the_batch(sampler: Sampler, hide: bool, world: int, count: int) -> None:
    (whole,) = shares(sampler, hide, 1, count)
    parts = shares(sampler, hide, world, count)
    assert [len(positives(part)) for part in parts] == [
        count * (rank + 1) // world - count * rank // world for rank in range(world)
    ]
    assert [triple for part in parts for triple in positives(part)] == positives(whole)
    everyone = shown_contexts(whole.entities)
    for part in parts:
        assert shown_contexts(part.entities).items() <= everyone.items(), "what is hidden is what the batch hides"
        assert np.unique(part.entities.rows).shape == part.entities.rows.shape
    if sampler == "bernoulli":
        drawn = [int(part.entities.rows[number]) for part in parts for number in part.negative]
        assert drawn == whole.entities.rows[whole.negative].tolist()
        assert np.array_equal(np.concatenate([part.corrupts_head for part in parts]), whole.corrupts_head)
        return
    for part in parts:
        assert weights(part) == weights(whole)
    for side in ("known_tail_mask", "known_head_mask"):
        found = [masked for part in parts for masked in masked_rows(part, getattr(part, side))]
        assert found == masked_rows(whole, getattr(whole, side))


def weights(batch: Batch[ObjectBatch]) -> dict[int, float]:
    return dict(zip(batch.entities.rows[batch.shared].tolist(), batch.log_weight.tolist(), strict=True))


def masked_rows(batch: Batch[ObjectBatch], mask: Array) -> list[set[int]]:
    """For each positive: the negatives that take no part."""
    rows = batch.entities.rows[batch.shared]
    return [set(rows[line].tolist()) for line in mask]


@settings(max_examples=25)
@given(graph=graphs(max_rows=9), seed=st.integers(0, 999))
def test_each_positive_has_its_offsets_and_its_own_entity_competes_if_the_relation_is_loopless(
    graph: RandomGraph, seed: int
) -> None:
    assume(graph.triples)
    made = graph_of_rows(graph.triples, graph.rows, graph.relations, Sampling(0, 4, 1))
    offsets, loops = offsets_of(made), {r for h, r, t in graph.triples if h == t}
    negatives = negatives_of(made, "shared", count=10)
    batches = maker_of(made, negatives, 0.5, offsets=offsets, own_negative=made.loopless_relations)
    positions = some_positions(batches.triples.count, seed)
    batch = batches.make(positions, np.random.default_rng(seed))
    assert batch.tail_offset.tolist() == offsets.tail[positions].tolist()
    assert batch.head_offset.tolist() == offsets.head[positions].tolist()
    assert batch.own_is_negative.tolist() == [relation not in loops for _, relation, _ in positives(batch)]
    assert not batch.unlearn_mask.any()
    plain = maker_of(made, negatives, 0.5).make(positions, np.random.default_rng(seed))
    assert not (plain.own_is_negative.any() or plain.tail_offset.any() or plain.head_offset.any())


@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_positions_beyond_the_triples_are_deleted_ones(sampler: Sampler, world: int) -> None:
    """They are unlearnt, have no offsets, and hide nothing: they stand in no context any more."""
    graph = small_graph()
    deleted = deleted_of(graph)
    positions = np.random.default_rng(2).permutation(graph.train.count + deleted.count)[:90]
    every = to_list(graph.train) + to_list(deleted)
    offsets, negatives = offsets_of(graph), negatives_of(graph, sampler)

    def make(chosen: Array, hide: float, rank: int = 0, world: int = 1) -> Batch[ObjectBatch]:
        batches = maker_of(graph, negatives, hide, rank=rank, world=world, offsets=offsets, deleted=deleted)
        return batches.make(chosen, np.random.default_rng(3))

    parts = [make(positions, 1.0, rank, world) for rank in range(world)]
    assert [triple for part in parts for triple in positives(part)] == [every[at] for at in positions]
    is_deleted = positions >= graph.train.count
    assert 5 < is_deleted.sum() < 20
    assert np.concatenate([part.unlearn_mask for part in parts]).tolist() == is_deleted.tolist()
    for side in ("tail_offset", "head_offset"):
        values = getattr(offsets, side.removesuffix("_offset"))
        expected = [0.0 if gone else values[at] for at, gone in zip(positions, is_deleted, strict=True)]
        assert np.concatenate([getattr(part, side) for part in parts]).tolist() == expected
    # What is hidden is what the others hide alone.
    hidden = shown_contexts(make(positions[~is_deleted], 1.0).entities)
    plain = shown_contexts(make(positions, 0.0).entities)
    for part in parts:
        for row, context in shown_contexts(part.entities).items():
            assert context == hidden.get(row, plain[row])


@settings(max_examples=40)
@given(graph=related_graphs(max_rows=9), logit=st.sampled_from([1.0, 10.0]))
def test_offsets_follow_the_confidence_of_links(graph: RandomGraph, logit: float) -> None:
    """The whole logit for a certain link, nothing below a confidence of 3% or for any other evidence."""
    assume(graph.triples)
    evidence = evidence_of(graph.triples, graph.rows, graph.relations, WalkLimits(5, 4, 40))
    train = canonical(to_triples(graph.triples))
    offsets = EvidenceOffsets.of(evidence, train, logit)
    for mine, asks_tail, answers in ((offsets.tail, True, train.tail), (offsets.head, False, train.head)):
        assert mine.dtype == np.float32
        links = evidence.of_pairs(Questions.of(train, asks_tail), answers)[:, LINK]
        for offset, confidence in zip(mine.tolist(), links.tolist(), strict=True):
            expected = logit * (1 + np.log(confidence) / -np.log(0.03)) if confidence > 0.03 else 0.0
            assert offset == pytest.approx(expected, rel=1e-5, abs=1e-6)


def test_a_certain_link_gives_the_whole_logit_and_no_link_nothing() -> None:
    """Its own triple does not count. Company and paths alone are not told to vectors."""
    pairs = [(2 * n, 2 * n + 1) for n in range(30)]
    triples = [(h, r, t) for h, t in pairs for r in (0, 1)] + [(0, 2, 3), (2, 2, 5), (4, 2, 1)]
    train = canonical(to_triples(triples))
    offsets = EvidenceOffsets.of(evidence_of(triples, 60, 3, WalkLimits(5, 4, 40)), train, 10.0)
    twice = train.relation < 2
    for side in offsets:
        assert (side[twice] > 9).all() and (side[twice] <= 10).all()
        assert not side[~twice].any()


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_share_of_the_targets_is_hidden_and_all_ranks_hide_the_same(sampler: Sampler, share: float) -> None:
    """Triples of one chain: each pair is linked once, so that a target is hidden or shown."""
    graph = graph_of_rows([(n, 0, n + 1) for n in range(400)], 401, 1, Sampling(0, 8, 1))
    negatives = negatives_of(graph, sampler)
    shares = [
        maker_of(graph, negatives, share, rank=rank, world=world).make(np.arange(400), np.random.default_rng(3))
        for rank, world in ((0, 1), (0, 2), (1, 2))
    ]
    hidden = []
    for batch in shares:
        shown = shown_contexts(batch.entities)
        hidden.append({h for h, _, t in positives(batch) if t not in shown[h][0]})
        assert hidden[-1] == {h for h, _, t in positives(batch) if h not in shown[t][0]}, "from both ends"
    assert hidden[0] == hidden[1] | hidden[2]
    if share in (0.0, 1.0):
        assert len(hidden[0]) == 400 * share
    else:
        assert 80 < len(hidden[0]) < 160
