"""What became of the triples of a night: groups against plain sets, metrics against scoring everything."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dkge_dist.ask.ranks import metrics
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.ranks import FilteredCandidates, known_answers
from dkge_dist.kernels.triples import canonical
from dkge_dist.measure import fidelity as module
from dkge_dist.measure.fidelity import NightTriples, forgotten, measure_night, night_triples
from dkge_dist.types import ROW, Split
from tests.ask.test_ranks import dense_ranks, embedding, whole_vectors
from tests.evidence.building import dense_scores, limits, rounded
from tests.reference import Triple
from tests.strategies import Evolution, evolutions, to_list, to_triples

Splits = list[set[Triple]]
SIDES = ((0, 2, True), (2, 0, False))
"""(column of the question's entity, column of the answer, asks for the tail)."""


class Evening(NamedTuple):
    """A night with held-out triples: what was in each split, what is now, and how the program sees it."""

    before: Splits
    after: Splits
    diff: Diff
    snapshot: Snapshot
    topology: Topology

    def groups(self, seed: int = 0) -> NightTriples:
        return night_triples(self.diff, self.snapshot.triples(Split.TRAIN), self.topology, self.snapshot, seed)


def evening_of(before: Splits, after: Splits, rows: int, relations: int) -> Evening:
    old, new = ([canonical(to_triples(sorted(part))) for part in splits] for splits in (before, after))
    changes = [Change.between(*both) for both in zip(old, new, strict=True)]
    (entities, kinds), (entities_now, kinds_now) = alive(before), alive(after)
    emerged = [
        np.array(sorted(some), ROW)
        for some in (entities_now - entities, entities - entities_now, kinds_now - kinds, kinds - kinds_now)
    ]
    snapshot = Snapshot.full((new[0], new[1], new[2]), rows, relations)
    return Evening(before, after, Diff.of(changes, *emerged), snapshot, Topology.of(new[0], rows))


def alive(splits: Splits) -> tuple[set[int], set[int]]:
    every = set.union(*splits)
    return {end for h, _, t in every for end in (h, t)}, {r for _, r, _ in every}


def random_evening(night: Evolution, seed: int) -> Evening:
    """Some triples are held out, and some of those move between splits over night."""
    rng = np.random.default_rng(seed)
    before: Splits = [set(), set(), set()]
    after: Splits = [set(), set(), set()]
    place = {}
    for triple in sorted(set(night.before.triples)):
        place[triple] = int(rng.choice(3, p=[0.8, 0.1, 0.1]))
        before[place[triple]].add(triple)
    for triple in sorted(set(night.after)):
        stays = triple in place and rng.random() < 0.9
        after[place[triple] if stays else int(rng.choice(3, p=[0.8, 0.1, 0.1]))].add(triple)
    return evening_of(before, after, night.before.rows, night.before.relations)


def gone(evening: Evening) -> set[Triple]:
    """Train triples that nobody should believe any more."""
    entities, relations = alive(evening.after)
    left = evening.before[0] - set.union(*evening.after)
    return {(h, r, t) for h, r, t in left if h in entities and t in entities and r in relations}


def replaced(evening: Evening) -> set[tuple[Triple, Triple, bool]]:
    """(new, old, asks for the tail) of questions with one train answer before and another one now."""
    found = set()
    for entity, answer, asks_tail in SIDES:
        for triple in evening.after[0] - evening.before[0]:
            question = (triple[entity], triple[1])
            now, then = (
                [other for other in splits[0] if (other[entity], other[1]) == question]
                for splits in (evening.after, evening.before)
            )
            if len(now) == len(then) == 1 and then[0] in gone(evening):
                assert now[0][answer] != then[0][answer]
                found.add((now[0], then[0], asks_tail))
    return found


evenings = st.builds(random_evening, evolutions(max_rows=12, max_triples=40), st.integers(0, 999))


@settings(max_examples=150)
@given(evenings)
def test_groups_are_those_of_plain_sets(evening: Evening) -> None:
    assume(evening.before[0] and evening.after[0])
    found = evening.groups()
    before, now = evening.before[0], evening.after[0]
    added, deleted = now - before, before - now
    entities, kinds = alive(evening.before)
    existing = {(h, r, t) for h, r, t in added if h in entities and t in entities and r in kinds}
    changed = added | deleted
    ahead, behind = {(h, r) for h, r, _ in changed}, {(r, t) for _, r, t in changed}
    near = {(h, r, t) for h, r, t in now & before if (h, r) in ahead or (r, t) in behind}
    expected = {
        "added_existing": existing,
        "added_emerging": added - existing,
        "deleted": gone(evening),
        "kept_near": near,
    }
    groups = {name: to_list(triples) for name, triples in found.groups().items()}
    far = groups.pop("kept_far")
    assert {name: set(triples) for name, triples in groups.items()} == expected
    assert all(len(set(triples)) == len(triples) for triples in (*groups.values(), far))
    assert set(far) <= now - added - near
    pairs = zip(
        to_list(found.replaced.new), to_list(found.replaced.old), found.replaced.asks_tail.tolist(), strict=True
    )
    pairs = list(pairs)
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == replaced(evening)


def test_answers_are_replaced_on_both_sides() -> None:
    """Not where there were two, where there are two, or where the old one is held out or dead now."""
    kept = {(0, 1, 9), (9, 1, 0), (10, 1, 20), (21, 1, 20), (30, 1, 31)}
    before = [
        *[(0, 0, 1), (0, 0, 2)],  # two answers before
        *[(3, 0, 4)],  # replaced for the tail
        *[(5, 0, 6)],  # replaced for the head
        *[(7, 0, 8)],  # held out now
        *[(30, 0, 40)],  # its answer is dead now
        *[(31, 0, 20)],  # two answers now
    ]
    after = [(0, 0, 9), (3, 0, 9), (10, 0, 6), (7, 0, 10), (30, 0, 21), (31, 0, 30), (31, 0, 10), (4, 1, 5), (2, 1, 1)]
    extra = {(8, 1, 7)}
    evening = evening_of(
        [kept | extra | set(before), set(), set()], [kept | extra | set(after), {(7, 0, 8)}, set()], 41, 2
    )
    found = evening.groups().replaced
    pairs = zip(to_list(found.new), to_list(found.old), found.asks_tail.tolist(), strict=True)
    assert sorted(pairs) == [((3, 0, 9), (3, 0, 4), True), ((10, 0, 6), (5, 0, 6), False)]
    some = found.take(np.array([1]))
    assert (to_list(some.new), to_list(some.old), some.asks_tail.tolist()) == ([(10, 0, 6)], [(5, 0, 6)], [False])


def test_what_moved_to_another_split_or_lost_an_end_is_not_forgotten() -> None:
    before = {(0, 0, 1), (1, 0, 2), (2, 0, 3), (3, 1, 0), (4, 0, 0)}
    evening = evening_of([before, set(), set()], [{(0, 0, 2)}, {(1, 0, 2)}, {(2, 0, 3)}], 5, 2)
    assert to_list(forgotten(evening.diff.deleted, evening.snapshot)) == [(0, 0, 1)]


def big_evening(changed: int = 30) -> Evening:
    rng = np.random.default_rng(1)
    triples = sorted({(int(h), int(r), int(t)) for h, r, t in rng.integers(0, [300, 3, 300], (1500, 3))})
    return evening_of([set(triples[changed:]), set(), set()], [set(triples[:-changed]), set(), set()], 300, 3)


def test_near_triples_are_a_sample_where_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hub got one triple more; none of those near it counts as far."""
    kept = {(0, 0, n) for n in range(1, 300)} | {(n, 1, n + 1) for n in range(1, 300)}
    evening = evening_of([kept, set(), set()], [kept | {(0, 0, 301)}, set(), set()], 302, 2)
    every = to_list(evening.groups().kept_near)
    assert len(every) == 299
    monkeypatch.setattr(module, "KEPT", 100)
    some, far = (to_list(group) for group in (evening.groups().kept_near, evening.groups().kept_far))
    assert len(some) == len(set(some)) == 100
    assert set(some) < set(every)
    assert {relation for _, relation, _ in far} == {1}


def test_a_hub_is_listed_once_however_many_of_its_triples_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Listed beside each of them, 200 new triples of a hub of 400 were 80,000; of a release of Debian, all memory."""
    kept = {(n, 0, 0) for n in range(1, 201)} | {(n, 1, n + 1) for n in range(1, 201)}
    added = {(n, 0, 0) for n in range(201, 401)}
    evening = evening_of([kept, set(), set()], [kept | added, set(), set()], 401, 2)
    listed: list[int] = []

    def counted(*arguments: Any) -> FilteredCandidates:
        found = known_answers(*arguments)
        listed.append(found.rows.shape[0])
        return found

    monkeypatch.setattr(module, "known_answers", counted)
    near = to_list(evening.groups().kept_near)
    assert set(near) == {(n, 0, 0) for n in range(1, 201)}
    assert sum(listed) <= 2 * len(kept | added)


def test_of_too_many_siblings_some_questions_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    evening = big_evening()
    every = set(to_list(evening.groups().kept_near))
    for limit in (1, 20):
        monkeypatch.setattr(module, "SIBLINGS", limit)
        some = set(to_list(evening.groups().kept_near))
        assert some < every
    assert some, "twenty are a few questions"


def test_far_triples_are_a_sample_and_follow_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT", 100)
    evening = big_evening()
    one, again, other = (to_list(evening.groups(seed).kept_far) for seed in (1, 1, 2))
    assert one == again != other
    assert len(one) == len(other) == 100
    assert {r for _, r, _ in one} == {0, 1, 2}


def test_a_sample_of_every_group() -> None:
    night = big_evening(60).groups()
    some = night.sampled(20, np.random.default_rng(0))
    for name, triples in night.groups().items():
        kept = to_list(some.groups()[name])
        assert len(kept) == len(set(kept)) == min(20, triples.count)
        assert set(kept) <= set(to_list(triples))
    whole = night.sampled(10**6, np.random.default_rng(0))
    assert [to_list(t) for t in whole.groups().values()] == [to_list(t) for t in night.groups().values()]
    assert to_list(whole.replaced.new) == to_list(night.replaced.new)


@settings(max_examples=40)
@given(evenings, limits, st.integers(0, 99), st.booleans())
def test_metrics_equal_scoring_everything(evening: Evening, bounds: WalkLimits, seed: int, with_evidence: bool) -> None:
    assume(evening.before[0] and evening.after[0])
    rows, relations = evening.snapshot.entity_rows, evening.snapshot.relation_rows
    evidence = rounded(sorted(evening.after[0]), rows, relations, bounds, seed) if with_evidence else None
    assert_measured(evening, evidence, seed)


def assert_measured(evening: Evening, evidence: Evidence | None, seed: int) -> None:
    """With vectors of whole numbers: what is reported is what scoring every candidate of every question gives."""
    train = evening.after[0]
    vectors = whole_vectors(evening.snapshot.entity_rows, evening.snapshot.relation_rows, seed)
    here = evening.snapshot.alive_entities
    night = evening.groups()
    found = measure_night(embedding(*vectors, here), night, evening.topology, evidence)
    ways = {"vectors": None} | ({"with_evidence": evidence} if evidence is not None else {})
    for name, triples in night.groups().items():
        assert set(found[name]) == {"triples", *ways}
        assert found[name]["triples"] == triples.count
        for way, heard in ways.items():
            tails, heads = dense_ranks(vectors, to_list(triples), train, here.tolist(), heard)
            expected = metrics(np.array([*tails, *heads]))
            if triples.count:
                both = np.mean([1 / np.array(tails), 1 / np.array(heads)], axis=0)
                error = both.std(ddof=1) / np.sqrt(len(both)) if len(both) > 1 else 0.5
                expected["mrr_error"] = float(error)
            assert found[name][way] == pytest.approx(expected)
    pairs = night.replaced
    assert found["replaced"]["triples"] == pairs.new.count
    for way, heard in ways.items():
        tails, heads = dense_ranks(vectors, to_list(pairs.new), train, here.tolist(), heard)
        expected = metrics(np.where(pairs.asks_tail, tails, heads)) if tails else {}
        above = []
        for new, old, asks_tail in zip(to_list(pairs.new), to_list(pairs.old), pairs.asks_tail.tolist(), strict=True):
            entity, answer = (0, 2) if asks_tail else (2, 0)
            scores = dense_scores(vectors, heard, (new[entity], new[1], asks_tail))
            above.append(bool(scores[new[answer]] > scores[old[answer]]))
        if above:
            expected["new_above_old"] = float(np.mean(above))
        assert found["replaced"][way] == pytest.approx(expected)


@pytest.mark.parametrize("seed", [1, 3, 5, 7, 9, 11])
def test_a_new_answer_is_above_the_old_one_by_the_score_of_ranks(seed: int) -> None:
    """A night that replaces all answers of a relation, with a near-duplicate of it that says something for both."""
    old = {(n, 0, 20 + n) for n in range(20)}
    new = {(n, 0, 20 + (n + 3) % 20) for n in range(20)}
    kept = {(h, 1, t) for h, _, t in sorted(old | new) if (h + t) % 3}
    evening = evening_of([old | kept, set(), set()], [new | kept, set(), set()], 40, 2)
    assert evening.groups().replaced.new.count == 40
    evidence = rounded(sorted(new | kept), 40, 2, seed=seed)
    assert_measured(evening, evidence, seed)


def test_a_night_without_changes_keeps_everything() -> None:
    triples = {(n, 0, n + 1) for n in range(9)}
    evening = evening_of([triples, set(), set()], [triples, set(), set()], 10, 1)
    night = evening.groups()
    assert {name for name, some in night.groups().items() if some.count} == {"kept_far"}
    found = measure_night(embedding(*whole_vectors(10, 1, 0), np.arange(10)), night, evening.topology, None)
    assert found["deleted"] == {"triples": 0, "vectors": {}}
    assert found["replaced"] == {"triples": 0, "vectors": {}}
