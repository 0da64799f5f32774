"""Durable files: synced before they get their name, and the folder after it. Failures leave what was there."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dkge_dist import files


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
