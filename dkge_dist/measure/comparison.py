"""Ranks of validation triples, and paired differences of two models on the same triples. Pure.

A triple counts once, by the mean of the reciprocal ranks of its two ends: these are no two independent measurements.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dkge_dist.ask.ranks import Ranks
from dkge_dist.records import Estimate
from dkge_dist.types import Array, DkgeError


def reciprocal_ranks(ranks: Ranks) -> Array:
    """Of every triple, the mean over its two ends."""
    values: Array = (1 / ranks.tail + 1 / ranks.head) / 2
    return values


class PairedDifference(NamedTuple):
    """MRR of two models on the triples that both ranked: `change` is now minus before, triple by triple."""

    before: float
    now: float
    change: Estimate


@dataclass(frozen=True)
class RankedTriples:
    """The reciprocal rank of every triple of a sample, by a hash of its labels (ascending).

    `max_candidates` bounds what they were ranked among: only ranks among as many can be compared.
    """

    hashes: Array
    reciprocal: Array
    max_candidates: int

    @staticmethod
    def of(hashes: Array, ranks: Ranks, max_candidates: int) -> RankedTriples:
        """From ranks in any order of triples."""
        order = np.argsort(hashes)
        return RankedTriples(hashes[order], reciprocal_ranks(ranks)[order].astype(np.float32), max_candidates)

    def to_arrays(self) -> dict[str, Array]:
        """As a model version keeps it."""
        limit = np.array([self.max_candidates])
        return {"hashes": self.hashes, "reciprocal": self.reciprocal, "max_candidates": limit}

    @staticmethod
    def from_arrays(arrays: Mapping[str, Array]) -> RankedTriples:
        """As it was kept."""
        try:
            hashes, reciprocal, (limit,) = (arrays[name] for name in ("hashes", "reciprocal", "max_candidates"))
        except (KeyError, ValueError):
            raise DkgeError(f"ranks of validation triples are damaged: arrays {', '.join(sorted(arrays))}") from None
        if hashes.shape != reciprocal.shape or hashes.ndim != 1:
            raise DkgeError(f"ranks of validation triples are damaged: {hashes.shape} and {reciprocal.shape}")
        return RankedTriples(hashes, reciprocal, int(limit))

    def since(self, before: RankedTriples) -> PairedDifference | None:
        """What changed on the common triples; None if there are none, or candidates were others."""
        if self.max_candidates != before.max_candidates:
            return None
        _, here, there = np.intersect1d(self.hashes, before.hashes, assume_unique=True, return_indices=True)
        if not here.shape[0]:
            return None
        now, then = self.reciprocal[here].astype(np.float64), before.reciprocal[there].astype(np.float64)
        return PairedDifference(float(then.mean()), float(now.mean()), Estimate.of(now - then))
