"""How far a training is: what its checkpoints hold beside vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dkge_dist.runtime import CollectiveError


class StoppedError(CollectiveError):
    """Training was asked to stop; a checkpoint was left to go on from."""


class DivergedError(CollectiveError):
    """Training diverged; the last good checkpoint was kept."""


@dataclass(frozen=True)
class TrainProgress:
    """The next batch to learn, what was seen so far, and what was best. The names are those in checkpoints."""

    epoch: int = 0
    batch: int = 0
    epoch_loss: float = 0.0
    seconds: float = 0.0
    evaluations_since_best: int = 0
    best: dict[str, float] = field(default_factory=dict)
    history: list[dict[str, Any]] = field(default_factory=list)
