"""What is measured of a model after a night: held-out ranks and fidelity."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dkge_dist.ask.model import Model, open_model
from dkge_dist.ask.ranks import rank_by_protocol
from dkge_dist.evidence.fitting import validation_half
from dkge_dist.graph.training_graph import training_graph
from dkge_dist.kernels.triples import contains
from dkge_dist.settings import settings_of_model
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import Array, Split, Triples

WAYS = ("vectors", "with_evidence")
GROUPS = ("added_existing", "added_emerging", "deleted", "replaced", "kept_near", "kept_far")
RESAMPLES = 2000


def held_out(opened: Model, by_validation: bool = False) -> Triples:
    """The test triples; or, to choose settings by or without any, the validation triples that fitted no weight."""
    test = opened.snapshot.triples(Split.TEST)
    if test.count and not by_validation:
        return test
    digests = (opened.names[0].digests, opened.names[1].digests)
    return validation_half(training_graph(opened.snapshot, digests, settings_of_model(opened.entry.settings)))


def held_out_ranks(path: Path, version: int, by_validation: bool = False) -> dict[str, tuple[Array, Array]]:
    """By way: ranks under protocol `paper` (tails beside heads), and which triples stand in train too."""
    opened = open_model(Store.open(path), str(version))
    splits = tuple(opened.snapshot.triples(split) for split in Split)
    train, valid, test = splits
    triples, evidence = held_out(opened, by_validation), opened.evidence
    leaked, found = contains(train, triples), {}
    embedding = opened.embedding
    for way in WAYS[: 1 if evidence is None else 2]:
        by = evidence if way == "with_evidence" else None
        ranks = rank_by_protocol(embedding, triples, (train, valid, test), by)["paper"]
        found[way] = np.stack([ranks.tail, ranks.head], 1), leaked
    return found


def mrr(ranks: Array) -> float:
    return float((1 / ranks).mean())


def interval(one: Array, other: Array) -> list[float]:
    """95% of MRR(one) / MRR(other) − 1 over resampled triples (rows of ranks), the same ones for both."""
    mine, theirs = (1 / one).mean(1), (1 / other).mean(1)
    rng = np.random.default_rng(0)
    places = rng.integers(0, mine.shape[0], (RESAMPLES, mine.shape[0]))
    ratio = mine[places].mean(1) / theirs[places].mean(1) - 1
    return [float(value) for value in np.quantile(ratio, [0.025, 0.975])]


def fidelity(path: Path, version: int, since: str) -> dict[str, dict[str, float]]:
    """By group and way: the MRR, of `replaced` the share of new answers above the old; `before_` is the parent's."""
    report = api.fidelity(path, version=str(version), since=since)
    found: dict[str, dict[str, float]] = {}
    for group in GROUPS:
        key = "new_above_old" if group == "replaced" else "mrr"
        found[group] = {way: report[group][way][key] for way in WAYS if key in report[group].get(way, {})}
        before: dict[str, Any] = report.get("before", {}).get(group, {})
        found[group] |= {f"before_{way}": before[way]["mrr"] for way in WAYS if "mrr" in before.get(way, {})}
    return found


Fidelity = dict[str, dict[str, float]]


def fidelity_figures(
    night: str, way: str, online: list[Fidelity], scratch: list[Fidelity], least: Mapping[str, float] | None = None
) -> dict[str, tuple[Any, Any]]:
    """Means over the seeds by group, with what is asked beside what training from scratch gives."""
    figures: dict[str, tuple[Any, Any]] = {}
    for group in GROUPS:
        mine, theirs = (_mean(group, way, side) for side in (online, scratch))
        before = _mean(group, f"before_{way}", online)
        if mine is None or theirs is None:
            continue
        if group.startswith("added"):
            asked = f">= {max(0.95 * theirs, (least or {}).get(group, 0.0)):.3f}"
        elif group == "deleted":
            asked = f"<= {theirs + 0.1:.3f}"
        elif group == "replaced":
            asked = ">= 0.95"
        else:
            asked = f">= {0.99 * before:.3f}" if before is not None else ""
        name = f"{night}: {group}, {way.replace('_', ' ')}"
        figures[name] = (mine, asked)
        figures[f"{name}, from scratch"] = (theirs, "")
    return figures


def _mean(group: str, key: str, seeds: list[Fidelity]) -> float | None:
    values = [found[group][key] for found in seeds if key in found[group]]
    return statistics.mean(values) if len(values) == len(seeds) and values else None
