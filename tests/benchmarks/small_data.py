"""Data in the layout of the published sets, small enough to learn in a moment, and benchmarks run on it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

Triple = tuple[int, int, int]
ENTITIES, RELATIONS = 60, 4


def published_triples(seed: int) -> dict[str, list[Triple]]:
    """Splits of a graph in which relation 1 nearly repeats relation 0, so that links say much."""
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, [[ENTITIES], [RELATIONS], [ENTITIES]], (3, 300))
    triples = {(int(h), int(r), int(t)) for h, r, t in columns.T}
    triples |= {(h, 1, t) for h, r, t in triples if r == 0 and (h + t) % 5}
    every = [triple for triple in sorted(triples)]
    rng.shuffle(every)
    return {"train": every[80:], "valid": every[:40], "test": every[40:80]}


def write_published(folder: Path, snapshots: int = 1, seed: int = 1) -> Path:
    """A folder with snapshot1, snapshot2, ... in OpenKE layout; each lacks a few train triples of the one before."""
    splits = published_triples(seed)
    for number in range(1, snapshots + 1):
        out = folder / f"snapshot{number}"
        out.mkdir(parents=True)
        (out / "entity2id.txt").write_text(f"{ENTITIES}\n" + "".join(f"e{i}\t{i}\n" for i in range(ENTITIES)))
        (out / "relation2id.txt").write_text(f"{RELATIONS}\n" + "".join(f"r{i}\t{i}\n" for i in range(RELATIONS)))
        for name, triples in {**splits, "train": splits["train"][3 * (number - 1) :]}.items():
            lines = "".join(f"{h} {t} {r}\n" for h, r, t in triples)
            (out / f"{name}2id.txt").write_text(f"{len(triples)}\n{lines}")
    return folder


def run_benchmark(
    main: Callable[[], None], words: list[str | Path], patch: pytest.MonkeyPatch, shown: pytest.CaptureFixture[str]
) -> dict[str, Any]:
    """The report that a benchmark prints with --json."""
    patch.setattr(sys, "argv", ["bench", *map(str, words), "--json"])
    shown.readouterr()
    main()
    report: dict[str, Any] = json.loads(shown.readouterr().out)
    return report
