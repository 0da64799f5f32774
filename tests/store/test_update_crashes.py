"""Updates that are killed or find the disk full: a reader sees all of the old version or all of the new."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from tests.graphs import (
    assert_same_vectors,
    assert_sound,
    everything,
    fresh_labels,
    head,
    vectors,
    write_changes,
)
from tests.store.crash_points import STEPS
from tests.store.nights import numbers, store_with_a_night
from tests.store.ready_commands import ReadyCommands

ROOT = Path(__file__).parents[2]

DISTURBED_UPDATE = """
# Learns once. At the first call that changes the disk it goes on in one fork after the other, each on a fresh copy of
# the store, the n-th of which is killed at its n-th such call; then again, with a full disk there. Out: a JSON line for
# each. Kernels run as plain Python, so that no threads are about.
import errno, json, os, shutil, signal, sys
from pathlib import Path
import torch
from dkge_dist.surfaces import api
from tests.store.crash_points import DISK_CALLS, step
folder, killed = Path(sys.argv[1]), True
torch.set_num_threads(1)
real = {name: getattr(os, name) for name in DISK_CALLS}
count = crash = 0
hit = None

def guarded(name):
    def call(*arguments, **options):
        global count, hit
        if crash == 0:
            restore()
            trials()
            install()
        count += 1
        if count == crash:
            (folder / "step").write_text(step(name, arguments, options))
        if count == crash and killed:
            os.kill(os.getpid(), signal.SIGKILL)
        if count == crash and name not in ("unlink", "rmdir"):
            hit = name
            raise OSError(errno.ENOSPC, "No space left on device", "a file")
        return real[name](*arguments, **options)
    return call

def install():
    for name in DISK_CALLS:
        setattr(os, name, guarded(name))

def restore():
    for name in DISK_CALLS:
        setattr(os, name, real[name])

def trials():
    global crash, killed
    for how in ("killed", "full"):
        number, status = 0, None
        while status != 0:
            number += 1
            shutil.rmtree(folder / "store", ignore_errors=True)
            shutil.copytree(folder / "pristine", folder / "store")
            child = os.fork()
            if child == 0:
                crash, killed = number, how == "killed"
                return
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            shutil.move(folder / "store", folder / f"{how}{number}")
            told = {"how": how, "left": str(folder / f"{how}{number}"), "step": (folder / "step").read_text()}
            print(json.dumps({**told, "status": status}), flush=True)
    os._exit(0)

install()
try:
    api.update(folder / "store")
except OSError as error:
    restore()
    assert error.errno == errno.ENOSPC
    os._exit(3)
# A full disk does not mind what is taken away from it.
os._exit(4 if not killed and hit is None and count >= crash else 0)
"""


@pytest.fixture
def store(with_a_night: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(with_a_night, tmp_path / "store"))


@pytest.fixture(scope="module")
def disturbed(with_a_night: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What updates left that were disturbed at every call that changes the disk, and how they ended."""
    folder = tmp_path_factory.mktemp("disturbed")
    shutil.copytree(with_a_night, folder / "pristine")
    shutil.copytree(with_a_night, folder / "store")
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore", "OMP_NUM_THREADS": "1"}
    script = [sys.executable, "-c", DISTURBED_UPDATE, str(folder)]
    done = subprocess.run(script, capture_output=True, text=True, env=environment, timeout=200, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_killed_at_every_call_that_changes_the_disk(with_a_night: Path, disturbed: list[dict[str, Any]]) -> None:
    *crashed, last = [report for report in disturbed if report["how"] == "killed"]
    assert [report["status"] for report in crashed] == [-signal.SIGKILL] * len(crashed)
    assert (last["status"], len(crashed) > 20) == (0, True)
    assert {report["step"] for report in crashed} >= STEPS
    old, new = numbers(with_a_night), numbers(Path(last["left"]))
    assert (old["version"], new["version"]) == (2, 4)
    published, learnt_again, dirty = 0, None, []
    for report in crashed:
        left = Path(report["left"])
        found = numbers(left)
        assert found in (old, new), report
        published += found == new
        assert numbers(left, "2") == old
        dirty += [left] if os.listdir(left / "staging") else []
        again = api.update(left)
        assert (again["version"], again.get("unchanged", False)) == (4, found == new)
        assert_sound(left)
        if found == old:
            learnt_again = learnt_again or vectors(left, 4)
            assert_same_vectors(vectors(left, 4), learnt_again)
    assert 0 < published < len(crashed)
    # What the killed ones left behind goes with the next clearing.
    assert len(dirty) > 20
    assert api.gc(dirty[-1], keep=9, grace_hours=0)["folders"] == 1
    assert os.listdir(dirty[-1] / "staging") == []
    assert_sound(dirty[-1])


def test_a_full_disk_at_every_call_that_changes_it(with_a_night: Path, disturbed: list[dict[str, Any]]) -> None:
    *failed, last = [report for report in disturbed if report["how"] == "full"]
    assert last["status"] == 0
    assert {report["status"] for report in failed} <= {3, 4}
    assert sum(report["status"] == 3 for report in failed) > 20
    old, new = numbers(with_a_night), numbers(Path(last["left"]))
    refused = 0
    for report in failed:
        left = Path(report["left"])
        found = numbers(left)
        # Only if the directory of versions could not be synced any more, the new one is there in spite of the error.
        assert found in (old, new), report
        refused += found == old
        assert not (left / "staging").exists() or os.listdir(left / "staging") == [], report
        assert [name for name in os.listdir(left) if name.startswith(".")] == []
    assert refused >= len(failed) - 4
    for report in failed[:: len(failed) // 3]:
        assert api.update(report["left"])["version"] == 4
        assert_sound(Path(report["left"]))


def test_a_flipped_bit_in_a_delta(store: Path) -> None:
    old = numbers(store)
    api.update(store)
    opened = Store.open(store)
    tables = opened.model_manifest(4).model.entities
    for field in ("joint", "knowledge"):
        (delta,) = tables[field].deltas
        path = opened.storage.part_path(delta.part)
        whole = path.read_bytes()
        for place in (0, len(whole) // 2, len(whole) - 1):
            damaged = bytearray(whole)
            damaged[place] ^= 16
            path.write_bytes(damaged)
            report = api.check(store)
            assert report["ok"] is False
            assert [problem["version"] for problem in report["problems"]] == [4]
            assert f"part {path} is damaged" in report["problems"][0]["problem"]
            assert numbers(store, "2") == old
        path.write_bytes(whole)
    assert_sound(store)


def test_a_delta_that_is_gone_or_cut_short(store: Path) -> None:
    old = numbers(store)
    api.update(store)
    opened = Store.open(store)
    (delta,) = opened.model_manifest(4).model.entities["joint"].deltas
    path = opened.storage.part_path(delta.part)
    whole = path.read_bytes()
    path.write_bytes(whole[:-7])
    for damage in ("truncated or replaced", str(path)):
        with pytest.raises(StoreError, match=damage):
            api.evaluate(store)
        assert any(damage in problem["problem"] for problem in api.check(store)["problems"])
        assert numbers(store, "2") == old
        path.unlink(missing_ok=True)
    api.rollback(store, 3)
    assert numbers(store) == old
    assert api.update(store)["version"] == 6
    assert_sound(store)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("one_thread")
def test_nights_killed_at_random_moments(tmp_path: Path) -> None:
    """The command itself, with its threads, killed a hundred times from the first moment of its work to its last."""
    seed = int(time.time())
    print(f"seed {seed}")
    chance = random.Random(seed)
    pristine = store_with_a_night(tmp_path)
    api.update(pristine)
    commands = ReadyCommands()
    left_at: Counter[int] = Counter()
    store, state, typical, learning, trial = tmp_path / "copy", set(), 0.0, 0.0, -1
    while left_at.total() < 100:
        trial += 1
        if trial % 10 == 0:
            # A history of hundreds of versions would show nothing new, and take long to check.
            shutil.rmtree(store, ignore_errors=True)
            shutil.copytree(pristine, store)
            state = everything(store, "night1")
        come = [
            tuple(label.replace("new", f"new{trial}x") for label in triple) for triple in fresh_labels(trial % 10 + 2)
        ]
        gone = chance.sample(sorted(state), 2)
        night = write_changes(tmp_path / f"night{trial}.changes", come, gone)
        words = ["nightly", str(store), str(night), "--json"]
        before, old = Store.open(store).versions(), numbers(store)
        if not typical:
            shutil.copytree(store, tmp_path / "timed")
            began = time.monotonic()
            commands.start("nightly", str(tmp_path / "timed"), str(night))
            assert commands.end() == 0
            typical = learning = time.monotonic() - began
        running, began = commands.start(*words), time.monotonic()
        ingested = began
        if trial % 2:
            # Ingesting is over in no time: half of them are killed while they learn.
            while not commands.is_over(running) and Store.open(store).versions() == before:
                time.sleep(0.001)
            ingested = time.monotonic()
            moment = ingested + chance.uniform(0, learning)
        else:
            moment = began + chance.uniform(0, typical)
        while not commands.is_over(running) and time.monotonic() < moment:
            time.sleep(0.001)
        ended = time.monotonic()
        os.kill(running, signal.SIGKILL)
        code = commands.end()
        assert code in (0, -signal.SIGKILL)
        if code == 0:
            typical = ended - began
            learning = ended - ingested if trial % 2 else learning
        left = Store.open(store).versions()
        assert left[: len(before)] == before
        new = len(left) - len(before)
        assert new in ((0, 1, 2) if code else (2,))
        if code:
            left_at[new] += 1
        # Who reads now sees all of the old model, or all of the new one.
        found = numbers(store)
        assert found["version"] == head(store).current.model
        assert (found == old) == (new < 2), trial
        assert_sound(store)
        report = api.nightly(store, night)
        assert report["ingest"]["unchanged"] == (new > 0)
        assert report["unchanged"] == (new == 2)
        state = state - set(gone) | set(come)
        assert everything(store, str(head(store).current.snapshot)) == state
        assert Store.open(store).find_model().model.snapshot == head(store).current.snapshot
        assert numbers(store, str(old["version"])) == old
    assert_sound(store)
    commands.close()
    print(f"killed by how many versions were published: {dict(left_at)}")
    assert left_at[0] > 10
    assert left_at[1] > 10
