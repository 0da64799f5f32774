"""θ: how strongly each feature counts, by side and relation. What a fit gives, and what a model version keeps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dkge_dist.evidence.features import FEATURES
from dkge_dist.types import Array

NOWHERE = -1e30
"""No distance is nearer: evidence counts in full everywhere."""


@dataclass(frozen=True)
class EvidenceWeights:
    """`relation_2RJ` by side (0: tails, 1: heads), relation row and feature; `common_2J` for relations beyond it.

    In units of the distance f, so that −f + θ·φ is the score. `scale` is what f was multiplied by in the likelihood:
    scores times it are logits. Below the distance `near` vectors know a triple by heart, and evidence counts less.
    `changed`: train triples that came or went since θ was fitted.
    """

    relation_2RJ: Array
    common_2J: Array
    scale: float
    near: float = NOWHERE
    changed: int = 0

    @staticmethod
    def zeros(relations: int) -> EvidenceWeights:
        """No evidence counts."""
        features = len(FEATURES)
        return EvidenceWeights(np.zeros((2, relations, features), np.float32), np.zeros((2, features), np.float32), 1.0)

    def of(self, relation: Array, asks_tail: Array) -> Array:
        """θ of some questions, one row each."""
        side = np.where(asks_tail, 0, 1)
        known = self.relation_2RJ.shape[1]
        if not known:
            return self.common_2J[side]
        found = self.relation_2RJ[side, np.minimum(relation, known - 1)]
        theta: Array = np.where((relation < known)[:, None], found, self.common_2J[side])
        return theta
