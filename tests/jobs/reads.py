"""Counts how often a job opens a store and reads its parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dkge_dist.store.storage import Blob, open_storage
from dkge_dist.store.store import Store


@dataclass
class Reads:
    """How many stores were opened, and how often the place of each part was asked for, as every reader does."""

    stores: int = 0
    parts: Counter[str] = field(default_factory=Counter)


@contextmanager
def counted_reads(path: Path) -> Iterator[Reads]:
    """What is opened and read meanwhile, of parts that were there before; writers look for new ones too."""
    reads = Reads()
    before = {file.name for file in (path / "parts").rglob("*")}
    storage = type(open_storage(str(path)))
    init, part_path = Store.__init__, storage.part_path

    def counted_init(self: Store, *arguments: Any) -> None:
        reads.stores += 1
        init(self, *arguments)

    def counted_path(self: Any, part: Blob) -> Path:
        if part.digest in before:
            reads.parts[part.digest] += 1
        return part_path(self, part)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "__init__", counted_init)
        patch.setattr(storage, "part_path", counted_path)
        yield reads
