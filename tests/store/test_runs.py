"""Runs of hashes against plain sets."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dkge_dist.store.manifest import PartEntry
from dkge_dist.store.parts import HASH_TYPES, RUN_GROWTH, add_run, has_hashes, read_numbers, versions_of
from dkge_dist.store.storage import Storage, open_storage

HASH = st.one_of(st.integers(0, 20), st.integers(2**64 - 3, 2**64 - 1))


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    return open_storage(tmp_path_factory.mktemp("runs"))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(nights=st.lists(st.lists(HASH, max_size=12), max_size=12), asked=st.lists(HASH, max_size=20))
def test_hashes_are_found_as_in_a_set(storage: Storage, nights: list[list[int]], asked: list[int]) -> None:
    runs: list[PartEntry] = []
    known: set[int] = set()
    with storage.staging() as staging:
        for night in nights:
            runs = add_run(staging, runs, {"hash": np.array(night, np.uint64)})
            known |= set(night)
            sizes = [run.rows for run in runs]
            assert all(longer >= RUN_GROWTH * shorter for longer, shorter in itertools.pairwise(sizes))
    found = has_hashes([read_numbers(storage, run, HASH_TYPES)[0] for run in runs], np.array(asked, np.uint64))
    assert found.tolist() == [one in known for one in asked]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=30)
@given(nights=st.lists(st.lists(st.tuples(HASH, st.integers(1, 9)), max_size=12), max_size=12), asked=HASH)
def test_versions_are_found_as_in_a_dictionary(
    storage: Storage, nights: list[list[tuple[int, int]]], asked: int
) -> None:
    runs: list[PartEntry] = []
    known: set[tuple[int, int]] = set()
    with storage.staging() as staging:
        for night in nights:
            hashes, versions = zip(*night, strict=True) if night else ((), ())
            columns = {"hash": np.array(hashes, np.uint64), "version": np.array(versions, np.int64)}
            runs = add_run(staging, runs, columns)
            known |= set(night)
    assert set(versions_of(storage, runs, asked)) == {version for one, version in known if one == asked}


def test_what_was_written_is_rarely_written_again(tmp_path: Path) -> None:
    """Of two hundred nights of the same size, each hash is written about ten times."""
    storage = open_storage(tmp_path)
    runs: list[PartEntry] = []
    rows = 0
    with storage.staging() as staging:
        for night in range(200):
            before = runs
            runs = add_run(staging, runs, {"hash": np.arange(5 * night, 5 * night + 5, dtype=np.uint64)})
            rows += sum(run.rows for run in runs if run not in before)
            assert len(runs) <= 5
    assert rows <= 5 * 200 * 12
