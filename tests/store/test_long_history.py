"""What a night costs does not grow with the nights before it: nothing lists, reads or writes all of them."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dkge_dist.ask.model import open_model
from dkge_dist.kernels.jit import set_threads, threads
from dkge_dist.measure.drift import decide
from dkge_dist.records import NightRecord, TrainingRecord
from dkge_dist.settings import OnlineSettings
from dkge_dist.store.history import clear, trained_by_nights
from dkge_dist.store.ingest import FOLD_AFTER_NIGHTS
from dkge_dist.store.models import COMPACT_AFTER_NIGHTS, publish_model, save_update, wants_compaction
from dkge_dist.store.storage.local import LocalStorage
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from tests.graphs import assert_sound, head, movies, write_changes, write_tsv
from tests.store.small_models import ABOUT, publish, saved, some_weights

CYCLE = FOLD_AFTER_NIGHTS
"""Nights from one full snapshot to the next."""
FEW, MANY = 4, 4 + CYCLE


def night(store: Path, number: int) -> None:
    """A night of one triple more and one less, and the model of it."""
    come, gone = movies(1, first=1000 + number), movies(1, first=number)
    api.ingest(store, write_changes(store.parent / f"{number}.changes", come, gone), name=f"night{number}")
    opened = Store.open(store)
    parent, snapshot = opened.find_model(), head(store).current.snapshot
    with opened.storage.staging() as staging:
        names = opened.dictionaries(head(store))
        rows = (len(names[0]), len(names[1]))
        about = replace(ABOUT, record=NightRecord())
        entry = save_update(staging, parent, snapshot, rows, ({}, {}), about)
        publish_model(opened, entry.model_copy(update={"updates": 0}), 0.1, parent.version)


def test_deltas_are_folded_after_so_many_nights_however_small_a_table_is(model: Path) -> None:
    entry = Store.open(model).find_model().model
    assert not wants_compaction(entry.model_copy(update={"updates": COMPACT_AFTER_NIGHTS - 1}))
    assert wants_compaction(entry.model_copy(update={"updates": COMPACT_AFTER_NIGHTS}))


@pytest.fixture(scope="module")
def histories(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """Stores after a few nights and after many, as long after a full snapshot."""
    folder = tmp_path_factory.mktemp("long")
    api.ingest(folder / "store", write_tsv(folder / "base.tsv", movies(500)), valid=5, test=5)
    publish(folder / "store")
    found = {}
    before = threads()
    set_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: None)
        for number in range(1, MANY + 1):
            night(folder / "store", number)
            if number in (FEW, MANY):
                found[number] = Path(shutil.copytree(folder / "store", folder / str(number) / "store"))
    set_threads(before)
    return found


def calls_of(work: Callable[[], object]) -> Counter[str]:
    """What is asked of the storage; of listed names also which ones."""
    found: Counter[str] = Counter()

    def counted(name: str, real: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object) -> object:
            found[name] += 1
            if name == "names":
                found[f"names of {arguments[1]}"] += 1
            return real(*arguments)

        return call

    with pytest.MonkeyPatch.context() as patch:
        for name in ("read", "names", "part_path"):
            patch.setattr(LocalStorage, name, counted(name, getattr(LocalStorage, name)))
        work()
    return found


def _ingest(store: Path) -> None:
    source = write_changes(store.parent / "next.changes", movies(1, first=5000), movies(1, first=400))
    api.ingest(store, source, valid=6)


def _decide(store: Path) -> None:
    opened = Store.open(store)
    decide(opened, opened.find_model(), OnlineSettings(retrain_when="mrr_drop > 10%"))


WORK: dict[str, Callable[[Path], object]] = {
    "open": lambda store: open_model(Store.open(store)),
    "open an old one": lambda store: open_model(Store.open(store), "2"),
    "find a name": lambda store: Store.open(store).find_snapshot("night3"),
    "ingest": _ingest,
    "decide": _decide,
    "rollback": lambda store: api.rollback(store, head(store).version - 2),
}


@pytest.mark.parametrize("work", WORK)
def test_costs_are_flat(histories: dict[int, Path], tmp_path: Path, work: str) -> None:
    found = {}
    for number, history in histories.items():
        store = Path(shutil.copytree(history, tmp_path / str(number) / "store"))
        found[number] = calls_of(lambda store=store: WORK[work](store))
    few, many = found[FEW], found[MANY]
    assert few["names"] == many["names"] == 0, "nobody lists all versions"
    # Runs of hashes, and segments of the dictionary, are a few more: one for every doubling.
    assert many["read"] <= few["read"] + 1, found
    assert many["part_path"] <= few["part_path"] + 24, found


def test_a_version_is_no_longer(histories: dict[int, Path]) -> None:
    """But for its deltas, which are folded after so many nights."""
    sizes = []
    for store in histories.values():
        content = json.loads(head(store).to_json())
        for kind in ("entities", "relations"):
            for table in content["model"][kind].values():
                assert len(table.pop("deltas")) <= COMPACT_AFTER_NIGHTS + FEW
        sizes.append(len(json.dumps(content)))
    assert sizes[-1] < 1.5 * sizes[0] + 2500


def test_clearing_follows_what_is_kept_and_what_came_since(histories: dict[int, Path], tmp_path: Path) -> None:
    store = Path(shutil.copytree(histories[MANY], tmp_path / "store"))
    first = calls_of(lambda: clear(Store.open(store), 2, 0, dry_run=False))
    assert first["read"] > 2 * MANY
    assert len(head(store).current.cleared) <= 6
    for number in range(100, 103):
        night(store, number)
    again = calls_of(lambda: clear(Store.open(store), 2, 0, dry_run=False))
    # Aliases are few, however long the history is.
    assert again["names"] == again["names of aliases"] == 1
    assert again["read"] < 40
    assert_sound(store)
    night(store, 103)
    for name in ("night3", "night30", "night103"):
        found = Store.open(store).snapshot_named(name)
        assert found is not None
        assert found.snapshot.name == name
    api.rollback(store, head(store).version - 2)
    assert_sound(store)


def test_every_name_is_found(histories: dict[int, Path]) -> None:
    store = Store.open(histories[MANY])
    for number in range(1, MANY + 1):
        assert store.find_snapshot(f"night{number}").snapshot.name == f"night{number}"
    assert store.snapshot_named(f"night{MANY + 1}") is None
    assert store.snapshot_named("") is None


@pytest.mark.parametrize("hint", [b"1", b"3", b"99", b"-1", b"", b"\xff", b"7" * 5000, b"0", None])
def test_a_hint_is_only_a_hint(model: Path, hint: bytes | None) -> None:
    api.rollback(model, 1)
    api.rollback(model, 2)
    path = model / "head"
    assert path.read_bytes() == b"4"
    path.unlink() if hint is None else path.write_bytes(hint)
    assert head(model).version == 4
    assert api.rollback(model, 1)["version"] == 5
    assert path.read_bytes() == b"5"
    assert_sound(model)


def test_a_hint_that_cannot_be_written_is_no_failure(model: Path) -> None:
    (model / "head").unlink()
    (model / "head").mkdir()
    assert api.rollback(model, 1)["version"] == 3
    assert head(model).version == 3
    assert_sound(model)


def test_trainings_of_nights_are_found_without_looking_at_the_versions_between(model: Path) -> None:
    store = Store.open(model)
    why = replace(ABOUT, record=TrainingRecord(why="due"))
    first = publish_model(store, saved(store, some_weights(store), about=why), 1.0, promoted=False)
    for _ in range(10):
        api.rollback(model, 2)
    second = publish_model(store, saved(store, some_weights(store), about=why), 1.0)
    for _ in range(10):
        api.rollback(model, 2)
    for since, expected in ((0, [second, first]), (second.version, []), (first.version, [second])):
        found: list[int] = []
        calls = calls_of(
            lambda since=since, found=found: found.extend(
                manifest.version for manifest in trained_by_nights(Store.open(model), since)
            )
        )
        assert found == [manifest.version for manifest in expected]
        assert calls["read"] < 10
