"""Updates beside other writers: one wins, the other is told, and nothing is lost."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from tests.graphs import assert_sound, fresh_labels, head, write_changes
from tests.store.nights import numbers

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

NIGHTS_AT_ONCE = """
# Two processes run the command on the same night: neither writes before both have come to the same step.
import json, os, sys, time
from pathlib import Path
from dkge_dist.surfaces.cli.main import main
import dkge_dist.store.ingest as ingesting
from dkge_dist.learn.updater import Updater
folder, store, night, step = Path(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]

def together(function, me):
    def call(*arguments):
        (folder / f"ready-{me}").touch()
        while len(list(folder.glob("ready-*"))) < 2:
            time.sleep(0.01)
        return function(*arguments)
    return call

def run(me):
    # Read by then: the head. Written: nothing.
    if step == "ingest":
        ingesting.content_after = together(ingesting.content_after, me)
    else:
        Updater.run = together(Updater.run, me)
    os.dup2(os.open(folder / f"out-{me}", os.O_WRONLY | os.O_CREAT), 1)
    os.dup2(os.open(folder / f"err-{me}", os.O_WRONLY | os.O_CREAT), 2)
    sys.argv = ["dkge", "nightly", store, night, "--json"]
    try:
        main()
    except SystemExit as ended:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(ended.code or 0)
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


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ("ingest", "version 4 was published by another writer meanwhile (snapshot 'night2'); nothing was changed"),
        ("update", "version 5 became current while version 2 was being updated; nothing was changed"),
    ],
)
def test_of_two_nightly_runs_at_once_one_wins_and_the_other_names_it(
    store: Path, tmp_path: Path, step: str, told: str
) -> None:
    old = numbers(store)
    night = write_changes(tmp_path / "night2.changes", fresh_labels(2), [])
    if step == "update":
        api.ingest(store, night)
    script = [sys.executable, "-c", NIGHTS_AT_ONCE + RUN_TWICE, str(tmp_path), str(store), str(night), step]
    done = subprocess.run(script, capture_output=True, text=True, timeout=250, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    codes = json.loads(done.stdout)
    assert sorted(codes) == [0, 1]
    won, lost = (json.loads((tmp_path / f"out-{codes.index(code)}").read_text()) for code in (0, 1))
    assert (won["version"], won["decision"]) == (5, "updated online")
    assert told in lost["error"]
    assert (tmp_path / f"err-{codes.index(1)}").read_text() == f"dkge: {lost['error']}\n"
    assert Store.open(store).versions() == [1, 2, 3, 4, 5]
    assert numbers(store, "2") == old
    assert os.listdir(store / "staging") == []
    assert_sound(store)
    again = api.nightly(store, night)
    assert (again["unchanged"], again["version"]) == (True, 5)


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
