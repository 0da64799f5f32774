"""What was ever trained on is never held out later: after clearing, and over rollbacks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import Split
from tests.graphs import Labelled, assert_sound, content, dense, head, movies, write_changes, write_tsv


def held_out(store: Path, version: int) -> set[Labelled]:
    state = content(store, str(version))
    return state[Split.VALID] | state[Split.TEST]


@pytest.mark.parametrize("cleared", [True, False])
def test_what_was_deleted_returns(tmp_path: Path, cleared: bool) -> None:
    store, triples = tmp_path / "store", dense(2000, entities=200)
    api.ingest(store, write_tsv(tmp_path / "base.tsv", triples))
    half = triples[::2]
    api.ingest(store, write_changes(tmp_path / "less.changes", [], half), force=True)
    api.ingest(store, write_changes(tmp_path / "more.changes", movies(600), []), force=True)
    if cleared:
        api.gc(store, keep=1, grace_hours=0)
    report = api.ingest(store, write_changes(tmp_path / "again.changes", half, []), valid=100, test=100)
    found = held_out(store, report["version"])
    assert found & set(triples) == set()
    fresh = [("e1", "new", f"e{i}") for i in range(300)]
    report = api.ingest(store, write_changes(tmp_path / "fresh.changes", fresh, []), valid=100, test=100)
    assert len(held_out(store, report["version"])) == 200
    assert_sound(store)


def test_what_a_branch_trained_that_was_rolled_back(tmp_path: Path) -> None:
    """A model of that branch can still be updated to a snapshot of this one."""
    store, triples = tmp_path / "store", dense(600)
    api.ingest(store, write_tsv(tmp_path / "base.tsv", triples))
    added = movies(100)
    api.ingest(store, write_changes(tmp_path / "branch.changes", added, []), force=True)
    api.rollback(store, 1)
    api.ingest(store, write_changes(tmp_path / "other.changes", [*added, *movies(60, 100)], []), valid=30, force=True)
    found = held_out(store, 4)
    assert found
    assert found <= set(movies(60, 100))
    assert_sound(store)


def test_random_nights(tmp_path: Path) -> None:
    """Against a plain set of everything that any version had in train."""
    chance = random.Random(3)
    store, pool = tmp_path / "store", dense(1500)
    api.ingest(store, write_tsv(tmp_path / "base.tsv", pool[:250]), valid=10, test=10)
    trained = content(store, "1")[Split.TRAIN]
    held = held_out(store, 1)
    new = 0
    for night in range(40):
        now = head(store)
        state = content(store, str(now.version))
        current = set().union(*state.values())
        if night % 7 == 6:
            last = now.version
            left = [n for n in range(max(1, last - 6), last + 1) if not now.current.is_cleared(n)]
            left = [n for n in left if not now.current.is_cleared(Store.open(store).state_at(n).snapshot)]
            api.rollback(store, chance.choice(left))
            held = held_out(store, head(store).version)
            continue
        if night % 5 == 4:
            api.gc(store, keep=2, grace_hours=0)
            continue
        gone = chance.sample(sorted(current), 20)
        come = chance.sample(sorted(set(pool) - current), 22)
        changes = write_changes(tmp_path / f"{night}.changes", come, gone)
        sizes = {"valid": chance.choice([None, 20]), "test": chance.choice([None, 15])}
        version = api.ingest(store, changes, force=True, **sizes)["version"]
        found = held_out(store, version)
        assert (found - held) & trained == set(), night
        new += len(found - held)
        held = found
        trained |= content(store, str(version))[Split.TRAIN]
    assert new > 30
    assert_sound(store)


def test_a_version_carries_hashes_and_no_history(tmp_path: Path) -> None:
    """Nights that delete and add the same again and again carry no more with every one."""
    store, triples = tmp_path / "store", movies(200)
    api.ingest(store, write_tsv(tmp_path / "base.tsv", triples))
    for night in range(12):
        gone = triples[20:40] if night % 2 == 0 else []
        come = triples[20:40] if night % 2 else [(f"n{night}", "actor", "person1")]
        api.ingest(store, write_changes(tmp_path / f"{night}.changes", come, gone), force=True)
    assert sum(run.rows for run in head(store).trained_runs) <= 40
