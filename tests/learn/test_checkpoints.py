"""Checkpoints: a kill at any moment leaves the one before, and damage is named."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.learn.checkpoints import Checkpoints
from dkge_dist.learn.loop import StoppedError
from dkge_dist.store.store import Store
from dkge_dist.store.trainings import Trainings
from dkge_dist.surfaces import api
from dkge_dist.types import DkgeError
from tests.graphs import assert_sound, movies, write_tsv
from tests.models import load_vectors

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).parent.parent.parent
SMALL = [
    "model.dim=6", "context.cap=5", "train.batch_size=30", "train.negatives=8", "train.max_epochs=4",
    "train.eval_every=1", "train.patience=0", "threads=1",
]  # fmt: skip


def write(content: str) -> Any:
    """Fills a checkpoint with what can be told apart."""

    def fill(folder: Path) -> None:
        (folder / "dense").write_text(content)
        (folder / "entities").mkdir()
        (folder / "entities" / "knowledge").write_text(content * 1000)

    return fill


def read(checkpoints: Checkpoints, line: Any = "last") -> tuple[str, dict[str, Any]]:
    found = checkpoints.load(line)
    assert found is not None
    folder, progress = found
    content = (folder / "dense").read_text()
    assert (folder / "entities" / "knowledge").read_text() == content * 1000
    return content, progress


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_newest_of_each_line_is_kept_and_no_other(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "training")
    assert checkpoints.load("last") is None
    for number in range(1, 13):
        checkpoints.save("last", write(str(number)), {"batch": number, "loss": 0.1 * number})
        if number % 5 == 0:
            checkpoints.save("best", write(f"best {number}"), {"epoch": number})
    assert read(checkpoints) == ("12", {"batch": 12, "loss": 0.1 * 12})
    assert read(checkpoints, "best") == ("best 10", {"epoch": 10})
    assert names(checkpoints.folder) == ["best-000000002", "last-000000012"]
    checkpoints.forget()
    assert names(checkpoints.folder) == []
    assert checkpoints.load("best") is None
    checkpoints.save("last", write("anew"), {})
    assert read(checkpoints) == ("anew", {})


def test_a_save_that_fails_leaves_the_one_before(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)

    def fails(folder: Path) -> None:
        write("second")(folder)
        raise OSError(28, "No space left on device")

    checkpoints.save("last", write("first"), {"batch": 1})
    with pytest.raises(DkgeError, match=f"{tmp_path}: checkpoint not saved: No space left .*; last-000000001 is kept"):
        checkpoints.save("last", fails, {"batch": 2})
    assert read(checkpoints) == ("first", {"batch": 1})
    assert names(tmp_path) == ["last-000000001"]


def test_what_others_put_there_does_no_harm(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("last", write("first"), {})
    for name in ("last-1", "last-00000000x", "notes", "first-000000009"):
        (tmp_path / name).mkdir()
    assert read(checkpoints)[0] == "first"
    checkpoints.save("last", write("second"), {})
    checkpoints.forget()
    assert names(tmp_path) == ["first-000000009", "last-00000000x", "last-1", "notes"]


KILLED_AT_EVERY_CALL = """
import json, os, shutil, signal, sys
from pathlib import Path
from dkge_dist.store.trainings import Trainings
from dkge_dist.learn.checkpoints import Checkpoints
trainings, folder, copy = Trainings(Path(sys.argv[1])), Path(sys.argv[1]) / "first", Path(sys.argv[1]) / "copy"

def write(content):
    def fill(folder):
        (folder / "dense").write_text(content)
        (folder / "entities").mkdir()
        (folder / "entities" / "knowledge").write_text(content * 1000)
    return fill

def die_at(crash):
    count = 0
    def guarded(real):
        def call(*arguments, **options):
            nonlocal count
            count += 1
            if count == crash:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)
        return call
    for name in ("fsync", "rename", "replace", "mkdir", "unlink", "rmdir"):
        setattr(os, name, guarded(getattr(os, name)))

crash, killed = 0, True
while killed:
    crash += 1
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(folder, copy)
    child = os.fork()
    if child == 0:
        with trainings.open("copy", 1) as training:
            die_at(crash)
            Checkpoints(training.folder).save("last", write("second"), {"batch": 2})
            os._exit(0)
    killed = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    checkpoints = Checkpoints(copy)
    found, progress = checkpoints.load("last")
    content = (found / "dense").read_text()
    whole = (found / "entities" / "knowledge").read_text() == content * 1000
    with trainings.open("copy", 1):
        checkpoints.save("last", write("third"), {"batch": 3})
        left = sorted(path.name.rstrip("0123456789") for path in copy.iterdir())
    best = checkpoints.load("best")[1]
    print(json.dumps([killed, content, progress["batch"], whole, left, best]))
"""


def test_killed_at_every_call_that_changes_the_disk(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "first")
    checkpoints.save("best", write("best"), {"epoch": 1})
    checkpoints.save("last", write("first"), {"batch": 1})
    script = [sys.executable, "-c", KILLED_AT_EVERY_CALL, str(tmp_path)]
    done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [killed for killed, *_ in reports] == [True] * (len(reports) - 1) + [False]
    assert len(reports) > 10
    seen = set()
    for _, content, batch, whole, left, best in reports:
        assert (content, batch) in (("first", 1), ("second", 2))
        assert whole
        assert left == ["best-", "last-", "lock", "snapshot"]
        assert best == {"epoch": 1}
        seen.add(content)
    assert seen == {"first", "second"}


@pytest.mark.parametrize(
    "data", [b"", b"{}", b"[]", b"null", b"7", b"\xff\xfe", b'{"progress": {}}', b'{"epoch": 1, "batch": 2}', None]
)
def test_a_damaged_progress_is_named_with_advice(tmp_path: Path, data: bytes | None) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("last", write("first"), {"batch": 1})
    path = tmp_path / "last-000000001" / "progress.json"
    path.unlink()
    if data is not None:
        path.write_bytes(data)
    expected = f"{path.parent}: damaged checkpoint .*; remove {tmp_path} to start afresh"
    with pytest.raises(DkgeError, match=expected):
        checkpoints.load("last")


@pytest.mark.parametrize("name", ["progress.json", "table.npy"])
@pytest.mark.parametrize("make", [os.mkfifo, lambda path: path.symlink_to("/dev/zero")], ids=["pipe", "link"])
def test_pipes_and_links_in_a_checkpoint_are_damage(tmp_path: Path, name: str, make: Callable[[Path], None]) -> None:
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save("last", write("first"), {"batch": 1})
    path = tmp_path / "last-000000001" / name
    path.unlink(missing_ok=True)
    make(path)
    with pytest.raises(DkgeError, match=f"{path.parent}: damaged checkpoint"):
        checkpoints.load("last")


def test_any_flipped_bit_in_the_progress_is_found(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    progress = {
        "epoch": 3,
        "batch": 17,
        "loss": 0.12345678901234567,
        "best": {"hits@10": 1.0},
        "history": [{}, {"a": 1}],
    }
    checkpoints.save("last", write("first"), progress)
    path = tmp_path / "last-000000001" / "progress.json"
    content = path.read_bytes()
    found = 0
    for bit in range(8 * len(content)):
        data = bytearray(content)
        data[bit // 8] ^= 1 << bit % 8
        path.write_bytes(data)
        try:
            # Some bits tell nothing, such as those of the last digits of a number.
            assert read(checkpoints)[1] == progress
        except DkgeError:
            found += 1
    assert found > 0.95 * 8 * len(content)


@pytest.fixture
def stopped(tmp_path: Path) -> tuple[Path, Path]:
    """(A store, the checkpoint that a training left in it)."""
    store = tmp_path / "store"
    api.ingest(store, write_tsv(tmp_path / "base.tsv", movies(100)), name="first", valid=8, test=8)
    left = iter(range(5, -1, -1))
    with pytest.raises(StoppedError):
        api.train(store, settings=SMALL, stop=lambda: next(left) == 0)
    (checkpoint,) = (store / "training").glob("*/last-*")
    return store, checkpoint


FILES = [
    "progress.json", "dense.safetensors", "dense-state.safetensors", "entities/knowledge.npy",
    "entities/knowledge-state.npy", "relations/context.npy",
]  # fmt: skip


def test_damaged_checkpoints_stop_the_training_with_advice(stopped: tuple[Path, Path]) -> None:
    store, checkpoint = stopped
    before = Store.open(store).versions()
    for name in FILES:
        path = checkpoint / name
        content = path.read_bytes()
        for data in (b"", content[: len(content) // 2], None):
            path.unlink() if data is None else path.write_bytes(data)
            with pytest.raises(DkgeError, match=f"{checkpoint}: damaged checkpoint .*; remove .* to start afresh"):
                api.train(store, settings=SMALL)
        path.write_bytes(content)
    # A table of another shape, as another number of dimensions would give.
    np.save(checkpoint / "entities" / "knowledge.npy", np.zeros((3, 6), np.float32))
    with pytest.raises(DkgeError, match=r"knowledge\.npy: holds \(3, 6\) instead of"):
        api.train(store, settings=SMALL)
    assert Store.open(store).versions() == before
    report = api.train(store, settings=SMALL, fresh=True)
    assert not report["resumed"]
    assert_sound(store)


def test_a_progress_of_another_program_is_refused(stopped: tuple[Path, Path]) -> None:
    store, checkpoint = stopped
    checkpoints = Checkpoints(checkpoint.parent)
    found = checkpoints.load("last")
    assert found is not None
    _, progress = found
    for change in ({"surprise": 1}, {"batch": 10**6}):
        checkpoints.save("last", lambda folder: None, progress | change)
        with pytest.raises(DkgeError, match="its progress is not one of this training"):
            api.train(store, settings=SMALL)


def test_a_training_is_locked_while_it_runs(stopped: tuple[Path, Path]) -> None:
    store, checkpoint = stopped
    with Trainings(store / "training").open(checkpoint.parent.name, 1):
        with pytest.raises(DkgeError, match=f"process {os.getpid()} is training just this already"):
            api.train(store, settings=SMALL)
        # Another training of the same store may go on beside it.
        assert api.train(store, settings=[*SMALL, "seed=1"])["version"] == 2
    assert api.train(store, settings=SMALL)["resumed"]


KILLED_TRAINING = """
import os, signal, sys
import numba, torch
from dkge_dist.surfaces import api
store, calls, settings = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
real, left = os.fsync, calls
def fsync(descriptor):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    real(descriptor)
os.fsync = fsync
api.train(store, settings=settings)
"""


def test_a_training_that_was_killed_while_it_saved_ends_where_an_undisturbed_one_does(tmp_path: Path) -> None:
    source = write_tsv(tmp_path / "base.tsv", movies(100))
    tables = []
    for name in ("undisturbed", "killed"):
        store = tmp_path / name
        api.ingest(store, source, name="first", valid=8, test=8)
        settings = [*SMALL, "train.checkpoint_seconds=0"]
        if name == "killed":
            # A checkpoint syncs a dozen files: this is in the middle of the fifth or sixth.
            script = [sys.executable, "-c", KILLED_TRAINING, str(store), "64", *settings]
            done = subprocess.run(script, capture_output=True, text=True, cwd=ROOT, timeout=120, check=False)
            assert done.returncode == -signal.SIGKILL, done.stderr
            (folder,) = (store / "training").iterdir()
            left = names(folder)
            assert [entry for entry in left if entry.startswith(".")]
            assert [entry for entry in left if entry.startswith("last-")]
        report = api.train(store, settings=settings)
        assert report["resumed"] == (name == "killed")
        opened = Store.open(store)
        learnt = load_vectors(opened, opened.find_model().model)
        tables.append({**learnt.dense, **{f"e-{k}": v for k, v in learnt.entities.items()}, **learnt.relations})
        assert opened.find_model().model.record.valid == report["valid"]
    assert all(tables[0][key].tobytes() == tables[1][key].tobytes() for key in tables[0])
