"""Files that a user names: pipes and devices are refused at once, whatever they would have given."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dkge_dist import files
from dkge_dist.files import open_regular, read_regular


def test_regular_files_and_links_to_them(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        assert read_regular(tmp_path / name) == read_regular(tmp_path / name, 7) == b"content"
    with pytest.raises(OSError, match="has 7 bytes, more than 6"):
        read_regular(tmp_path / "file", 6)
    with pytest.raises(OSError, match="Too many levels of symbolic links"):
        open_regular(tmp_path / "link", follow_links=False)


def test_what_is_written_and_locked_is_a_regular_file(tmp_path: Path) -> None:
    """Nothing is waited for, and nothing is written where a link leads."""
    (tmp_path / "aside").write_bytes(b"somebody's")
    (tmp_path / "link").symlink_to("aside")
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe"):
        with pytest.raises(OSError, match=name):
            files.write_regular(tmp_path / name)
        with pytest.raises(OSError, match=name), files.hold_lock(tmp_path / name):
            pass
        with pytest.raises(OSError, match=name), files.hold_existing_lock(tmp_path / name):
            pass
    assert (tmp_path / "aside").read_bytes() == b"somebody's"
    for content in (b"a longer one", b"new"):
        with files.write_regular(tmp_path / "file") as file:
            file.write(content)
        assert files.read_regular(tmp_path / "file") == content


def test_pipes_devices_and_folders_are_refused(tmp_path: Path) -> None:
    """A pipe without a writer would be waited for."""
    os.mkfifo(tmp_path / "pipe")
    open_files = len(os.listdir("/proc/self/fd"))
    for path, problem in (
        (tmp_path / "pipe", "a pipe cannot be read"),
        (Path("/dev/zero"), "a device cannot be read"),
        (tmp_path, "Is a directory"),
        (tmp_path / "absent", "No such file"),
    ):
        with pytest.raises(OSError, match=f"{problem}.*{path}"):
            open_regular(path)
    assert len(os.listdir("/proc/self/fd")) == open_files


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is done to the disk, in order: (call, name of the file or folder it is done to)."""
    seen: list[tuple[str, str]] = []

    def watched(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            target = arguments[-1] if name in ("link", "replace") else arguments[0]
            path = Path(os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else target)
            shown = "temporary" if files.UNFINISHED.fullmatch(path.name) else str(path.relative_to(tmp_path))
            seen.append((name, shown))
            return real(*arguments, **options)

        return call

    for name in ("fsync", "link", "replace", "unlink"):
        monkeypatch.setattr(os, name, watched(name, getattr(os, name)))
    monkeypatch.setattr(os, "mkdir", watched("mkdir", lambda path, mode=0o777, real=os.mkdir: real(path, mode)))
    return seen


def test_create_syncs_the_file_before_it_has_its_name(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    assert files.create(tmp_path / "file", b"data")
    assert calls == [("fsync", "temporary"), ("link", "file"), ("fsync", "."), ("unlink", "temporary")]
    assert (tmp_path / "file").read_bytes() == b"data"
    assert os.listdir(tmp_path) == ["file"]


def test_create_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"first")
    assert not files.create(tmp_path / "file", b"second")
    assert (tmp_path / "file").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


def test_replace_syncs_the_file_before_it_has_its_name(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    (tmp_path / "file").write_bytes(b"first")
    files.replace(tmp_path / "file", b"second")
    assert calls[:3] == [("fsync", "temporary"), ("replace", "file"), ("fsync", ".")]
    assert (tmp_path / "file").read_bytes() == b"second"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("write", [files.create, files.replace])
def test_full_disk_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path, bytes], object]
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    (tmp_path / "file").write_bytes(b"first")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(tmp_path / "file", b"second")
    assert (tmp_path / "file").read_bytes() == b"first"
    assert os.listdir(tmp_path) == ["file"]


def test_directories_are_synced_from_the_top(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    files.make_directory(tmp_path / "a" / "b")
    assert calls == [("mkdir", "a"), ("fsync", "."), ("mkdir", "a/b"), ("fsync", "a")]
    calls.clear()
    files.make_directory(tmp_path / "a" / "b")
    assert calls == []


def test_sync_tree_syncs_all_files_and_folders(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "file").touch()
    calls.clear()
    files.sync_tree(tmp_path / "a")
    assert sorted(calls) == [("fsync", "a"), ("fsync", "a/b"), ("fsync", "a/b/file")]


def test_sync_of_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.sync(tmp_path / "absent")


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
