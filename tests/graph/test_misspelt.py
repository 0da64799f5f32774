"""Labels that look misspelt: found as comparing all pairs finds them, and not said of what is another label."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rapidfuzz.distance import OSA

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.labels import Labels
from dkge_dist.graph.misspelt import Misspelling, find_misspellings, is_misspelling


@pytest.mark.parametrize(
    ("label", "known"),
    [
        ("directd by", "directed by"),
        ("direccted by", "directed by"),
        ("directed bye", None),
        ("dirceted by", "directed by"),
        ("Directed by", "directed by"),
        ("directed_by", "directed by"),
        ("directed by ", "directed by"),
        ("directedby", "directed by"),
        ("<http://x/directdBy>", "<http://x/directedBy>"),
        ("Maria Rosi", "Maria Rossi"),
        ("Amélie", "Amelie"),
        ("films", "film"),
    ],
)
def test_what_looks_misspelt(label: str, known: str | None) -> None:
    assert find(["directed by", "<http://x/directedBy>", "Maria Rossi", "Amelie", "film"], [label]) == (
        [Misspelling(label, known)] if known else []
    )


@pytest.mark.parametrize(
    ("label", "known"),
    [
        ("P17", "P19"),
        ("tt0000028", "tt0000029"),
        ("actor1", "actor2"),
        ("/m/0gvqq", "/m/0gvqr"),
        ("vitamin A", "vitamin B"),
        ("Henry IV", "Henry V"),
        ("Jan Smith", "Jana Smith"),
        ("<http://x/a>", "<http://x/b>"),
        ("2001", "2011"),
        ("cat", "cart"),
    ],
)
def test_what_is_another_label(label: str, known: str) -> None:
    assert find([known], [label]) == []


def find(known: list[str], new: list[str]) -> list[Misspelling]:
    names = Dictionary()
    names.encode(Labels.from_strings(known))
    names = Dictionary(names.grown)
    rows = names.encode(Labels.from_strings(new))
    return find_misspellings(names, len(known), rows)


words = st.text("abc ", min_size=4, max_size=7)


@given(st.lists(words, min_size=1, max_size=8, unique=True), st.lists(words, min_size=1, max_size=4, unique=True))
def test_as_comparing_all_pairs(known: list[str], new: list[str]) -> None:
    new = [label for label in new if label not in known]
    expected = {
        label
        for label in new
        if any(OSA.distance(label, other) == 1 and is_misspelling(label, other) for other in known)
        and any(len(word) > 3 for word in label.split())
    }
    found = find(known, new)
    assert {pair.label for pair in found} == expected
    assert all(OSA.distance(*pair) == 1 for pair in found)


def test_new_labels_are_not_compared_with_each_other() -> None:
    assert find(["something"], ["directed by", "directd by"]) == []
