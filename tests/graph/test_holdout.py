"""The three invariants of held-out triples, over random evolving graphs read as snapshots or as change files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.holdout import SMALLEST_GRAPH, HeldOut, default_held_out
from dkge_dist.graph.source_diff import SnapshotDiff
from dkge_dist.types import Split
from tests.graphs import Chain, Labelled

entities = st.sampled_from("abcdefghij")
triples = st.tuples(entities, st.sampled_from("rst"), entities)
Splits = dict[Split, set[Labelled]]
counts = st.one_of(st.none(), st.integers(0, 6))


# One example is some twenty snapshots.
nights_at_random = settings(max_examples=25)


class Night(NamedTuple):
    triples: frozenset[Labelled]
    wanted: HeldOut


@st.composite
def evolutions(draw: st.DrawFn) -> list[Night]:
    """Nights that take away and bring some triples, old ones among them: those that return are the hard case."""
    present = draw(st.frozensets(triples, max_size=30))
    seen = present
    nights = [Night(present, HeldOut(draw(counts), draw(counts)))]
    for _ in range(draw(st.integers(0, 5))):
        gone = draw(st.frozensets(st.sampled_from(sorted(present)), max_size=12)) if present else frozenset()
        back = draw(st.frozensets(st.sampled_from(sorted(seen)), max_size=6)) if seen else frozenset()
        come = draw(st.frozensets(triples, max_size=8))
        present = (present - gone) | back | come
        seen = seen | present
        nights.append(Night(present, HeldOut(draw(counts), draw(counts))))
    return nights


def objects(triples: set[Labelled]) -> set[tuple[str, str]]:
    """Entities and relations, told apart."""
    ends = {("entity", label) for head, _, tail in triples for label in (head, tail)}
    return ends | {("relation", relation) for _, relation, _ in triples}


def play(nights: list[Night], by_change: bool, order: list[Labelled] | None = None) -> list[dict[Split, set[Labelled]]]:
    """The splits after every night; `order` shuffles the lines and the rows."""
    chain = Chain(order or [])
    states = []
    before: frozenset[Labelled] = frozenset()
    for night in nights:
        _step(chain, before, night, by_change, order)
        states.append(chain.state)
        before = night.triples
    return states


def _step(
    chain: Chain, before: frozenset[Labelled], night: Night, by_change: bool, order: list[Labelled] | None = None
) -> SnapshotDiff:
    def arranged(triples: frozenset[Labelled]) -> list[Labelled]:
        return sorted(triples) if order is None else sorted(triples, key=order.index)

    if not by_change:
        return chain.full(arranged(night.triples), night.wanted)
    signed = [("-", triple) for triple in arranged(before - night.triples)]
    signed += [("+", triple) for triple in arranged(night.triples - before)]
    return chain.change(signed, night.wanted)


class Step(NamedTuple):
    """One night: the triples before it, the splits before and after it, and what was counted."""

    before: frozenset[Labelled]
    night: Night
    old: Splits
    new: Splits
    counts: Counter[str]


def steps_of(nights: list[Night], by_change: bool) -> Iterator[Step]:
    chain = Chain()
    before: frozenset[Labelled] = frozenset()
    for night in nights:
        old = chain.state
        counts = _step(chain, before, night, by_change).counts
        yield Step(before, night, old, chain.state, counts)
        before = night.triples


@nights_at_random
@given(evolutions(), st.booleans())
def test_every_object_has_a_train_triple(nights: list[Night], by_change: bool) -> None:
    for night, state in zip(nights, play(nights, by_change), strict=True):
        assert set().union(*state.values()) == night.triples
        assert sum(map(len, state.values())) == len(night.triples)
        assert objects(state[Split.TRAIN]) == objects(set(night.triples))


@nights_at_random
@given(evolutions(), st.booleans())
def test_held_out_stays_held_out_unless_train_needs_it(nights: list[Night], by_change: bool) -> None:
    for before, night, old, new, counts in steps_of(nights, by_change):
        returned: set[Labelled] = set()
        for split in (Split.VALID, Split.TEST):
            still_there = old[split] & night.triples
            returned |= still_there & new[Split.TRAIN]
            assert still_there - returned <= new[split]
        assert counts["returned_to_train"] == len(returned)
        # Objects without another train triple; each of them returns one triple at most.
        unaided = (old[Split.TRAIN] & night.triples) | (night.triples - before)
        stranded = objects(set(night.triples)) - objects(unaided)
        assert len(returned) <= len(stranded)
        assert all(objects({triple}) & stranded for triple in returned)


@nights_at_random
@given(evolutions(), st.booleans())
def test_triples_once_in_train_are_never_held_out(nights: list[Night], by_change: bool) -> None:
    trained: set[Labelled] = set()
    for state in play(nights, by_change):
        assert not trained & (state[Split.VALID] | state[Split.TEST])
        trained |= state[Split.TRAIN]


@nights_at_random
@given(evolutions(), st.booleans())
def test_wanted_numbers_are_reached_or_the_missing_counted(nights: list[Night], by_change: bool) -> None:
    for _, night, old, new, counts in steps_of(nights, by_change):
        missing = 0
        for split, wanted in ((Split.VALID, night.wanted.valid), (Split.TEST, night.wanted.test)):
            kept = old[split] & new[split]
            if wanted is None:
                assert new[split] == kept
            else:
                assert len(kept) <= len(new[split]) <= max(len(kept), wanted)
                missing += max(0, wanted - len(new[split]))
        assert counts["held_out_missing"] == missing


@nights_at_random
@given(evolutions(), st.booleans(), st.randoms(use_true_random=False))
def test_order_of_lines_and_rows_does_not_matter(nights: list[Night], by_change: bool, random: object) -> None:
    order = sorted({triple for night in nights for triple in night.triples})
    random.shuffle(order)  # type: ignore[attr-defined]
    assert play(nights, by_change, order) == play(nights, by_change)


def ring(size: int) -> list[Labelled]:
    """Every entity has two triples."""
    return [(f"e{i}", "r", f"e{(i + 1) % size}") for i in range(size)]


def test_larger_holdout_contains_the_smaller_one() -> None:
    triples = [(f"e{i}", "r", f"e{j}") for i in range(12) for j in range(12)]
    cuts = []
    for count in (5, 20, 40):
        chain = Chain()
        chain.full(triples, HeldOut(valid=count))
        cuts.append(chain.state[Split.VALID])
    assert cuts[0] < cuts[1] < cuts[2]


def test_window_of_candidates_grows_until_enough_are_removable() -> None:
    """The smallest hashes may all be of triples that cannot be removed."""
    lonely = [(f"head{i}", "r", f"tail{i}") for i in range(6000)]
    spare = [("hub", "r", f"leaf{i % 40}") for i in range(40)] + [("hub", "s", f"leaf{i}") for i in range(40)]
    chain = Chain()
    counts = chain.full(lonely + spare, HeldOut(test=30)).counts
    assert counts == {}
    assert chain.state[Split.TEST] <= set(spare)
    assert len(chain.state[Split.TEST]) == 30


def test_only_one_of_several_held_out_triples_returns_to_train() -> None:
    chain = Chain()
    hub = [("hub", "r", f"leaf{i}") for i in range(8)]
    rest = [(f"leaf{i}", "r", f"leaf{(i + 1) % 8}") for i in range(8)]
    chain.full(hub + rest, HeldOut(valid=3, test=3))
    held = (chain.state[Split.VALID] | chain.state[Split.TEST]) & set(hub)
    trained = chain.state[Split.TRAIN] & set(hub)
    assert len(held) > 1
    counts = chain.change([("-", triple) for triple in sorted(trained)]).counts
    assert counts["returned_to_train"] == 1
    assert len(chain.state[Split.TRAIN] & held) == 1


@pytest.mark.parametrize(
    ("triples", "wanted"),
    [(0, None), (1999, None), (2000, 100), (10_000, 100), (20_000, 200), (300_000, 3000), (7_923_773, 3000)],
)
def test_what_is_held_out_by_default(triples: int, wanted: int | None) -> None:
    assert default_held_out(triples) == HeldOut(wanted, wanted)


def test_a_first_snapshot_holds_some_out_unless_told_otherwise() -> None:
    chain = Chain()
    graph = sorted({(f"e{i * 7 % 90}", f"r{i % 3}", f"e{i * i % 83}") for i in range(9000)})
    assert len(graph) > SMALLEST_GRAPH
    assert not chain.full(graph).counts
    assert [chain.snapshot.count(split) for split in Split][1:] == [100, 100]
    chain.full(graph[:-9])
    assert sum(chain.snapshot.count(split) for split in (Split.VALID, Split.TEST)) >= 191, "no default any more"
    for declined in (HeldOut(0, 0), HeldOut(0, None), HeldOut(None, 0)):
        chain = Chain()
        chain.full(graph, declined)
        assert chain.snapshot.count(Split.TRAIN) == len(graph)


def test_fewer_than_the_default_are_no_notice() -> None:
    """Every triple of a chain is somebody's only one."""
    chain = Chain()
    assert chain.full([(f"a{i}", "r", f"b{i}") for i in range(2500)]).counts == {}
    assert chain.snapshot.count(Split.TRAIN) == 2500
