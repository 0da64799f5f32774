"""Writers that race and writers that are killed: a store is always as before or as after, and the next ingest works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from tests.graphs import assert_sound, fresh_labels, head, movies, write_changes, write_tsv
from tests.store.crash_points import STEPS
from tests.store.nights import numbers

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


RUN_TWICE = """
# `run`, as defined before, in two processes.
children = []
for me in range(2):
    child = os.fork()
    if child == 0:
        run(me)
    children.append(child)
print(json.dumps([os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]))
"""

UPDATES_AT_ONCE = """
# Two processes that update the same store: neither writes before both have read the model.
import json, os, sys, time
from pathlib import Path
import dkge_dist
from dkge_dist.surfaces.api import update
from dkge_dist.types import DkgeError
folder, store = Path(sys.argv[1]), sys.argv[2]

def run(me):
    def wait(done, text):
        (folder / f"ready-{me}").touch()
        while len(list(folder.glob("ready-*"))) < 2:
            time.sleep(0.01)
    try:
        report, code = {"version": update(store, progress=wait)["version"]}, 0
    except DkgeError as error:
        report, code = {"error": str(error)}, 1
    (folder / f"report-{me}").write_text(json.dumps(report))
    os._exit(code)
"""


@pytest.fixture
def store(with_a_night: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(with_a_night, tmp_path / "store"))


def test_two_at_once(store: Path, tmp_path: Path) -> None:
    old = numbers(store)
    script = [sys.executable, "-c", UPDATES_AT_ONCE + RUN_TWICE, str(tmp_path), str(store)]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    ended = list(enumerate(json.loads(done.stdout)))
    assert sorted(code for _, code in ended) == [0, 1]
    for me, code in ended:
        report = json.loads((tmp_path / f"report-{me}").read_text())
        if code == 0:
            assert report["version"] == 4
        else:
            assert "version 4 became current while version 2 was being updated" in report["error"]
    versions = Store.open(store).versions()
    assert versions == [1, 2, 3, 4]
    assert head(store).current.model == versions[-1]
    assert os.listdir(store / "staging") == []
    assert_sound(store)
    assert numbers(store, "2") == old
    assert api.update(store)["unchanged"]


def test_an_ingest_and_a_rollback_while_an_update_learns(store: Path, tmp_path: Path) -> None:
    """What was learnt is published on top of what came in between, and says what it was learnt from."""

    def between(done: float, words: str) -> None:
        if not (tmp_path / "between").exists():
            (tmp_path / "between").touch()
            night = write_changes(tmp_path / "night2.changes", fresh_labels(2), [])
            api.ingest(store, night)
            api.rollback(store, 3)

    report = api.update(store, progress=between)
    assert (report["version"], report["snapshot"]) == (6, "night1")
    assert (head(store).current.snapshot, head(store).current.model) == (3, 6)
    assert numbers(store)["snapshot"] == "night1"
    assert_sound(store)
    api.rollback(store, 4)
    assert api.update(store, since_version="6")["from"] == "night1"
    assert_sound(store)
