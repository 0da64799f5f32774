"""Do tables fit into the memory of this machine? Asked before anything of them is allocated."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from dkge_dist.tables.initializer import TableStart
from dkge_dist.types import TRAINED, DkgeError, Field

VALUE_BYTES = 4
CGROUP = Path("/sys/fs/cgroup/memory.max")


def refuse_too_large(tables: Sequence[TableStart], available: int | None = None) -> None:
    """DkgeError if the vectors of some tables and their optimizer state need more memory than is available."""
    available = available_memory() if available is None else available
    needed = sum(one.rows * VALUE_BYTES * (one.dim * len(Field) + len(TRAINED)) for one in tables)
    if needed > available:
        largest = max(tables, key=lambda one: one.rows)
        raise DkgeError(
            f"{largest.rows:,} vectors of dimension {largest.dim} do not fit: tables need {needed / 1e9:,.1f} GB, "
            f"this machine has {available / 1e9:,.1f} GB to give; take a smaller model.dim, or --shards on a cluster"
        )


def available_memory() -> int:
    """Bytes that this process could still get: of the machine, and of what a container allows."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        found.append(1024 * int(next(line for line in lines if line.startswith("MemAvailable")).split()[1]))
    with suppress(OSError, ValueError):  # Often there is no limit, which is told as "max".
        found.append(int(CGROUP.read_text(encoding="ascii")))
    return min(found)
