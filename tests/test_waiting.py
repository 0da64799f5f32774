"""Idle threads sleep, whoever is imported first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

MEASURE = """
import json, os, sys, threading, time
{imports}
import torch
numbers = torch.ones(1 << 20)
def processor_time():
    # A pool that spins does so for milliseconds after every operation.
    began = time.process_time()
    for _ in range(60):
        numbers.add_(1)
        time.sleep(0.004)
    return time.process_time() - began
before = processor_time()
from dkge_dist.learn.machine import use_machine
use_machine(0, "cpu")
use_machine(0, "cpu")
parked = [thread.name for thread in threading.enumerate()].count("dkge-parked")
print(json.dumps(dict(before=before, after=processor_time(), parked=parked, threads=torch.get_num_threads(),
                      policy=os.environ.get("OMP_WAIT_POLICY"))))
"""


def measured(imports: str, **more: str) -> dict[str, Any]:
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"} | more
    command = [sys.executable, "-W", "error", "-c", MEASURE.format(imports=imports)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200, check=True)
    assert done.stderr == ""
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one processor: torch has no pool")
def test_torch_before_the_package_does_not_spin_either() -> None:
    """No warning, as many threads as before, and once a learner is set up waiting takes hardly any time."""
    found = measured("import torch, dkge_dist")
    assert found["parked"] >= 1
    assert found["threads"] == os.cpu_count() or found["threads"] > 1
    assert found["after"] < max(found["before"] / 2, 0.1)


@pytest.mark.parametrize(
    ("imports", "policy"), [("import dkge_dist", {}), ("import torch, dkge_dist", {"OMP_WAIT_POLICY": "PASSIVE"})]
)
def test_no_thread_is_parked_where_the_policy_was_heard(imports: str, policy: dict[str, str]) -> None:
    found = measured(imports, **policy)
    assert (found["parked"], found["policy"]) == (0, "PASSIVE")
    assert found["after"] < 0.2


def test_a_policy_of_the_user_is_kept() -> None:
    script = "import os, dkge_dist; print(os.environ['OMP_WAIT_POLICY'])"
    command = [sys.executable, "-c", script]
    environment = {**os.environ, "OMP_WAIT_POLICY": "ACTIVE"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=200, check=True)
    assert done.stdout == "ACTIVE\n"
