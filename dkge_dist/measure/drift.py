"""Does a model call for training from scratch? By the policy in `online.retrain_when`, and by what is no noise.

Every update keeps what its night found in its record (`drift`). A decision reads those of two nights in succession:
one night alone, however far off, may be a night of odd triples.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from dkge_dist.graph.diff import Diff
from dkge_dist.measure.comparison import PairedDifference, RankedTriples
from dkge_dist.records import AddedMrr, Comparison, Difference, Drift, Estimate, Fidelity, MrrDrop
from dkge_dist.settings import OnlineSettings, RetrainPolicy
from dkge_dist.store.history import lineage, trained_by_nights
from dkge_dist.store.manifest import BaselineEntry, ModelManifest, PartEntry
from dkge_dist.store.models import load_arrays
from dkge_dist.store.store import Store


def nights(store: Store, model: ModelManifest) -> Iterator[ModelManifest]:
    """The versions of a lineage that learnt a night, newest first; others only fold deltas."""
    return (version for version in lineage(store, model) if version.model.record.origin == "online")


def nights_since_training(store: Store, model: ModelManifest) -> Iterator[ModelManifest]:
    """The nights of a model since it was last trained, newest first. A training that was set aside counts too."""
    since = model.model.baseline
    for night in nights(store, model):
        if night.model.baseline is not None and night.model.baseline != since:
            return
        yield night


def training_set_aside(store: Store, model: ModelManifest) -> ModelManifest | None:
    """The newest training that a night did of a model's snapshot after it: it did not take over, or was rolled back."""
    # What a user tries by hand says nothing about the policy.
    for other in trained_by_nights(store, model.version):
        if other.model.snapshot == model.model.snapshot and not store.is_cleared(other.version):
            return other
    return None


def baseline_after(store: Store, parent: ModelManifest) -> BaselineEntry:
    """The training that an update of `parent` is compared with.

    That is its ancestor that was trained from scratch, or a later training that was set aside: it says what training
    reaches on the graph as it is now. Otherwise a graph that became harder would be trained again and again.
    """
    set_aside = training_set_aside(store, parent)
    if set_aside is None and parent.model.baseline is not None:
        return parent.model.baseline
    trained = set_aside
    if trained is None:
        *_, trained = lineage(store, parent)
    return BaselineEntry(version=trained.version, validation=trained.model.validation)


def load_ranked(store: Store, part: PartEntry | None) -> RankedTriples | None:
    """The ranks of validation triples that a version keeps; None of one that keeps none."""
    return RankedTriples.from_arrays(load_arrays(store, part)) if part is not None else None


def find_drift(since: int, before: RankedTriples | None, now: RankedTriples | None, fidelity: Fidelity) -> Drift:
    """What a night found, as its version keeps it."""
    change = now.since(before) if now is not None and before is not None else None
    return Drift(since=since, mrr_drop=mrr_drop(change), added_mrr=added_mrr(fidelity.mrr(*Fidelity.ADDED)))


def mrr_drop(fallen: PairedDifference | None) -> MrrDrop | None:
    """How far validation MRR fell, in percent; None if too few triples were there."""
    if fallen is None or not fallen.change.has_enough_samples:
        return None
    change, share = fallen.change, -100 / fallen.before
    return MrrDrop(
        before=fallen.before,
        now=fallen.now,
        percent=share * change.mean,
        low=share * change.high,
        high=share * change.low,
        triples=change.triples,
    )


def added_mrr(added: Estimate | None) -> AddedMrr | None:
    """MRR of what a night added; None if that was too little."""
    if added is None or not added.has_enough_samples:
        return None
    return AddedMrr(mrr=added.mean, low=added.low, high=added.high, triples=added.triples)


class DriftDecision(NamedTuple):
    """What the night of a model found, why training from scratch is due (None: it is not), and whether to do it."""

    found: Drift | None
    why: str | None
    trains: bool


def decide(store: Store, model: ModelManifest, online: OnlineSettings) -> DriftDecision:
    """Is a model due to be trained from scratch? Not if it was already, and that training was set aside."""
    found = next((night.model.record.drift for night in nights_since_training(store, model)), None)
    if training_set_aside(store, model) is not None:
        return DriftDecision(found, None, False)
    drifted, due = reasons_to_train(store, model, online.retrain_policy)
    return DriftDecision(
        found, "; ".join(drifted + due) or None, bool(due) or (bool(drifted) and online.on_drift == "train")
    )


def reasons_to_train(store: Store, model: ModelManifest, policy: RetrainPolicy) -> tuple[list[str], list[str]]:
    """What a policy says against a model, in words: by what its last two nights found, and by their number."""
    both = [night.model.record.drift for night in islice(nights_since_training(store, model), 2)]
    return drift_of_nights(both, policy.mrr_drop, policy.added_mrr), _due_by_count(store, model, policy.nights)


def drift_of_nights(found: list[Drift | None], max_drop: float | None, min_added: float | None) -> list[str]:
    """What this night and the one before it both found, in words. Limits are those of now; None asks for nothing."""
    both = [night for night in found if night is not None]
    if len(both) < 2:
        return []
    reasons = []
    drops, added = [night.mrr_drop for night in both], [night.added_mrr for night in both]
    drop, mrr = drops[0], added[0]
    if max_drop is not None and drop and all(some and some.percent > max_drop and some.low > 0 for some in drops):
        interval = f"99%: {drop.low:.1f}% to {drop.high:.1f}%, {drop.triples:,} triples"
        fell = f"validation MRR fell by {drop.percent:.1f}% since version {both[0].since} ({interval})"
        reasons.append(f"mrr_drop > {max_drop:g}%: {fell}, on two nights in succession")
    if min_added is not None and mrr and all(some and some.high < min_added for some in added):
        interval = f"99%: {mrr.low:.3f} to {mrr.high:.3f}, {mrr.triples:,} triples"
        is_low = f"the MRR of added triples is {mrr.mrr:.3f} ({interval})"
        reasons.append(f"added_mrr < {min_added:g}: {is_low}, on two nights in succession")
    return reasons


def _due_by_count(store: Store, model: ModelManifest, every: int | None) -> list[str]:
    """After so many nights since the last training, this one included."""
    count = sum(1 for _ in nights_since_training(store, model)) if every is not None else 0
    if every is None or count < every:
        return []
    return [f"every {every} nights: this is night {count} since the last training"]


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
