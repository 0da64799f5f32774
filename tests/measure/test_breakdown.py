"""Link prediction by relation and by category, against counting on Python sets."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.ask.ranks import Ranks, metrics
from dkge_dist.measure.link_prediction import CATEGORIES, MANY, by_category, by_relation, categories
from tests.strategies import RandomGraph, graphs, to_triples


def category(train: set[tuple[int, int, int]], relation: int) -> str:
    """Of one relation: how many heads a tail has on average, and how many tails a head."""
    mine = [t for t in train if t[1] == relation]
    heads, tails = {h for h, _, _ in mine}, {t for _, _, t in mine}
    sides = ["N" if len(mine) / max(len(ends), 1) > MANY else "1" for ends in (tails, heads)]
    return "-".join(sides)


def random_ranks(count: int, seed: int) -> Ranks:
    rng = np.random.default_rng(seed)
    return Ranks(rng.integers(1, 40, count).astype(float), rng.integers(2, 80, count) / 2)


@given(graphs(max_rows=8))
def test_categories_equal_counting(graph: RandomGraph) -> None:
    train = set(graph.triples)
    found = categories(to_triples(sorted(train)), graph.relations)
    assert [CATEGORIES[number] for number in found] == [category(train, r) for r in range(graph.relations)]


@given(graphs(max_rows=8), graphs(max_rows=8), st.integers(0, 1000))
def test_every_triple_is_in_one_relation_and_one_category(train: RandomGraph, test: RandomGraph, seed: int) -> None:
    """Also those of relations that train does not have."""
    known, asked = set(train.triples), sorted(set(test.triples))
    ranks = random_ranks(len(asked), seed)
    relations = by_relation(ranks, to_triples(asked))
    assert list(relations) == sorted({r for _, r, _ in asked}, key=lambda r: (-sum(t[1] == r for t in asked), r))
    for relation, line in relations.items():
        places = [i for i, triple in enumerate(asked) if triple[1] == relation]
        both = [*ranks.tail[places], *ranks.head[places]]
        assert line["triples"] == len(places)
        assert line["mrr"] == pytest.approx(np.mean([1 / rank for rank in both]))
        assert line["mr"] == pytest.approx(np.mean(both))
        for k in (1, 3, 10):
            assert line[f"hits@{k}"] == pytest.approx(np.mean([rank <= k for rank in both]))
    found = by_category(ranks, to_triples(asked), to_triples(sorted(known)))
    of_triples = [category(known, triple[1]) for triple in asked]
    assert set(found) == set(of_triples)
    for name, line in found.items():
        places = [i for i, own in enumerate(of_triples) if own == name]
        assert line["triples"] == len(places)
        assert line["head"] == metrics(ranks.head[places])
        assert line["tail"] == metrics(ranks.tail[places])
        assert line["mrr"] == pytest.approx((line["head"]["mrr"] + line["tail"]["mrr"]) / 2)


def test_the_four_kinds() -> None:
    one = [(i, 0, i + 10) for i in range(4)]
    fan_out = [(0, 1, i) for i in range(4)]
    fan_in = [(i, 2, 0) for i in range(4)]
    many = [(i, 3, j) for i in range(3) for j in range(3)]
    found = categories(to_triples(one + fan_out + fan_in + many), 5)
    assert [CATEGORIES[number] for number in found] == ["1-1", "1-N", "N-1", "N-N", "1-1"]


def test_one_and_a_half_is_not_many() -> None:
    """Three triples with two heads: 1.5 tails a head is the limit, and the limit is one."""
    assert CATEGORIES[categories(to_triples([(0, 0, 1), (0, 0, 2), (3, 0, 4)]), 1)[0]] == "1-1"


def test_nothing() -> None:
    nothing = to_triples([])
    ranks = Ranks(np.empty(0), np.empty(0))
    assert by_relation(ranks, nothing) == {}
    assert by_category(ranks, nothing, nothing) == {}
