"""Freed memory is kept: what a step allocates and frees costs page faults once, not every time."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FAULTS = """
import resource, sys
import numpy as np
from dkge_dist.learn.machine import keep_freed_memory

if sys.argv[1] == "kept":
    keep_freed_memory()

def step():
    for _ in range(4):
        np.ones(40 << 20, np.uint8)

step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the setting is one of glibc")
def test_memory_that_is_freed_is_used_again_without_page_faults() -> None:
    faults = {}
    for how in ("given back", "kept"):
        script = [sys.executable, "-c", FAULTS, how]
        done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, timeout=60, check=True)
        faults[how] = int(done.stdout)
    assert faults["kept"] < 0.1 * faults["given back"]
