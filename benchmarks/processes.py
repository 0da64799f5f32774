"""What a benchmark's processes use together: CPU seconds, and memory with shared pages counted once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

TICK = os.sysconf("SC_CLK_TCK")


def family() -> list[int]:
    """This process and all below it: a local Ray's servers and workers are among them."""
    parent = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    found, fresh = [os.getpid()], [os.getpid()]
    while fresh:
        fresh = [process for process, above in parent.items() if above in fresh]
        found += fresh
    return found


def cpu_by_process() -> dict[int, float]:
    """CPU seconds so far of every process of the family."""
    used = {}
    for process in family():
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        used[process] = sum(int(ticks) for ticks in fields[11:13]) / TICK
    return used


def cpu_since(before: dict[int, float], without: Collection[int] = ()) -> float:
    """CPU seconds that the processes alive now have used since `cpu_by_process` told `before`."""
    now = cpu_by_process()
    return sum(used - before.get(process, 0.0) for process, used in now.items() if process not in without)


def pss_bytes() -> int:
    """Of all processes of the family: a page that n of them share counts 1/n in each."""
    total = 0
    for process in family():
        try:
            lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def high_water_bytes(process: int) -> int:
    """The most that one process held so far, by the kernel's own mark; 0 once it has ended.

    What `wait4` tells of a child begins with what its parent held when it was started.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def peak_memory() -> AbstractContextManager[list[int]]:
    """Sample the memory of the family; the list's one number is the highest seen."""
    return _highest(pss_bytes, seconds=1.0)


@contextmanager
def _highest(look: Callable[[], int], seconds: float) -> Iterator[list[int]]:
    """Look every few seconds, at the beginning and at the end; the list's one number is the highest seen."""
    peak, over = [look()], threading.Event()

    def watch() -> None:
        while not over.wait(seconds):
            peak[0] = max(peak[0], look())

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()
        peak[0] = max(peak[0], look())


def measured_command(words: list[str]) -> dict[str, Any]:
    """A `dkge` command in a process of its own: its report, CPU seconds and peak memory."""
    command = [sys.executable, "-m", "dkge_dist.surfaces.cli", *words, "--json"]
    began = time.perf_counter()
    with (
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
        _highest(lambda: high_water_bytes(process.pid), seconds=0.05) as peak,
    ):
        assert process.stdout is not None
        out = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"dkge {words[0]}: exit code {process.returncode}: {out[-500:]}")
    return {
        "report": json.loads(out),
        "seconds": time.perf_counter() - began,
        "cpu_seconds": usage.ru_utime + usage.ru_stime,
        "peak_bytes": peak[0],
    }
