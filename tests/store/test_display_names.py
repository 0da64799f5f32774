"""Display names in a store against plain dictionaries: names by row, rows by name, and what changed."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dkge_dist.graph.dictionary import NameTable
from dkge_dist.graph.labels import Labels
from dkge_dist.store import display_names
from dkge_dist.store.display_names import StoredNames, add_names, check_run, load_run
from dkge_dist.store.manifest import PartEntry
from dkge_dist.store.parts import RUN_GROWTH, save_columns
from dkge_dist.store.storage import Storage, StoreError, open_storage
from dkge_dist.types import ROW
from tests.store.damage import flipped

ROWS = 40
NAME = st.one_of(
    st.sampled_from(["Hamlet", "hamlet", "HAMLET", "Ödipus", "ödipus", "Straße", "STRASSE", "ﬁ", "x" * 300]),
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4),
    st.just(""),
)
"""An empty one takes the name away."""
NIGHTS = st.lists(st.dictionaries(st.integers(0, ROWS - 1), NAME, max_size=12), max_size=8)


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Storage:
    return open_storage(tmp_path_factory.mktemp("names"))


def table(names: dict[int, str]) -> NameTable:
    return NameTable.of(np.array([*names], ROW), Labels.from_strings(names.values()))


def stored(storage: Storage, nights: list[dict[int, str]]) -> list[PartEntry]:
    runs: list[PartEntry] = []
    with storage.staging() as staging:
        for night in nights:
            runs = add_names(staging, runs, table(night))
    return runs


def after(nights: list[dict[int, str]]) -> dict[int, str]:
    """The names after some nights."""
    every: dict[int, str] = {}
    for night in nights:
        every |= night
    return {row: name for row, name in every.items() if name}


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nights=NIGHTS)
def test_names_after_nights_are_those_of_a_dictionary(storage: Storage, nights: list[dict[int, str]]) -> None:
    runs = stored(storage, nights)
    expected = after(nights)
    names = StoredNames(storage, runs)
    assert names.of(range(-1, ROWS + 1)) == [expected.get(row) for row in range(-1, ROWS + 1)]
    for wanted in {name for night in nights for name in night.values()} | {"hamlet", "nobody"}:
        found = {(row, name) for row, name in expected.items() if wanted and name.casefold() == wanted.casefold()}
        assert set(names.find(wanted)) == found
    whole = names.table()
    assert dict(zip(whole.rows.tolist(), whole.names, strict=True)) == expected
    sizes = [run.rows for run in runs]
    assert all(longer >= RUN_GROWTH * shorter for longer, shorter in itertools.pairwise(sizes))
    assert [problem for run in runs for problem in check_run(storage, run, ROWS)] == []


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(nights=NIGHTS, more=st.dictionaries(st.integers(0, ROWS - 1), NAME), few=st.sampled_from([0, 1000]))
def test_what_changes_is_what_is_written(
    storage: Storage, nights: list[dict[int, str]], more: dict[int, str], few: int
) -> None:
    """One by one, and all at once."""
    expected = after(nights)
    some = {row: name for row, name in expected.items() if row % 3 == 0}
    given_names = {**some, **more}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(display_names, "FEW", few)
        changed = StoredNames(storage, stored(storage, nights)).changed(table(given_names))
    found = dict(zip(changed.rows.tolist(), changed.names, strict=True))
    assert found == {row: name for row, name in given_names.items() if expected.get(row, "") != name}


def test_names_that_were_taken_away_leave_nothing_behind(storage: Storage) -> None:
    assert stored(storage, [{1: "one", 2: "two"}, {1: "", 2: ""}]) == []
    (run,) = stored(storage, [{1: "one", 2: "two"}, {1: ""}])
    assert run.rows == 1


def large(storage: Storage) -> PartEntry:
    (run,) = stored(storage, [{row: f"The Name {row}" for row in range(0, 4000, 2)}])
    return run


def test_nothing_is_read_before_it_is_asked_for(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    run = large(storage)
    monkeypatch.setattr(type(storage), "part_path", lambda self, part: pytest.fail("a part was read"))
    StoredNames(storage, [run])


def test_no_wrong_bit_makes_a_wrong_name(storage: Storage) -> None:
    run = large(storage)
    path = storage.part_path(run.part)
    rng = np.random.default_rng(5)
    bits = rng.integers(0, 8 * run.size, 150).tolist()
    bits += rng.integers(0, 8 * 1024, 50).tolist()  # What says where the columns are.
    bits += (8 * run.size - 1 - rng.integers(0, 8 * 1024, 50)).tolist()
    refused = 0
    for bit in bits:
        flipped(path, bit)
        row = int(rng.integers(0, 4000))
        try:
            names = StoredNames(storage, [run])
            assert names.of([row]) == [f"The Name {row}" if row % 2 == 0 else None]
            assert [found.row for found in names.find(f"THE NAME {row}")] == ([row] if row % 2 == 0 else [])
        except StoreError as error:
            refused += str(path) in str(error)
        flipped(path, bit)
    assert refused > 90


def test_crafted_runs_are_refused(storage: Storage) -> None:
    """Whoever can compute checksums gets an error, not a crash."""
    columns = {
        "row": np.array([1, 2], np.int32),
        "name": Labels.from_strings(["a", "b"]).to_arrow(),
        "hash": np.array([5, 4], np.uint64),
        "place": np.array([0, 7], np.int32),
    }
    with storage.staging() as staging:
        run = save_columns(staging, columns)
        unordered = save_columns(staging, {**columns, "row": np.array([2, 2], np.int32)})
        other = save_columns(staging, {"row": columns["row"]})
    assert list(check_run(storage, run, 9)) == [f"part {run.digest}: the index of its names is none"]
    assert f"part {run.digest} names rows that no label has" in list(check_run(storage, run, 2))
    with pytest.raises(StoreError, match="its rows are not ascending"):
        load_run(storage, unordered)
    with pytest.raises(StoreError, match="holds columns"):
        StoredNames(storage, [other]).of([1])


def test_what_a_night_writes_follows_what_it_names(tmp_path: Path) -> None:
    """Of two hundred nights of five names, each name is written about ten times."""
    storage = open_storage(tmp_path)
    runs: list[PartEntry] = []
    rows = 0
    with storage.staging() as staging:
        for night in range(200):
            before = runs
            runs = add_names(staging, runs, table({row: f"n{row}" for row in range(5 * night, 5 * night + 5)}))
            rows += sum(run.rows for run in runs if run not in before)
            assert len(runs) <= 5
    assert rows <= 5 * 200 * 12
