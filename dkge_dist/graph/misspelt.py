"""New labels that look like a known one misspelt. In: new rows of a dictionary. Out: pairs of labels. Pure.

Every spelling one edit away from a new label is looked up among the known ones, so that the cost follows the new labels
and not the known ones. An edit is a letter left out, added or replaced, or two neighbours swapped. What it takes for a
hit to be reported is `is_misspelling`: `P17` and `P19`, or `Henry IV` and `Henry V`, are both right.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.labels import Labels
from dkge_dist.types import Array

MIN_LETTERS = 4
"""Of the word that differs, on both sides: shorter ones are rather other words."""

MAX_LENGTH = 80
SEPARATORS = " _-.'"
BATCH = 500
_WORD = re.compile(r"[^\W_]+")


class Misspelling(NamedTuple):
    """A new label and the known one it looks like."""

    label: str
    nearest: str


def find_misspellings(names: Dictionary, known: int, rows: Array) -> list[Misspelling]:
    """Which of the labels of `rows` look like one of the first `known` rows; in the order of `rows`."""
    found: list[Misspelling] = []
    for start in range(0, rows.shape[0], BATCH):
        labels = [label for label in names.labels(rows[start : start + BATCH]) if _has_long_word(label)]
        spellings = [list(edits(label)) for label in labels]
        flat = Labels.from_strings(spelling for some in spellings for spelling in some)
        near = names.lookup(flat)
        ends = np.cumsum([len(some) for some in spellings])
        hits = np.flatnonzero((near >= 0) & (near < known))
        for hit, owner in zip(hits.tolist(), np.searchsorted(ends, hits, "right").tolist(), strict=True):
            pair = Misspelling(labels[owner], flat[hit])
            if is_misspelling(*pair) and (not found or found[-1].label != pair.label):
                found.append(pair)
    return found


def _has_long_word(label: str) -> bool:
    """Identifiers have digits; what they differ in is no misspelling."""
    if len(label) > MAX_LENGTH:
        return False
    return any(len(word) >= MIN_LETTERS and word.isalpha() for word in _WORD.findall(label))


def edits(label: str) -> Iterator[str]:
    """Spellings one edit away, with the letters of plain English and of the label itself."""
    lower = sorted({*string.ascii_lowercase, *(c.lower() for c in label if c.isalpha())})
    for i, letter in enumerate(label):
        before, after = label[:i], label[i + 1 :]
        yield before + after
        if after and letter != after[0]:
            yield before + after[0] + letter + after[1:]
        replacing = [c.upper() for c in lower] if letter.isupper() else lower
        others = (letter.swapcase(), *SEPARATORS) if letter.isalpha() or letter in SEPARATORS else ()
        for other in (*replacing, *others):
            if other != letter:
                yield before + other + after
    for i in range(len(label) + 1):
        for letter in (*lower, *SEPARATORS):
            yield label[:i] + letter + label[i:]


def is_misspelling(label: str, other: str) -> bool:
    """Of two labels one edit apart: is the difference in long words, or in what separates words?"""
    ahead = _common(label, other)
    behind = _common(label[ahead:][::-1], other[ahead:][::-1])
    words = []
    for text in (label, other):
        changed = text[ahead : len(text) - behind]
        if any(c.isdigit() for c in changed):
            return False
        touching = [w for w in _WORD.finditer(text) if w.end() >= ahead and w.start() <= len(text) - behind]
        words.append(("".join(w.group() for w in touching), changed))
    separators_alone = not any(c.isalnum() for _, changed in words for c in changed)
    if separators_alone:
        return all(sum(c.isalpha() for c in text) > MIN_LETTERS for text in (label, other))
    return all(len(word) >= MIN_LETTERS and word.isalpha() for word, _ in words)


def _common(one: str, other: str) -> int:
    """How many characters are the same at the beginning."""
    pairs = zip(one, other, strict=False)
    return next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
