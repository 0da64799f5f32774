"""What every layer speaks of: rows, triples, splits, and the error a user may see. Imports numpy only."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum, StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

PathLike = str | os.PathLike[str]

SettingsGiven = Mapping[str, Any] | Iterable[str]
"""Settings by dotted (or nested) name, or `key=value` words."""

ProgressCallback = Callable[[float, str], None]
"""Called with the share done (0 to 1) and a short message."""

ProgressOption = ProgressCallback | bool | None
"""What a caller may say about progress: True shows a bar, in a terminal and in a notebook."""

StopCallback = Callable[[], bool]
"""Asked after every batch; when it returns True, the job stops."""

ROW = np.int32
"""Entities and relations are permanent row numbers of the dictionary."""

OFFSET = np.int64
"""Positions in flat arrays; 32 bits would wrap at the sizes we serve."""

MAX_ROWS = 2**31 - 1

Report = dict[str, Any]
"""Ready to become JSON."""


class DkgeError(Exception):
    """Something the user can act on. The command line prints it without a traceback and exits with 1."""


class UsageError(DkgeError):
    """The call itself is wrong (an unknown key, options that exclude each other): exit code 2."""


class Split(IntEnum):
    """Where a triple of a snapshot stands. Contexts and negatives know the train split only."""

    TRAIN = 0
    VALID = 1
    TEST = 2

    @property
    def label(self) -> str:
        """The name in files and in JSON: train, valid or test."""
        return self.name.lower()


class Field(StrEnum):
    """The vectors that an object has: o^k, o^c, and o* materialised. The values name tables in stores."""

    KNOWLEDGE = "knowledge"
    CONTEXT = "context"
    JOINT = "joint"


TRAINED = (Field.KNOWLEDGE, Field.CONTEXT)
"""Fields that gradients move; the joint vectors follow from them."""


class Triples(NamedTuple):
    """Parallel columns of rows. *Canonical* triples are sorted by (head, tail, relation) and distinct."""

    head: Array
    relation: Array
    tail: Array

    @property
    def count(self) -> int:  # type: ignore[override]  # nobody looks for a column among the columns
        """How many triples (`len` of a tuple would be its three columns)."""
        return int(self.head.shape[0])

    def take(self, where: Any) -> Triples:
        """The triples at `where` (indices, mask or slice)."""
        return Triples(self.head[where], self.relation[where], self.tail[where])

    @staticmethod
    def empty() -> Triples:
        """No triples, with the right types."""
        return Triples(np.empty(0, ROW), np.empty(0, ROW), np.empty(0, ROW))

    @staticmethod
    def concat(parts: list[Triples]) -> Triples:
        """One after the other; order is kept."""
        if not parts:
            return Triples.empty()
        return Triples(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def seconds_since(began: float, digits: int = 3) -> float:
    """Seconds since a moment of the monotonic clock."""
    return round(time.monotonic() - began, digits)
