"""The storage primitive: names are taken once, parts are what they are named after, failures leave nothing behind."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dkge_dist.store.storage import Blob, LocalStorage, StoreError, sha256_file

RACE = """
import json, os, sys, time
from pathlib import Path
from dkge_dist.store.storage import LocalStorage
folder, me = Path(sys.argv[1]), sys.argv[2]
storage = LocalStorage(folder / "store")
(folder / f"ready-{me}").touch()
while not (folder / "go").exists():
    time.sleep(0.0005)
data = (me * 20_000).encode()
print(json.dumps([number for number in range(200) if storage.create(f"versions/{number:08d}.json", data)]))
"""


def part_of(content: bytes) -> Blob:
    return Blob(hashlib.sha256(content).hexdigest(), len(content))


def stored(storage: LocalStorage, content: bytes) -> Blob:
    with storage.staging() as staging:
        return staging.add(lambda path: path.write_bytes(content) and None)


def place(storage: LocalStorage, part: Blob) -> Path:
    return storage.root / "parts" / part.digest[:2] / part.digest


def test_a_name_is_taken_only_once(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "new" / "store")
    assert storage.create("versions/1.json", b"first")
    assert not storage.create("versions/1.json", b"second")
    assert storage.read("versions/1.json") == b"first"
    assert os.listdir(tmp_path / "new" / "store" / "versions") == ["1.json"]


def test_a_name_is_taken_only_once_by_many_processes(tmp_path: Path) -> None:
    writers = {
        name: subprocess.Popen([sys.executable, "-c", RACE, str(tmp_path), name], stdout=subprocess.PIPE, text=True)
        for name in "abcd"
    }
    while len(list(tmp_path.glob("ready-*"))) < len(writers):
        assert all(writer.poll() is None for writer in writers.values())
    (tmp_path / "go").touch()
    won = {name: json.loads(writer.communicate(timeout=60)[0]) for name, writer in writers.items()}
    assert sorted(number for numbers in won.values() for number in numbers) == list(range(200))
    storage = LocalStorage(tmp_path / "store")
    assert len(storage.names("versions")) == len(os.listdir(tmp_path / "store" / "versions")) == 200
    for name, numbers in won.items():
        for number in numbers:
            assert storage.read(f"versions/{number:08d}.json") == (name * 20_000).encode()
    assert sum(bool(numbers) for numbers in won.values()) > 1


def test_a_write_that_fails_takes_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    storage = LocalStorage(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            storage.create("store.json", b"data")
    assert os.listdir(tmp_path) == []
    assert storage.create("store.json", b"data")


def test_unfinished_names_are_not_listed(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    assert storage.names("versions") == []
    storage.create("versions/2.json", b"")
    storage.create("versions/1.json", b"")
    (tmp_path / "versions" / ".3.json.0123").touch()
    assert storage.names("versions") == ["1.json", "2.json"]


def test_reading_what_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"versions/1\.json: No such file"):
        LocalStorage(tmp_path).read("versions/1.json")


def test_links_are_not_followed_in_names(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "store.json").symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError, match=r"store\.json"):
        LocalStorage(tmp_path).read("store.json")


def test_a_part_is_named_after_its_bytes(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    part = stored(storage, b"content")
    assert part == part_of(b"content")
    path = storage.part_path(part)
    assert path == place(storage, part)
    assert path.read_bytes() == b"content"
    assert sha256_file(path) == part.digest
    assert list((tmp_path / "staging").iterdir()) == []


def test_a_part_is_written_once(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    part = stored(storage, b"content")
    before = place(storage, part).stat()
    with storage.staging() as staging:
        assert staging.add(lambda path: path.write_bytes(b"content") and None) == part
        assert staging.written == 0
        staging.add(lambda path: path.write_bytes(b"other") and None)
        assert staging.written == 5
    after = place(storage, part).stat()
    assert after.st_ino == before.st_ino
    assert after.st_mtime_ns > before.st_mtime_ns, "whoever names it again makes it young again"


@pytest.mark.parametrize("damage", ["truncated", "altered", "link", "dangling"])
def test_a_damaged_part_that_is_written_again_is_whole_again(tmp_path: Path, damage: str) -> None:
    storage = LocalStorage(tmp_path)
    part = stored(storage, b"content")
    path = place(storage, part)
    path.unlink()
    if damage in ("link", "dangling"):
        (tmp_path / "elsewhere").write_bytes(b"content")
        path.symlink_to(tmp_path / ("elsewhere" if damage == "link" else "nowhere"))
    else:
        path.write_bytes({"truncated": b"cont", "altered": b"CONTENT"}[damage])
    assert not storage.is_sound(part)
    stored(storage, b"content")
    assert storage.is_sound(part)
    assert not path.is_symlink()


def test_a_missing_part(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with pytest.raises(StoreError, match="is missing"):
        storage.part_path(part_of(b"never written"))


@pytest.mark.parametrize("size", [0, 6, 8])
def test_a_part_of_another_size(tmp_path: Path, size: int) -> None:
    storage = LocalStorage(tmp_path)
    part = stored(storage, b"content")
    place(storage, part).write_bytes(b"x" * size)
    with pytest.raises(StoreError, match=f"has {size} bytes instead of 7: truncated or replaced"):
        storage.part_path(part)


def test_a_part_that_is_a_link(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    part = stored(storage, b"content")
    path = place(storage, part)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="is not a plain file"):
        storage.part_path(part)


def test_a_part_that_is_a_folder(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    part = part_of(b"content")
    place(storage, part).mkdir(parents=True)
    with pytest.raises(StoreError, match="is not a plain file"):
        storage.part_path(part)


@pytest.mark.parametrize(
    "digest",
    ["", "..", "../../etc/passwd", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 64 + "\n", "../" + "a" * 61, "/" * 64],
)
def test_names_that_no_part_can_have(tmp_path: Path, digest: str) -> None:
    with pytest.raises(StoreError, match="is no part name"):
        LocalStorage(tmp_path).part_path(Blob(digest, 0))


def test_a_write_that_fails_leaves_nothing(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)

    def half(path: Path) -> None:
        path.write_bytes(b"half")
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"), storage.staging() as staging:
        staging.add(half)
    assert list((tmp_path / "staging").iterdir()) == []
    assert not (tmp_path / "parts").exists()


def test_two_stagings_do_not_meet(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    with storage.staging() as first, storage.staging() as second:
        assert first.folder != second.folder
        first.add(lambda path: path.write_bytes(b"one") and None)
    assert storage.is_sound(part_of(b"one"))
