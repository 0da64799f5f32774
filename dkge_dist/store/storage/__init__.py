"""Where a store is kept: the protocol, and the choice of a backend. Nothing else names a backend."""

from __future__ import annotations

import os
import re

from dkge_dist.store.storage.base import Blob, MissingError, Removable, Staging, Storage, StoreError
from dkge_dist.store.storage.local import LocalStorage

__all__ = ["Blob", "MissingError", "Removable", "Staging", "Storage", "StoreError", "open_storage"]

SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://")


def open_storage(location: str | os.PathLike[str]) -> Storage:
    """The storage at a location: the path of a folder, or `s3://bucket/prefix`. Nothing is made or read yet."""
    scheme = SCHEME.match(os.fspath(location))
    if scheme is None:
        return LocalStorage(location)
    if scheme[1] == "s3":
        # Imported where it is used: a store in a folder needs none of it.
        from dkge_dist.store.storage.bucket import BucketStorage

        return BucketStorage(os.fspath(location))
    raise StoreError(
        f"{location}: there is no storage for {scheme[1]}:// locations; name a folder, or s3://bucket/prefix"
    )
