"""Clearing versions away keeps all that is needed, and what writers at work need."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dkge_dist.store.history import clear
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import UsageError
from tests.graphs import (
    LEARN,
    assert_same_vectors,
    assert_sound,
    dense,
    everything,
    listing,
    vectors,
    write_changes,
    write_tsv,
)
from tests.store.nights import current, night, numbers

DAY = 86400.0


@pytest.fixture
def store(with_nights: Path, tmp_path: Path) -> Path:
    """Snapshot 1 with model 2, night 3 with model 4, night 5 with model 6."""
    return Path(shutil.copytree(with_nights, tmp_path / "store"))


class TestClear:
    def test_a_dry_run_changes_nothing(self, store: Path) -> None:
        before = listing(store)
        report = api.gc(store, keep=1, dry_run=True, grace_hours=0)
        assert listing(store) == before, "not even a lock"
        assert report["dry_run"] is True
        assert report["version"] is None
        told = {key: report[key] for key in ("cleared_versions", "parts", "bytes", "folders")}
        heard: list[float] = []
        done = api.gc(store, keep=1, grace_hours=0, progress=lambda share, text: heard.append(share))
        assert {key: done[key] for key in told} == told
        assert heard == sorted(heard) and heard[-1] == 1.0
        assert len(heard) == done["parts"] + done["folders"]
        assert told["cleared_versions"] == [2, 4]
        assert told["parts"] > 0

    @pytest.mark.parametrize("lock", [True, False])
    def test_a_dry_run_does_not_make_an_abandoned_training_young(self, store: Path, lock: bool) -> None:
        training = store / "training" / "0123456789abcdef"
        training.mkdir(parents=True)
        if lock:
            (training / "lock").touch()
        long_ago = time.time() - 3 * DAY
        os.utime(training, (long_ago, long_ago))
        for _ in range(2):
            assert clear(Store.open(store), 6, DAY, dry_run=True).folders == 1
        assert clear(Store.open(store), 6, DAY, dry_run=False).folders == 1
        assert not training.exists()

    def test_a_training_at_work_is_none_that_was_abandoned(self, store: Path) -> None:
        training = store / "training" / "0123456789abcdef"
        training.mkdir(parents=True)
        with (training / "lock").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            later = time.time() + 3 * DAY
            assert clear(Store.open(store), 6, DAY, dry_run=False, clock=lambda: later).folders == 0
        assert clear(Store.open(store), 6, DAY, dry_run=False, clock=lambda: later).folders == 1

    @pytest.mark.parametrize("keep", [1, 2, 3, 4, 5, 6])
    def test_keeps_what_is_needed(self, store: Path, keep: int) -> None:
        kept = [version for version in (2, 4, 6) if version > 6 - keep]
        before = {version: numbers(store, version) for version in kept}
        graph = everything(store, "night2")
        report = api.gc(store, keep=keep, grace_hours=0)
        assert_sound(store)
        assert {version: numbers(store, version) for version in kept} == before
        assert numbers(store) == before[6]
        assert everything(store, "night2") == graph
        assert not {*kept, 5, 6} & set(report["cleared_versions"])
        for version in report["cleared_versions"]:
            with pytest.raises(
                StoreError, match=f"version {version}, current at {version}, was cleared away by `dkge gc`"
            ):
                api.rollback(store, version)
        night(store, 3)
        api.update(store)
        assert_sound(store)

    @pytest.mark.parametrize("keep", [1, 2, 3])
    def test_whatever_was_current_at_a_kept_version_is_kept(self, store: Path, keep: int) -> None:
        current_model = {v: Store.open(store).manifest(v).current.model for v in range(7 - keep, 7)}
        api.gc(store, keep=keep, grace_hours=0)
        for version, model in current_model.items():
            assert numbers(store, version)["version"] == model

    def test_a_kept_rollback(self, store: Path) -> None:
        api.rollback(store, 2)
        before = numbers(store)
        api.rollback(store, 6)
        api.gc(store, keep=2, grace_hours=0)
        assert numbers(store, 7) == before
        api.rollback(store, 7)
        assert numbers(store) == before
        assert_sound(store)

    def test_cleared_versions_are_refused(self, store: Path) -> None:
        report = api.gc(store, keep=1, grace_hours=0)
        assert report["cleared_versions"] == [2, 4]
        cleared = "version 2(, current at 2,)? was cleared away by `dkge gc`"
        for ask in (lambda: api.evaluate(store, version="2"), lambda: api.answer(store, "e1", "r1", version="2"),
                    lambda: api.rollback(store, 2), lambda: api.export(store, store / "x", version="2")):  # fmt: skip
            with pytest.raises(StoreError, match=cleared):
                ask()
        assert [line["version"] for line in api.log(store)["versions"]] == [1, 2, 3, 4, 5, 6, 7]
        assert not (store / "x").exists()

    def test_cleared_snapshots_are_refused_by_their_names(self, store: Path) -> None:
        api.ingest(store, write_tsv(store.parent / "other.tsv", dense(500, seed=8)), force=True)
        api.update(store)
        assert 1 in api.gc(store, keep=1, grace_hours=0)["cleared_versions"]
        for ask in (lambda: api.diff(store, "base", "other"), lambda: api.train(store, snapshot="base")):
            with pytest.raises(StoreError, match="version 1 was cleared away by `dkge gc`"):
                ask()

    def test_a_model_that_lags_behind(self, store: Path) -> None:
        """The changes since the snapshot that the model was learnt from are needed to update it."""
        for number in (3, 4, 5):
            night(store, number)
        change = api.diff(store, "night2", "night5")
        api.gc(store, keep=1, grace_hours=0)
        assert_sound(store)
        again = api.diff(store, "night2", "night5")
        assert {**again, "seconds": 0} == {**change, "seconds": 0}
        assert api.update(store)["added"] == change["added"]
        assert_sound(store)

    def test_behind_a_snapshot_that_was_stored_anew_in_full(self, store: Path) -> None:
        """Large changes fold into a full snapshot, and what was before it can go."""
        api.ingest(store, write_tsv(store.parent / "other.tsv", dense(500, seed=8)), force=True)
        assert api.log(store)["versions"][-1]["stored"] == "full"
        api.update(store)
        night(store, 3)
        before, graph = numbers(store), everything(store, "other")
        report = api.gc(store, keep=1, grace_hours=0)
        assert set(report["cleared_versions"]) >= {1, 2, 3, 4, 5, 6}
        assert numbers(store) == before
        assert everything(store, "other") == graph
        api.update(store)
        night(store, 4)
        assert api.gc(store, keep=1, grace_hours=0)["cleared_versions"] != []
        assert api.update(store)["from"] == "night3"
        assert numbers(store)["snapshot"] == "night4"

    def test_a_full_snapshot_without_its_parent_is_sound(self, store: Path) -> None:
        api.ingest(store, write_tsv(store.parent / "other.tsv", dense(500, seed=8)), force=True)
        api.update(store)
        assert 5 in api.gc(store, keep=1, grace_hours=0)["cleared_versions"]
        assert_sound(store)

    def test_branches_that_a_rollback_made(self, store: Path) -> None:
        """The current model stands on one branch, the current snapshot on another: the changes between are needed."""
        api.ingest(store, write_tsv(store.parent / "other.tsv", dense(500, seed=8)), force=True)
        api.update(store)
        api.rollback(store, 4)
        night(store, 3)
        api.update(store, since_version="8")
        night(store, 4)
        assert api.log(store)["versions"][6]["stored"] == "full"
        change = api.diff(store, "other", "night4")
        api.gc(store, keep=5, grace_hours=0)
        assert {**api.diff(store, "other", "night4"), "seconds": 0} == {**change, "seconds": 0}
        api.update(store)
        assert_sound(store)

    def test_young_parts_and_folders_are_left_alone(self, store: Path) -> None:
        folder = store / "staging" / "0123456789abcdef"
        folder.mkdir()
        (folder / "half").write_bytes(b"x")
        part = store / "parts" / "ab" / ("ab" * 32)
        part.parent.mkdir(exist_ok=True)
        part.write_bytes(b"of a writer at work")
        opened = Store.open(store)
        young = clear(opened, 6, DAY, dry_run=False)
        assert (young.version, young.versions, young.parts, young.folders) == (None, [], 0, 0)
        assert part.exists() and folder.exists()
        later = clear(opened, 6, DAY, dry_run=False, clock=lambda: time.time() + DAY + 60)
        assert (later.version, later.parts, later.bytes, later.folders) == (None, 1, 19, 1)
        assert not part.exists() and not folder.exists()
        assert_sound(store)

    def test_a_short_grace_is_refused_while_a_writer_is_at_work(self, store: Path) -> None:
        opened = Store.open(store)
        with opened.storage.staging() as staging:
            part = staging.add(lambda path: path.write_bytes(b"not published yet") and None)
            before = listing(store)
            for dry_run in (True, False):
                with pytest.raises(
                    StoreError, match=r"a writer is at work since .* UTC, longer than the grace period of 0"
                ):
                    api.gc(store, keep=1, dry_run=dry_run, grace_hours=0)
            assert listing(store) == before
            assert api.gc(store, keep=1, grace_hours=1)["cleared_versions"] == [2, 4]
            opened.storage.verify(part)
            with pytest.raises(StoreError, match="longer than the grace period of 24 hours"):
                clear(opened, 1, DAY, dry_run=False, clock=lambda: time.time() + 2 * DAY)
        assert api.gc(store, keep=1, grace_hours=0)["parts"] > 0

    def test_a_writer_that_ends_while_cleaning_looks_around_keeps_its_parts(
        self, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was at work for longer than the grace period, so that nothing of it is young."""
        opened = Store.open(store)
        looks = opened.storage.staging_since

        def ends() -> float | None:
            api.ingest(store, write_changes(tmp_path / "late.changes", [("a", "late", "one")]))
            age = time.time() - 2 * DAY
            for path in store.rglob("*"):
                os.utime(path, (age, age))
            return looks()

        monkeypatch.setattr(opened.storage, "staging_since", ends)
        clear(opened, 9, DAY, dry_run=False)
        assert_sound(store)

    def test_young_parts_of_cleared_versions_go_later(self, store: Path) -> None:
        first = api.gc(store, keep=1, grace_hours=24)
        assert first["cleared_versions"] == [2, 4]
        assert first["parts"] == 0
        second = api.gc(store, keep=1, grace_hours=0)
        assert (second["version"], second["cleared_versions"]) == (None, [])
        assert second["parts"] > 0
        assert_sound(store)

    def test_twice_frees_nothing_twice(self, store: Path) -> None:
        api.gc(store, keep=1, grace_hours=0)
        before = listing(store)
        again = api.gc(store, keep=1, grace_hours=0)
        assert (again["version"], again["cleared_versions"], again["parts"], again["bytes"]) == (None, [], 0, 0)
        assert listing(store) == before

    def test_files_that_killed_writers_left(self, store: Path) -> None:
        left = [store / ".store.json.0123456789abcdef", store / ".00000007.json.0123456789abcdef"]
        for path in left:
            path.write_bytes(b"half")
        assert clear(Store.open(store), 6, DAY, dry_run=False).parts == 0
        later = clear(Store.open(store), 6, DAY, dry_run=False, clock=lambda: time.time() + DAY + 60)
        assert (later.parts, later.bytes) == (2, 8)
        assert not any(path.exists() for path in left)
        assert Store.open(store).versions() == [1, 2, 3, 4, 5, 6]
        assert_sound(store)

    def test_while_a_training_learns(self, store: Path) -> None:
        """Whichever gives way, what is current afterwards can be read."""

        def between(done: float, words: str) -> None:
            if 7 not in Store.open(store).versions():
                api.ingest(store, write_tsv(store.parent / "other.tsv", dense(500, seed=8)), force=True)
                api.update(store)
                api.gc(store, keep=1, grace_hours=0)

        learnt = api.train(store, settings=[*LEARN, "seed=5"], progress=between)
        assert current(store)[1] == learnt["version"], "what is being learnt is kept"
        assert numbers(store)["version"] == current(store)[1]
        assert api.update(store)["version"]

    def test_while_an_update_learns_from_an_old_model(self, store: Path) -> None:
        api.train(store, settings=[*LEARN, "seed=5"])

        def between(done: float, words: str) -> None:
            api.gc(store, keep=1, grace_hours=0)

        with suppress(StoreError):
            api.update(store, since_version="2", progress=between)
        assert numbers(store)["version"] == current(store)[1]
        assert_sound(store)

    def test_two_at_once(self, store: Path) -> None:
        script = (
            "import fcntl, sys; f = open(sys.argv[1], 'a'); fcntl.flock(f, fcntl.LOCK_EX); print('held', flush=True);"
            " sys.stdin.read()"
        )
        other = subprocess.Popen(
            [sys.executable, "-c", script, str(store / "gc.lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert other.stdin is not None
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        before = listing(store)
        with pytest.raises(StoreError, match="another `dkge gc` is at work"):
            api.gc(store, keep=1, grace_hours=0)
        assert listing(store) == before
        other.communicate()
        assert api.gc(store, keep=1, grace_hours=0)["cleared_versions"] == [2, 4]

    def test_shared_parts_stay(self, store: Path) -> None:
        """Model 6 is a base that model 2 wrote and the deltas of models 4 and 6."""
        before = vectors(store, 6)
        assert api.gc(store, keep=1, grace_hours=0)["cleared_versions"] == [2, 4]
        assert_same_vectors(vectors(store, 6), before)

    def test_an_empty_folder_is_no_store(self, tmp_path: Path) -> None:
        with pytest.raises(StoreError, match="no store here yet"):
            api.gc(tmp_path, keep=1)
        with pytest.raises(UsageError, match="at least one version"):
            api.gc(tmp_path, keep=0)


def test_what_was_cleared_can_be_learnt_again(store: Path) -> None:
    api.gc(store, keep=1, grace_hours=0)
    report = api.train(store, snapshot="base", settings=LEARN)
    assert numbers(store)["snapshot"] == "base"
    assert numbers(store)["version"] == report["version"]
    assert_sound(store)
