"""An index that is asked by its codes, against one that has all vectors in memory; and bits that rot under it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dkge_dist.kernels.ranks import FilteredCandidates
from dkge_dist.store import tables
from dkge_dist.store.manifest import TableEntry
from dkge_dist.store.parts import DamagedPartError
from dkge_dist.store.storage import Storage, StoreError, open_storage
from dkge_dist.store.tables import BlockIndex, CodeIndex, load_table, save_delta, save_table
from dkge_dist.tables import coded as module
from dkge_dist.tables.coded import CodedIndex, open_index
from dkge_dist.tables.index import ExactIndex, VectorIndex
from dkge_dist.types import OFFSET, ROW
from tests.kernels.test_codes import KINDS, table_of
from tests.kernels.test_ranks import filtered_of
from tests.store.damage import flipped

DIM, BLOCK = 16, 512
"""Blocks of vectors and of codes are whole pages."""


@pytest.fixture(autouse=True)
def small_tables_have_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "CODED_FROM_ROWS", 1)
    monkeypatch.setattr(module, "FIRST_TILES", 2)
    monkeypatch.setattr(module, "GROWTH", 2)


@pytest.fixture
def storage(tmp_path: Path) -> Storage:
    return open_storage(str(tmp_path / "store"))


def saved(storage: Storage, values: np.ndarray, block: int = BLOCK) -> TableEntry:
    with storage.staging() as staging:
        return save_table(staging, values, block, coded=True)


def written(
    storage: Storage, entry: TableEntry, rng: np.random.Generator, count: int, more: int, rows_of: int
) -> TableEntry:
    """The table with `count` deltas over it, and `more` rows, some of which no delta has."""
    rows, deltas = entry.rows + more, []
    with storage.staging() as staging:
        for _ in range(count):
            some = np.flatnonzero(rng.random(rows) < rng.choice([0, 0.01, 0.3])).astype(ROW)
            values = rng.integers(-2, 3, (some.shape[0], entry.dim)).astype(np.float32)
            deltas.append(save_delta(staging, some, values))
    return entry.model_copy(update={"rows": rows, "deltas": deltas})


def opened(storage: Storage, entry: TableEntry) -> tuple[VectorIndex, ExactIndex]:
    """By codes, and its twin."""
    return open_index(storage, entry), ExactIndex(load_table(storage, entry))


def assert_same_answers(table: VectorIndex, twin: ExactIndex, rng: np.random.Generator, queries: int = 5) -> None:
    rows, dim = twin.rows, twin.dim
    assert (table.rows, table.dim) == (rows, dim)
    some = rng.permutation(rows)[: rng.integers(1, rows + 1)].astype(ROW)
    pulled = [each.vectors(some) for each in (table, twin)]
    assert pulled[0].tobytes() == pulled[1].tobytes()
    query = twin.vectors(rng.integers(0, rows, queries).astype(ROW))
    query += rng.integers(0, 2, (queries, 1)).astype(np.float32)
    lists = filtered_of([sorted(set(rng.integers(0, rows, rng.integers(0, 30)).tolist())) for _ in range(queries)])
    bound, other = (each.distances(query, *lists) for each in (table, twin))
    assert bound.tobytes() == other.tobytes()
    true = twin.distances(query, np.arange(queries + 1, dtype=OFFSET), rng.integers(0, rows, queries).astype(ROW))
    candidates = np.flatnonzero(rng.random(rows) < rng.choice([0.02, 0.9])).astype(ROW)
    counts = [each.count_closer(query, true, candidates, lists) for each in (table, twin)]
    assert np.array_equal(counts[0], counts[1])
    for top in (1, 7, rows + 3):
        found, expected = (each.nearest(query, candidates, top) for each in (table, twin))
        assert found.rows.tolist() == expected.rows.tolist()
        assert found.distances.tobytes() == expected.distances.tobytes()


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([kind for kind in KINDS if kind != "all_huge"]),
    st.sampled_from([(BLOCK, DIM), (64, DIM), (BLOCK, 5)]),
    st.integers(1, 1500),
    st.integers(0, 3),
    st.integers(0, 70),
    st.integers(0, 2**32 - 1),
)
def test_answers_are_those_of_all_vectors(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    sizes: tuple[int, int],
    rows: int,
    deltas: int,
    more: int,
    seed: int,
) -> None:
    """Mapped or read, with rows that were written over, and with rows that only deltas have, or nobody."""
    storage = open_storage(str(tmp_path_factory.mktemp("coded") / "store"))
    rng = np.random.default_rng(seed)
    block, dim = sizes
    entry = saved(storage, table_of(kind, rows, dim, rng), block)
    if deltas:
        entry = written(storage, entry, rng, deltas, more, rows)
    table, twin = opened(storage, entry)
    assert isinstance(table, CodedIndex) == (block * dim * 4 % 4096 == 0)
    assert_same_answers(table, twin, rng)
    assert_same_answers(table, twin, rng)


def test_a_table_without_codes_is_read_as_a_whole(storage: Storage) -> None:
    values = np.random.default_rng(0).normal(size=(BLOCK, DIM)).astype(np.float32)
    entry = saved(storage, values)
    table = open_index(storage, entry.model_copy(update={"codes": None}))
    assert isinstance(table, ExactIndex)
    assert np.array_equal(table.values, values)


def test_small_tables_have_no_codes(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "CODED_FROM_ROWS", 101)
    assert saved(storage, np.zeros((100, 3), np.float32)).codes is None
    assert saved(storage, np.zeros((101, 3), np.float32)).codes is not None


ASKED = {
    "nearest": lambda table, query: table.nearest(query, np.arange(1500, dtype=ROW), 5),
    "count_closer": lambda table, query: table.count_closer(
        query,
        np.full(2, 12, np.float32),
        np.arange(1500, dtype=ROW),
        FilteredCandidates(np.zeros(3, OFFSET), np.empty(0, ROW)),
    ),
    "distances": lambda table, query: table.distances(query, np.array([0, 5, 10], OFFSET), np.arange(3, 1500, 166)),
    "vectors": lambda table, query: table.vectors(np.arange(3, 1500, 166)),
}


@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("what", ["codes", "vectors"])
def test_rot_is_never_served(storage: Storage, asked: str, what: str) -> None:
    """A bit in any place: the answer is what it was, or the part is named. Those that are read are always named."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=(1500, DIM)).astype(np.float32)
    entry = saved(storage, values)
    query = values[[3, 700]]
    expected = ASKED[asked](open_index(storage, entry), query)
    parts = (CodeIndex if what == "codes" else BlockIndex)(storage, entry).parts
    named = []
    for _ in range(60):
        part = parts[rng.integers(len(parts))]
        bit = int(rng.integers(8 * part.size))
        flipped(storage.part_path(part), bit)
        try:
            found = ASKED[asked](open_index(storage, entry), query)
            assert all(np.array_equal(a, b) for a, b in zip(found, expected, strict=True))
        except DamagedPartError as error:
            named.append(part.digest in str(error))
        flipped(storage.part_path(part), bit)
    if (what == "codes" and asked in ("nearest", "count_closer")) or asked == "count_closer":
        assert len(named) == 60, "all of it is scanned"
    assert all(named)
    assert ASKED[asked](open_index(storage, entry), query)[0].tobytes() == expected[0].tobytes()


@pytest.mark.parametrize("bit", [0, 22, 31])
def test_a_row_that_is_read_is_verified(storage: Storage, bit: int) -> None:
    """The row nearest to the query, in the least of its bits: no code tells it."""
    values = np.random.default_rng(0).normal(size=(1500, DIM)).astype(np.float32)
    entry = saved(storage, values)
    part = BlockIndex(storage, entry).parts[1]
    flipped(storage.part_path(part), 8 * 4 * (100 * DIM + 3) + bit)
    table = open_index(storage, entry)
    table.vectors(np.array([BLOCK + 99, BLOCK + 101]))
    for _ in range(2):
        with pytest.raises(DamagedPartError, match=part.digest):
            table.nearest(values[[BLOCK + 100]], np.arange(1500, dtype=ROW), 1)


def test_blocks_are_verified_once(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = saved(storage, np.random.default_rng(0).normal(size=(1500, DIM)).astype(np.float32))
    table = open_index(storage, entry)
    verified = []
    real = tables.verify_bytes
    monkeypatch.setattr(tables, "verify_bytes", lambda *arguments: (verified.append(arguments[1]), real(*arguments)))
    for _ in range(3):
        table.nearest(np.zeros((1, DIM), np.float32), np.arange(1500, dtype=ROW), 1)
    assert verified == CodeIndex(storage, entry).parts


def test_nothing_is_verified_if_that_is_wanted(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DKGE_VERIFY", "folded")
    values = np.random.default_rng(0).normal(size=(1500, DIM)).astype(np.float32)
    entry = saved(storage, values)
    flipped(storage.part_path(BlockIndex(storage, entry).parts[0]), 5)
    flipped(storage.part_path(CodeIndex(storage, entry).parts[0]), 5)
    assert open_index(storage, entry).nearest(values[[1000]], np.arange(1500, dtype=ROW), 1).rows.tolist() == [[1000]]


def test_codes_of_other_vectors_are_noticed(storage: Storage) -> None:
    one, other = np.random.default_rng(0).normal(size=(2, 1500, DIM)).astype(np.float32)
    entry = saved(storage, one).model_copy(update={"codes": saved(storage, other).codes})
    with pytest.raises(StoreError, match="codes of row 5 are not those of its vector"):
        open_index(storage, entry).vectors(np.array([5]))
    short = saved(storage, one).model_copy(update={"codes": saved(storage, other[:1400]).codes})
    with pytest.raises(StoreError, match="codes of 1400 rows stand beside a table of 1500"):
        open_index(storage, short)
