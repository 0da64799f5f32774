"""Are row numbers within a table? In: rows as they were received. Out: the place of the first one that is not."""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import kernel
from dkge_dist.types import Array


@kernel
def first_outside(rows: Array, size: int) -> int:
    """Where the first of some int32 rows stands that is negative or not below `size`; -1 if there is none.

    The first loop has no exit, so that it is vectorised; unsigned, one maximum finds both kinds.
    """
    largest = np.uint32(0)
    for i in range(rows.shape[0]):
        largest = max(largest, np.uint32(rows[i]))
    if rows.shape[0] == 0 or largest < size:
        return -1
    for i in range(rows.shape[0]):
        if rows[i] < 0 or rows[i] >= size:
            return i
    return -1
