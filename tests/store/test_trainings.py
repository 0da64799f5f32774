"""Folders of trainings: one process works in one, cleaning leaves it alone, and abandoned ones are found."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from dkge_dist import files
from dkge_dist.store.trainings import Training, Trainings
from dkge_dist.types import DkgeError

KEY = "0123456789abcdef"
DAY = 86400.0

WORK = """
import sys, time
from pathlib import Path
from dkge_dist.store.trainings import Trainings
with Trainings(Path(sys.argv[1])).open(sys.argv[2], 3):
    print("at work", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def trainings(tmp_path: Path) -> Trainings:
    return Trainings(tmp_path / "training")


def test_folder_says_what_is_trained(trainings: Trainings) -> None:
    assert list(trainings) == []
    with trainings.open(KEY, 3) as training:
        assert training.folder == trainings.folder / KEY
        (found,) = trainings
        assert (found.folder, found.snapshot) == (training.folder, 3)
    with trainings.open(KEY, 3) as training:
        training.remove()
    assert list(trainings) == []
    assert list(trainings.folder.iterdir()) == []


def test_second_process_is_kept_out_until_the_first_is_gone(trainings: Trainings) -> None:
    folder = trainings.folder / KEY
    script = [sys.executable, "-c", WORK, str(trainings.folder), KEY]
    with subprocess.Popen(script, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "at work\n"
        expected = f"{folder}: process {first.pid} is training just this already"
        for _ in range(2):
            with pytest.raises(DkgeError, match=expected), trainings.open(KEY, 3):
                pass
        with trainings.open("other", 3):
            pass
        assert not Training(folder).is_abandoned(time.time() + DAY)
        first.send_signal(signal.SIGKILL)
        first.wait()
    with trainings.open(KEY, 3):
        assert (folder / "lock").read_text() == str(os.getpid())
        with pytest.raises(DkgeError, match=f"process {os.getpid()} is"), trainings.open(KEY, 3):
            pass
    with trainings.open(KEY, 3):
        pass


def test_training_that_another_process_has_just_finished(trainings: Trainings, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one removes the folder after the second one opened the lock and before that one gets it."""
    real = files.fcntl.flock

    def late(file: Any, operation: int) -> None:
        Training(trainings.folder / KEY).remove()
        real(file, operation)

    with monkeypatch.context() as patch:
        patch.setattr(files.fcntl, "flock", late)
        with pytest.raises(DkgeError, match="another process has just finished training this"), trainings.open(KEY, 3):
            pass
    with trainings.open(KEY, 3) as training:
        assert training.snapshot == 3


def test_nothing_is_written_where_a_link_leads(trainings: Trainings, tmp_path: Path) -> None:
    aside = tmp_path / "aside"
    aside.mkdir()
    trainings.folder.mkdir(parents=True, exist_ok=True)
    (trainings.folder / "linked").symlink_to(aside)
    with pytest.raises(DkgeError, match="is a link"), trainings.open("linked", 1):
        pass
    (trainings.folder / "snapshots").mkdir()
    (aside / "file").write_text("somebody's")
    (trainings.folder / "snapshots" / "snapshot").symlink_to(aside / "file")
    with trainings.open("snapshots", 7) as training:
        assert training.snapshot == 7
    assert (aside / "file").read_text() == "somebody's"
    assert sorted(path.name for path in aside.iterdir()) == ["file"]


def test_unfinished_work_of_a_killed_process_is_removed(trainings: Trainings) -> None:
    folder = trainings.folder / KEY
    (folder / ".unfinished").mkdir(parents=True)
    (folder / "last-000000001").mkdir()
    with trainings.open(KEY, 3):
        assert sorted(os.listdir(folder)) == ["last-000000001", "lock", "snapshot"]


@pytest.mark.parametrize("content", [None, "", "many"])
def test_folder_that_does_not_say_what_is_trained(trainings: Trainings, content: str | None) -> None:
    folder = trainings.folder / KEY
    folder.mkdir(parents=True)
    if content is not None:
        (folder / "snapshot").write_text(content)
    (found,) = trainings
    assert found.snapshot is None


@pytest.mark.parametrize("lock", [True, False])
def test_abandoned_when_old_and_not_held(trainings: Trainings, lock: bool) -> None:
    folder = trainings.folder / KEY
    folder.mkdir(parents=True)
    if lock:
        (folder / "lock").touch()
    now = time.time()
    os.utime(folder, (now - DAY, now - DAY))
    training = Training(folder)
    for _ in range(2):
        assert training.is_abandoned(now), "looking does not make it young"
        assert not training.is_abandoned(now - 2 * DAY)
    assert not training.remove_abandoned(now - 2 * DAY)
    assert folder.exists()
    assert training.remove_abandoned(now)
    assert not folder.exists()
    assert not training.is_abandoned(now)
    assert not training.remove_abandoned(now)


def test_training_that_is_resumed_meanwhile_is_not_removed(trainings: Trainings) -> None:
    with trainings.open(KEY, 3) as training:
        assert not training.remove_abandoned(time.time() + DAY)
        assert training.snapshot == 3
    assert training.remove_abandoned(time.time() + DAY)


def test_files_beside_the_folders_are_no_trainings(trainings: Trainings) -> None:
    trainings.folder.mkdir()
    (trainings.folder / "notes").touch()
    assert list(trainings) == []
