"""Locks between processes: held by one, and gone with it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dkge_dist import files

HOLD = """
import sys, time
from pathlib import Path
from dkge_dist import files
with files.hold_lock(Path(sys.argv[1])):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_is_held_by_one_process_until_it_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
        assert first.stdout.readline() == "locked\n"
        for hold in (files.hold_lock, files.hold_lock, files.hold_existing_lock):
            with pytest.raises(files.LockHeldError) as refused, hold(path):
                pass
            assert refused.value.holder == str(first.pid)
        first.send_signal(signal.SIGKILL)
        first.wait()
    with files.hold_lock(path):
        assert path.read_text() == str(os.getpid())


def test_is_not_reentrant(tmp_path: Path) -> None:
    with files.hold_lock(tmp_path / "lock"), pytest.raises(files.LockHeldError), files.hold_lock(tmp_path / "lock"):
        pass
    with files.hold_lock(tmp_path / "lock"):
        pass


def test_shorter_process_id_replaces_a_longer_one(tmp_path: Path) -> None:
    (tmp_path / "lock").write_text("1" * 50)
    with files.hold_lock(tmp_path / "lock"):
        assert (tmp_path / "lock").read_text() == str(os.getpid())


def test_holding_an_existing_lock_writes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    with pytest.raises(FileNotFoundError), files.hold_existing_lock(path):
        pass
    path.write_text("7")
    os.utime(path, (1, 1))
    before = tmp_path.stat().st_mtime_ns
    with files.hold_existing_lock(path), files.hold_existing_lock(path):
        with pytest.raises(files.LockHeldError), files.hold_lock(path):
            pass
        assert (path.read_text(), path.stat().st_mtime) == ("7", 1)
    assert tmp_path.stat().st_mtime_ns == before


def test_file_that_is_removed_while_it_is_locked_excludes_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    real = files.fcntl.flock

    def late(file: Any, operation: int) -> None:
        path.unlink()
        real(file, operation)

    with monkeypatch.context() as patch:
        patch.setattr(files.fcntl, "flock", late)
        with pytest.raises(files.LockRemovedError), files.hold_lock(path):
            pass
    with files.hold_lock(path):
        pass


def test_folder_that_is_gone(tmp_path: Path) -> None:
    with pytest.raises(files.LockRemovedError), files.hold_lock(tmp_path / "gone" / "lock"):
        pass


def test_link_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("content")
    (tmp_path / "lock").symlink_to(tmp_path / "precious")
    with pytest.raises(OSError, match="lock"), files.hold_lock(tmp_path / "lock"):
        pass
    assert (tmp_path / "precious").read_text() == "content"
