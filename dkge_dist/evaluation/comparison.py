"""What can be told from noise: means of reciprocal ranks with their 99% intervals, and paired differences. Pure.

A triple counts once, by the mean of the reciprocal ranks of its two ends: these are no two independent measurements.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dkge_dist.ask.ranks import Ranks
from dkge_dist.types import Array, DkgeError

CONFIDENCE_99 = 2.576
"""Standard errors on either side of a mean that hold 99% of a normal distribution."""
FEW = 30
"""With fewer triples a mean is not near enough to normal, and nothing can be told."""


class Estimate(NamedTuple):
    """A mean with its standard error, over so many triples."""

    mean: float
    error: float
    triples: int

    @staticmethod
    def of(values: Array) -> Estimate:
        """The mean of values between 0 and 1, or of differences of such."""
        count = values.shape[0]
        # One value says nothing of its variance, but between 0 and 1 no standard deviation is above one half.
        deviation = float(values.std(ddof=1)) if count > 1 else 0.5
        return Estimate(float(values.mean()), deviation / math.sqrt(count), count)

    def minus(self, other: Estimate) -> Estimate:
        """The difference of two means that were measured apart. The fewer triples say how much can be told."""
        triples = min(self.triples, other.triples)
        return Estimate(self.mean - other.mean, math.hypot(self.error, other.error), triples)

    @property
    def low(self) -> float:
        """The lower end of the 99% interval."""
        return self.mean - CONFIDENCE_99 * self.error

    @property
    def high(self) -> float:
        """The upper end of the 99% interval."""
        return self.mean + CONFIDENCE_99 * self.error

    @property
    def can_be_told(self) -> bool:
        """Are there enough triples for the interval to mean something?"""
        return self.triples >= FEW


def weighted(estimates: list[Estimate], weights: list[int]) -> Estimate:
    """The mean over several groups, each of which stands for as many triples as its weight says."""
    shares = [weight / sum(weights) for weight in weights]
    mean = sum(share * group.mean for share, group in zip(shares, estimates, strict=True))
    error = math.hypot(*(share * group.error for share, group in zip(shares, estimates, strict=True)))
    return Estimate(mean, error, sum(group.triples for group in estimates))


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
