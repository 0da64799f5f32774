"""Figures for Prometheus: of a night as it was just run, and of a version as the store keeps it. Plain text.

`dkge nightly --metrics FILE` writes a file for the textfile collector of node_exporter; `dkge serve` has the figures
of the version that it answers by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Literal

from dkge_dist import files
from dkge_dist.records import NightlyRecord, Record
from dkge_dist.store.history import lineage
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError

MAX_NIGHTS = 10_000
"""Of a lineage that are counted."""


@dataclass
class Family:
    """A metric with all its samples."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    samples: list[str] = field(default_factory=list)

    def add(self, value: float, suffix: str = "", **labels: str) -> Family:
        """A sample."""
        told = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
        number = repr(float(value)) if not float(value).is_integer() else str(int(value))
        self.samples.append(f"{self.name}{suffix}{{{told}}} {number}" if told else f"{self.name}{suffix} {number}")
        return self


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def exposition(families: Iterable[Family]) -> str:
    """As Prometheus reads it; metrics without a sample are left out."""
    lines = []
    for family in families:
        if family.samples:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}", *family.samples]
    return "".join(f"{line}\n" for line in lines)


def night_families(store: Store, record: NightlyRecord) -> list[Family]:
    """A night as it was run, and the version that is current after it."""
    drift = Family("dkge_night_training_due", "gauge", "1 if training from scratch is due.")
    drift.add(record.drift is not None and record.drift.due is not None)
    return [*version_families(store, store.find_model()), *record_families("dkge_night", record), drift]


def version_families(store: Store, model: ModelManifest) -> list[Family]:
    """A model version: every number of its record, and of its snapshot."""
    snapshot = store.snapshot_manifest(model.model.snapshot).snapshot
    nights = sum(one.model.record.origin == "online" for one in islice(lineage(store, model), MAX_NIGHTS))
    graph = Family("dkge_graph_triples", "gauge", "Triples of the snapshot, by split.")
    for split, count in (("train", snapshot.train), ("valid", snapshot.valid), ("test", snapshot.test)):
        graph.add(count, split=split)
    record = model.model.record.with_(version=model.version, seconds=model.seconds)
    since = Family("dkge_nights", "gauge", "Nights learnt online since the last training.").add(nights)
    return [since, graph, *record_families("dkge_model", record, snapshot=snapshot.name)]


def record_families(prefix: str, record: Record, **labels: str) -> list[Family]:
    """Every number of a record by its field; where it lies deeper, `figure` says where."""
    families = []
    for key, value in record.items():
        family = Family(f"{prefix}_{key}", "gauge", record.description_of(key) or f"{key.replace('_', ' ')}.")
        for path, number in _numbers(value):
            family.add(number, **labels, **({"figure": ".".join(path)} if path else {}))
        families.append(family)
    return families


def _numbers(value: object, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], float]]:
    if isinstance(value, Mapping):
        for key, inside in value.items():
            yield from _numbers(inside, (*path, str(key)))
    elif isinstance(value, int | float) and math.isfinite(value):
        yield path, value


def write_metrics(path: Path, families: Iterable[Family]) -> None:
    """For a collector that may read at any moment: all of the file, or the one before."""
    try:
        files.replace(path.absolute(), exposition(families).encode("utf-8"))
    except OSError as error:
        raise DkgeError(f"{path}: {error.strerror}") from None
