"""When to stop: a metric that has not improved for some validations. Pure."""

from __future__ import annotations

from typing import NamedTuple

Metrics = dict[str, float]


class EarlyStopping(NamedTuple):
    """By a validation metric, larger is better. `patience` 0 never stops."""

    metric: str
    patience: int

    def improved(self, found: Metrics, best: Metrics) -> bool:
        """Is a validation better than the best before? Where nothing can be measured, the newest model is the best."""
        return not found or not best or found[self.metric] > best[self.metric]

    def is_over(self, validations_since_best: int) -> bool:
        """Have there been enough validations without a better one?"""
        return 0 < self.patience <= validations_since_best
