"""The one place that decides how kernels are compiled.

All of them release the GIL and are cached on disk. `parallel_kernel` is for loops over independent rows (`prange`).
The thread-safe request matters: numba's fallback layer aborts the process when two Python threads run kernels at
once, which the batch prefetcher does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
from numba import njit, prange

from dkge_dist.types import Array

__all__ = ["frozen", "subkernel", "kernel", "parallel_kernel", "prange", "set_threads", "threads"]

F = TypeVar("F", bound=Callable[..., Any])

numba.config.THREADING_LAYER = "threadsafe"


def kernel(function: F) -> F:
    """A sequential kernel."""
    return njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]


def subkernel(function: F) -> F:
    """A step of kernels, never called from Python; LLVM inlines it where that pays."""
    return njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]


def parallel_kernel(function: F) -> F:
    """A kernel whose outer `prange` runs on all threads."""
    return njit(cache=True, nogil=True, parallel=True)(function)  # type: ignore[no-any-return]


def frozen(array: Array, dtype: Any = None) -> Array:
    """A contiguous read-only view (or copy) for a kernel's input.

    Numba compiles a kernel once per type, and writable, read-only and strided arrays are three types: inputs that all
    come in as this one keep every kernel at a single cached signature.
    """
    view = np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view


def set_threads(count: int) -> None:
    """Use `count` threads in parallel kernels (at most as many as numba started with)."""
    numba.set_num_threads(min(count, numba.config.NUMBA_NUM_THREADS))


def threads() -> int:
    """How many threads parallel kernels use now."""
    return int(numba.get_num_threads())
