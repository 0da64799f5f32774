"""How all kernels are compiled: without the GIL, cached on disk, and without leave to reorder sums (see `sums`).

The thread-safe threading layer is required, because the prefetcher runs kernels beside the training thread: numba's
fallback layer aborts the process when two Python threads run parallel kernels at once.

Caution: inside `prange`, numba silently loses a write through a field of a tuple (`out.head[i] = ...`). Take the array
out of the tuple before the loop.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
import numpy as np
from numba import njit, prange

from dkge_dist.types import Array

__all__ = [
    "as_readonly",
    "estimate",
    "inlined",
    "kernel",
    "load_minimal",
    "parallel_kernel",
    "prange",
    "set_threads",
    "subkernel",
    "threads",
]

F = TypeVar("F", bound=Callable[..., Any])

_KERNEL_IMPORT = re.compile(r"^from dkge_dist\.kernels\.([\w.]+) import", re.MULTILINE)

numba.config.THREADING_LAYER = "threadsafe"  # type: ignore[attr-defined]


def kernel(function: F) -> F:
    """A sequential kernel."""
    return _compiled(function)


def subkernel(function: F) -> F:
    """A function that kernels call, and Python does not; LLVM inlines it where that pays."""
    return _compiled(function)


def inlined(function: F) -> F:
    """A subkernel that is always inlined: a call that passes arrays takes as long as a sum of a few rows."""
    return _compiled(function, forceinline=True)


def estimate(function: F) -> F:
    """The same, and it may add in any order: for sums whose error its caller allows for."""
    return _compiled(function, forceinline=True, fastmath={"reassoc", "nsz", "contract"})


def parallel_kernel(function: F) -> F:
    """A kernel whose outer `prange`, over independent rows, runs on all threads."""
    return _compiled(function, parallel=True)


def _compiled(function: F, **flags: Any) -> F:
    """Compile at the first call, cached in a folder named by a digest of all sources that the kernel is made of.

    Numba notices when the file of a kernel changes, but not the file of a subkernel compiled into it: after an upgrade
    it would run old code. With the digest in the name, no entry of the cache can be stale.
    """
    before = numba.config.CACHE_DIR  # type: ignore[attr-defined]
    numba.config.CACHE_DIR = _cache_folder(Path(function.__code__.co_filename))  # type: ignore[attr-defined]
    try:
        return cast(F, njit(cache=True, nogil=True, **flags)(function))
    finally:
        numba.config.CACHE_DIR = before  # type: ignore[attr-defined]


@cache
def _cache_folder(module: Path) -> str:
    digest = hashlib.sha256()
    for source in sorted(_sources(module)):
        digest.update(source.read_bytes())
    chosen = os.environ.get("NUMBA_CACHE_DIR")
    here = module.parent / "__pycache__"
    if chosen is None and not os.access(here if here.exists() else module.parent, os.W_OK):
        chosen = str(Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dkge_dist")
    return str(Path(chosen or here) / f"{module.stem}-{digest.hexdigest()[:16]}")


@cache
def _sources(module: Path) -> frozenset[Path]:
    """A kernel module and all kernel modules that it imports."""
    found = {module}
    for name in _KERNEL_IMPORT.findall(module.read_text(encoding="utf-8")):
        found |= _sources((Path(__file__).parent / name.replace(".", "/")).with_suffix(".py"))
    return frozenset(found)


def as_readonly(array: Array, dtype: Any = None) -> Array:
    """A contiguous read-only view (or copy) of an array, as input of a kernel.

    Numba compiles a kernel for each combination of types, and writable, read-only and strided arrays are three types.
    With all inputs in this one form, every kernel is compiled once.
    """
    view = np.ascontiguousarray(array, dtype).view()
    view.flags.writeable = False
    return view


def load_minimal() -> None:
    """Load what numba needs of itself for arrays, and no more. For processes that are ours alone and answer at once.

    Numba looks for BLAS by importing scipy.linalg, a fifth of a second at every start, and for C functions by importing
    cffi, which builds a parser of C. No kernel needs either; numba takes them for not installed.
    """
    hidden = [name for name in ("scipy.linalg", "cffi") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]
    try:
        import numba.core.typing.cffi_utils
        import numba.np.arraymath  # noqa: F401
    finally:
        for name in hidden:
            del sys.modules[name]


def set_threads(count: int) -> None:
    """Use `count` threads in parallel kernels (at most as many as numba started with)."""
    limit = numba.config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
    numba.set_num_threads(min(count, limit))


def threads() -> int:
    """Number of threads that parallel kernels use now."""
    return int(numba.get_num_threads())
