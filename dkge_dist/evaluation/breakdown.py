"""Link prediction by relation, and by how many answers a relation has on either side (1-1, 1-N, N-1, N-N)."""

from __future__ import annotations

from typing import Any

import numpy as np

from dkge_dist.ask.ranks import Ranks, metrics
from dkge_dist.kernels.sets import distinct
from dkge_dist.types import OFFSET, Array, Triples

MANY = 1.5
"""Answers on average from which on a side counts as many."""
CATEGORIES = ("1-1", "1-N", "N-1", "N-N")


def by_relation(ranks: Ranks, triples: Triples) -> dict[int, dict[str, Any]]:
    """Metrics of each relation that has triples, the most frequent first; by relation row."""
    rows, counts = np.unique(triples.relation, return_counts=True)
    found = {}
    for row, count in sorted(zip(rows.tolist(), counts.tolist(), strict=True), key=lambda pair: (-pair[1], pair[0])):
        here = triples.relation == row
        found[row] = {"triples": count, **metrics(ranks.take(here).both)}
    return found


def by_category(ranks: Ranks, triples: Triples, train: Triples) -> dict[str, dict[str, Any]]:
    """Metrics of each category that has triples, also apart for heads and tails. Categories come from train."""
    category = categories(train, int(max(train.relation.max(initial=-1), triples.relation.max(initial=-1))) + 1)
    found = {}
    for number, name in enumerate(CATEGORIES):
        here = category[triples.relation] == number
        if here.any():
            found[name] = {
                "triples": int(here.sum()),
                **metrics(ranks.take(here).both),
                "head": metrics(ranks.head[here]),
                "tail": metrics(ranks.tail[here]),
            }
    return found


def categories(train: Triples, relations: int) -> Array:
    """The category of each relation, as a place in `CATEGORIES` (heads first, then tails)."""
    count = np.bincount(train.relation, minlength=relations)
    heads, tails = (_distinct(train.relation, ends, relations) for ends in (train.head, train.tail))
    many_tails = count / np.maximum(heads, 1) > MANY
    many_heads = count / np.maximum(tails, 1) > MANY
    return 2 * many_heads.astype(np.int8) + many_tails.astype(np.int8)


def _distinct(relation: Array, ends: Array, relations: int) -> Array:
    """How many different ends each relation has."""
    pairs = distinct((relation.astype(OFFSET) << 32) | ends)
    return np.bincount(pairs >> 32, minlength=relations)
