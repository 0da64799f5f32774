"""Going back to an earlier version loses nothing, and a night writes no more than it changed."""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import pytest

from dkge_dist.store.history import clear
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from tests.graphs import (
    LEARN,
    assert_sound,
    dense,
    everything,
    fresh_labels,
    listing,
    vectors,
    write_changes,
    write_tsv,
)
from tests.store.nights import current, night, numbers


@pytest.fixture
def store(with_nights: Path, tmp_path: Path) -> Path:
    """Snapshot 1 with model 2, night 3 with model 4, night 5 with model 6."""
    return Path(shutil.copytree(with_nights, tmp_path / "store"))


def rows_of_labels(store: Path) -> list[list[str]]:
    """The labels of all rows, by kind."""
    opened = Store.open(store)
    return [names.labels(range(len(names))) for names in opened.dictionaries(opened.head())]


class TestRollback:
    def test_moves_what_is_current_and_loses_nothing(self, store: Path) -> None:
        before = {version: numbers(store, version) for version in (2, 4, 6)}
        files = {name: kind for name, kind in listing(store).items() if name != "head"}
        report = api.rollback(store, 4)
        assert (report["version"], report["to"], report["snapshot"], report["model"]) == (7, 4, "night1", 4)
        assert current(store) == (3, 4)
        assert numbers(store) == before[4]
        assert {version: numbers(store, version) for version in (2, 4, 6)} == before
        now = listing(store)
        assert {name: now.get(name) for name in files} == files
        last = api.log(store)["versions"][-1]
        assert (last["kind"], last["parent"], last["name"]) == ("rollback", 4, "night1")
        assert_sound(store)
        assert api.update(store)["unchanged"]

    def test_can_be_rolled_back(self, store: Path) -> None:
        before = numbers(store)
        api.rollback(store, 2)
        assert current(store) == (1, 2)
        api.rollback(store, 7)
        assert current(store) == (1, 2)
        api.rollback(store, 6)
        assert current(store) == (5, 6)
        assert numbers(store) == before
        assert_sound(store)

    def test_to_a_version_without_a_model(self, store: Path) -> None:
        assert api.rollback(store, 1)["model"] is None
        with pytest.raises(StoreError, match="there is no model yet; `dkge train"):
            api.evaluate(store)
        assert numbers(store, 6)["version"] == 6

    @pytest.mark.parametrize("version", [0, 7, -1])
    def test_to_nowhere(self, store: Path, version: int) -> None:
        before = listing(store)
        with pytest.raises(StoreError, match=f"no version {version}"):
            api.rollback(store, version)
        assert listing(store) == before

    def test_rows_of_labels_are_for_ever(self, store: Path) -> None:
        before = rows_of_labels(store)
        api.rollback(store, 2)
        assert rows_of_labels(store) == before
        night(store, 3)
        api.update(store)
        after = rows_of_labels(store)
        for kind in range(2):
            assert after[kind][: len(before[kind])] == before[kind]
            assert len(set(after[kind])) == len(after[kind])
        assert "new2a" in after[0]
        assert "new2a" not in {end for h, _, t in everything(store, "night3") for end in (h, t)}

    def test_learning_goes_on_from_there(self, store: Path, tmp_path: Path) -> None:
        """The night that was taken back never happened to what is learnt next."""
        frozen_before = vectors(store, 4)
        api.rollback(store, 4)
        night(store, 3)
        report = api.update(store)
        assert (report["from"], report["parent"]) == ("night1", 4)
        assert report["emerging_entities"] == 2
        assert_sound(store)
        found = vectors(store, report["version"])
        kept = frozen_before["entities/context"].shape[0]
        assert (found["entities/context"][:kept] == frozen_before["entities/context"]).all()
        assert numbers(store)["version"] == report["version"]

    def test_a_night_that_brings_nobody(self, store: Path) -> None:
        """Labels of the night that was taken back have rows, though nobody of them is alive."""
        api.rollback(store, 2)
        night(store, 4, added=[("e1", "r1", "e9"), ("e2", "r0", "e9"), ("e1", "r2", "e50")])
        report = api.update(store)
        assert (report["emerging_entities"], report["emerging_relations"]) == (0, 0)
        assert report["affected_entities"] > 0
        assert numbers(store)["version"] == report["version"]
        assert_sound(store)

    def test_a_label_that_comes_back_is_emerging_again(self, store: Path) -> None:
        row = rows_of_labels(store)[0].index("new2a")
        api.rollback(store, 4)
        night(store, 5, added=fresh_labels(2))
        report = api.update(store)
        assert report["emerging_entities"] == 2
        assert rows_of_labels(store)[0].index("new2a") == row
        assert_sound(store)


@pytest.mark.parametrize("triples", [1, 8])
def test_a_night_writes_little_more_than_its_rows(tmp_path: Path, triples: int) -> None:
    """Three times the bytes of the rows it changed, and a constant; never the table."""
    store = tmp_path / "store"
    chain = [(f"e{i}", f"r{i % 2}", f"e{(i * 7 + 1) % 3000}") for i in range(3000)]
    api.ingest(store, write_tsv(tmp_path / "base.tsv", chain), valid=10)
    dim = 64
    api.train(store, settings=[*LEARN, f"model.dim={dim}", "train.max_epochs=1", "train.batch_size=2000"])
    night(store, 1, [(f"e{i}", "r0", f"e{i + 100}") for i in range(triples)], deleted=0)
    sizes = {path: path.stat().st_size for path in store.rglob("*") if path.is_file()}
    report = api.update(store)
    rows = sum(report[f"{kind}_{noun}"] for kind in ("emerging", "affected") for noun in ("entities", "relations"))
    new = {path: path.stat().st_size for path in store.rglob("*") if path.is_file() and path not in sizes}
    parts = sum(size for path, size in new.items() if path.parent.parent.name == "parts")
    assert parts == report["bytes_written"]
    # o^k and o* of every row, and nothing of the other three thousand.
    changed = rows * 2 * dim * 4
    constant = 16_384
    assert parts <= 3 * changed + constant
    assert sum(new.values()) <= 3 * changed + 2 * constant
    assert parts < 3000 * dim * 4 / 10


DAY = 86400.0


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

    def test_twice_frees_nothing_twice(self, store: Path) -> None:
        api.gc(store, keep=1, grace_hours=0)
        before = listing(store)
        again = api.gc(store, keep=1, grace_hours=0)
        assert (again["version"], again["cleared_versions"], again["parts"], again["bytes"]) == (None, [], 0, 0)
        assert listing(store) == before

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
        before = listing(store)
        with Store.open(store).storage.lease("gc"), pytest.raises(StoreError, match="another `dkge gc` is at work"):
            api.gc(store, keep=1, grace_hours=0)
        assert {**listing(store), "gc.lock": ""} == {**before, "gc.lock": ""}
        assert api.gc(store, keep=1, grace_hours=0)["cleared_versions"] == [2, 4]


def test_what_was_cleared_can_be_learnt_again(store: Path) -> None:
    api.gc(store, keep=1, grace_hours=0)
    report = api.train(store, snapshot="base", settings=LEARN)
    assert numbers(store)["snapshot"] == "base"
    assert numbers(store)["version"] == report["version"]
    assert_sound(store)
