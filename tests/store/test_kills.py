"""Commands that are killed at random moments, one after the other on the same store: no version is lost or mixed.

`DKGE_KILLS=1000 DKGE_SEED=1 python -m pytest -m slow -s tests/store/test_kills.py` kills a thousand.
"""

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

import pytest

from dkge_dist.store.models import COMPACT_AFTER_NIGHTS
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import Split
from tests.graphs import Labelled, assert_sound, content, fresh_labels, head, write_changes
from tests.store.nights import numbers, store_with_a_night

KILLS = int(os.environ.get("DKGE_KILLS", "50"))
SEED = int(os.environ.get("DKGE_SEED", time.time()))
COMPACT_AFTER = 1
"""Nights: every one folds its deltas too."""
TRIALS = 25
"""On one store: a longer history would show nothing new, and take long to check."""


class Killing:
    """A store, and what is known of it."""

    def __init__(self, folder: Path, pristine: Path, chance: random.Random) -> None:
        self.folder, self.pristine, self.chance = folder, pristine, chance
        self.commands = ReadyCommands(COMPACT_AFTER)
        self.typical: dict[str, float] = {}
        self.trial = 0
        self.killed: Counter[str] = Counter()
        self.begin()

    def begin(self) -> None:
        """A fresh store."""
        self.store = self.folder / "store"
        shutil.rmtree(self.store, ignore_errors=True)
        shutil.copytree(self.pristine, self.store)
        self.trained: set[Labelled] = set()
        self.held_out: dict[int, set[Labelled]] = {}
        self.look()

    def words(self, name: str) -> list[str]:
        """A command of that name."""
        store, last = str(self.store), head(self.store)
        if name == "gc":
            return ["gc", store, "--keep", str(self.chance.choice([1, 3])), "--grace-hours", "0"]
        if name == "rollback":
            left = [n for n in range(max(1, last.version - 6), last.version + 1) if self.is_left(n)]
            return ["rollback", store, str(self.chance.choice(left))]
        come = [
            tuple(label.replace("new", f"new{self.trial}x") for label in one) for one in fresh_labels(self.trial % 9)
        ]
        known = sorted(set().union(*content(self.store, str(last.version)).values()))
        night = write_changes(self.folder / f"night{self.trial}.changes", come, self.chance.sample(known, 3))
        return [name, store, str(night), "--force", "--valid", "9", "--test", "9"]

    def is_left(self, number: int) -> bool:
        opened = Store.open(self.store)
        state, now = opened.state_at(number), head(self.store).current
        return state.model is not None and not (now.is_cleared(state.snapshot) or now.is_cleared(state.model))

    def run(self, name: str) -> None:
        """Begin a command and kill it."""
        self.trial += 1
        words = self.words(name)
        before = self.manifests()
        began = time.monotonic()
        running = self.commands.start(*words)
        moment = began + self.chance.uniform(0, 1.1 * self.typical.get(name, 10.0))
        if name in self.typical and self.chance.random() < 0.5:
            # Most of a command is reading; half of them are killed while they write.
            self._wait(running, lambda: bool(os.listdir(self.store / "staging")) or self.manifests() != before)
            moment = time.monotonic() + self.chance.uniform(0, 0.03)
        self._wait(running, lambda: time.monotonic() > moment)
        os.kill(running, signal.SIGKILL)
        code = self.commands.end()
        assert code in (0, -signal.SIGKILL), (name, words, code)
        if code:
            self.killed[name] += 1
        else:
            self.typical[name] = time.monotonic() - began
        after = self.manifests()
        assert after[: len(before)] == before, "a version that was published is another one"
        assert len(after) - len(before) <= {"nightly": 3}.get(name, 1)
        self.look()

    def _wait(self, running: int, is_time: object) -> None:
        while not self.commands.is_over(running) and not is_time():  # type: ignore[operator]
            time.sleep(0.0005)

    def manifests(self) -> list[bytes]:
        """The bytes of all versions."""
        folder = self.store / "versions"
        return [(folder / name).read_bytes() for name in sorted(os.listdir(folder))]

    def look(self) -> None:
        """Every version is whole, what is current can be read, and nothing that was trained is held out."""
        assert_sound(self.store)
        now = head(self.store)
        assert numbers(self.store)["version"] == now.current.model
        opened = Store.open(self.store)
        for number in opened.versions():
            manifest = opened.manifest(number)
            if manifest.kind != "snapshot" or opened.is_cleared(number) or number in self.held_out:
                continue
            state = content(self.store, manifest)
            held = state[Split.VALID] | state[Split.TEST]
            new = held - self.held_out.get(manifest.snapshot.parent or 0, set())  # type: ignore[attr-defined]
            assert not new & self.trained or manifest.snapshot.parent not in self.held_out  # type: ignore[attr-defined]
            self.held_out[number] = held
            self.trained |= state[Split.TRAIN]


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@pytest.mark.usefixtures("one_thread")
def test_killed_at_random_moments(tmp_path: Path) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    pristine = store_with_a_night(tmp_path)
    api.update(pristine)
    (tmp_path / "killing").mkdir()
    killing = Killing(tmp_path / "killing", pristine, chance)
    # How long they take if nobody kills them.
    for name in ("nightly", "ingest", "gc", "rollback"):
        killing.run(name)
    compacted = 0
    while killing.killed.total() < KILLS:
        if killing.trial % TRIALS == 0:
            compacted += _compactions(killing.store)
            killing.begin()
        killing.run(chance.choices(["ingest", "nightly", "gc", "rollback"], [2, 4, 2, 1])[0])
    compacted += _compactions(killing.store)
    killing.commands.close()
    print(f"killed: {dict(killing.killed)}; versions that folded deltas: {compacted}")


def _compactions(store: Path) -> int:
    versions = api.log(store)["versions"]
    return sum(version.get("origin") == "compact" for version in versions)


READY_COMMANDS = """
# Has everything imported and no thread running: a command that is asked for starts at once, as a process of its own.
# In: a line with its words; out: its process. Any other line then asks for its exit code.
import json, os, sys
from dkge_dist.surfaces import api
from dkge_dist.surfaces.cli.main import main
from dkge_dist.store import models
models.COMPACT_AFTER_NIGHTS = int(sys.argv[1])

def run(words):
    nowhere = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nowhere, stream)
    sys.argv = ["dkge", *words]
    code = 1
    try:
        main()
    except SystemExit as ended:
        code = ended.code or 0
    finally:
        os._exit(code)

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        run(json.loads(line))
    print(child, flush=True)
    sys.stdin.readline()
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class ReadyCommands:
    """Commands that begin with their work: until its imports are done, a command touches nothing anyway."""

    def __init__(self, compact_after: int = COMPACT_AFTER_NIGHTS) -> None:
        """Deltas are folded after so many nights."""
        script = [sys.executable, "-c", READY_COMMANDS, str(compact_after)]
        self.process = subprocess.Popen(script, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def start(self, *words: str) -> int:
        return self._say(json.dumps(words))

    def is_over(self, command: int) -> bool:
        """Has it ended? It stays there until somebody asks how."""
        return Path(f"/proc/{command}/stat").read_text().rpartition(")")[2].split()[0] == "Z"

    def end(self) -> int:
        """The exit code of the command, once it is over."""
        return self._say("")

    def _say(self, line: str) -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def close(self) -> None:
        self.process.communicate()
