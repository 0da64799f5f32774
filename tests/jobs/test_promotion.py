"""A trained model beside the one that it would replace: only what is measurably worse counts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dkge_dist
from dkge_dist.graph.diff import Diff
from dkge_dist.measure.comparison import RankedTriples
from dkge_dist.measure.drift import Incumbent, compare
from dkge_dist.records import Comparison, Fidelity
from dkge_dist.store.store import Store
from tests.jobs.building import RING, ring_night, write_night
from tests.models import model_of

pytestmark = pytest.mark.usefixtures("one_thread")

KNOWN = np.random.default_rng(0).uniform(0.05, 1, 100)


def ranked(values: np.ndarray) -> RankedTriples:
    return RankedTriples(np.arange(len(values), dtype=np.uint64), values.astype(np.float32), 100)


def fidelity(added: float, deleted: float, triples: int = 50, error: float = 0.01) -> Fidelity:
    def group(mrr: float, count: int) -> dict[str, Any]:
        return {"triples": count, "of": 2 * count, "vectors": {"mrr": mrr, "mrr_error": error}}

    return Fidelity.model_validate(
        {
            "added_existing": group(added, triples),
            "added_emerging": {"triples": 0, "of": 0, "vectors": {}},
            "deleted": group(deleted, triples),
        }
    )


LEARNT = fidelity(0.9, 0.1)


def compared(now: np.ndarray, learnt: Fidelity | None = None, night: Diff | None = None) -> Comparison:
    return compare(Incumbent(4, ranked(KNOWN), LEARNT, night), ranked(now), learnt)


def test_what_is_as_good_is_promoted() -> None:
    found = compared(KNOWN, LEARNT, Diff.none())
    assert (found["incumbent"], found["worse"], found["promoted"]) == (4, [], True)
    assert found["validation"] == {
        "before": pytest.approx(KNOWN.mean()), "now": pytest.approx(KNOWN.mean()), "low": 0, "high": 0, "triples": 100
    }  # fmt: skip
    assert found["added"]["before"] == found["added"]["now"] == 0.9
    assert found["deleted"]["low"] == pytest.approx(-2.576 * 2**0.5 * 0.01)


def test_a_loss_that_may_be_noise_is_promoted() -> None:
    found = compared(KNOWN * np.tile([0.6, 1.3], 50), fidelity(0.87, 0.13), Diff.none())
    assert found["validation"]["now"] < found["validation"]["before"]
    assert (found["worse"], found["promoted"]) == ([], True)


def test_what_is_better_is_promoted() -> None:
    assert compared(1.1 * KNOWN, fidelity(1.0, 0.0), Diff.none())["worse"] == []


@pytest.mark.parametrize(
    ("now", "learnt", "worse"),
    [
        (0.9 * KNOWN, LEARNT, ["validation MRR"]),
        (KNOWN, fidelity(0.8, 0.1), ["MRR of added triples"]),
        (KNOWN, fidelity(0.9, 0.2), ["MRR of deleted triples"]),
        (0.9 * KNOWN, fidelity(0.8, 0.2), ["validation MRR", "MRR of added triples", "MRR of deleted triples"]),
    ],
)
@pytest.mark.parametrize("at_night", [True, False])
def test_what_is_worse_is_promoted_only_by_day(
    now: np.ndarray, learnt: Fidelity, worse: list[str], at_night: bool
) -> None:
    found = compared(now, learnt, Diff.none() if at_night else None)
    assert [reason.partition(" 0.")[0] for reason in found["worse"]] == worse
    assert found["promoted"] is not at_night


def test_reasons_have_figures() -> None:
    (reason,) = compared(KNOWN, fidelity(0.8, 0.1), Diff.none())["worse"]
    assert reason == "MRR of added triples 0.8000 against 0.9000 (99%: -0.1364 to -0.0636, 50 triples)"


def test_too_few_triples_is_promoted() -> None:
    few = fidelity(0.1, 0.9, triples=20)
    assert compared(0.5 * KNOWN[:20], few, Diff.none())["worse"] == []
    nothing = compare(Incumbent(4, None, None, Diff.none()), ranked(KNOWN), few)
    assert nothing == {
        "incumbent": 4, "validation": None, "added": None, "deleted": None, "worse": [], "promoted": True
    }  # fmt: skip
    assert compare(Incumbent(4, ranked(KNOWN), LEARNT, Diff.none()), None, None)["promoted"]


def test_a_incumbent_knows_its_last_night(drifted: Path) -> None:
    store = Store.open(drifted)
    incumbent = Incumbent.of(store, store.find_model())
    assert (incumbent.version, incumbent.fidelity) == (6, model_of(drifted, 6).model.record["fidelity"])
    assert incumbent.ranked is not None and incumbent.ranked.hashes.shape == (60,)


def test_a_training_that_is_worse_is_current_and_says_how_to_go_back(ring: Path, tmp_path: Path) -> None:
    before = dkge_dist.evaluate(ring)
    report = dkge_dist.train(ring, settings=[*RING, "train.max_epochs=1"])
    (worse,) = report["comparison"]["worse"]
    assert (report["version"], model_of(ring).version) == (3, 3)
    assert report["comparison"]["promoted"]
    assert report["warning"] == (
        f"version 3 is measurably worse than version 2: {worse}; `dkge rollback {ring} 2` goes back"
    )
    dkge_dist.rollback(ring, 2)
    assert dkge_dist.evaluate(ring)["mrr"] == before["mrr"]
    assert "warning" not in dkge_dist.train(ring, settings=[*RING, "seed=3"])


def test_going_back_keeps_a_snapshot_that_came_meanwhile(ring: Path, tmp_path: Path) -> None:
    dkge_dist.ingest(ring, ring_night(tmp_path, 1))
    report = dkge_dist.train(ring, snapshot="ring", settings=[*RING, "train.max_epochs=1"])
    assert f"`dkge rollback {ring} 3` goes back" in report["warning"]
    back = dkge_dist.rollback(ring, 3)
    assert (back["snapshot"], back["model"]) == ("n1", 2)


def test_models_of_other_snapshots_are_not_compared(ring: Path, tmp_path: Path) -> None:
    dkge_dist.ingest(ring, write_night(tmp_path / "n.changes", ["e1\tr0\te9"], []))
    report = dkge_dist.train(ring, settings=[*RING, "train.max_epochs=1"])
    assert report["comparison"] is None
    assert "warning" not in report
