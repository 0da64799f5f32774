"""What looks wrong about a source is refused, with the reason, and is ingested with `force`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dkge_dist.store import guards
from dkge_dist.store.guards import SuspiciousSourceError
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import DkgeError, UsageError
from tests.graphs import Labelled, listing, movies, write_changes, write_tsv
from tests.store.sources import swapped, write_splits


def head_of(store: Path, version: int) -> Any:
    return Store.open(store).manifest(version).snapshot


@pytest.mark.parametrize("count", [179, 100, 1])
def test_a_truncated_dump(tmp_path: Path, store: Path, count: int) -> None:
    source = write_tsv(tmp_path / "next.tsv", movies(count))
    with pytest.raises(SuspiciousSourceError) as caught:
        api.ingest(store, source)
    assert f"deletes {200 - count} of the 200 triples of the snapshot before, over 10%" in str(caught.value)
    assert "this looks like a truncated dump (a source is the whole graph; " in str(caught.value)
    assert str(caught.value).endswith("). If that is right, say --force")
    assert api.ingest(store, source, force=True)["deleted"] == 200 - count


def test_a_tenth_may_go(tmp_path: Path, store: Path) -> None:
    assert api.ingest(store, write_tsv(tmp_path / "next.tsv", movies(180)))["deleted"] == 20


def test_a_change_that_deletes_too_much(tmp_path: Path, store: Path) -> None:
    source = write_changes(tmp_path / "night.changes", deleted=movies(21))
    with pytest.raises(SuspiciousSourceError, match="deletes 21 of the 200"):
        api.ingest(store, source)


def test_triples_that_move_between_splits_are_not_gone(tmp_path: Path) -> None:
    triples = movies(100)
    api.ingest(tmp_path / "store", write_splits(tmp_path / "one", train=triples[40:], valid=triples[:40]))
    report = api.ingest(tmp_path / "store", write_splits(tmp_path / "two", train=triples[:60], valid=triples[60:]))
    assert (report["added"], report["deleted"]) == (40, 40)
    three = write_splits(tmp_path / "three", train=triples[60:], valid=triples[11:60])
    with pytest.raises(SuspiciousSourceError, match="deletes 11 of the 100"):
        api.ingest(tmp_path / "store", three)


def test_another_graph(tmp_path: Path, store: Path) -> None:
    others = [(f"x{i}", "actor", f"y{i}") for i in range(300)]
    source = write_tsv(tmp_path / "next.tsv", others)
    with pytest.raises(SuspiciousSourceError, match=r"only 0 of its 600 entities are known here.*different graph"):
        api.ingest(store, source)
    assert api.ingest(store, source, force=True)["removed_entities"] == head_of(store, 1).entities


def test_a_hundredth_of_known_labels_is_enough(tmp_path: Path, store: Path) -> None:
    """What it deletes is then another question."""
    known = head_of(store, 1).entities
    needed = -(-known // 100)
    for shared, problem in ((needed, "truncated dump"), (needed - 1, "different graph")):
        others = [(f"x{i}", "actor", f"title{i}" if i < shared else f"y{i}") for i in range(300)]
        with pytest.raises(SuspiciousSourceError, match=problem):
            api.ingest(store, write_tsv(tmp_path / "next.tsv", others))


def test_swapped_columns_at_first(tmp_path: Path) -> None:
    source = write_tsv(tmp_path / "base.tsv", swapped(movies(200)))
    with pytest.raises(SuspiciousSourceError, match=r"columns look swapped \(expected head, relation, tail\)"):
        api.ingest(tmp_path / "store", source)
    assert not (tmp_path / "store").exists()
    assert api.ingest(tmp_path / "store", source, force=True)["relations"] > 40


@pytest.mark.parametrize("order", [(1, 0, 2), (0, 2, 1)], ids=["relation-head-tail", "head-tail-relation"])
def test_swapped_columns_later(tmp_path: Path, store: Path, order: tuple[int, int, int]) -> None:
    triples = [tuple(triple[i] for i in order) for triple in movies(300)]
    with pytest.raises(SuspiciousSourceError, match="columns look swapped"):
        api.ingest(store, write_tsv(tmp_path / "next.tsv", triples))  # type: ignore[arg-type]


def test_who_says_that_many_relations_are_right_is_asked_once(tmp_path: Path) -> None:
    path = tmp_path / "store"
    api.ingest(path, write_tsv(tmp_path / "base.tsv", swapped(movies(200))), force=True)
    assert api.ingest(path, write_tsv(tmp_path / "next.tsv", swapped(movies(204))))["version"] == 2


@pytest.mark.parametrize("added", [0, 3])
def test_a_change_to_another_snapshot(tmp_path: Path, store: Path, added: int) -> None:
    others = [(f"x{i}", "actor", f"y{i}") for i in range(7)]
    source = write_changes(tmp_path / "night.changes", movies(added, first=200), others)
    expected = r"none of the 7 triples it deletes is in snapshot 'base' \(version 1\).*another snapshot\. If"
    with pytest.raises(SuspiciousSourceError, match=expected):
        api.ingest(store, source)
    assert api.ingest(store, source, force=True)["counts"] == {"already_absent": 7}


def test_a_change_to_a_snapshot_that_is_not_current_any_more(tmp_path: Path, store: Path) -> None:
    """The night after a night that was rolled back: both are named, the current one and the one that it fits."""
    api.ingest(store, write_changes(tmp_path / "night1.changes", movies(6, first=200)))
    api.rollback(store, 1)
    before = listing(store)
    night = write_changes(tmp_path / "night2.changes", movies(2, first=300), movies(5, first=200))
    with pytest.raises(SuspiciousSourceError) as refused:
        api.ingest(store, night)
    assert str(refused.value).startswith(
        f"{night}: none of the 5 triples it deletes is in snapshot 'base' (version 1), which is current: "
        "this looks like a change to another snapshot, such as snapshot 'night1' (version 2)."
    )
    assert listing(store) == before
    api.rollback(store, 2)
    assert api.ingest(store, night)["deleted"] == 5


def test_onto_the_snapshot_that_it_is_meant_for(tmp_path: Path, store: Path) -> None:
    night1 = write_changes(tmp_path / "night1.changes", movies(2, first=200), movies(1))
    night2 = write_changes(tmp_path / "night2.changes", movies(2, first=210), movies(1, first=1))
    before = listing(store)
    with pytest.raises(StoreError, match="no snapshot 'nobody'; the newest are base"):
        api.ingest(store, night1, onto="nobody")
    assert listing(store) == before
    assert api.ingest(store, night1, onto="base")["version"] == 2
    before = listing(store)
    for wrong in ("base", "1"):
        with pytest.raises(StoreError) as refused:
            api.ingest(store, night2, onto=wrong, force=True)
        assert str(refused.value) == (
            f"{night2}: is to follow snapshot 'base' (version 1), but snapshot 'night1' (version 2) is current "
            f"in {store}; nothing was changed"
        )
    assert listing(store) == before
    assert api.ingest(store, night1, onto="base")["unchanged"], "what was done is done"
    assert api.ingest(store, night2, onto="2")["version"] == 3


def test_a_change_that_finds_some_of_what_it_deletes(tmp_path: Path, store: Path) -> None:
    source = write_changes(tmp_path / "night.changes", deleted=[*movies(1), ("x", "actor", "y")])
    assert api.ingest(store, source)["counts"] == {"already_absent": 1}


@pytest.fixture
def names(tmp_path: Path) -> Path:
    """A store of names that can be misspelt."""
    people = [(f"film {word}", "directed by", f"{word} rossi") for word in ("alpha", "bravo", "delta", "gamma")]
    api.ingest(tmp_path / "store", write_tsv(tmp_path / "base.tsv", people))
    return tmp_path / "store"


def test_new_labels_that_look_misspelt_are_told(tmp_path: Path, names: Path) -> None:
    night = [("film alpha", "directd by", "delta rosi"), ("film alpha", "written by", "P17"), ("fim bravo", "r", "x")]
    report = api.ingest(names, write_changes(tmp_path / "night.changes", night))
    assert report["misspellings"] == {
        "total": 2,
        "relations": [{"label": "directd by", "nearest": "directed by"}],
        "entities": [{"label": "delta rosi", "nearest": "delta rossi"}],
        "not_compared": 0,
    }
    again = api.ingest(names, tmp_path / "night.changes")
    assert (again["unchanged"], again["misspellings"]["total"]) == (True, 0)


def test_strict_refuses_what_looks_misspelt(tmp_path: Path, names: Path) -> None:
    night = write_changes(tmp_path / "night.changes", [("film alpha", "directd by", "delta rosi")])
    before = listing(names)
    with pytest.raises(DkgeError) as refused:
        api.ingest(names, night, strict=True)
    assert str(refused.value) == (
        f"{night}: new relation 'directd by' (nearest: 'directed by') and 1 more. If that is right, leave out --strict"
    )
    assert listing(names) == before
    with pytest.raises(UsageError, match="--force takes what looks wrong and --strict refuses it"):
        api.ingest(names, night, strict=True, force=True)
    good = write_changes(tmp_path / "good.changes", [("film alpha", "written by", "somebody")])
    assert api.ingest(names, good, strict=True)["version"] == 2


def test_labels_of_a_first_snapshot_are_not_compared(tmp_path: Path) -> None:
    source = write_tsv(tmp_path / "base.tsv", [("film", "directed by", "x"), ("film", "directd by", "y")])
    assert api.ingest(tmp_path / "store", source, strict=True)["misspellings"]["total"] == 0


def test_many_new_labels_are_compared_in_part(tmp_path: Path, names: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those with the fewest triples first."""
    monkeypatch.setattr(guards, "MOST_COMPARED", 3)
    often = [("delta rosi", "directed by", f"film {i}") for i in range(9)]
    once = [("film alpha", "directed by", "gamma rosi")]
    report = api.ingest(names, write_changes(tmp_path / "night.changes", once + often))
    assert report["misspellings"]["entities"] == [{"label": "gamma rosi", "nearest": "gamma rossi"}]
    assert report["misspellings"]["not_compared"] == 8


FEW = [("a", "likes", "b"), ("b", "likes", "c"), ("c", "hates", "a"), ("a", "hates", "c")]
RARE = ("c", "ignores", "b")


@pytest.mark.parametrize(
    ("first", "rest", "told"),
    [
        (("Film", "Beziehung", "Person"), movies(40), True),
        (("Film", "Beziehung", "person1"), movies(40), False),
        (None, movies(40), False),
        (("Film", "Beziehung", "Person"), FEW, True),
        (("Film", "Beziehung", "Person"), [*FEW, RARE], False),
        (("Film", "Beziehung", "Person"), [*FEW, ("a", "likes", "Film")], False),
    ],
)
def test_a_first_line_that_may_be_a_header_is_told(
    tmp_path: Path, first: Labelled | None, rest: list[Labelled], told: bool
) -> None:
    source = write_tsv(tmp_path / "base.tsv", [*([first] if first else []), *rest])
    counts = api.ingest(tmp_path / "store", source)["counts"]
    notice = "first lines that may be a header and were taken for triples (if so, ingest again with --columns {})"
    assert (notice.format("Film,Beziehung,Person") in counts) == told
    assert any("header" in key for key in counts) == told
