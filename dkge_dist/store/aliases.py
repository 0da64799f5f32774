"""Aliases: names that pin a version, such as `production`. Small objects beside the versions, replaced all at once.

An alias is no part of any version: it may be set anew and removed. Whoever reads one sees the old version or the new.
"""

from __future__ import annotations

import json
import re

from dkge_dist.store.storage import MissingError, Storage, StoreError
from dkge_dist.types import UsageError

FOLDER = "aliases"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
"""Begins with a letter: a number or a date is never an alias. No dots: nothing of it is a path, or hidden."""


def read_alias(storage: Storage, name: str) -> int | None:
    """The version that an alias pins, None if there is no such alias."""
    if not NAME.fullmatch(name):
        return None
    try:
        found = json.loads(storage.read(_object(name)))["version"]
    except MissingError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError):
        found = None
    if not isinstance(found, int) or isinstance(found, bool) or found < 1:
        raise StoreError(f"{storage}/{_object(name)}: damaged: set the alias again, or remove it")
    return found


def read_aliases(storage: Storage) -> dict[str, int]:
    """All aliases, by name."""
    found = {}
    for name in storage.names(FOLDER):
        alias = name.removesuffix(".json")
        # One that is removed meanwhile is none.
        if (version := read_alias(storage, alias)) is not None:
            found[alias] = version
    return found


def write_alias(storage: Storage, name: str, version: int) -> None:
    """Make an alias, or let it pin another version."""
    if not NAME.fullmatch(name):
        raise UsageError(f"alias {name!r}: a letter, then at most 63 letters, digits, `-` and `_`")
    storage.replace(_object(name), json.dumps({"version": version}).encode("ascii"))


def remove_alias(storage: Storage, name: str) -> None:
    """Remove an alias."""
    if not NAME.fullmatch(name) or f"{name}.json" not in storage.names(FOLDER):
        known = ", ".join(read_aliases(storage)) or "there are none"
        raise UsageError(f"no alias {name!r}; {known}")
    storage.discard(_object(name))


def _object(name: str) -> str:
    return f"{FOLDER}/{name}.json"
