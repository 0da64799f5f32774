"""The choice of a backend, which is made in one place."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
import xxhash

import dkge_dist
from dkge_dist.store.storage import StoreError, open_storage
from dkge_dist.store.storage.base import HASH_BLOCK, blob_of
from dkge_dist.store.storage.local import LocalStorage

PACKAGE = Path(dkge_dist.__file__).parent


def test_folder_is_local(tmp_path: Path) -> None:
    for location in (tmp_path / "store", str(tmp_path / "store")):
        assert isinstance(open_storage(location), LocalStorage)
    assert not (tmp_path / "store").exists(), "opening makes nothing"


@pytest.mark.parametrize("location", ["gs://bucket", "https://host/store", "file:///store"])
def test_other_locations_are_refused(location: str) -> None:
    scheme = location.partition(":")[0]
    with pytest.raises(
        StoreError, match=f"{location}: there is no storage for {scheme}:// locations; name a folder, or s3://"
    ):
        open_storage(location)


def test_no_other_module_names_a_backend() -> None:
    users = {path.relative_to(PACKAGE) for path in PACKAGE.rglob("*.py") if "LocalStorage" in path.read_text()}
    assert users == {Path("store/storage/__init__.py"), Path("store/storage/local.py")}


@pytest.mark.parametrize("size", [0, 1, HASH_BLOCK - 1, HASH_BLOCK, HASH_BLOCK + 1])
def test_checksums_of_a_file(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    (tmp_path / "file").write_bytes(content[:size])
    expected = hashlib.sha256(content[:size]).hexdigest(), size, xxhash.xxh3_64_hexdigest(content[:size])
    assert blob_of(tmp_path / "file") == expected
