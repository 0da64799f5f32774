"""What each setting does: MRR on snapshot 1 of YAGO-3SP, seconds from scratch, and seconds of the night to snapshot 2.

The published grid over dimension, rate, batch and margin; hops 1 to 4 by entity layers 1 to 3; path length 1 to 4 by
relation layers 1 and 2; and what is ours: negatives, the share of hidden targets, the cap, every family of evidence
left out. One setting differs from the default at a time (the margin from `paper`, where it means something). Each is
learnt for as many epochs, so that MRR does not depend on what else the machine does, and its seconds are told; what
takes longer than the budget is stopped.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from unittest import mock

import numpy as np

from benchmarks.published import trained
from benchmarks.study.cells import Cell, Result
from benchmarks.study.graphs import DataSet, Study, yago
from benchmarks.study.systems import measure_ours, ours_online
from dkge_dist.evidence import features as evidence_features
from dkge_dist.types import Array

PART = "sensitivity"
EPOCHS = {"default": 8, "paper": 20}

SETTINGS: dict[str, dict[str, list[str]]] = {
    "dimension": {f"{d}": [f"model.dim={d}"] for d in (20, 30, 50, 80, 100, 128, 160, 200)},
    "learning rate": {f"{rate}": [f"train.learning_rate={rate}"] for rate in (0.01, 0.03, 0.07, 0.15, 0.3)},
    "batch": {f"{size}": [f"train.batch_size={size}"] for size in (100, 200, 500, 1000, 2000, 4000)},
    "margin (paper)": {f"{margin}": [f"train.margin={margin}"] for margin in (1, 2, 5, 8, 10)},
    "hops, entity layers": {
        f"{hops}, {layers}": [f"context.hops={hops}", f"model.entity_layers={layers}"]
        for hops in (1, 2, 3, 4)
        for layers in (1, 2, 3)
    },
    "path length, relation layers": {
        f"{length}, {layers}": [f"context.path_length={length}", f"model.relation_layers={layers}"]
        for length in (1, 2, 3, 4)
        for layers in (1, 2)
    },
    "negatives": {f"{count}": [f"train.negatives={count}"] for count in (64, 256, 1024, 4096)},
    "hidden targets": {f"{share}": [f"train.hide_targets={share}"] for share in (0, 0.5, 0.8, 1)},
    "cap": {f"{cap}": [f"context.cap={cap}"] for cap in (5, 15, 35, 70)},
    "evidence left out": {"nothing": ["evidence=true"], "all of it": ["evidence=false"]},
}
"""By what is varied: its values, and the settings of each."""
FAMILIES = {
    "links": ("link", "confidence"),
    "company": ("company", "company_linked"),
    "similar answers": ("similar", "similar_linked"),
    "paths": ("path",),
    "unused candidates": ("unused",),
}
"""Families of evidence, by the features that they bring."""


def run(study: Study) -> None:
    """Every setting, then every family of evidence left out."""
    data = yago(study, 2)
    for kind, values in SETTINGS.items():
        for value, words in list(values.items())[: 1 if study.quick else None]:
            for seed in study.all_seeds:
                _cell(study, data, kind, value, words, seed)
    for family in list(FAMILIES)[: 1 if study.quick else None]:
        for seed in study.all_seeds:
            # A store of its own: a model that was learnt without a family looks like any other by its settings.
            apart = replace(study, work=study.work / "left-out" / family.replace(" ", "-"))
            apart.work.mkdir(parents=True, exist_ok=True)
            with without(FAMILIES[family]):
                _cell(study, yago(apart, 2), "evidence left out", family, [], seed)


def _cell(study: Study, data: DataSet, kind: str, value: str, words: list[str], seed: int) -> None:
    preset = "paper" if kind.endswith("(paper)") else "default"
    usual = [f"seed={seed}", f"train.max_epochs={EPOCHS[preset]}", f"train.max_seconds={study.budget:g}"]
    quick = [word for word in study.threads() if preset == "default" or "negatives" not in word]
    # Of one setting the last word counts.
    every = list({word.partition("=")[0]: word for word in [*usual, *quick, *words]}.values())

    def work() -> Result:
        done = trained(data.store, data.snapshots[0], preset, every)
        found = measure_ours(data.store, done["version"], None)
        night, _ = ours_online(data, data.snapshots[1], done["version"])
        fit = {name: done[name] for name in ("seconds", "epochs", "triples_per_second")}
        return {**found, "fit": fit, "online": night, "settings": every}

    cell = Cell(PART, "ours" if preset == "default" else "DKGE, literal", data.name, data.snapshots[0], seed,
                f"{kind}: {value}", study.budget)  # fmt: skip
    study.ledger.run(cell, work)


@contextmanager
def without(names: tuple[str, ...]) -> Iterator[None]:
    """While it lasts, some features of evidence are zero: nothing is fitted to them, nobody ranks by them."""
    gone = [evidence_features.FEATURES.index(name) for name in names]
    usual = evidence_features.features

    def features(values: Array) -> Array:
        found = usual(values)
        found[:, gone] = np.float32(0)
        return found

    with (
        mock.patch("dkge_dist.evidence.scores.features", features),
        mock.patch("dkge_dist.evidence.fit.features", features),
    ):
        yield
