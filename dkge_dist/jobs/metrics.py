"""Figures for Prometheus: of a night as it was just run, and of a version as the store keeps it. Plain text.

`dkge nightly --metrics FILE` writes a file for the textfile collector of node_exporter; `dkge serve` tells the figures
of the version that it answers by.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from dkge_dist import files
from dkge_dist.jobs.report import Report
from dkge_dist.store.history import lineage
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError

PHASES = ("open", "plan", "learn", "measure", "publish")
"""Of an update, as its report names them."""
GROUPS = ("added_existing", "added_emerging", "deleted", "replaced", "kept_near", "kept_far")
SIZES = ("emerging_entities", "affected_entities", "emerging_relations", "affected_relations")
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


def night_families(store: Store, report: Report) -> list[Family]:
    """A night as it was run: seconds by phase too, and how it ended."""
    model = store.find_model()
    update, seconds = report.get("update", {}), _seconds("dkge_night_seconds", "Seconds of the night, by phase.")
    for phase in PHASES:
        _add(seconds, update.get(f"{phase}_seconds"), phase=phase)
    _add(seconds, report["ingest"].get("seconds"), phase="ingest")
    _add(seconds, report.get("train", {}).get("seconds"), phase="train")
    splits: Mapping[str, Any] = report.get("evaluate", {})
    evaluated = [split["seconds"] for split in splits.values() if "seconds" in split]
    _add(seconds, sum(evaluated) if evaluated else None, phase="evaluate")
    _add(seconds, report["seconds"], phase="total")
    ended = Family("dkge_night_unchanged", "gauge", "1 if the night brought nothing to learn.")
    ended.add(bool(report["unchanged"]))
    drift = Family("dkge_night_training_due", "gauge", "1 if training from scratch is due.")
    drift.add(bool(report.get("drift", {}).get("due")))
    return [*version_families(store, model), seconds, ended, drift]


def _seconds(name: str, told: str) -> Family:
    return Family(name, "gauge", told)


def version_families(store: Store, model: ModelManifest) -> list[Family]:
    """A model version: what its night changed, how well it is believed, and when it was published."""
    entry = model.model
    facts, metrics = entry.facts, entry.metrics
    snapshot = store.snapshot_manifest(entry.snapshot).snapshot
    nights = sum(one.model.facts.get("origin") == "online" for one in islice(lineage(store, model), MAX_NIGHTS))
    since = Family("dkge_nights", "gauge", "Nights learnt online since the last training.").add(nights)
    version = Family("dkge_model_version", "gauge", "The model version, with its snapshot.")
    version.add(model.version, snapshot=snapshot.name)
    took = Family("dkge_model_seconds", "gauge", "Seconds that the model version took.").add(model.seconds)
    graph = Family("dkge_graph_triples", "gauge", "Triples of the snapshot, by split.")
    for split, count in (("train", snapshot.train), ("valid", snapshot.valid), ("test", snapshot.test)):
        graph.add(count, split=split)
    changed = Family("dkge_night_triples", "gauge", "Triples that the night changed.")
    for change in ("added", "deleted"):
        _add(changed, facts.get(change), change=change)
    sizes = Family("dkge_night_objects", "gauge", "Entities and relations that the night made emerge or affected.")
    for name in SIZES:
        how, _, kind = name.partition("_")
        _add(sizes, facts.get(name), how=how, kind=kind)
    quality = Family("dkge_valid", "gauge", "Link prediction on validation triples, as the version was measured.")
    for name in ("mrr", "hits@1", "hits@3", "hits@10", "mr"):
        _add(quality, metrics.get(name), metric=name)
    return [version, since, took, graph, changed, sizes, quality, _fidelity(facts.get("fidelity") or {})]


def _fidelity(found: Mapping[str, Any]) -> Family:
    family = Family("dkge_night_fidelity_mrr", "gauge", "MRR of the night's triples, by group and way; sampled.")
    for group in GROUPS:
        for way in ("vectors", "with_evidence"):
            _add(family, (found.get(group) or {}).get(way, {}).get("mrr"), group=group, by=way)
    return family


def _add(family: Family, value: Any, **labels: str) -> None:
    """A sample, if there is a number."""
    if isinstance(value, int | float) and math.isfinite(value):
        family.add(value, **labels)


def write_metrics(path: Path, families: Iterable[Family]) -> None:
    """For a collector that may read at any moment: all of the file, or the one before."""
    try:
        files.replace(path.absolute(), exposition(families).encode("utf-8"))
    except OSError as error:
        raise DkgeError(f"{path}: {error.strerror}") from None
