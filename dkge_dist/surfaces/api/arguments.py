"""Arguments that several public functions take, as the jobs want them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from dkge_dist.jobs.report import PathLike

VersionName = str | int | None
"""A version number, an alias, or the name of a snapshot; None is the current one."""


def as_path(path: PathLike | None) -> Path | None:
    """A path, if one is given."""
    return Path(path) if path is not None else None


def as_paths(given: PathLike | Iterable[PathLike]) -> list[Path]:
    """One path or several."""
    return [Path(given)] if isinstance(given, str | os.PathLike) else [Path(path) for path in given]


def version_name(version: VersionName) -> str | None:
    """A version, if one is given, as the store looks it up."""
    return str(version) if version is not None else None
