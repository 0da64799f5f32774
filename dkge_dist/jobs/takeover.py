"""Is a model trained from scratch worse than the one that it would replace? Only what is no noise counts."""

from __future__ import annotations

from dataclasses import dataclass

from dkge_dist.evaluation.comparison import RankedTriples
from dkge_dist.graph.diff import Diff
from dkge_dist.jobs.drift import load_ranked, nights
from dkge_dist.records import Comparison, Difference, Estimate, Fidelity
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store


@dataclass(frozen=True)
class Incumbent:
    """The model of the same snapshot that a trained one would replace, with what it knew.

    With the `night` that it learnt last, both are also asked what they know of that, and a trained one that is worse
    is not promoted.
    """

    version: int
    ranked: RankedTriples | None
    fidelity: Fidelity | None
    night: Diff | None = None

    @staticmethod
    def of(store: Store, model: ModelManifest, night: Diff | None = None) -> Incumbent:
        """Read at once: when a training of days ends, the version may be cleared away."""
        learnt = next(nights(store, model), model)
        return Incumbent(model.version, load_ranked(store, model.model.validation), learnt.model.record.fidelity, night)


def compare(incumbent: Incumbent, ranked: RankedTriples | None, fidelity: Fidelity | None) -> Comparison:
    """MRR of validation, added and deleted triples by both models. Too few triples say nothing."""
    worse: list[str] = []
    validation = None
    paired = ranked.since(incumbent.ranked) if ranked is not None and incumbent.ranked is not None else None
    if paired is not None and paired.change.has_enough_samples:
        validation = _difference(paired.before, paired.now, paired.change)
        if paired.change.high < 0:
            worse.append(f"validation MRR {validation}")
    found: dict[str, Difference | None] = {"added": None, "deleted": None}
    for name, groups in (("added", Fidelity.ADDED), ("deleted", Fidelity.DELETED)):
        then, now = (some.mrr(*groups) if some is not None else None for some in (incumbent.fidelity, fidelity))
        if then is None or now is None or not (change := now.minus(then)).has_enough_samples:
            continue
        found[name] = _difference(then.mean, now.mean, change)
        # Added triples should be believed, deleted ones should not.
        if change.high < 0 if name == "added" else change.low > 0:
            worse.append(f"MRR of {name} triples {found[name]}")
    return Comparison(
        incumbent=incumbent.version,
        validation=validation,
        **found,
        worse=worse,
        promoted=incumbent.night is None or not worse,
    )


def _difference(before: float, now: float, change: Estimate) -> Difference:
    return Difference(before=before, now=now, low=change.low, high=change.high, triples=change.triples)
