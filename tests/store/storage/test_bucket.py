"""A storage in a bucket: what S3 does that folders do not, and what a network does."""

from __future__ import annotations

import hashlib
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.store import tables
from dkge_dist.store.storage import Blob, MissingError, Removable, Storage, StoreError, open_storage
from dkge_dist.store.storage.bucket import BucketStorage, Lease, LeaseHeldError, find_lease, hold_lease
from dkge_dist.store.storage.objects import Objects
from dkge_dist.store.tables import BlockIndex, CodeIndex, load_table, save_table
from dkge_dist.tables.coded import open_index
from tests.bucket_server import Proxy, Weather
from tests.store.storage.contract import LATER, StorageContract, part_of, stored


class TestBucketStorage(StorageContract):
    names = 40
    tick = 2.1

    @pytest.fixture
    def location(self, bucket: str) -> str:
        return bucket

    def overwrite(self, storage: Storage, part: Blob, content: bytes | None) -> None:
        assert isinstance(storage, BucketStorage)
        name = storage._part(part.digest)
        storage.objects.delete(name) if content is None else storage.objects.put(name, content)
        storage.cache.drop(part.digest)

    def let_leases_end(self, storage: Storage) -> None:
        assert isinstance(storage, BucketStorage)
        for found in [*storage.objects.walk("leases"), *storage.objects.walk("staging")]:
            lease = Lease.parse(storage.objects.read(found.name).data)
            storage.objects.put(found.name, lease._replace(until=lease.since).to_json())


@pytest.fixture
def storage(bucket: str) -> BucketStorage:
    return BucketStorage(bucket)


def elsewhere(storage: BucketStorage, tmp_path: Path) -> BucketStorage:
    """The same storage as another machine sees it: with a cache of its own."""
    other = BucketStorage(storage.location)
    other._cache = type(storage.cache)(tmp_path / "other-cache", 10**9)
    return other


class TestLocations:
    @pytest.mark.parametrize("location", ["s3://bucket", "s3://bucket/", "s3://my.bucket-1/deep", "s3://abc/a b/c"])
    def test_accepted(self, location: str) -> None:
        storage = open_storage(location)
        assert (str(storage), storage.location) == (location, location.rstrip("/"))

    @pytest.mark.parametrize(
        "location",
        ["s3://", "s3:///store", "s3://Bucket/store", "s3://b/store", "s3://bucket/../other", "s3://bucket/a//b",
         "s3://bucket/a\nb", "s3://bucket/a?b", "s3://user:secret@host/bucket"],
    )  # fmt: skip
    def test_refused(self, location: str) -> None:
        with pytest.raises(StoreError, match=r"not the name of a place in a bucket, such as s3://bucket/prefix"):
            open_storage(location)

    def test_opening_reads_nothing(self, proxy: Proxy, bucket: str, tmp_path: Path) -> None:
        open_storage(bucket)
        assert proxy.seen == []
        assert not (tmp_path / "cache").exists()

    def test_prefixes_are_apart(self, bucket: str) -> None:
        one, other = open_storage(f"{bucket}/store"), open_storage(f"{bucket}/store2")
        one.create("store.json", b"one")
        stored(one, b"content")
        assert other.is_empty()
        assert not list(other.older_than(time.time() + LATER))


class TestErrors:
    """Every one names the place, in one line."""

    def test_no_such_bucket(self, bucket: str) -> None:
        storage = open_storage("s3://other-bucket/store")
        with pytest.raises(StoreError, match=r"^s3://other-bucket/store: there is no bucket other-bucket$"):
            storage.is_empty()
        with pytest.raises(StoreError, match=r"^s3://other-bucket/store/probe: there is no bucket other-bucket$"):
            storage.create("store.json", b"")

    def test_service_out_of_reach(self, bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        monkeypatch.setattr("dkge_dist.store.storage.objects.RETRIES", 1)
        with pytest.raises(StoreError, match=rf"^{bucket}/store.json: .*127\.0\.0\.1:9.*error sending request[^\n]*$"):
            open_storage(bucket).read("store.json")

    @pytest.mark.parametrize("status", ["403 Forbidden", "401 Unauthorized"])
    def test_refused_access(self, proxy: Proxy, bucket: str, status: str) -> None:
        proxy.instead = lambda request: f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode()
        with pytest.raises(StoreError, match=rf"^{bucket}/probe: the service refuses access: .*{status[:3]}"):
            open_storage(bucket).create("store.json", b"")


class TestCondition:
    """Versions are published by conditional puts."""

    def test_service_that_ignores_it_is_refused(self, proxy: Proxy, bucket: str) -> None:
        proxy.requests = lambda data: data.replace(b"if-none-match: *", b"x-nothing-like: *")
        storage = open_storage(bucket)
        refusal = "this service lets an object be created twice"
        with pytest.raises(StoreError, match=refusal):
            storage.create("store.json", b"")
        with pytest.raises(StoreError, match=refusal), storage.staging():
            pass
        with pytest.raises(StoreError, match=refusal), storage.lease("gc"):
            pass
        assert storage.is_empty(), "nothing was written but the probe"

    def test_probe_is_asked_once(self, proxy: Proxy, storage: BucketStorage) -> None:
        for name in ("1", "2", "3"):
            assert storage.create(name, b"")
        assert sum(line.startswith(b"PUT") and b"/probe" in line for line in proxy.seen) == 2

    def test_reader_needs_no_right_to_write(self, proxy: Proxy, storage: BucketStorage) -> None:
        storage.create("store.json", b"data")
        part = stored(storage, b"content")
        storage.cache.drop(part.digest)
        proxy.instead = lambda request: None if request[:3] in (b"GET", b"HEA") else b"HTTP/1.1 403 Forbidden\r\n\r\n"
        reader = open_storage(storage.location)
        assert reader.read("store.json") == b"data"
        assert reader.part_path(part).read_bytes() == b"content"
        assert not reader.is_leased("gc")

    @pytest.mark.parametrize("lost", [1, 2])
    def test_lost_answer_is_no_defeat(self, proxy: Proxy, storage: BucketStorage, lost: int) -> None:
        """The object is created, the connection ends before the answer, and the repetition finds the name taken."""
        storage.create("other", b"")
        left = itertools.count()

        def lose(request: bytes, data: bytes) -> bytes | None:
            is_creation = request.startswith(b"PUT") and b"versions/1.json" in request
            return None if is_creation and next(left) < lost else data

        proxy.answers = lose
        assert storage.create("versions/1.json", b"data")
        assert next(left) >= lost
        assert not storage.create("versions/1.json", b"data"), "the same bytes, of another writer"
        assert storage.read("versions/1.json") == b"data"

    def test_conflict_is_tried_again(self, proxy: Proxy, storage: BucketStorage) -> None:
        """409: another request for the same name was under way, and it is not said which of them comes through."""
        storage.create("other", b"")
        conflicts = iter([True, True])

        def conflict(request: bytes) -> bytes | None:
            if request.startswith(b"PUT") and b"versions/1.json" in request and next(conflicts, False):
                body = b"<Error><Code>ConditionalRequestConflict</Code></Error>"
                return b"HTTP/1.1 409 Conflict\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
            return None

        proxy.instead = conflict
        assert storage.create("versions/1.json", b"data")
        assert next(conflicts, None) is None

    def test_answer_that_never_comes_is_an_error(self, proxy: Proxy, storage: BucketStorage) -> None:
        storage.create("other", b"")
        proxy.instead = lambda request: (
            b"HTTP/1.1 409 Conflict\r\nContent-Length: 0\r\n\r\n" if b"PUT" in request else None
        )
        with pytest.raises(StoreError, match=r"versions/1\.json could not be created: .*409"):
            storage.create("versions/1.json", b"data")


class TestNetwork:
    def test_damaged_download_is_repeated(self, proxy: Proxy, storage: BucketStorage) -> None:
        content = os.urandom(300_000)
        part = stored(storage, content)
        storage.create("versions/1.json", b"a manifest")
        storage.cache.drop(part.digest)
        bad = itertools.count()

        def spoil(request: bytes, data: bytes) -> bytes | None:
            head, gap, body = data.rpartition(b"\r\n\r\n")
            if request.startswith(b"GET") and body and next(bad) % 2 == 0:
                body = body[:-1] + bytes([body[-1] ^ 4])
            return head + gap + body

        proxy.answers = spoil
        assert storage.read("versions/1.json") == b"a manifest"
        proxy.answers = lambda request, data: data if next(bad) > 3 else spoil(request, data)
        assert storage.part_path(part).read_bytes() == content

    def test_damaged_for_good_is_named(self, proxy: Proxy, storage: BucketStorage) -> None:
        storage.create("versions/1.json", b"a manifest")
        part = stored(storage, b"content")
        storage.cache.drop(part.digest)

        def spoil(request: bytes, data: bytes) -> bytes:
            return data.replace(b"a manifest", b"a Manifest").replace(b"content", b"Content")

        proxy.answers = spoil
        with pytest.raises(StoreError, match=r"versions/1\.json is damaged: its bytes have checksum"):
            storage.read("versions/1.json")
        with pytest.raises(StoreError, match=f"part {storage}/.*{part.digest} is damaged"):
            storage.part_path(part)
        assert storage.cache.find(part) is None, "nothing damaged is kept"

    def test_slow_and_failing_network(self, proxy: Proxy, storage: BucketStorage, tmp_path: Path) -> None:
        weather = Weather(seed=3, delay=0.002, cut=4, spoil=10)
        proxy.requests, proxy.answers = weather.request, weather.answer
        contents = [os.urandom(5_000 * number) for number in range(1, 9)]
        with storage.staging() as staging:
            parts = staging.add_all([lambda path, data=data: path.write_bytes(data) for data in contents])
        assert parts == [part_of(content) for content in contents]
        storage.require(parts)
        assert all(storage.create(f"versions/{number}.json", b"%d" % number) for number in range(8))
        assert not any(storage.create(f"versions/{number}.json", b"other") for number in range(8))
        other = elsewhere(storage, tmp_path)
        other.fetch(parts)
        assert [other.part_path(part).read_bytes() for part in parts] == contents
        assert [other.read(f"versions/{number}.json") for number in range(8)] == [b"%d" % n for n in range(8)]

    def test_signals_are_heard_while_the_service_is_silent(self, proxy: Proxy, storage: BucketStorage) -> None:
        script = """
import signal, sys
from dkge_dist.store.storage import open_storage
def leave(number, frame):
    raise SystemExit(7)
signal.signal(signal.SIGTERM, leave)
print("now", flush=True)
open_storage(sys.argv[1]).read("store.json")
"""
        silent: list[Any] = []
        proxy.requests = lambda data: silent.append(data) or time.sleep(60)  # type: ignore[func-returns-value]
        with subprocess.Popen([sys.executable, "-c", script, storage.location], stdout=-1) as process:
            assert process.stdout is not None and process.stdout.readline() == b"now\n"
            while not silent:
                time.sleep(0.01)
            process.terminate()
            assert process.wait(20) == 7


class TestCache:
    def test_own_parts_are_not_downloaded(self, proxy: Proxy, storage: BucketStorage) -> None:
        part = stored(storage, b"content")
        assert storage.part_path(part).read_bytes() == b"content"
        assert not [line for line in proxy.seen if line.startswith(b"GET") and b"parts" in line]

    def test_part_is_downloaded_once_for_all_processes(
        self, proxy: Proxy, storage: BucketStorage, tmp_path: Path
    ) -> None:
        parts = [stored(storage, os.urandom(100_000)) for _ in range(3)]
        for part in parts:
            storage.cache.drop(part.digest)
        script = """
import sys
from dkge_dist.store.storage import Blob, open_storage
storage = open_storage(sys.argv[1])
for digest in sys.argv[2:]:
    assert len(storage.part_path(Blob(digest, 100_000, "")).read_bytes()) == 100_000
"""
        proxy.requests = Weather(1, delay=0.02).request
        command = [sys.executable, "-c", script, storage.location, *(part.digest for part in parts)]
        readers = [subprocess.Popen(command) for _ in range(4)]
        assert [reader.wait(60) for reader in readers] == [0] * 4
        assert sum(line.startswith(b"GET") and b"parts" in line for line in proxy.seen) == 3

    def test_second_storage_of_the_same_bytes_shares_them(self, proxy: Proxy, bucket: str) -> None:
        one, other = BucketStorage(f"{bucket}/one"), BucketStorage(f"{bucket}/two")
        part = stored(one, b"content")
        assert stored(other, b"content") == part
        assert one.part_path(part) == other.part_path(part)

    def test_check_looks_at_the_bucket(self, storage: BucketStorage) -> None:
        part = stored(storage, b"content")
        storage.objects.put(storage._part(part.digest), b"CONTENT")
        with pytest.raises(StoreError, match="is damaged"):
            storage.verify(part)
        assert storage.part_path(part).read_bytes() == b"content", "the cache has it as it was"


@pytest.mark.parametrize("rows", [40, 3000])
def test_damage_in_the_cache_is_mended_from_the_bucket(storage: BucketStorage, rows: int) -> None:
    """Blocks of whole pages are mapped as one, others one by one."""
    values = np.random.default_rng(1).random((rows, 16), np.float32)
    with storage.staging() as staging:
        entry = save_table(staging, values, 1024 if rows > 1024 else 64)
    parts = [entry.base.part, *BlockIndex(storage, entry).parts]
    for part in parts:
        path = storage.part_path(part)
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    assert np.array_equal(load_table(BucketStorage(storage.location), entry), values)
    for part in parts:
        assert hashlib.sha256(storage.part_path(part).read_bytes()).hexdigest() == part.digest
    storage.part_path(parts[1]).write_bytes(bytes(parts[1].size))
    storage.objects.put(storage._part(parts[1].digest), bytes(parts[1].size))
    with pytest.raises(StoreError, match="is damaged"):
        load_table(BucketStorage(storage.location), entry)


def test_damage_of_codes_and_rows_in_the_cache_is_mended_from_the_bucket(
    storage: BucketStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found when they are read, after the table was opened."""
    monkeypatch.setattr(tables, "CODED_FROM_ROWS", 1)
    values = np.random.default_rng(1).random((1500, 16), np.float32)
    with storage.staging() as staging:
        entry = save_table(staging, values, 512, coded=True)
    every = np.arange(1500, dtype=np.int32)
    for parts in (BlockIndex(storage, entry).parts, CodeIndex(storage, entry).parts):
        for part in parts:
            path = storage.part_path(part)
            path.write_bytes(bytes(part.size))
        table = open_index(BucketStorage(storage.location), entry)
        assert table.nearest(values[[7, 1400]], every, 1).rows.tolist() == [[7], [1400]]
        assert np.array_equal(table.vectors(every), values)
        for part in parts:
            assert hashlib.sha256(storage.part_path(part).read_bytes()).hexdigest() == part.digest


class TestRemoveBesideAWriter:
    """A writer adds a part at every moment of a cleaning that removes it, and publishes afterwards."""

    @pytest.mark.parametrize("after", range(5))
    def test_what_is_required_stays(self, storage: BucketStorage, tmp_path: Path, after: int) -> None:
        part = stored(storage, b"content")
        time.sleep(2.1)
        before = time.time()
        item, writer = Removable("part", part.digest, 7), elsewhere(storage, tmp_path)
        steps = 0

        def interleaved(real: Callable[..., Any]) -> Callable[..., Any]:
            def call(*arguments: Any) -> Any:
                nonlocal steps
                if steps == after:
                    assert stored(writer, b"content") == part
                steps += 1
                return real(*arguments)

            return call

        with pytest.MonkeyPatch.context() as patches:
            for name in ("put", "head", "delete"):
                patches.setattr(storage.objects, name, interleaved(getattr(storage.objects, name)))
            removed = storage.remove(item, before)
        assert steps == (4 if removed else 3), "mark, look, remove, forget the mark"
        if after == 4:
            assert stored(writer, b"content") == part
        writer.require([part])
        writer.verify(part)
        assert not storage.remove(item, before)

    def test_writer_waits_for_a_removal(self, storage: BucketStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        part = stored(storage, b"content")
        storage.objects.put(f"removing/{part.digest}", b"")
        slept: list[float] = []

        def sleep(seconds: float) -> None:
            slept.append(seconds)
            storage.objects.delete(storage._part(part.digest), f"removing/{part.digest}")

        monkeypatch.setattr("dkge_dist.store.storage.bucket.time.sleep", sleep)
        with storage.lease("gc"):
            storage.require([part])
        assert slept == [0.2]
        storage.verify(part)

    def test_mark_of_a_killed_cleaning_is_in_nobodys_way(self, storage: BucketStorage) -> None:
        part = stored(storage, b"content")
        for name in (part.digest, "other"):
            storage.objects.put(f"removing/{name}", b"")
        storage.require([part])
        assert [found.name for found in storage.objects.walk("removing")] == ["removing/other"]
        left = [item for item in storage.older_than(time.time() + LATER) if item.kind == "unfinished"]
        assert [item.name for item in left] == ["removing/other"]
        assert storage.remove(left[0], time.time() + LATER)
        assert not list(storage.objects.walk("removing"))

    def test_removal_that_takes_too_long_is_told(self, storage: BucketStorage, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dkge_dist.store.storage.bucket.REMOVAL_SECONDS", 0.3)
        part = stored(storage, b"content")
        storage.objects.put(f"removing/{part.digest}", b"")
        expected = f"`dkge gc` has been removing part {part.digest} for 0.3 s"
        with storage.lease("gc"), pytest.raises(StoreError, match=expected):
            storage.require([part])


class TestLeases:
    @pytest.fixture
    def objects(self, bucket: str) -> Objects:
        return Objects(bucket)

    def test_renewed_while_it_is_held(self, objects: Objects, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("dkge_dist.store.storage.bucket.LEASE_SECONDS", 0.4)
        with hold_lease(objects, "lease"):
            first = find_lease(objects, "lease")
            time.sleep(1.0)
            last = find_lease(objects, "lease")
            assert first is not None and last is not None
            assert (last.token, last.since) == (first.token, first.since)
            assert last.until > first.until
            assert last.is_held
            expected = f"held by process {os.getpid()} on "
            with pytest.raises(LeaseHeldError, match=expected), hold_lease(objects, "lease"):
                pass
        assert find_lease(objects, "lease") is None

    @pytest.mark.parametrize("left", [b"", b"{}", b"[]", b'{"holder": "x", "token": "y", "since": 0, "until": 1}'])
    def test_one_that_ended_or_is_damaged_is_taken(self, objects: Objects, left: bytes) -> None:
        objects.put("lease", left)
        with hold_lease(objects, "lease"):
            found = find_lease(objects, "lease")
            assert found is not None and found.is_held

    def test_one_that_was_lost_is_left_to_its_new_holder(self, objects: Objects) -> None:
        """As of a process that was suspended for longer than its lease lasts."""
        with hold_lease(objects, "lease"):
            other = Lease("another", "token", time.time(), time.time() + 100)
            objects.put("lease", other.to_json())
        assert find_lease(objects, "lease") == other

    def test_of_two_that_take_over_one_succeeds(self, objects: Objects) -> None:
        objects.put("lease", b"")
        found = objects.read("lease")
        assert objects.update("lease", b"first", found.tag)
        assert not objects.update("lease", b"second", found.tag)
        assert not objects.update("missing", b"second", found.tag)
        assert objects.read("lease").data == b"first"


def test_checksum_of_a_small_object_is_verified(storage: BucketStorage) -> None:
    import obstore

    told: Any = {"sha256": hashlib.sha256(b"data").hexdigest()}
    obstore.put(storage.objects.client, "name", b"DATA", attributes=told)
    with pytest.raises(StoreError, match="name is damaged"):
        storage.read("name")
    obstore.put(storage.objects.client, "name", b"copied by another program")
    assert storage.read("name") == b"copied by another program"


def test_large_parts_are_sent_in_pieces(storage: BucketStorage, monkeypatch: pytest.MonkeyPatch, proxy: Proxy) -> None:
    monkeypatch.setattr("dkge_dist.store.storage.objects.PIECE", 5 << 20)
    content = os.urandom(11 << 20)
    part = stored(storage, content)
    assert sum(b"partNumber" in line for line in proxy.seen) == 3
    storage.cache.drop(part.digest)
    assert hashlib.sha256(storage.part_path(part).read_bytes()).hexdigest() == part.digest
    with pytest.raises(MissingError):
        storage.read("store.json")
