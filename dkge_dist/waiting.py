"""How idle threads wait. Numba and torch have a pool each, and one that spins takes the cores from the other.

OpenMP reads how threads are to wait when its library is loaded: it is said before. Where torch came first, its library
(libgomp) is told otherwise: it spins for some milliseconds only while its threads are no more than the processors. So
a thread of ours starts a pool of its own and then sleeps; with more threads than processors libgomp spins for about a
microsecond. What torch computes, and on how many threads, stays the same.
"""

from __future__ import annotations

import os
import sys
import threading

POLICY = "OMP_WAIT_POLICY"
MOST_PARKED = 8
ENOUGH = 1 << 20
"""Numbers that torch adds on all of its threads."""

_torch_may_spin = False
_parking = threading.Lock()


def sleep_while_waiting() -> None:
    """Say how threads are to wait. Called when the package is imported."""
    global _torch_may_spin
    _torch_may_spin = "torch" in sys.modules and POLICY not in os.environ
    os.environ.setdefault(POLICY, "PASSIVE")


def quiet_torch() -> None:
    """Keep the threads of torch from spinning if it was imported before. Costs a pool of threads that sleep."""
    global _torch_may_spin
    with _parking:
        if not _torch_may_spin:
            return
        _torch_may_spin = False
        import torch

        threads = torch.get_num_threads()
        if threads < 2:
            return
        processors = len(os.sched_getaffinity(0))
        for _ in range(min(MOST_PARKED, max(1, -(-(processors + 1 - threads) // (threads - 1))))):
            started = threading.Event()
            threading.Thread(target=_park, args=(started,), name="dkge-parked", daemon=True).start()
            started.wait()


def _park(started: threading.Event) -> None:
    import torch

    torch.ones(ENOUGH).add_(1)
    started.set()
    threading.Event().wait()
