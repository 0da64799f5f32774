"""What backends share."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from dkge_dist.store.storage.base import HASH_BLOCK, sha256_file


@pytest.mark.parametrize("size", [0, 1, HASH_BLOCK - 1, HASH_BLOCK, HASH_BLOCK + 1])
def test_sha256_of_a_file(tmp_path: Path, size: int) -> None:
    content = bytes(range(256)) * (size // 256 + 1)
    (tmp_path / "file").write_bytes(content[:size])
    assert sha256_file(tmp_path / "file") == hashlib.sha256(content[:size]).hexdigest()
