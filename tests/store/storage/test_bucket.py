"""A storage in a bucket: what S3 does that folders do not, on a good network."""

from __future__ import annotations

import pytest

from dkge_dist.store.storage import Blob, Storage
from dkge_dist.store.storage.bucket import BucketStorage
from dkge_dist.store.storage.leases import Lease
from tests.store.storage.contract import StorageContract


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
