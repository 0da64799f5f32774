"""Files that are made once: found again, verified, shared, done without, and removed when unused."""

from __future__ import annotations

import fcntl
import mmap
import os
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from dkge_dist.surfaces.http import mmap_cache as module
from dkge_dist.surfaces.http.mmap_cache import UNUSED_SECONDS, cache_folder, mmap_cached
from dkge_dist.types import ROW, Array


class Numbers:
    """Makes an array, and counts how often."""

    def __init__(self, count: int = 5) -> None:
        self.count, self.made = count, 0

    def load(self, path: Path) -> Array:
        return mmap_cached(path, self._read, self._make, lambda array: [array[:2], array[2:]])

    def _read(self, data: Array) -> Array | None:
        return data.view(ROW) if data.shape[0] == 4 * self.count else None

    def _make(self) -> Array:
        self.made += 1
        return np.arange(self.count, dtype=ROW)


def is_mapped(array: Array) -> bool:
    base = array
    while isinstance(base, np.ndarray) and base.base is not None:
        base = base.base
    return isinstance(getattr(base, "obj", base), mmap.mmap)


def test_it_is_made_once_and_mapped(tmp_path: Path) -> None:
    numbers, path = Numbers(), tmp_path / "made" / "here" / "name"
    for _ in range(3):
        found = numbers.load(path)
        assert found.tolist() == [0, 1, 2, 3, 4] and is_mapped(found) and not found.flags.writeable
    assert numbers.made == 1
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert Numbers(0).load(tmp_path / "empty").tolist() == []


def test_what_is_not_as_it_was_written_is_made_anew(tmp_path: Path) -> None:
    numbers, path = Numbers(), tmp_path / "name"
    numbers.load(path)
    sound = path.read_bytes()
    for spoilt in (b"", sound[:7], sound[:-1], sound + b"\0", bytes([sound[0] ^ 1]) + sound[1:]):
        path.write_bytes(spoilt)
        made = numbers.made
        assert numbers.load(path).tolist() == [0, 1, 2, 3, 4]
        assert numbers.made == made + 1 and path.read_bytes() == sound
    # Sound bytes of something else.
    Numbers(7).load(tmp_path / "other")
    os.replace(tmp_path / "other", path)
    assert numbers.load(path).tolist() == [0, 1, 2, 3, 4]
    # No link is followed.
    os.replace(path, tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    made = numbers.made
    assert numbers.load(path).tolist() == [0, 1, 2, 3, 4] and numbers.made == made + 1


def test_a_folder_that_cannot_be_used_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    numbers = Numbers()
    assert numbers.load(tmp_path / "file" / "folder" / "name").tolist() == [0, 1, 2, 3, 4]
    monkeypatch.setattr(module, "_is_own", lambda folder: False)
    assert numbers.load(tmp_path / "name").tolist() == [0, 1, 2, 3, 4]
    assert numbers.made == 2 and [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_full_disk_is_no_reason_not_to_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module.files, "replace", full)
    assert Numbers().load(tmp_path / "name").tolist() == [0, 1, 2, 3, 4]


def test_of_several_one_makes_it(tmp_path: Path) -> None:
    numbers, path = Numbers(), tmp_path / "name"
    with (tmp_path / ".lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        threads = [threading.Thread(target=numbers.load, args=(path,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(0.2)
        assert not numbers.made
    for thread in threads:
        thread.join()
    assert numbers.made == 1


def test_nobody_waits_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_SECONDS", 0.1)
    with (tmp_path / ".lock").open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert Numbers().load(tmp_path / "name").tolist() == [0, 1, 2, 3, 4]


def test_what_nobody_opened_for_long_is_removed(tmp_path: Path) -> None:
    numbers = Numbers()
    held = numbers.load(tmp_path / "old")
    numbers.load(tmp_path / "used")
    (tmp_path / "folder").mkdir()
    long_ago = time.time() - UNUSED_SECONDS - 60
    for path in tmp_path.iterdir():
        os.utime(path, (long_ago, long_ago))
    numbers.load(tmp_path / "used")
    numbers.load(tmp_path / "new")
    assert {path.name for path in tmp_path.iterdir()} == {".lock", "folder", "new", "used"}
    assert held.tolist() == [0, 1, 2, 3, 4], "who has it mapped keeps it"


def test_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DKGE_CACHE", "/some/where")
    assert cache_folder() == Path("/some/where")
    monkeypatch.delenv("DKGE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/home/cache")
    assert cache_folder() == Path("/home/cache/dkge_dist")
