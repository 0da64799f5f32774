"""Where a store is kept: the protocol, and the choice of a backend. Nothing else names a backend."""

from __future__ import annotations

import os
import re

from dkge_dist.store.storage.base import Blob, MissingError, Removable, Staging, Storage, StoreError
from dkge_dist.store.storage.local import LocalStorage

__all__ = ["Blob", "MissingError", "Removable", "Staging", "Storage", "StoreError", "open_storage"]

SCHEME = re.compile(r"([a-z][a-z0-9+.-]*)://")


def open_storage(location: str | os.PathLike[str]) -> Storage:
    """The storage at a location: the path of a folder. Nothing is made or read yet."""
    if scheme := SCHEME.match(os.fspath(location)):
        raise StoreError(f"{location}: there is no storage for {scheme[1]}:// locations; name a folder")
    return LocalStorage(location)
