"""Aliases: a name for a version, in folders and buckets, durable, kept by gc, safe to kill."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import UsageError
from tests.graphs import movies, write_changes, write_tsv
from tests.store.small_models import publish


def test_set_moved_listed_and_removed(model: Path) -> None:
    assert api.alias(model) == {"aliases": {}}
    assert api.alias(model, "production", 2) == {"aliases": {"production": 2}}
    assert api.alias(model, "first-ever", "first") == {"aliases": {"first-ever": 2, "production": 2}}
    assert api.alias(model, "production", 1)["aliases"]["production"] == 1
    assert api.alias(model, "production", remove=True) == {"aliases": {"first-ever": 2}}
    with pytest.raises(UsageError, match="no alias 'production'; first-ever"):
        api.alias(model, "production", remove=True)
    assert api.check(model)["ok"]


def test_it_stands_wherever_a_version_may(model: Path) -> None:
    api.alias(model, "production", 2)
    store = Store.open(model)
    assert store.find_model("production").version == 2
    assert store.find_snapshot("production").version == 1
    assert store.find_version("production") == 2
    assert api.rollback(model, "production")["to"] == 2
    assert api.diff(model, "first", "production")["added"] == 0


@pytest.mark.parametrize("name", ["", "2", "2030-01-31", "../x", "a/b", ".hidden", "a.json", "ä", "a" * 65, "a\n"])
def test_names_that_are_refused(model: Path, name: str) -> None:
    with pytest.raises(UsageError, match="alias"):
        api.alias(model, name, 2)
    assert api.alias(model) == {"aliases": {}}


def test_versions_that_are_refused(model: Path) -> None:
    with pytest.raises(StoreError, match="no version 3"):
        api.alias(model, "production", 3)
    with pytest.raises(StoreError, match="no snapshot 'none'"):
        api.alias(model, "production", "none")
    with pytest.raises(UsageError, match="a snapshot has this name"):
        api.alias(model, "first", 2)
    with pytest.raises(UsageError, match="name an alias"):
        api.alias(model, "production")
    with pytest.raises(UsageError, match="name an alias"):
        api.alias(model, remove=True)


def test_a_snapshot_gets_no_name_of_an_alias(model: Path, tmp_path: Path) -> None:
    api.alias(model, "production", 2)
    night = write_changes(tmp_path / "production.changes", [("new", "r", "other")], [])
    with pytest.raises(UsageError, match="'production' is taken by an alias"):
        api.ingest(model, night, name="production")
    assert api.ingest(model, night)["name"] == "production-3"


def test_a_damaged_one_is_told(model: Path) -> None:
    api.alias(model, "production", 2)
    (model / "aliases" / "production.json").write_text('{"version": "2"}')
    with pytest.raises(StoreError, match=r"production.json: damaged"):
        Store.open(model).find_model("production")
    assert "production.json: damaged" in api.check(model)["problems"][0]["problem"]
    api.alias(model, "production", 2)
    assert api.check(model)["ok"]
    (model / "aliases" / "production.json").write_text('{"version": 9}')
    assert "pins version 9, which there is not" in api.check(model)["problems"][0]["problem"]


def test_gc_keeps_what_is_pinned(model: Path, tmp_path: Path) -> None:
    for number in range(4):
        new = [(f"new{number}", "r", f"other{number}")]
        api.ingest(model, write_changes(tmp_path / f"night{number}.changes", new, []))
        publish(model)
    api.alias(model, "production", 2)
    cleared = api.gc(model, keep=1, grace_hours=0)["cleared_versions"]
    assert cleared and 2 not in cleared and 1 not in cleared
    assert Store.open(model).find_model("production").version == 2
    assert api.check(model)["ok"]
    api.alias(model, "production", remove=True)
    assert 2 in api.gc(model, keep=1, grace_hours=0)["cleared_versions"]
    with pytest.raises(StoreError, match="cleared away"):
        api.alias(model, "production", 2)


def test_no_alias_while_gc_is_at_work(model: Path) -> None:
    with Store.open(model).storage.lease("gc"), pytest.raises(StoreError, match="gc` is at work"):
        api.alias(model, "production", 2)


def test_readers_see_the_old_or_the_new(model: Path) -> None:
    api.alias(model, "production", 1)

    def read(_: int) -> set[int]:
        return {Store.open(model).aliases()["production"] for _ in range(50)}

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(read, number) for number in range(3)]
        for number in range(60):
            api.alias(model, "production", 1 + number % 2)
        assert set().union(*(one.result() for one in found)) <= {1, 2}


def test_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    api.ingest(bucket, write_tsv(tmp_path / "base.tsv", movies(60)), name="first")
    assert api.alias(bucket, "production", "first") == {"aliases": {"production": 1}}
    assert Store.open(bucket).find_snapshot("production").version == 1
    assert api.check(bucket)["ok"]
    assert api.alias(bucket, "production", remove=True) == {"aliases": {}}


KILLED = """
# An alias is set, killed right before each of its calls that change the disk. Out: what it pins afterwards, by crash.
import json, shutil, signal, sys
from pathlib import Path
from dkge_dist.surfaces import api
from tests.store.crash_points import die_at, in_child
store, copy, told = (Path(sys.argv[1]) / name for name in ("store", "copy", "told"))
crash, killed = 0, True
while killed:
    crash += 1
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(store, copy)
    def work():
        die_at(crash, told)
        api.alias(copy, "production", 2)
    killed = in_child(work) == -signal.SIGKILL
    print(json.dumps([killed, api.alias(copy)["aliases"], api.alias(copy, "production", 2)["aliases"]]))
"""


def test_killed_at_every_step(model: Path) -> None:
    api.alias(model, "production", 1)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(model.parent)], capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    *killed, last = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(killed) > 3 and all(was_killed for was_killed, _, _ in killed)
    assert {left["production"] for _, left, _ in killed} == {1, 2}
    assert all(again == {"production": 2} for _, _, again in killed)
    assert last == [False, {"production": 2}, {"production": 2}]
    shutil.rmtree(model.parent / "copy")
