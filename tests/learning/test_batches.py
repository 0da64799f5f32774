"""Batches: targets are hidden, everything else is shown, and what is known is never a negative."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dkge_dist.graph.relation_paths import PathCounts
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.batches import bernoulli_head_chance
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.ragged import RaggedBatch
from dkge_dist.kernels.triples import canonical
from dkge_dist.learning.batches import Batch, BatchMaker
from dkge_dist.learning.contexts import EntityContexts, RelationContexts
from dkge_dist.types import ROW
from tests import reference
from tests.reference import Context, Triple
from tests.strategies import RandomGraph, digests, graphs, to_list, to_triples

pytestmark = pytest.mark.usefixtures("one_thread")

samplings = st.builds(Sampling, st.integers(0, 2**63 - 1), st.integers(1, 8), st.integers(1, 2))
SAMPLERS = ["shared", "bernoulli"]


def maker(
    graph: RandomGraph,
    sampling: Sampling,
    sampler: str,
    hide: bool,
    candidates: np.ndarray | None = None,
    **options: bool,
) -> BatchMaker:
    train = canonical(to_triples(graph.triples))
    topology = Topology.of(train, graph.rows)
    return BatchMaker(
        train,
        EntityContexts(topology, digests(graph.rows), sampling),
        RelationContexts(PathCounts.of(topology, train, graph.relations), digests(graph.relations, 1), sampling),
        np.arange(graph.rows, dtype=ROW) if candidates is None else candidates,
        bernoulli_head_chance(*train, graph.relations),
        sampler,  # type: ignore[arg-type]
        10,
        hide,
        **options,
    )


def shown(batch: Batch) -> dict[int, Context]:
    """The context of every entity of a batch, read back from its ragged places."""
    places = batch.entities.places
    assert isinstance(places, RaggedBatch)
    found = {}
    for number, row in enumerate(batch.entities.rows.tolist()):
        first, end = places.indptr[number], places.indptr[number + 1]
        vertices = batch.entities.vertex_rows[places.slot_row[first:end]].tolist()
        edges = set()
        for place in range(first, end):
            others = places.entry_slot[places.entry_ptr[place] : places.entry_ptr[place + 1]]
            edges |= {(vertices[place - first], vertices[other - first]) for other in others if other != place}
        found[row] = (vertices, frozenset(edges))
    return found


def positives(batch: Batch) -> list[Triple]:
    rows, kinds = batch.entities.rows, batch.relations.rows
    columns = rows[batch.head], kinds[batch.relation], rows[batch.tail]
    return [(int(h), int(r), int(t)) for h, r, t in zip(*columns, strict=True)]


def some_positions(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.permutation(count)[: rng.integers(1, count + 1)]


@pytest.mark.parametrize("sampler", SAMPLERS)
@settings(max_examples=25)
@given(graph=graphs(max_rows=12), sampling=samplings, seed=st.integers(0, 999), hide=st.booleans())
def test_contexts_show_all_but_the_targets(
    sampler: str, graph: RandomGraph, sampling: Sampling, seed: int, hide: bool
) -> None:
    """Each end of a pair that only the batch links misses in the other's context; nobody else's is touched."""
    assume(graph.triples)
    batches = maker(graph, sampling, sampler, hide)
    for again in range(2):
        batch = batches.make(some_positions(batches.train.count, seed + again), np.random.default_rng(seed))
        hidden = reference.hidden_pairs(graph.triples, positives(batch)) if hide else set()
        simple = reference.neighbours(graph.triples)
        found = shown(batch)
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
    train = canonical(to_triples(graph.triples))
    batches = maker(graph, Sampling(0, 8, 1), "shared", True)
    places = {triple: place for place, triple in enumerate(to_list(train))}

    def context(*asked: Triple) -> dict[int, list[int]]:
        batch = batches.make(np.array([places[triple] for triple in asked]), np.random.default_rng(0))
        return {row: vertices for row, (vertices, _) in shown(batch).items()}

    assert context((0, 0, 1))[0] == [0, 1]
    assert context((0, 0, 1), (0, 1, 1))[0] == [0, 1]
    # All three that link 0 and 1, in both directions.
    alone = context((0, 0, 1), (0, 1, 1), (1, 2, 0))
    assert alone[0] == [0]
    assert alone[1] == [1, 2]
    assert context((2, 0, 3))[2] == [2, 1]
    assert context((3, 0, 3))[3] == [3, 2]


@settings(max_examples=25)
@given(graph=graphs(max_rows=9), seed=st.integers(0, 999))
def test_shared_negatives_that_make_a_known_triple_are_blocked(graph: RandomGraph, seed: int) -> None:
    assume(graph.triples)
    batches = maker(graph, Sampling(0, 4, 1), "shared", True)
    batch = batches.make(some_positions(batches.train.count, seed), np.random.default_rng(seed))
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
    batch = batches.make(some_positions(batches.train.count, seed), np.random.default_rng(seed))
    known, everybody = set(graph.triples), range(graph.rows)
    assert batch.shared.shape == (0,)
    assert batch.negative.shape == batch.corrupts_head.shape == batch.head.shape
    replaced = batch.entities.rows[batch.negative].tolist()
    for (head, relation, tail), other, at_head in zip(positives(batch), replaced, batch.corrupts_head, strict=True):
        made = (other, relation, tail) if at_head else (head, relation, other)
        free = [e for e in everybody if (e, relation, tail) not in known or (head, relation, e) not in known]
        # With two free candidates or more of nine, 16 draws on each side practically never miss them all.
        assert made not in known or len(free) < 3


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_negatives_are_alive(sampler: str) -> None:
    """Entities that are in the dictionary but not in the snapshot serve nobody."""
    graph = RandomGraph(40, 1, [(h, 0, h + 1) for h in range(19)])
    alive = np.arange(20, dtype=ROW)
    batches = maker(graph, Sampling(0, 4, 1), sampler, True, alive)
    seen: set[int] = set()
    for seed in range(30):
        batch = batches.make(np.arange(19), np.random.default_rng(seed))
        negatives = batch.shared if sampler == "shared" else batch.negative
        seen |= set(batch.entities.rows[negatives].tolist())
    assert seen == set(range(20))


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_batch_follows_from_its_generator_alone(sampler: str) -> None:
    """Whatever was made before, by whichever maker."""
    rng = np.random.default_rng(0)
    graph = RandomGraph(20, 3, [(int(h), int(r), int(t)) for h, r, t in rng.integers(0, [20, 3, 20], (80, 3))])
    one, other = (maker(graph, Sampling(0, 4, 1), sampler, True) for _ in range(2))
    one.make(np.arange(5), np.random.default_rng(9))
    positions = np.arange(10, 40)
    batches = [made.make(positions, np.random.default_rng(3)) for made in (one, other)]
    assert shown(batches[0]) == shown(batches[1])
    for name in (
        "head",
        "relation",
        "tail",
        "shared",
        "known_tail_mask",
        "known_head_mask",
        "negative",
        "corrupts_head",
    ):
        assert np.array_equal(*(getattr(batch, name) for batch in batches)), name
    assert positives(batches[0]) == to_list(one.train.take(positions))


@given(graph=graphs(max_rows=12), seed=st.integers(0, 999))
def test_a_negative_weighs_by_how_rarely_it_is_drawn(graph: RandomGraph, seed: int) -> None:
    assume(graph.triples)
    batches = maker(graph, Sampling(1, 4, 1), "shared", False, logq_correction=True)
    batch = batches.make(some_positions(batches.train.count, seed), np.random.default_rng(seed))
    ends = [end for h, _, t in to_list(batches.train) for end in (h, t)]
    for row, weight in zip(batch.entities.rows[batch.shared].tolist(), batch.weight, strict=True):
        expected = 5 / graph.rows + 5 * ends.count(row) / len(ends)
        assert weight == pytest.approx(-np.log(1 - np.exp(-expected)), rel=1e-4, abs=1e-6)
