"""A checksum of the content of a snapshot: independent of row numbers, so of the store, and additive over changes."""

from __future__ import annotations

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import Diff
from dkge_dist.kernels.hashing import triple_hashes
from dkge_dist.types import Array, Split, Triples

LANES = 2
_SEED = 0x636F6E74656E74
EMPTY_CONTENT = "0" * 16 * LANES
"""The content of a snapshot without triples."""


def hash_triples(triples: Triples, seed: int, entities: Dictionary, relations: Dictionary) -> Array:
    """A 64-bit hash of every triple, of its labels and not of its rows."""
    head, tail = entities.digests_of(triples.head), entities.digests_of(triples.tail)
    return triple_hashes(seed, head, relations.digests_of(triples.relation), tail)


def content_of(triples: Triples, split: Split, entities: Dictionary, relations: Dictionary) -> Array:
    """Sums of the hashes of triples in independent lanes; the sums of disjoint sets add up to that of their union."""
    seeds = [_SEED + LANES * split + lane for lane in range(LANES)]
    sums = [hash_triples(triples, seed, entities, relations).sum(dtype=np.uint64) for seed in seeds]
    return np.array(sums, np.uint64)


def content_after(content: str, diff: Diff, entities: Dictionary, relations: Dictionary) -> str:
    """The content after `diff`, computed from the change alone."""
    lanes = np.array([int(content[16 * i : 16 * i + 16], 16) for i in range(LANES)], np.uint64)
    for split in Split:
        change = diff.splits[split]
        lanes = lanes + content_of(change.added, split, entities, relations)
        lanes = lanes - content_of(change.deleted, split, entities, relations)
    return "".join(f"{int(lane):016x}" for lane in lanes)
