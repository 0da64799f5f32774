"""Does a night call for training from scratch? By the policy in `online.retrain_when`."""

from __future__ import annotations

from dkge_dist.config import settings_of_model
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store


def lineage(store: Store, model: ModelManifest) -> list[ModelManifest]:
    """A model and those it was updated from, back to the one that was trained from scratch."""
    line = [model]
    while line[-1].model.parent is not None:
        parent = store.manifest(line[-1].model.parent)
        assert isinstance(parent, ModelManifest)
        line.append(parent)
    return line


def due_by_count(store: Store, model: ModelManifest, retrain_when: str, every: int | None) -> str | None:
    """Why the coming night is to be trained from scratch, if its number says so."""
    if every is None:
        return None
    nights = sum(ancestor.model.facts.get("origin") == "online" for ancestor in lineage(store, model))
    return f"{retrain_when}: this is night {nights + 1} since the last training" if nights + 1 >= every else None


def due_by_drop(store: Store, model: ModelManifest) -> str | None:
    """Why a model is to be trained from scratch, if it lost too much since its ancestor that was."""
    online = settings_of_model(model.model.settings).online
    limit = online.retrain_policy.mrr_drop
    if limit is None:
        return None
    before, now = lineage(store, model)[-1].model.metrics.get("mrr"), model.model.metrics.get("mrr")
    if not before or now is None:
        return None
    drop = 100 * (1 - now / before)
    return f"{online.retrain_when}: validation MRR fell by {drop:.1f}%" if drop > limit else None
