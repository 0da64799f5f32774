"""What a worker uses of its machine: threads, device, and how freed memory is kept."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

import torch

from dkge_dist.kernels.jit import set_threads
from dkge_dist.types import UsageError
from dkge_dist.waiting import quiet_torch

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Names of settings of glibc's `mallopt`."""
KEPT = 1 << 30


def keep_freed_memory() -> None:
    """Keep freed memory for the next batch instead of giving it back to the system, from now on, where glibc can.

    Every step allocates and frees the same few arrays of megabytes. The C library returns such memory at once, and
    getting it anew costs a page fault for every 4 KB: at batch 500 a quarter of the whole step.
    """
    with suppress(OSError, AttributeError):
        library = ctypes.CDLL(None)
        for name in (MMAP_THRESHOLD, TRIM_THRESHOLD):
            library.mallopt(name, KEPT)


def use_machine(threads: int, device: str) -> torch.device:
    """Set the threads (0: all cores) and how memory is kept, and resolve the device (`auto`: a GPU if there is one).

    On a CPU results then follow from the seed alone, to the bit.
    """
    keep_freed_memory()
    quiet_torch()
    if threads:
        # A model brings the threads that it was learnt with, maybe on a larger machine.
        threads = min(threads, os.cpu_count() or 1)
        set_threads(threads)
        torch.set_num_threads(threads)
    name = device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda"):
        number = int(name.partition(":")[2] or 0)
        if number >= torch.cuda.device_count():
            raise UsageError(f"device={device}: this machine has {torch.cuda.device_count()} GPUs")
    # On several threads torch adds up the gradients of gathered rows in any order: two runs would differ in bits.
    # (`use_deterministic_algorithms` does the same, but imports torch's compiler first, which takes seconds.)
    torch.set_deterministic_debug_mode("error" if name == "cpu" else "default")
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # set by a property
    return torch.device(name)
