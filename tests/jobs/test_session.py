"""A session: made ready for many questions it says what it said before, and facts are all triples of an entity."""

from __future__ import annotations

from pathlib import Path

import pytest

import dkge_dist
from dkge_dist.ask.answer import AnswerOptions, answer
from dkge_dist.ask.batches import Line
from dkge_dist.ask.model import find_alive
from dkge_dist.ask.score import ScoreOptions, score
from dkge_dist.ask.session import Session, open_session
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.runtime import LocalRuntime
from dkge_dist.store.store import Store
from dkge_dist.types import Split
from tests.graphs import labelled
from tests.jobs.building import ADDED, ingest_night, some_train

pytestmark = pytest.mark.usefixtures("one_thread")

QUESTIONS = [Line(1, ("e4", "r2", None)), Line(2, (None, "r0", "e9")), Line(3, ("e4", None, "e9"))]


def said(session: Session) -> list[object]:
    triples = [Line(1, ("e4", "r2", "e9"))]
    return [*answer(session, QUESTIONS, AnswerOptions(5, why=True)), *score(session, triples, ScoreOptions())]


def test_prepared_it_says_the_same(store: Path) -> None:
    with open_session(Store.open(store), LocalRuntime()) as session:
        before = said(session)
        assert not session.keep
        session.prepare()
        assert session.keep and said(session) == before


def test_a_base_with_its_change_says_what_the_whole_snapshot_says(store: Path, tmp_path: Path) -> None:
    """And is not joined for it: a question reads what is around it from the base and from the change."""
    ingest_night(tmp_path / "night.changes", store, ADDED, some_train(store, 3))
    dkge_dist.update(store)
    with open_session(Store.open(store), LocalRuntime()) as session:
        found, snapshot = said(session), session.opened.snapshot
        assert snapshot.diff.train.added.count and snapshot.diff.train.deleted.count
        assert not snapshot._triples
        train, valid, test = (snapshot.triples(split) for split in Split)
        rebuilt = Snapshot.full((train, valid, test), snapshot.entity_rows, snapshot.relation_rows)
        opened = session.opened._replace(snapshot=rebuilt)
        assert said(Session(opened, session.embedding, session.notice, keep=False)) == found


def test_facts_are_all_triples_of_an_entity(store: Path, tmp_path: Path) -> None:
    ingest_night(tmp_path / "night.changes", store, [*ADDED, "e4\tr0\te4"], [])
    dkge_dist.update(store)
    with open_session(Store.open(store), LocalRuntime()) as session:
        opened = session.opened
        every = {triple for split in Split for triple in labelled(opened.snapshot.triples(split), opened.names)}
        for label in ("e4", "e9", "new1"):
            row = int(find_alive(opened, "entities", [label]).rows[0])
            session.keep = False
            read = session.facts(row)
            session.prepare()
            made = session.facts(row)
            for facts in (read, made):
                found = labelled(facts, opened.names)
                assert found == {triple for triple in every if label in (triple[0], triple[2])}
                begun = (facts.head == row).tolist()
                assert begun == sorted(begun, reverse=True), "those that it begins come first"
            assert all((one == other).all() for one, other in zip(read, made, strict=True))


def test_known_facts_may_be_limited(store: Path) -> None:
    with open_session(Store.open(store), LocalRuntime(), suggests=False) as session:
        every = answer(session, QUESTIONS, AnswerOptions(5))
        few = answer(session, QUESTIONS, AnswerOptions(5, known=1))
        for one, other in zip(every, few, strict=True):
            known = [some for some in one if some.known]
            assert other.known == one.known == len(known)
            assert list(other) == known[:1] + [some for some in one if not some.known]
        (failure,) = answer(session, [Line(1, ("e", "r2", None))], AnswerOptions())
        assert failure.error == "no entity 'e'", "no label is compared with all others"
