"""The plan of an update, against its definition on plain sets of triples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dkge_dist.graph.training_graph import AffectedBy
from dkge_dist.kernels.triples import canonical
from dkge_dist.learn.plan import ObjectPlan, Plan, RelationIndex
from dkge_dist.types import ROW, Field
from tests import reference
from tests.learn.nights import SEED, plan_of, small_night
from tests.reference import Triple
from tests.strategies import Evolution, evolutions, to_list, to_triples


def rows_of(*rows: int) -> np.ndarray:
    return np.array(rows, ROW)


@settings(max_examples=50)
@given(evolutions(), st.sampled_from(["context", "endpoints"]))
def test_without_a_limit_all_triples_of_planned_objects_are_learnt(night: Evolution, affected_by: AffectedBy) -> None:
    assume(night.before.triples and night.after)
    found = plan_of(night.before.triples, night.after, night.before.rows, night.before.relations, affected_by)
    entities, relations = (set(kind.trained.tolist()) for kind in (found.plan.entities, found.plan.relations))
    expected = {(h, r, t) for h, r, t in night.after if h in entities or t in entities or r in relations}
    triples = to_list(found.plan.triples)
    assert set(triples) == expected
    assert triples == to_list(canonical(to_triples(sorted(expected))))


@settings(max_examples=50)
@given(evolutions(), st.integers(1, 4))
def test_a_limit_bounds_the_triples_of_an_object_but_not_the_added_ones(night: Evolution, limit: int) -> None:
    assume(night.before.triples and night.after)
    before, after = set(night.before.triples), set(night.after)
    found = plan_of(night.before.triples, night.after, night.before.rows, night.before.relations, limit=limit)
    planned = set(to_list(found.plan.triples))
    trained = found.plan.entities.trained.tolist()
    by_entity = set(reference.triples_of(night.after, trained, limit, SEED))
    assert by_entity | (after - before) <= planned <= after
    by_relation = planned - by_entity - (after - before)
    for relation in range(night.before.relations):
        assert sum(r == relation for _, r, _ in by_relation) <= limit
    assert {r for _, r, _ in by_relation} <= set(found.plan.relations.trained.tolist())


@settings(max_examples=50)
@given(evolutions(), st.sampled_from(["context", "endpoints"]), st.integers(0, 3))
def test_what_was_added_and_deleted_is_told_apart(night: Evolution, affected_by: AffectedBy, limit: int) -> None:
    """As far as a planned object can learn or forget it, and its ends are alive; a triple held out is not forgotten."""
    assume(night.before.triples and night.after)
    before, after = set(night.before.triples), set(night.after)
    valid = sorted(before - after)[:1]
    sizes = (night.before.rows, night.before.relations)
    plan = plan_of(night.before.triples, night.after, *sizes, affected_by, limit, valid).plan
    entities, relations = (set(kind.trained.tolist()) for kind in (plan.entities, plan.relations))

    def planned(triples: set[Triple]) -> list[Triple]:
        some = {(h, r, t) for h, r, t in triples if h in entities or t in entities or r in relations}
        return to_list(canonical(to_triples(sorted(some))))

    assert to_list(plan.triples.take(plan.added)) == planned(after - before)
    alive = {end for h, _, t in {*after, *valid} for end in (h, t)}
    relations_alive = {r for _, r, _ in {*after, *valid}}
    gone = {(h, r, t) for h, r, t in before - after if h in alive and t in alive and r in relations_alive}
    assert to_list(plan.deleted) == planned(gone - set(valid))
    assert plan.summary()["forgotten_triples"] == plan.deleted.count


@settings(max_examples=50)
@given(evolutions())
def test_objects_are_planned_by_the_definition_asked_for(night: Evolution) -> None:
    assume(night.before.triples and night.after)
    sizes = (night.before.rows, night.before.relations)
    literal, default = (
        plan_of(night.before.triples, night.after, *sizes, affected_by).plan for affected_by in ("context", "endpoints")
    )
    changed = set(night.before.triples) ^ set(night.after)
    ends = {end for h, _, t in changed for end in (h, t)}, {r for _, r, _ in changed}
    for kind, noun in enumerate(("entities", "relations")):
        few, many = getattr(literal, noun), getattr(default, noun)
        strangers = {*many.emerging.tolist(), *many.removed.tolist()}
        assert set(many.affected.tolist()) == set(few.affected.tolist()) | (ends[kind] - strangers)
        assert few.emerging.tolist() == many.emerging.tolist()
        assert not {*many.affected.tolist()} & strangers


def test_a_plan_follows_from_the_change_alone() -> None:
    one, other = small_night().plan, small_night().plan
    assert to_list(one.triples) == to_list(other.triples)
    assert to_list(one.deleted) == to_list(other.deleted)
    assert one.added.tolist() == other.added.tolist()
    assert one.summary() == other.summary()
    assert (len(one.entities.emerging), len(one.relations.emerging)) == (2, 1)


def test_trained_objects_and_the_write_set() -> None:
    plan = ObjectPlan(rows_of(7, 9), rows_of(1, 8), rows_of(3))
    assert plan.trained.tolist() == [1, 7, 8, 9]
    written = {field: rows.tolist() for field, rows in plan.write_set.items()}
    assert written == {Field.KNOWLEDGE: [1, 7, 8, 9], Field.CONTEXT: [7, 9], Field.JOINT: [1, 7, 8, 9]}
    assert all(rows.dtype == ROW for rows in plan.write_set.values())


def test_affected_objects_that_are_held_are_refreshed_and_not_trained() -> None:
    plan = ObjectPlan(rows_of(7, 9), rows_of(1, 8), rows_of(3), freezes_affected=True)
    assert plan.trained.tolist() == [7, 9]
    assert plan.refreshed.tolist() == [1, 7, 8, 9]
    written = {field: rows.tolist() for field, rows in plan.write_set.items()}
    assert written == {Field.KNOWLEDGE: [7, 9], Field.CONTEXT: [7, 9], Field.JOINT: [1, 7, 8, 9]}


@settings(max_examples=50)
@given(evolutions())
def test_relations_that_are_held_bring_no_triples(night: Evolution) -> None:
    """Only emerging ones do; a triple that only they could learn or forget is left out."""
    assume(night.before.triples and night.after)
    sizes = (night.before.rows, night.before.relations)
    found = plan_of(night.before.triples, night.after, *sizes, hold_relations=True).plan
    free = plan_of(night.before.triples, night.after, *sizes).plan
    assert not found.entities.freezes_affected
    assert found.relations.trained.tolist() == found.relations.emerging.tolist()
    assert found.relations.affected.tolist() == free.relations.affected.tolist()
    entities, relations = set(found.entities.trained.tolist()), set(found.relations.emerging.tolist())
    expected = {(h, r, t) for h, r, t in night.after if h in entities or t in entities or r in relations}
    assert set(to_list(found.triples)) == expected
    assert set(to_list(found.triples.take(found.added))) == set(night.after) - set(night.before.triples)


@settings(max_examples=50)
@given(evolutions(), st.sampled_from([0.1, 2.0]))
def test_an_entity_of_which_most_stayed_is_drawn_back_more(night: Evolution, strength: float) -> None:
    """In proportion to its triples for each one that changed; newcomers are not drawn back."""
    assume(night.before.triples and night.after)
    found = plan_of(night.before.triples, night.after, night.before.rows, night.before.relations)
    plan, before, after = found.plan, set(night.before.triples), set(night.after)
    held = plan.proximal_weights(strength, found.graph.topology)
    assert held is not None
    assert set(plan.entities.continued.tolist()) == set(plan.entities.affected.tolist())
    changed = [*(after - before), *3 * to_list(plan.deleted)]
    for row, found_strength in zip(plan.entities.continued.tolist(), held.tolist(), strict=True):
        triples, moved = (sum((h == row) + (t == row) for h, _, t in some) for some in (after, changed))
        expected = strength * max(1, triples / max(moved, 1) / 3.0)
        assert found_strength == pytest.approx(expected, rel=1e-6)
    assert plan.proximal_weights(0.0, found.graph.topology) is None


@settings(max_examples=50)
@given(evolutions())
def test_elsewhere_is_a_sample_of_the_whole_graph_as_large_as_the_change_asks_for(night: Evolution) -> None:
    assume(night.before.triples and night.after)
    plan = plan_of(night.before.triples, night.after, night.before.rows, night.before.relations).plan
    some = to_list(plan.global_replay)
    assert len(set(some)) == len(some) == min(len(set(night.after)), 20 * plan.changed.count)
    assert set(some) <= set(night.after)


@pytest.mark.parametrize(("shards", "touched"), [(1, [0]), (2, [0, 1]), (3, [0, 2]), (16, [0, 2, 15])])
def test_shards_that_an_update_will_write_to(shards: int, touched: list[int]) -> None:
    """By blocks of eight rows, round robin: blocks 0, 2 and 15."""
    entities = ObjectPlan(rows_of(121), rows_of(3, 17, 23), rows_of(60))
    plan = Plan(entities, ObjectPlan.empty(), to_triples([(3, 0, 17)]), rows_of(), to_triples([]))
    assert plan.blocks(8).tolist() == [0, 2, 15]
    assert plan.shards(8, shards) == touched


def test_a_summary_counts_objects_and_triples() -> None:
    plan = Plan(
        ObjectPlan(rows_of(1), rows_of(2, 3), rows_of()),
        ObjectPlan(rows_of(), rows_of(0), rows_of(4)),
        to_triples([(1, 0, 2), (3, 0, 2)]),
        rows_of(1),
        to_triples([(2, 0, 2), (2, 0, 3), (3, 0, 3)]),
    )
    assert plan.summary() == {
        "emerging_entities": 1,
        "affected_entities": 2,
        "removed_entities": 0,
        "emerging_relations": 0,
        "affected_relations": 1,
        "removed_relations": 1,
        "trained_triples": 2,
        "forgotten_triples": 3,
    }
    empty = Plan.empty()
    assert set(empty.summary().values()) == {0}
    assert empty.shards(8, 4) == []


@settings(max_examples=30)
@given(evolutions(), st.integers(0, 5), st.integers(0, 99))
def test_a_sample_of_a_relation(night: Evolution, limit: int, seed: int) -> None:
    assume(night.after)
    index = RelationIndex(canonical(to_triples(night.after)), night.before.relations)
    for relation in range(night.before.relations):
        every = {triple for triple in night.after if triple[1] == relation}
        found = to_list(index.sample(relation, limit, np.random.default_rng(seed)))
        assert len(found) == len(set(found)) == min(limit, len(every))
        assert set(found) <= every
