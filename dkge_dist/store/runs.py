"""What every version has to know of the whole past, as 64-bit hashes: sorted runs, each a part, folded as they grow.

A run is at least four times as long as the next one, so that there are few of them to name and to search, and what was
written once is rarely written again. It is mapped, so that looking for a few hashes reads a few of its pages, however
long the history is. Different things of the same hash are told apart by whoever asks, or count as one where that does
no harm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from dkge_dist.store.columns import read_numbers
from dkge_dist.store.manifest import PartEntry
from dkge_dist.store.parts import add_part
from dkge_dist.store.storage import Staging, Storage
from dkge_dist.types import Array

TIMES = 4
HASH_TYPES = {"hash": pa.uint64()}
VERSION_TYPES = {**HASH_TYPES, "version": pa.int64()}
"""Hashes with the version that each leads to."""


def add_run(staging: Staging, runs: Sequence[PartEntry], columns: Mapping[str, Array]) -> list[PartEntry]:
    """The runs with more hashes, each with the values of the other columns. Equal entries become one."""
    types = VERSION_TYPES if "version" in columns else HASH_TYPES
    kept, added = list(runs), _distinct([[columns[name] for name in types]])
    if not added[0].shape[0]:
        return kept
    while kept and kept[-1].rows < TIMES * added[0].shape[0]:
        added = _distinct([_load(staging.storage, types, kept.pop()), added])
    return [*kept, add_part(staging, dict(zip(types, added, strict=True)))]


def load_hashes(storage: Storage, runs: Sequence[PartEntry]) -> list[Array]:
    """The hashes of every run, ascending, over the mapped files."""
    return [_load(storage, HASH_TYPES, run)[0] for run in runs]


def has_hashes(runs: Sequence[Array], hashes: Array) -> Array:
    """For each hash: is it in one of the runs?"""
    found = np.zeros(hashes.shape[0], bool)
    for known in runs:
        found |= known[np.minimum(np.searchsorted(known, hashes), known.shape[0] - 1)] == hashes
    return found


def versions_of(storage: Storage, runs: Sequence[PartEntry], wanted: int) -> list[int]:
    """The versions that a hash leads to: of what is looked for, or of something else with that hash."""
    found: list[int] = []
    for run in runs:
        known, version = _load(storage, VERSION_TYPES, run)
        begin, end = (int(np.searchsorted(known, np.uint64(wanted), side)) for side in ("left", "right"))
        found += version[begin:end].tolist()
    return found


def _load(storage: Storage, types: Mapping[str, pa.DataType], run: PartEntry) -> list[Array]:
    return read_numbers(storage, run, types)


def _distinct(groups: list[list[Array]]) -> list[Array]:
    """All columns sorted, by the first one first, without repetitions."""
    columns = [np.concatenate(some) for some in zip(*groups, strict=True)]
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    is_new = np.ones(order.shape[0], bool)
    is_new[1:] = np.any([column[1:] != column[:-1] for column in ordered], axis=0)
    return [column[is_new] for column in ordered]
