"""Is a model trained from scratch worse than the one that it would replace? Only what is no noise counts."""

from __future__ import annotations

from dataclasses import dataclass

from dkge_dist.evaluation.comparison import Estimate, RankedTriples
from dkge_dist.graph.diff import Diff
from dkge_dist.jobs.drift import load_ranked, nights
from dkge_dist.jobs.fidelity import ADDED, DELETED, sampled_mrr
from dkge_dist.jobs.report import Report
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store


@dataclass(frozen=True)
class Rival:
    """The model of the same snapshot that a trained one would replace, with what it knew.

    With the `night` that it learnt last, both are also asked what they know of that, and a trained one that is worse
    does not take over.
    """

    version: int
    ranked: RankedTriples | None
    fidelity: Report | None
    night: Diff | None = None

    @staticmethod
    def of(store: Store, model: ModelManifest, night: Diff | None = None) -> Rival:
        """Read at once: when a training of days ends, the version may be cleared away."""
        learnt = next(nights(store, model), model)
        return Rival(
            model.version, load_ranked(store, model.model.validation), learnt.model.facts.get("fidelity"), night
        )


def compare(rival: Rival, ranked: RankedTriples | None, fidelity: Report | None) -> Report:
    """MRR of validation, added and deleted triples by both models, each None if it cannot be told.

    `low` and `high` bound the difference; `worse` says in words what the trained one is measurably worse in.
    """
    worse: list[str] = []
    found: Report = {"with": rival.version, "validation": None, "added": None, "deleted": None}
    paired = ranked.since(rival.ranked) if ranked is not None and rival.ranked is not None else None
    if paired is not None and paired.change.can_be_told:
        found["validation"] = _difference(paired.before, paired.now, paired.change)
        if paired.change.high < 0:
            worse.append(f"validation MRR {_in_words(found['validation'])}")
    for name, groups in (("added", ADDED), ("deleted", DELETED)):
        then, now = (sampled_mrr(report, groups) if report else None for report in (rival.fidelity, fidelity))
        if then is None or now is None or not (change := now.minus(then)).can_be_told:
            continue
        found[name] = _difference(then.mean, now.mean, change)
        # Added triples should be believed, deleted ones should not.
        if change.high < 0 if name == "added" else change.low > 0:
            worse.append(f"MRR of {name} triples {_in_words(found[name])}")
    return {**found, "worse": worse, "takes_over": rival.night is None or not worse}


def _difference(before: float, now: float, change: Estimate) -> Report:
    return {"before": before, "now": now, "low": change.low, "high": change.high, "triples": change.triples}


def _in_words(found: Report) -> str:
    interval = f"{found['low']:+.4f} to {found['high']:+.4f}"
    return f"{found['now']:.4f} against {found['before']:.4f} (99%: {interval}, {found['triples']:,} triples)"
