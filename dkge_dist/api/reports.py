"""What public functions take and give: paths and plain values in, JSON-ready dictionaries out."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

PathLike = str | os.PathLike[str]

Progress = Callable[[float, str], None]
"""Hears how much is done (0 to 1) and a few words."""

Report = dict[str, Any]


def since(began: float, digits: int = 3) -> float:
    """Seconds since a moment of the monotonic clock."""
    return round(time.monotonic() - began, digits)
