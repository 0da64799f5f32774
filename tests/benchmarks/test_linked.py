"""`bench_linked` on a small graph, against an ordering by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import bench_linked
from tests.benchmarks.small_data import published_triples, run_benchmark, write_published


def test_random_order_of_linked_candidates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_published(tmp_path / "data")
    words = ["--source", source, "--work", tmp_path / "work", "--snapshots", "1"]
    report = run_benchmark(bench_linked.main, words, monkeypatch, capsys)
    found = report["snapshot1"]
    mrr, share = by_hand()
    assert found["linked"] == pytest.approx(share)
    assert found["mrr, paper, at random"] == pytest.approx(mrr)
    assert found["mrr, filtered, by own record"] >= found["mrr, filtered, at random"] >= mrr
    assert {name.partition(": ")[2] for name in report["figures"]} == set(found)


def by_hand() -> tuple[float, float]:
    """MRR that linked answers add at random under `paper`, and how many sides have one."""
    splits = published_triples(1)
    train = set(splits["train"])
    # Pairs count in the direction in which the relation is asked for.
    joined: dict[tuple[int, int], set[tuple[int, bool]]] = {}
    for h, r, t in train:
        if h != t:
            joined.setdefault((h, t), set()).add((r, True))
            joined.setdefault((t, h), set()).add((r, False))
    supports = {(r, *other) for h, r, t in train for other in joined.get((h, t), set()) - {(r, True)} if h != t}
    reciprocal = []
    for h, r, t in splits["test"]:
        for tail_side in (True, False):
            entity, answer = (h, t) if tail_side else (t, h)
            candidates = {
                other
                for other in range(60)
                if other != entity
                and ((entity, r, other) if tail_side else (other, r, entity)) not in train
                and any(
                    (r, a, forward) in supports
                    for a, forward in joined.get((entity, other) if tail_side else (other, entity), set())
                )
            }
            places = np.arange(1, len(candidates) + 1)
            reciprocal.append(float((1 / places).mean()) if answer in candidates else 0.0)
    return float(np.mean(reciprocal)), float(np.mean(np.array(reciprocal) > 0))
