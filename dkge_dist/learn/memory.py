"""Keep freed memory for the next batch instead of giving it back to the system.

Every step allocates and frees the same few arrays of megabytes. The C library returns such memory at once, and getting
it anew costs a page fault for every 4 KB: at batch 500 a quarter of the whole step.
"""

from __future__ import annotations

import ctypes
from contextlib import suppress

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Names of settings of glibc's `mallopt`."""

KEPT = 1 << 30


def keep_freed_memory() -> None:
    """For this process from now on; does nothing where the C library has no such setting."""
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for name in (MMAP_THRESHOLD, TRIM_THRESHOLD):
            library.mallopt(name, KEPT)
