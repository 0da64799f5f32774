"""Start values of emerging objects: at random, as in learning from scratch."""

from __future__ import annotations

import numpy as np

from dkge_dist.online.plan import UpdatePlan
from dkge_dist.tables.shard import TRAINED, initial_rows
from dkge_dist.tables.table import Table
from dkge_dist.types import ROW


def random_start(tables: tuple[Table, Table], plan: UpdatePlan, dim: int, scale: float, seed: int) -> None:
    """Write vectors for emerging entities and relations."""
    for kind, (table, objects) in enumerate(zip(tables, (plan.entities, plan.relations), strict=True)):
        rng = np.random.default_rng([seed, 5, kind])
        rows = objects.emerging.astype(ROW)
        for field in TRAINED:
            table.write(field, rows, initial_rows(rows.shape[0], dim, rng, scale))
