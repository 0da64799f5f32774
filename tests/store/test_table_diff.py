"""Rows in which two tables differ: the same as comparing all of them, and only what is not shared is read."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.storage import Storage, open_storage
from dkge_dist.store.tables import BlockIndex, StoredTable, differing, load_table, may_differ, save_delta, save_table

DIM, BLOCK = 2, 8


def slowly(storage: Storage, old: TableEntry, new: TableEntry) -> list[int]:
    """All rows of both, compared bit by bit."""
    tables = [load_table(storage, entry).view(np.uint32) for entry in (old, new)]
    return [row for row in range(min(old.rows, new.rows)) if tables[0][row].tolist() != tables[1][row].tolist()]


def changed(storage: Storage, old: TableEntry, new: TableEntry) -> list[int]:
    tables = StoredTable(storage, old), StoredTable(storage, new)
    return differing(*tables, may_differ(*tables)).tolist()


class History:
    """Versions of a table: updates, folds, trainings and rollbacks, as random numbers say."""

    def __init__(self, storage: Storage, seed: int, rows: int) -> None:
        self.storage, self.rng = storage, np.random.default_rng(seed)
        self.versions = [self.trained(rows, BLOCK)]

    def trained(self, rows: int, block: int) -> TableEntry:
        with self.storage.staging() as staging:
            return save_table(staging, self.rng.integers(0, 3, (rows, DIM)).astype(np.float32), block)

    def step(self, kind: str) -> None:
        now = self.versions[-1]
        if kind == "back":
            now = self.versions[self.rng.integers(len(self.versions))]
        elif kind == "train":
            now = self.trained(now.rows + int(self.rng.integers(9)), int(self.rng.choice([BLOCK, 2 * BLOCK])))
        elif kind == "fold":
            with self.storage.staging() as staging:
                now = save_table(staging, load_table(self.storage, now), BLOCK)
        else:
            now = self.updated(now)
        self.versions.append(now)

    def updated(self, now: TableEntry) -> TableEntry:
        """Some rows written, by one writer or two, some of them with what they had."""
        rows = now.rows + int(self.rng.integers(9))
        deltas = [*now.deltas]
        written = np.flatnonzero(self.rng.random(rows) < self.rng.choice([0.02, 0.3]))
        with self.storage.staging() as staging:
            for some in np.array_split(written, self.rng.integers(1, 3)):
                values = self.rng.integers(0, 3, (some.shape[0], DIM)).astype(np.float32)
                deltas.append(save_delta(staging, some, values))
        return now.model_copy(update={"rows": rows, "deltas": deltas})


KINDS = st.sampled_from(["night", "night", "night", "fold", "back", "train"])


@settings(max_examples=40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 60), st.lists(KINDS, min_size=1, max_size=7))
def test_any_two_versions_differ_where_all_of_their_rows_do(seed: int, rows: int, kinds: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        history = History(open_storage(Path(folder)), seed, rows)
        for kind in kinds:
            history.step(kind)
        for old in history.versions:
            for new in history.versions:
                assert changed(history.storage, old, new) == slowly(history.storage, old, new)


def test_zeros_of_either_sign_and_numbers_that_are_none_are_told_apart_by_their_bits(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    values = np.array([[0.0], [np.nan], [1.0]], np.float32)
    with storage.staging() as staging:
        old, new = save_table(staging, values, BLOCK), save_table(staging, values * np.float32(-1), BLOCK)
        same = save_table(staging, values, 2 * BLOCK)
    assert changed(storage, old, new) == slowly(storage, old, new)
    assert changed(storage, old, same) == []


@contextmanager
def looked_at() -> Iterator[list[int]]:
    """Blocks that are mapped meanwhile."""
    found: list[int] = []
    real = BlockIndex.map

    def counted(self: Any, number: int) -> np.ndarray:
        found.append(number)
        return real(self, number)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(BlockIndex, "map", counted)
        yield found


def test_of_an_update_only_blocks_of_written_rows_are_read(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    values = np.random.default_rng(0).random((20 * BLOCK, DIM), np.float32)
    with storage.staging() as staging:
        old = save_table(staging, values, BLOCK)
        new = old.model_copy(update={"deltas": [save_delta(staging, np.array([3, 100]), values[[4, 100]])]})
    with looked_at() as blocks:
        assert changed(storage, old, new) == [3]
    assert blocks == [0, 100 // BLOCK], "of the old version; the new one has them in its delta"


def test_of_a_fold_only_blocks_that_became_others_are_read(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    values = np.random.default_rng(0).random((20 * BLOCK, DIM), np.float32)
    with storage.staging() as staging:
        old = save_table(staging, values, BLOCK)
        values[[3, 100]] += 1
        new = save_table(staging, values, BLOCK)
    with looked_at() as blocks:
        assert changed(storage, old, new) == [3, 100]
    assert sorted(blocks) == [0, 0, 100 // BLOCK, 100 // BLOCK]
