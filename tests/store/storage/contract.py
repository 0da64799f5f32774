"""What every storage has to keep. A backend inherits `StorageContract`, and says where one is and how to damage it."""

from __future__ import annotations

import hashlib
import json
import pickle
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xxhash

from dkge_dist.store.storage import Blob, MissingError, Removable, Staging, Storage, StoreError, open_storage

RACE = """
import json, random, sys, time
from pathlib import Path
from dkge_dist.store.storage import open_storage
folder, location, names, me = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]
order = random.Random(me).sample(range(names), names)
storage = open_storage(location)
(folder / f"ready-{me}").touch()
while not (folder / "go").exists():
    time.sleep(0.0005)
data = (me * 20_000).encode()
print(json.dumps([number for number in order if storage.create(f"versions/{number:08d}.json", data)]))
"""

HOLD_LEASE = """
import sys
from dkge_dist.store.storage import open_storage
with open_storage(sys.argv[1]).lease("gc"):
    print("held", flush=True)
    sys.stdin.read()
"""

KILLED_STAGING = """
import os, signal, sys
from dkge_dist.store.storage import open_storage
with open_storage(sys.argv[1]).staging() as staging:
    staging.add(lambda path: path.write_bytes(b"content"))
    os.kill(os.getpid(), signal.SIGKILL)
"""

LATER = 3600.0


def part_of(content: bytes) -> Blob:
    return Blob(hashlib.sha256(content).hexdigest(), len(content), xxhash.xxh3_64_hexdigest(content))


def add(staging: Staging, content: bytes) -> Blob:
    return staging.add(lambda path: path.write_bytes(content) and None)


def stored(storage: Storage, content: bytes) -> Blob:
    with storage.staging() as staging:
        return add(staging, content)


def removable(storage: Storage, before: float | None = None) -> set[Removable]:
    return set(storage.older_than(time.time() + LATER if before is None else before))


class StorageContract:
    """Tests of any storage; `storage` is an empty one."""

    names = 200
    """How many names processes race for."""

    tick = 0.05
    """Seconds after which the time of an object is another one."""

    def let_leases_end(self, storage: Storage) -> None:
        """So much time passes that what a killed process held is free."""

    @pytest.fixture
    def location(self, tmp_path: Path) -> str:
        """Where nothing is yet."""
        raise NotImplementedError

    def overwrite(self, storage: Storage, part: Blob, content: bytes | None) -> None:
        """Damage a part behind the back of the storage; None removes it."""
        raise NotImplementedError

    @pytest.fixture
    def storage(self, location: str) -> Storage:
        return open_storage(location)

    def test_opens_by_its_location(self, storage: Storage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        storage.create("store.json", b"data")
        location = pickle.loads(pickle.dumps(storage.location))  # noqa: S301  # of our own making
        assert type(location) is str
        monkeypatch.chdir(tmp_path)
        assert open_storage(location).read("store.json") == b"data"
        assert open_storage(location).location == location

    def test_is_picklable(self, storage: Storage) -> None:
        storage.create("store.json", b"data")
        again = pickle.loads(pickle.dumps(storage))  # noqa: S301
        assert again.read("store.json") == b"data"

    def test_is_named_in_messages_as_the_user_named_it(self, storage: Storage, location: str) -> None:
        assert str(storage) == location

    def test_is_empty_until_something_is_created(self, storage: Storage) -> None:
        assert storage.is_empty()
        assert storage.names("versions") == []
        assert removable(storage) == set()
        storage.create("store.json", b"")
        assert not storage.is_empty()

    def test_name_is_taken_only_once(self, storage: Storage) -> None:
        assert storage.create("versions/1.json", b"first")
        assert not storage.create("versions/1.json", b"second")
        assert storage.read("versions/1.json") == b"first"
        assert storage.names("versions") == ["1.json"]

    def test_name_is_taken_by_one_of_many_processes(self, location: str, tmp_path: Path) -> None:
        script = [sys.executable, "-c", RACE, str(tmp_path), location, str(self.names)]
        writers = {name: subprocess.Popen([*script, name], stdout=subprocess.PIPE, text=True) for name in "abcd"}
        while len(list(tmp_path.glob("ready-*"))) < len(writers):
            assert all(writer.poll() is None for writer in writers.values())
        (tmp_path / "go").touch()
        won = {name: json.loads(writer.communicate(timeout=60)[0]) for name, writer in writers.items()}
        assert sorted(number for numbers in won.values() for number in numbers) == list(range(self.names))
        storage = open_storage(location)
        assert len(storage.names("versions")) == self.names
        assert removable(storage) == set(), "no writer left anything behind"
        for name, numbers in won.items():
            for number in numbers:
                assert storage.read(f"versions/{number:08d}.json") == (name * 20_000).encode()
        assert sum(bool(numbers) for numbers in won.values()) > 1

    def test_names_are_listed_in_order(self, storage: Storage) -> None:
        for name in ("versions/2.json", "versions/10.json", "versions/1.json", "rejects/9.txt"):
            storage.create(name, b"")
        assert storage.names("versions") == ["1.json", "10.json", "2.json"]

    def test_missing_name(self, storage: Storage) -> None:
        for name in ("store.json", "versions/1.json"):
            with pytest.raises(MissingError, match=name):
                storage.read(name)
        storage.create("versions", b"a name, not a folder")
        with pytest.raises(MissingError):
            storage.read("versions/1.json")

    def test_replace_overwrites(self, storage: Storage) -> None:
        first = storage.replace("rejects/1.txt", b"first, and longer")
        assert storage.read("rejects/1.txt") == b"first, and longer"
        assert storage.replace("rejects/1.txt", b"second") == first
        assert storage.read("rejects/1.txt") == b"second"
        assert storage.names("rejects") == ["1.txt"]
        assert removable(storage) == set()

    def test_part_is_named_after_its_bytes(self, storage: Storage) -> None:
        part = stored(storage, b"content")
        assert part == part_of(b"content")
        assert storage.part_path(part).read_bytes() == b"content"
        storage.verify(part)
        assert removable(storage) == {Removable("part", part.digest, 7)}

    def test_empty_part(self, storage: Storage) -> None:
        assert storage.part_path(stored(storage, b"")).read_bytes() == b""

    def test_part_is_written_once(self, storage: Storage) -> None:
        part = stored(storage, b"content")
        with storage.staging() as staging:
            assert add(staging, b"content") == part
            assert staging.written == 0
            add(staging, b"other")
            assert staging.written == 5
        assert staging.storage is storage

    def test_stagings_are_apart(self, storage: Storage) -> None:
        with storage.staging() as first, open_storage(storage.location).staging() as second:
            one = add(first, b"one")
            assert add(second, b"one") == one
            two = add(second, b"two")
        assert (first.written, second.written) == (3, 3)
        for part in (one, two):
            storage.verify(part)

    def test_write_that_fails_leaves_nothing(self, storage: Storage) -> None:
        def half(path: Path) -> None:
            path.write_bytes(b"half")
            raise OSError(28, "No space left on device")

        with pytest.raises(OSError, match="No space left"), storage.staging() as staging:
            staging.add(half)
        assert removable(storage) == set()

    def test_missing_part(self, storage: Storage) -> None:
        part = part_of(b"never written")
        for read in (storage.part_path, storage.verify):
            with pytest.raises(StoreError, match=f"part .*{part.digest} is missing"):
                read(part)

    @pytest.mark.parametrize("size", [0, 6, 8])
    def test_part_of_another_size(self, storage: Storage, size: int) -> None:
        part = stored(storage, b"content")
        self.overwrite(storage, part, b"x" * size)
        for read in (storage.part_path, storage.verify):
            with pytest.raises(StoreError, match=f"{part.digest} has {size} bytes instead of 7: truncated or replaced"):
                read(part)

    def test_altered_part(self, storage: Storage) -> None:
        part = stored(storage, b"content")
        self.overwrite(storage, part, b"CONTENT")
        found = hashlib.sha256(b"CONTENT").hexdigest()
        with pytest.raises(StoreError, match=f"part .*{part.digest} is damaged: its bytes have checksum {found}"):
            storage.verify(part)

    @pytest.mark.parametrize("content", [None, b"", b"cont", b"CONTENT"])
    def test_damaged_part_that_is_written_again_is_whole_again(self, storage: Storage, content: bytes | None) -> None:
        part = stored(storage, b"content")
        self.overwrite(storage, part, content)
        with storage.staging() as staging:
            assert add(staging, b"content") == part
            assert staging.written == 7
        storage.verify(part)
        assert storage.part_path(part).read_bytes() == b"content"

    @pytest.mark.parametrize(
        "digest",
        ["", "..", "../../etc/passwd", "a" * 63, "a" * 65, "A" * 64, "g" * 64, "a" * 64 + "\n", "../" + "a" * 61,
         "/" * 64],
    )  # fmt: skip
    def test_parts_are_named_by_digests_only(self, storage: Storage, digest: str) -> None:
        for read in (storage.part_path, storage.verify):
            with pytest.raises(StoreError, match="is no part name"):
                read(Blob(digest, 0, "0" * 16))
        with pytest.raises(StoreError, match="is no part name"):
            storage.remove(Removable("part", digest, 0), time.time() + LATER)

    def test_old_parts_are_removed(self, storage: Storage) -> None:
        one, two = stored(storage, b"one"), stored(storage, b"two")
        before = time.time() + LATER
        items = {item.name: item for item in storage.older_than(before)}
        assert set(items) == {one.digest, two.digest}
        assert storage.remove(items[one.digest], before)
        assert not storage.remove(items[one.digest], before), "gone already"
        with pytest.raises(StoreError, match="is missing"):
            storage.part_path(one)
        storage.verify(two)

    def test_young_parts_stay(self, storage: Storage) -> None:
        part = stored(storage, b"content")
        long_ago = time.time() - LATER
        assert removable(storage, long_ago) == set()
        assert not storage.remove(Removable("part", part.digest, part.size), long_ago)
        storage.verify(part)

    def test_part_that_is_added_again_is_young_again(self, storage: Storage) -> None:
        part = stored(storage, b"content")
        time.sleep(self.tick)
        between = time.time()
        (item,) = storage.older_than(between)
        time.sleep(self.tick)
        stored(storage, b"content")
        assert removable(storage, between) == set()
        assert not storage.remove(item, between), "listed while it was old"
        storage.verify(part)

    def test_staging_of_a_killed_writer_is_removed(self, storage: Storage) -> None:
        script = [sys.executable, "-c", KILLED_STAGING, storage.location]
        assert subprocess.run(script, check=False, timeout=60).returncode == -signal.SIGKILL
        self.let_leases_end(storage)
        before = time.time() + LATER
        left = [item for item in storage.older_than(before) if item.kind == "staging"]
        assert len(left) == 1
        assert storage.remove(left[0], before)
        assert {item.kind for item in storage.older_than(before)} == {"part"}

    def test_staging_at_work_is_known(self, storage: Storage) -> None:
        storage.create("store.json", b"")
        other = open_storage(storage.location)
        assert storage.staging_since() is None
        before = time.time()
        with storage.staging() as staging:
            add(staging, b"content")
            began = other.staging_since()
            assert began is not None
            assert before - 5 < began < time.time() + 5
            time.sleep(0.02)
            with other.staging():
                assert storage.staging_since() == began, "the oldest"
        assert storage.staging_since() is None

    def test_staging_at_work_is_not_removed(self, storage: Storage) -> None:
        later = time.time() + LATER
        with storage.staging() as staging:
            assert {item.kind for item in open_storage(storage.location).older_than(later)} <= {"part"}
            storage.verify(add(staging, b"content"))

    def test_parts_are_required(self, storage: Storage) -> None:
        parts = [stored(storage, content) for content in (b"one", b"two", b"three")]
        storage.require([])
        storage.require(parts)
        self.overwrite(storage, parts[1], b"another size")
        with pytest.raises(StoreError, match=f"{parts[1].digest} has 12 bytes instead of 3"):
            storage.require(parts)
        with pytest.raises(StoreError, match=f"{part_of(b'never').digest} is missing"):
            storage.require([parts[0], part_of(b"never")])

    def test_lease_keeps_others_out_until_its_holder_is_gone(self, storage: Storage) -> None:
        storage.create("store.json", b"")
        with subprocess.Popen(
            [sys.executable, "-c", HOLD_LEASE, storage.location], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"held\n"
            with pytest.raises(StoreError, match="another `dkge gc` is at work"), storage.lease("gc"):
                pass
            with storage.lease("something else"):
                pass
            other.send_signal(signal.SIGKILL)
        self.let_leases_end(storage)
        with storage.lease("gc"), pytest.raises(StoreError, match="at work"), storage.lease("gc"):
            pass
        with storage.lease("gc"):
            pass

    def test_leases_can_be_seen(self, storage: Storage) -> None:
        storage.create("store.json", b"")
        assert not storage.is_leased("gc")
        with storage.lease("gc"):
            assert open_storage(storage.location).is_leased("gc")
            assert not storage.is_leased("something else")
        assert not storage.is_leased("gc")

    def test_discard_removes_a_name_and_what_is_below_it(self, storage: Storage) -> None:
        storage.discard("training/one")
        for name in ("training/one/last.json", "training/one/last/deep", "training/one-more", "training/two"):
            storage.replace(name, b"data")
        storage.discard("training/one")
        storage.discard("training/two")
        assert storage.names("training") == ["one-more"]
        with pytest.raises(MissingError):
            storage.read("training/one/last/deep")

    def test_workspace_is_an_absolute_folder_to_itself(self, storage: Storage) -> None:
        storage.create("store.json", b"")
        folder = storage.workspace("training")
        if folder is None:
            return
        assert folder.is_absolute()
        assert folder == open_storage(storage.location).workspace("training")
        folder.mkdir(parents=True)
        (folder / "some.npy").write_bytes(b"data")
        assert removable(storage) == set()
