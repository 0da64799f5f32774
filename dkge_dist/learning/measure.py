"""What tells a learner how good it is. Who ranks stands beside learning, not below it, and is handed in."""

from __future__ import annotations

from typing import Protocol

from dkge_dist.types import Array


class Measure(Protocol):
    """Validation: the entities whose o* it needs, and what it makes of them."""

    rows: Array

    def measure(self, entities: Array, relations: Array) -> dict[str, float]:
        """Metrics by o* of `rows` and of all relations."""
