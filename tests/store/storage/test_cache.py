"""The cache of parts: bounded, shared, and never in the way of whoever has just got a path."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import IO

import pytest

from dkge_dist.store.storage import Blob, StoreError
from dkge_dist.store.storage.cache import PartCache
from dkge_dist.types import UsageError
from tests.store.storage.contract import part_of

HOUR = 3600.0


@pytest.fixture
def cache(tmp_path: Path) -> PartCache:
    return PartCache(tmp_path / "cache", 10_000)


def bring(cache: PartCache, content: bytes, age: float = 0.0) -> Blob:
    part = part_of(content)
    path = cache.bring(part, lambda file: file.write(content) and None)
    os.utime(path, (time.time() - age, time.time() - age))
    return part


def filled(cache: PartCache) -> list[Blob]:
    """Five parts of 3,000 bytes, the oldest first."""
    parts = [bring(cache, bytes([number]) * 3000) for number in range(5)]
    return [bring(cache, bytes([number]) * 3000, age=(10 - number) * HOUR) for number in range(5)] and parts


def kept(cache: PartCache) -> set[str]:
    return {path.name for path in cache.folder.glob("parts/??/*")}


def test_oldest_go_first(cache: PartCache) -> None:
    parts = filled(cache)
    cache.trim()
    assert kept(cache) == {part.digest for part in parts[2:]}


def test_what_was_asked_for_is_young(cache: PartCache) -> None:
    parts = filled(cache)
    assert cache.find(parts[0]) is not None
    cache.trim()
    assert kept(cache) == {part.digest for part in (parts[0], *parts[3:])}


def test_what_was_asked_for_just_now_stays_whatever_the_limit(cache: PartCache) -> None:
    parts = [bring(cache, bytes([number]) * 3000, age=HOUR / 2) for number in range(8)]
    cache.trim()
    assert kept(cache) == {part.digest for part in parts}


def test_it_is_looked_through_as_it_fills(cache: PartCache) -> None:
    old = [bring(cache, bytes([number]) * 3000, age=2 * HOUR) for number in range(3)]
    bring(cache, b"x" * 3000)
    assert old[0].digest not in kept(cache)


def test_leftovers_of_killed_processes_go(cache: PartCache) -> None:
    part = part_of(b"content")
    folder = cache.folder / "parts" / part.digest[:2]
    folder.mkdir(parents=True)
    (folder / f".{part.digest}").write_bytes(b"half")
    (cache.folder / "staging" / "gone").mkdir(parents=True)
    with cache.staging() as at_work:
        cache.trim()
        assert kept(cache) == {f".{part.digest}"}
        cache.trim(lambda: time.time() + 30 * HOUR)
        assert kept(cache) == set()
        assert not at_work.exists()
    assert bring(cache, b"content") == part


@pytest.mark.parametrize("damage", [b"", b"cont", b"content and more"])
def test_file_of_another_size_is_brought_again(cache: PartCache, damage: bytes) -> None:
    part = bring(cache, b"content")
    path = cache.find(part)
    assert path is not None
    path.write_bytes(damage)
    assert cache.find(part) is None
    bring(cache, b"content")
    assert path.read_bytes() == b"content"


def test_link_is_not_followed(cache: PartCache, tmp_path: Path) -> None:
    part = bring(cache, b"content")
    path = cache.find(part)
    assert path is not None
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert cache.find(part) is None
    bring(cache, b"content")
    assert not path.is_symlink()


def test_download_that_fails_leaves_nothing(cache: PartCache) -> None:
    def fails(file: IO[bytes]) -> None:
        file.write(b"half")
        raise StoreError("the network is down")

    with pytest.raises(StoreError, match="the network is down"):
        cache.bring(part_of(b"content"), fails)
    assert kept(cache) == set()


def test_full_disk_is_told_with_what_helps(cache: PartCache) -> None:
    def full(file: IO[bytes]) -> None:
        raise OSError(28, "No space left on device")

    expected = rf"{cache.folder}: No space left on device \(7 bytes are needed\); DKGE_CACHE names another folder"
    with pytest.raises(StoreError, match=expected):
        cache.bring(part_of(b"content"), full)


class TestEnvironment:
    def test_default_is_in_the_home(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("DKGE_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        cache = PartCache.of_environment()
        assert (cache.folder, cache.limit) == (tmp_path / "dkge_dist" / "bucket", 50 * 10**9)
        assert cache.folder.stat().st_mode & 0o077 == 0, "nobody else looks into it"

    def test_folder_and_limit(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("DKGE_CACHE", str(tmp_path / "deep" / "cache"))
        monkeypatch.setenv("DKGE_CACHE_GB", "0.5")
        cache = PartCache.of_environment()
        assert (cache.folder, cache.limit) == (tmp_path / "deep" / "cache", 500_000_000)

    @pytest.mark.parametrize("limit", ["", "much", "-1", "nan", "inf"])
    def test_limit_that_is_no_number(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
        monkeypatch.setenv("DKGE_CACHE", str(tmp_path))
        monkeypatch.setenv("DKGE_CACHE_GB", limit)
        with pytest.raises(UsageError, match=f"DKGE_CACHE_GB={limit}: give a number of gigabytes"):
            PartCache.of_environment()

    def test_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        with pytest.raises(StoreError, match="Not a directory; DKGE_CACHE names another folder"):
            PartCache(tmp_path / "file" / "cache", 1)

    def test_folder_of_another_user(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        with pytest.raises(StoreError, match="belongs to another user"):
            PartCache(tmp_path, 1)
