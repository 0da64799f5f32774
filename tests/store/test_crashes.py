"""Writers that race and writers that are killed: a store is always as before or as after, and the next ingest works."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from tests.graphs import assert_sound, everything, head, movies, write_changes, write_tsv
from tests.store.crash_points import STEPS

HERE = Path(__file__).parent

WAITING_INGEST = """
import sys, time
from pathlib import Path
import dkge_dist
from dkge_dist.types import DkgeError
folder, store, source, me = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
def wait(done, text):
    # The head was read by now, and nothing is written yet.
    (folder / f"ready-{me}").touch()
    while not (folder / "go").exists():
        time.sleep(0.001)
try:
    print(dkge_dist.ingest(store, source, name=me, progress=wait)["version"])
except DkgeError as error:
    print(error, file=sys.stderr)
    sys.exit(1)
"""


def race(folder: Path, store: Path, sources: dict[str, Path]) -> dict[str, tuple[int, str, str]]:
    """Ingest all sources at once, on top of the same version: exit code, stdout and stderr of each."""
    writers = {
        name: subprocess.Popen(
            [sys.executable, "-c", WAITING_INGEST, str(folder), str(store), str(source), name],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, source in sources.items()
    }
    while len(list(folder.glob("ready-*"))) < len(writers):
        assert all(writer.poll() is None for writer in writers.values())
        time.sleep(0.005)
    (folder / "go").touch()
    ended = {name: writer.communicate(timeout=60) for name, writer in writers.items()}
    return {name: (writers[name].returncode, *texts) for name, texts in ended.items()}


@pytest.mark.parametrize("first", [True, False], ids=["first-version", "next-version"])
def test_of_two_ingests_at_once_one_wins_and_the_other_is_told(tmp_path: Path, first: bool) -> None:
    store = tmp_path / "store"
    if not first:
        api.ingest(store, write_tsv(tmp_path / "base.tsv", movies(100)))
    sources = {
        "left": write_tsv(tmp_path / "left.tsv", movies(110)),
        "right": write_tsv(tmp_path / "right.tsv", movies(100) + movies(10, first=300)),
    }
    version = 1 if first else 2
    ended = race(tmp_path, store, sources)
    (winner,) = [name for name, (code, _, _) in ended.items() if code == 0]
    (loser,) = [name for name in ended if name != winner]
    assert ended[winner][1].strip() == str(version)
    code, stdout, stderr = ended[loser]
    assert (code, stdout) == (1, "")
    assert f"version {version} was published by another writer meanwhile (snapshot '{winner}')" in stderr
    assert "nothing was changed, run this again" in stderr
    assert "Traceback" not in stderr
    assert head(store).snapshot.name == winner
    assert list((store / "staging").iterdir()) == []
    assert_sound(store)
    assert api.ingest(store, sources[loser], name=loser)["version"] == version + 1
    assert_sound(store)


@pytest.mark.parametrize("first", [True, False], ids=["first-version", "next-version"])
def test_killed_at_every_call_that_changes_the_disk(tmp_path: Path, first: bool) -> None:
    store = tmp_path / "store"
    base = write_tsv(tmp_path / "base.tsv", movies(10))
    night = write_changes(tmp_path / "night.changes", movies(1, first=10), movies(1))
    before: list[str] | None = None
    if not first:
        api.ingest(store, base)
        before = [head(store).snapshot.content]
    script = [sys.executable, str(HERE / "crash_points.py"), str(tmp_path), str(base if first else night)]
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONWARNINGS": "ignore"}
    done = subprocess.run(script, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert sum(report["killed"] for report in reports) > 20
    steps = {report["step"] for report in reports if report["killed"]}
    assert steps >= STEPS | ({"mkdir parts", "mkdir versions", "link the store"} if first else set())
    finals = {tuple(report["final"]) for report in reports}
    assert len(finals) == 1
    (final,) = finals
    assert len(final) == (1 if first else 2)
    published = 0
    for report in reports:
        # A store that was made but holds no version yet is one in which nothing has happened.
        assert (report["left"] or before) in (before, list(final)), report
        published += report["left"] == list(final)
        assert report["problems"] == [], report
        assert report["again"] == len(final), report
        assert report["problems_at_the_end"] == [], report
    assert 0 < published < len(reports)


@pytest.mark.parametrize(
    ("trials", "seed"), [(3, 5), pytest.param(60, int(time.time()), marks=pytest.mark.slow, id="many")]
)
def test_killed_at_random_moments(tmp_path: Path, trials: int, seed: int) -> None:
    """The command itself, with its threads; most moments lie where parts are written."""
    print(f"seed {seed}")
    store = tmp_path / "store"
    states = [set(movies(3000))]
    api.ingest(store, write_tsv(tmp_path / "base.tsv", movies(3000)), name="0")
    chance = random.Random(seed)
    for trial in range(1, trials + 1):
        come, gone = movies(40, first=3000 + 40 * trial), movies(20, first=20 * trial)
        night = write_changes(tmp_path / f"{trial}.changes", come, gone)
        states.append(states[-1] - set(gone) | set(come))
        before = Store.open(store).versions()
        dirty = set(os.listdir(store / "staging"))
        command = [
            sys.executable,
            "-m",
            "dkge_dist.surfaces.cli",
            "ingest",
            str(store),
            str(night),
            "--name",
            str(trial),
        ]
        writer = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while writer.poll() is None and set(os.listdir(store / "staging")) == dirty:
            time.sleep(0.0005)
        time.sleep(chance.uniform(0, 0.02))
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        after = Store.open(store).versions()
        assert after in (before, [*before, trial + 1])
        assert everything(store, str(len(after) - 1)) == states[len(after) - 1]
        assert_sound(store)
        report = api.ingest(store, night, name=str(trial))
        assert report["unchanged"] == (after != before)
        assert everything(store, str(trial)) == states[trial]
    assert_sound(store)
