"""Checkpoint files of a table: whole however many shards write them, and what cannot be written or read is named."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.tables.checkpoint import DamagedCheckpointError, create_files, read_rows, write_rows
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import Shard
from dkge_dist.types import TRAINED, Array, DkgeError, Field
from tests.tables.rows import ADAGRAD, BLOCK, DIM, EVERY_ROW, ROWS, START, pushed, random_gradients

pytestmark = pytest.mark.usefixtures("one_thread")

FILES = ["context-state.npy", "context.npy", "knowledge-state.npy", "knowledge.npy"]
ROOT = Path(__file__).parents[2]


def trained_shard() -> Shard:
    """All rows, with an optimizer state."""
    shard = Shard(START.whole())
    pushed(shard, random_gradients(np.random.default_rng(0), {field: EVERY_ROW for field in TRAINED}), ADAGRAD)
    return shard


def part_of(whole: Shard, plan: ShardPlan, number: int) -> Shard:
    """What one shard holds of the whole."""
    rows = plan.held(number)
    shard = Shard({field: values[rows] for field, values in whole.values.items()})
    shard.state = {field: values[rows] for field, values in whole.state.items()}
    return shard


def blank(plan: ShardPlan, number: int) -> Shard:
    return Shard({field: np.zeros((plan.size(number), DIM), np.float32) for field in Field})


def assert_same(one: Shard, other: Shard) -> None:
    for field in TRAINED:
        assert one.values[field].tobytes() == other.values[field].tobytes()
        assert one.state[field].tobytes() == other.state[field].tobytes()


@pytest.mark.parametrize("writers", [1, 3])
@pytest.mark.parametrize("readers", [1, 2, 30])
def test_any_number_of_shards_reads_what_any_number_wrote(tmp_path: Path, writers: int, readers: int) -> None:
    whole = trained_shard()
    create_files(tmp_path, ROWS, DIM)
    plan = ShardPlan(ROWS, BLOCK, writers)
    for number in range(writers):
        write_rows(tmp_path, part_of(whole, plan, number), plan.spans(number))
    plan = ShardPlan(ROWS, BLOCK, readers)
    for number in range(readers):
        found = blank(plan, number)
        read_rows(tmp_path, found, plan.spans(number), ROWS)
        assert_same(found, part_of(whole, plan, number))


def test_the_files_are_plain_arrays_of_the_whole_table(tmp_path: Path) -> None:
    whole = trained_shard()
    create_files(tmp_path, ROWS, DIM)
    write_rows(tmp_path, whole, ShardPlan(ROWS, BLOCK, 1).spans(0))
    assert sorted(path.name for path in tmp_path.iterdir()) == FILES
    for field in TRAINED:
        assert np.array_equal(np.load(tmp_path / f"{field}.npy"), whole.values[field])
        assert np.array_equal(np.load(tmp_path / f"{field}-state.npy"), whole.state[field])


def test_a_shard_that_writes_meanwhile_keeps_its_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other shard writes between the moment that this one opens a file and the moment that it writes."""
    whole, plan = trained_shard(), ShardPlan(ROWS, BLOCK, 2)
    create_files(tmp_path, ROWS, DIM)
    read_header: Callable[..., Any] = np.lib.format.read_array_header_1_0

    def interrupted(file: Any) -> Any:
        found = read_header(file)
        monkeypatch.undo()
        write_rows(tmp_path, part_of(whole, plan, 1), plan.spans(1))
        return found

    monkeypatch.setattr(np.lib.format, "read_array_header_1_0", interrupted)
    write_rows(tmp_path, part_of(whole, plan, 0), plan.spans(0))
    found = blank(ShardPlan(ROWS, BLOCK, 1), 0)
    read_rows(tmp_path, found, ShardPlan(ROWS, BLOCK, 1).spans(0), ROWS)
    assert_same(found, whole)


def test_a_second_checkpoint_does_not_go_over_the_first(tmp_path: Path) -> None:
    create_files(tmp_path, ROWS, DIM)
    with pytest.raises(DkgeError, match=r"knowledge\.npy: File exists"):
        create_files(tmp_path, ROWS, DIM)


FULL_DISK = """
import json, resource, sys
from pathlib import Path
from dkge_dist.tables.initializer import RowInitializer
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import DkgeError

table = LocalTable.initialized(RowInitializer((1, 0), 1000, 8, 1.0))
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
try:
    table.save_checkpoint(Path(sys.argv[1]))
except DkgeError as error:
    print(json.dumps(str(error)))
"""


@pytest.mark.parametrize("limit", [0, 20_000, 32_127])
def test_a_full_disk_is_an_error_that_names_the_file(tmp_path: Path, limit: int) -> None:
    """The system refuses to let files grow over a limit: before the first byte, within the rows, at the last one."""
    script = [sys.executable, "-c", FULL_DISK, str(tmp_path), str(limit)]
    done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == f"{tmp_path / 'knowledge.npy'}: File too large (32,000 bytes are needed)"


def saved(folder: Path) -> None:
    create_files(folder, ROWS, DIM)
    write_rows(folder, trained_shard(), ShardPlan(ROWS, BLOCK, 1).spans(0))


def loaded(folder: Path) -> None:
    plan = ShardPlan(ROWS, BLOCK, 1)
    read_rows(folder, blank(plan, 0), plan.spans(0), ROWS)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("kept", [0, 5, 60, 0.5, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, name: str, kept: float) -> None:
    saved(tmp_path)
    content = (tmp_path / name).read_bytes()
    size = int(kept * len(content)) if isinstance(kept, float) else kept % len(content)
    (tmp_path / name).write_bytes(content[:size])
    with pytest.raises(DamagedCheckpointError, match=f"{tmp_path / name}: "):
        loaded(tmp_path)


@pytest.mark.parametrize(
    "content",
    [
        np.zeros((3, DIM), np.float32),
        np.zeros((ROWS, DIM + 1), np.float32),
        np.zeros(ROWS, np.float32),
        np.zeros((ROWS, DIM), np.float64),
        np.zeros((ROWS, DIM), np.int32),
    ],
    ids=lambda array: f"{array.shape}-{array.dtype}",
)
def test_a_file_of_another_table_is_refused(tmp_path: Path, content: Array) -> None:
    saved(tmp_path)
    np.save(tmp_path / "knowledge.npy", content)
    with pytest.raises(DamagedCheckpointError, match=r"knowledge\.npy: holds "):
        loaded(tmp_path)


def test_a_file_of_objects_is_refused(tmp_path: Path) -> None:
    """Reading it would run what it says."""
    saved(tmp_path)
    np.save(tmp_path / "context.npy", np.array([{}] * ROWS), allow_pickle=True)
    with pytest.raises(DamagedCheckpointError, match=r"context\.npy: "):
        loaded(tmp_path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    saved(tmp_path)
    (tmp_path / "context-state.npy").unlink()
    with pytest.raises(DamagedCheckpointError, match=r"context-state\.npy: No such file"):
        loaded(tmp_path)
