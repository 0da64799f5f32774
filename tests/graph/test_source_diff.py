"""Sources as rows, and as diffs: a snapshot and the change file of a night lead to the same snapshot."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.holdout import HeldOut
from dkge_dist.graph.source_diff import SWAPPED_MINIMUM, Encoded, SnapshotDiff, columns_look_swapped, encode
from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import Rejects, SourceError
from dkge_dist.graph.sources.delimited import ChangeSource, TsvSource
from dkge_dist.types import Split, Triples
from tests.graphs import Chain, Labelled, alive, labelled, movies, write_changes, write_tsv
from tests.strategies import to_list, to_triples


def names() -> tuple[Dictionary, Dictionary]:
    return Dictionary(noun="entity"), Dictionary(noun="relation")


def test_triples_of_every_split_in_file_order(tmp_path: Path) -> None:
    by_split = {Split.TRAIN: [A, B, A], Split.VALID: [C], Split.TEST: [B]}
    paths = {split: write_tsv(tmp_path / f"{split.label}.tsv", by_split[split]) for split in Split}
    known = names()
    encoded = encode(TsvSource(tmp_path, files=paths), *known, Rejects())
    assert encoded.count == 5
    assert encoded.deleted.tolist() == []
    for split in Split:
        assert labelled(encoded.splits[split].take(slice(2)), known) == set(by_split[split])
    assert to_list(encoded.splits[Split.TRAIN]) == [(0, 0, 1), (1, 0, 2), (0, 0, 1)]


def test_deleted_marks_the_lines_of_a_change_file(tmp_path: Path) -> None:
    change = write_changes(tmp_path / "night.changes", [A, B], [C])
    encoded = encode(ChangeSource(change), *names(), Rejects())
    assert encoded.deleted.tolist() == [False, False, True]
    assert encoded.splits[Split.TRAIN].count == 3


def test_progress_ends_at_the_size_of_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", 64)
    path = write_tsv(tmp_path / "graph.tsv", movies(60))
    calls: list[tuple[int, int]] = []
    encode(TsvSource(path), *names(), Rejects(), lambda done, total: calls.append((done, total)))
    size = path.stat().st_size
    assert len(calls) > 5
    assert calls == sorted(calls)
    assert calls[-1] == (size, size)


def test_source_without_triples_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "graph.tsv"
    path.write_text("\n\n")
    with pytest.raises(SourceError, match=r"graph\.tsv: no triples in it"):
        encode(TsvSource(path), *names(), Rejects())


def encoded_of(triples: list[tuple[int, int, int]]) -> Encoded:
    return Encoded((to_triples(triples), Triples.empty(), Triples.empty()), np.empty(0, bool))


def test_many_relations_between_few_entities_look_swapped() -> None:
    """(head, tail, relation) read as (head, relation, tail): tails are taken for relations."""
    swapped = encoded_of([(i % 7, i, i % 3) for i in range(SWAPPED_MINIMUM)])
    assert columns_look_swapped(swapped, 0)
    right = encoded_of([(i % 7, i % 3, i) for i in range(SWAPPED_MINIMUM)])
    assert not columns_look_swapped(right, 0)


def test_few_triples_and_known_relations_do_not_look_swapped() -> None:
    few = encoded_of([(i % 7, i, i % 3) for i in range(SWAPPED_MINIMUM - 1)])
    assert not columns_look_swapped(few, 0)
    known = encoded_of([(i % 7, i, i % 3) for i in range(SWAPPED_MINIMUM)])
    assert not columns_look_swapped(known, relations_known=SWAPPED_MINIMUM)


triples = st.tuples(st.sampled_from("abcdefg"), st.sampled_from("rs"), st.sampled_from("abcdefg"))
nights = st.lists(st.lists(triples, max_size=20), min_size=1, max_size=4)
signed = st.lists(st.tuples(st.sampled_from("+-"), triples), max_size=25)

# One example is several snapshots.
examples = settings(max_examples=50)

A, B, C = ("a", "r", "b"), ("b", "r", "c"), ("c", "s", "a")


def summary(chain: Chain, snapshot_diff: SnapshotDiff) -> dict[str, object]:
    """A diff by labels, for rows are not the same in two chains."""
    diff, (entities, relations) = snapshot_diff.diff, chain.names
    return {
        "splits": [
            (labelled(change.added, chain.names), labelled(change.deleted, chain.names)) for change in diff.splits
        ],
        "entities": (set(entities.labels(diff.emerging_entities)), set(entities.labels(diff.removed_entities))),
        "relations": (set(relations.labels(diff.emerging_relations)), set(relations.labels(diff.removed_relations))),
    }


def changes_between(old: set[Labelled], new: set[Labelled]) -> list[tuple[str, Labelled]]:
    return [("+", triple) for triple in sorted(new - old)] + [("-", triple) for triple in sorted(old - new)]


@examples
@given(nights, st.integers(0, 3), st.integers(0, 3))
def test_snapshots_and_change_files_give_the_same_diff(nights: list[list[Labelled]], valid: int, test: int) -> None:
    full, change = Chain(), Chain()
    wanted = HeldOut(valid, test)
    old: set[Labelled] = set()
    for night in nights:
        by_full = full.full(night, wanted)
        by_change = change.change(changes_between(old, set(night)), wanted)
        assert summary(full, by_full) == summary(change, by_change)
        assert full.content == change.content
        assert full.state == change.state
        old = set(night)


@examples
@given(nights)
def test_emerging_and_removed_objects(nights: list[list[Labelled]]) -> None:
    chain = Chain()
    known: tuple[set[str], set[str]] = (set(), set())
    for night in nights:
        found = summary(chain, chain.full(night))
        now = {label for head, _, tail in night for label in (head, tail)}, {relation for _, relation, _ in night}
        assert found["entities"] == (now[0] - known[0], known[0] - now[0])
        assert found["relations"] == (now[1] - known[1], known[1] - now[1])
        assert alive(chain.snapshot.entities_alive, chain.names[0]) == now[0]
        assert alive(chain.snapshot.relations_alive, chain.names[1]) == now[1]
        known = now


@examples
@given(st.lists(triples, max_size=12), signed)
def test_last_line_about_a_triple_counts(before: list[Labelled], lines: list[tuple[str, Labelled]]) -> None:
    chain = Chain()
    chain.full(before)
    counts = chain.change(lines).counts
    expected, last = set(before), dict[Labelled, str]()
    for sign, triple in lines:
        last[triple] = sign
        (expected.add if sign == "+" else expected.discard)(triple)
    assert chain.state[Split.TRAIN] == expected
    assert counts["duplicates"] == len(lines) - len(last)
    assert counts["already_present"] == sum(sign == "+" and triple in before for triple, sign in last.items())
    assert counts["already_absent"] == sum(sign == "-" and triple not in before for triple, sign in last.items())


def test_zero_counts_are_left_out() -> None:
    chain = Chain()
    assert chain.full([A, B, A, A]).counts == {"duplicates": 2}
    assert chain.full([A, B]).counts == {}
    assert chain.change([("+", A), ("-", C), ("+", C), ("-", C)]).counts == {
        "already_present": 1,
        "already_absent": 1,
        "duplicates": 2,
    }


@examples
@given(st.lists(triples, min_size=1, max_size=20), st.randoms())
def test_order_and_duplicates_make_no_difference(night: list[Labelled], random: object) -> None:
    chain = Chain()
    chain.full(night)
    content = chain.content
    shuffled = night + night[: len(night) // 2]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    again = chain.full(shuffled)
    assert again.diff.is_empty
    assert chain.content == content
    fresh = Chain()
    fresh.full(shuffled)
    assert fresh.content == content


def test_given_splits_are_kept_and_leaks_counted() -> None:
    chain = Chain()
    given = {Split.TRAIN: [A, B, C], Split.VALID: [B], Split.TEST: [C, A, A]}
    counts = chain.splits(given).counts
    assert chain.state == {split: set(triples) for split, triples in given.items()}
    assert counts == {"duplicates": 1, "valid_in_train": 1, "test_in_train": 2}


def test_change_finds_triples_in_every_split() -> None:
    chain = Chain()
    other = ("a", "s", "c")
    chain.splits({Split.TRAIN: [A, B, other], Split.VALID: [C, A]})
    counts = chain.change([("+", C), ("-", A)]).counts
    assert counts == {"already_present": 1}
    assert chain.state == {Split.TRAIN: {B, other}, Split.VALID: {C}, Split.TEST: set()}


def test_returning_objects_keep_their_rows_and_emerge_again() -> None:
    chain = Chain()
    chain.full([A, B])
    rows = chain.names[0].labels(chain.snapshot.diff.emerging_entities)
    chain.full([B])
    back = chain.full([A, B])
    assert summary(chain, back)["entities"] == ({"a"}, set())
    assert chain.names[0].labels(chain.snapshot.diff.emerging_entities) == rows
    assert len(chain.names[0]) == 3


def test_content_knows_splits_and_directions() -> None:
    def content(splits: dict[Split, list[Labelled]]) -> str:
        chain = Chain()
        chain.splits(splits)
        return chain.content

    contents = [
        content({Split.TRAIN: [A, B]}),
        content({Split.TRAIN: [A], Split.VALID: [B]}),
        content({Split.TRAIN: [A], Split.TEST: [B]}),
        content({Split.TRAIN: [B], Split.VALID: [A]}),
        content({Split.TRAIN: [("b", "r", "a"), B]}),
        content({Split.TRAIN: [("a", "b", "r"), B]}),
        content({Split.TRAIN: [A]}),
        content({}),
    ]
    assert len(set(contents)) == len(contents)
