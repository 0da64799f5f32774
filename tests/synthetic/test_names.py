"""Names of synthetic titles and people: no two alike, the same for a seed, readable, and cheap at any size."""

from __future__ import annotations

import re
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.synthetic import EPISODE, MOVIE, PERSON, SERIES, EvolvingGraph
from dkge_dist.synthetic.names import PATTERNS, name_bytes
from tests.synthetic.movies import DEMO

KINDS = (MOVIE, SERIES, EPISODE, PERSON)


def names_of(kinds: list[int], numbers: list[int], seed: int = 0) -> list[str]:
    text = name_bytes(np.array(kinds), np.array(numbers), seed)
    return [row[row != 0].tobytes().decode("ascii") for row in text]


def total(kind: int) -> int:
    """How many names there are before numerals begin."""
    return sum(prod(len(words) for words in pattern) for pattern in PATTERNS[kind])


def test_small_graphs_have_short_names() -> None:
    shapes = {
        MOVIE: r"The \w+ \w+( \w+)?",
        SERIES: r"[A-Z]\w+ [A-Z]\w+",
        EPISODE: r"The \w+ (and|or|versus|without) the \w+( \w+)?",
        PERSON: r"[A-Z][a-z]+ [A-Z][a-z]+",
    }
    for kind, shape in shapes.items():
        found = names_of([kind] * 1000, list(range(1, 1001)))
        assert all(re.fullmatch(shape, name) for name in found)


def test_no_two_names_of_a_large_graph_are_alike() -> None:
    """Titles share their numbers, whatever they are: so no two kinds may share a name."""
    numbers = [*range(1, 40_001), *range(2_000_000, 2_010_000)]
    found = [name for kind in KINDS for name in names_of([kind] * len(numbers), numbers)]
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("kind", KINDS)
def test_whoever_comes_after_all_patterns_gets_a_numeral(kind: int) -> None:
    count = total(kind)
    first, second, third, tenth = names_of([kind] * 4, [1, 1 + count, 1 + 2 * count, 1 + 9 * count])
    assert [second, third, tenth] == [f"{first} 2", f"{first} 3", f"{first} 10"]
    last, *_ = names_of([kind], [count])
    assert not any(letter.isdigit() for letter in last)


@given(
    st.lists(st.tuples(st.sampled_from(KINDS), st.integers(1, 60_000_000)), unique=True, max_size=50), st.integers(0, 9)
)
def test_a_name_follows_from_kind_number_and_seed_alone(asked: list[tuple[int, int]], seed: int) -> None:
    together = names_of([kind for kind, _ in asked], [number for _, number in asked], seed)
    assert together == [names_of([kind], [number], seed)[0] for kind, number in asked]
    assert len(set(together)) == len(asked)


def test_newcomers_of_a_night_keep_their_names() -> None:
    """A run with more nights starts with the same names."""
    graph = EvolvingGraph(DEMO)
    before = list(graph.names(np.arange(graph.kinds.size)))
    graph.advance()
    after = list(graph.names(np.arange(graph.kinds.size)))
    assert after[: len(before)] == before
    assert len(set(after)) == len(after) > len(before)
    assert list(graph.names(np.arange(0))) == []
