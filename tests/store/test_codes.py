"""Codes as parts of a version: written with a model, kept by nights, folded, checked, cleared; and stores without."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dkge_dist
from dkge_dist.kernels.ranks import TILE
from dkge_dist.store import tables
from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.models import publish_model, save_compact
from dkge_dist.store.parts import DamagedPartError, save_bytes
from dkge_dist.store.storage import Storage, StoreError, open_storage
from dkge_dist.store.store import Store
from dkge_dist.store.tables import BlockIndex, CodeIndex, StoredCodes, save_table
from dkge_dist.surfaces import api
from dkge_dist.tables.coded import CodedIndex
from dkge_dist.types import Field
from tests.graphs import LEARN, dense, write_tsv
from tests.store.damage import flipped
from tests.store.nights import night

DIM, BLOCK = 16, 512


@pytest.fixture(autouse=True)
def small_tables_have_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "CODED_FROM_ROWS", 1)


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with codes, and one that a night updated."""
    store = tmp_path_factory.mktemp("codes") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "CODED_FROM_ROWS", 1)
        api.ingest(store, write_tsv(store.parent / "base.tsv", dense()), valid=20, test=20)
        api.train(store, settings=[*LEARN, "model.dim=16"])
        night(store, 1)
        api.update(store)
    return store


@pytest.fixture
def path(learnt: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(learnt, tmp_path / "store"))


def joint(store: Store, version: str | None = None) -> TableEntry:
    return store.find_model(version).model.entities[Field.JOINT]


def publish(path: Path, change: Callable[[TableEntry], TableEntry]) -> None:
    """The current model with another table of joint vectors."""
    store = Store.open(path)
    model = store.find_model().model
    tables = {**model.entities, Field.JOINT: change(model.entities[Field.JOINT])}
    publish_model(store, model.model_copy(update={"entities": tables}), 1.0)


def questions(path: Path) -> list[Any]:
    """Answers, ranks and neighbours of the current model."""
    with dkge_dist.open(path) as asked:
        assert isinstance(asked.model.embedding.entities, CodedIndex) == (joint(Store.open(path)).codes is not None)
        return [
            [[(a.entity, a.score) for a in asked.answer(f"e{n}", "r1", evidence=n % 2 == 0)] for n in range(1, 9)],
            [[(n.entity, n.score) for n in asked.similar(f"e{n}")] for n in range(1, 9)],
            asked.evaluate().rows(),
            asked.vectors().values.tobytes(),
        ]


def test_a_model_has_codes_and_a_night_keeps_them(path: Path) -> None:
    store = Store.open(path)
    trained, updated = joint(store, "2"), joint(store)
    assert trained.codes is not None and trained.codes == updated.codes
    assert len(updated.deltas) == 1
    assert all(store.find_model().model.entities[field].codes is None for field in (Field.KNOWLEDGE, Field.CONTEXT))
    assert api.check(path)["ok"]


def test_answers_are_those_of_a_version_without_codes(path: Path) -> None:
    by_codes = questions(path)
    publish(path, lambda table: table.model_copy(update={"codes": None}))
    assert questions(path) == by_codes


def test_folding_writes_codes_of_what_is_there_now(path: Path) -> None:
    before = questions(path)
    store = Store.open(path)
    with store.storage.staging() as staging:
        publish_model(store, save_compact(store, staging, store.find_model()), 1.0)
    folded = joint(Store.open(path))
    assert not folded.deltas and folded.codes is not None and folded.codes != joint(store, "2").codes
    assert questions(path) == before
    assert api.check(path)["ok"]


def test_clearing_keeps_codes_that_came_to_vectors_of_an_older_version(path: Path) -> None:
    """The same blocks of vectors, first without codes and then with them."""
    kept = joint(Store.open(path)).codes
    publish(path, lambda table: table.model_copy(update={"codes": None}))
    publish(path, lambda table: table.model_copy(update={"codes": kept}))
    before = questions(path)
    api.gc(path, keep=1, grace_hours=0)
    assert api.check(path)["ok"]
    assert questions(path) == before


def test_codes_that_nobody_needs_are_cleared_away(path: Path) -> None:
    store = Store.open(path)
    index = CodeIndex(store.storage, joint(store))
    publish(path, lambda table: table.model_copy(update={"codes": None}))
    api.gc(path, keep=1, grace_hours=0)
    assert not any((store.storage.root / "parts").rglob(index.parts[0].digest)), "a part of no version"


def test_check_names_damaged_codes(path: Path) -> None:
    store = Store.open(path)
    entry = joint(store)
    assert entry.codes is not None
    for part in (CodeIndex(store.storage, entry).parts[0], entry.codes.part):
        flipped(store.storage.part_path(part), 99)
        (problem,) = api.check(path)["problems"]
        assert part.digest in problem["problem"]
        with pytest.raises(DamagedPartError, match=part.digest):
            api.answer(path, "e1", "r1")
        flipped(store.storage.part_path(part), 99)


def test_check_names_codes_of_other_vectors(path: Path) -> None:
    store = Store.open(path)
    base = BlockIndex(store.storage, joint(store))
    with store.storage.staging() as staging:
        other = save_table(staging, np.ones((base.rows, base.dim), np.float32), base.block, coded=True)
    publish(path, lambda table: table.model_copy(update={"codes": other.codes}))
    (problem,) = api.check(path)["problems"]
    assert problem["problem"] == "codes of the rows from 0 on are not those of their vectors"


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "tables"))


@pytest.mark.parametrize(
    "change",
    [
        {"rows": 1501},
        {"rows": -1},
        {"rows": "1500"},
        {"shape": [24, 17, TILE]},
        {"shape": [23, 3, TILE]},
        {"grid": [0.5, 0]},
        {"grid": [0.5, "x"]},
        {"grid": [float("nan"), 1]},
        {"grid": 7},
        {"parts": []},
        {"parts": 3},
        {"parts": [["ab", 1, "cd"]] * 3},
    ],
)
def test_an_index_that_does_not_fit_is_refused(storage: Storage, change: dict[str, Any]) -> None:
    """Kernels check no bounds: what they are given has to be as large as they think."""
    with storage.staging() as staging:
        entry = save_table(staging, np.ones((1500, DIM), np.float32), BLOCK, coded=True)
        assert entry.codes is not None
        content = json.loads(storage.part_path(entry.codes.part).read_bytes())
        place = content if "shape" in change else content["attributes"]
        place |= change
        part = save_bytes(staging, json.dumps(content).encode(), 3)
    with pytest.raises(StoreError, match=r"is no index of|bytes instead of"):
        StoredCodes(storage, entry.model_copy(update={"codes": part}))


def test_the_same_vectors_have_the_same_codes(storage: Storage) -> None:
    """In whatever blocks they are written: the grid is chosen by rows of the whole table."""
    values = np.random.default_rng(0).normal(size=(1500, DIM)).astype(np.float32)
    with storage.staging() as staging:
        tables = [save_table(staging, values, block, coded=True) for block in (BLOCK, 64)]
    one, other = (StoredCodes(storage, table) for table in tables)
    assert one.index.grid == other.index.grid
    assert np.array_equal(one.tiles[:24], other.tiles[:24])
