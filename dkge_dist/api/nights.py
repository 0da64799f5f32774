"""Every night: ingest, learn, evaluate, in one step that may be repeated; and moving through the versions."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from dkge_dist.api.graphs import ingest
from dkge_dist.api.places import place_of, reached
from dkge_dist.api.questions import evaluations
from dkge_dist.api.reports import PathLike, Progress, Report, since
from dkge_dist.api.training import train, train_snapshot
from dkge_dist.api.updating import update
from dkge_dist.config import settings_of_model
from dkge_dist.store.history import clear
from dkge_dist.store.history import rollback as roll_back
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store


def nightly(
    store: PathLike,
    source: PathLike,
    *,
    format: str = "auto",
    name: str | None = None,
    valid: int | None = None,
    test: int | None = None,
    force: bool = False,
    max_bad_lines: int = 0,
    onto: str | None = None,
    since_version: str | None = None,
    config: PathLike | None = None,
    settings: Iterable[str] = (),
    shards: int | None = None,
    workers: int = 1,
    address: str | None = None,
    wait_seconds: float | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Report:
    """Ingest a night, learn it online (or anew, if the drift policy says so), and evaluate.

    Idempotent: what was done already is not done again, so a night that failed half-way is simply run again. With
    `onto` it is refused unless that snapshot is in force before it. With `since_version` what is learnt online starts
    from the model of that version, over all nights since.
    """
    began = time.monotonic()
    place = place_of(shards, workers, address, wait_seconds)
    ingested = ingest(
        store, source, format=format, name=name, valid=valid, test=test, force=force, max_bad_lines=max_bad_lines,
        onto=onto,
    )  # fmt: skip
    opened = Store.open(Path(store))
    current = opened.current_snapshot()
    assert current is not None, "a snapshot was just ingested"
    learnt = _model(opened)
    report: Report = {"ingest": ingested}
    is_learnt = learnt is not None and learnt.model.snapshot == current.version
    drifted = _drifted(opened) if is_learnt else None
    if learnt is not None and is_learnt and drifted is None:
        nothing = {"decision": "nothing new to learn", "unchanged": True}
        return {**report, "version": learnt.version, **nothing, "seconds": since(began)}
    where: dict[str, Any] = {"shards": shards, "address": address, "wait_seconds": wait_seconds}
    how: dict[str, Any] = {"config": config, "settings": list(settings), "progress": progress, "stop": stop}
    with reached(place, workers):
        if learnt is None:
            why: str | None = "there was no model yet"
            report["train"] = train(store, workers=workers, **where, **how)
        else:
            start = opened.find_model(since_version)
            known = settings_of_model(start.model.settings, _path(config), how["settings"])
            # A training that drift asked for and that was stopped is taken up again.
            why = drifted or _retrain_now(opened, start, known.online.retrain_when)
            if why is None:
                report["update"] = update(store, since_version=since_version, **where, **how)
                why = _drifted(opened)
            if why is not None:
                facts = {"origin": "scratch", "why": why}
                report["train"] = train_snapshot(
                    opened, current, known, facts, progress=progress, stop=stop, place=place
                )
        splits = [split for split in ("valid", "test") if getattr(current.snapshot, split)]
        report["evaluate"] = evaluations(store, splits, place) if splits else {}
    decided = {"decision": why or "updated online", "version": opened.find_model().version}
    return {**report, **decided, "unchanged": False, "seconds": since(began)}


def _path(config: PathLike | None) -> Path | None:
    return Path(config) if config is not None else None


def _model(store: Store) -> ModelManifest | None:
    head = store.head()
    return store.model_manifest(head.current.model) if head and head.current.model is not None else None


def _line(store: Store, model: ModelManifest) -> list[ModelManifest]:
    """A model and those it was updated from, down to the one that was learnt from scratch."""
    line = [model]
    while line[-1].model.parent is not None:
        parent = store.manifest(line[-1].model.parent)
        assert isinstance(parent, ModelManifest)
        line.append(parent)
    return line


def _retrain_now(store: Store, model: ModelManifest, policy: str) -> str | None:
    """Why the coming night is to be trained anew, if its number says so."""
    nights = sum(manifest.model.facts.get("origin") == "online" for manifest in _line(store, model))
    words = policy.split()
    if words[0] == "every" and nights + 1 >= int(words[1]):
        return f"{policy}: this is night {nights + 1} since the last training"
    return None


def _drifted(store: Store) -> str | None:
    """Why the model in force is to be trained anew, if it lost too much since it was learnt from scratch."""
    model = store.find_model()
    policy = str(model.model.settings["online"]["retrain_when"])
    words = policy.split()
    if words[0] != "mrr_drop":
        return None
    before, now = _line(store, model)[-1].model.metrics.get("mrr"), model.model.metrics.get("mrr")
    if not before or now is None:
        return None
    drop = 100 * (1 - now / before)
    return f"{policy}: validation MRR fell by {drop:.1f}%" if drop > float(words[2].rstrip("%")) else None


def rollback(store: PathLike, version: int) -> Report:
    """Bring back what was in force at an earlier version. Loses nothing: it can be rolled back itself."""
    opened = Store.open(Path(store))
    manifest = roll_back(opened, version)
    model = manifest.current.model
    return {
        "version": manifest.version,
        "to": version,
        "snapshot": opened.snapshot_manifest(manifest.current.snapshot).snapshot.name,
        "model": model,
    }


def gc(store: PathLike, *, keep: int, dry_run: bool = False, grace_hours: float = 24.0) -> Report:
    """Clear away old versions but the newest `keep` and all that is needed, and whatever killed writers left."""
    if keep < 1:
        raise StoreError(f"--keep {keep}: at least one version is kept")
    done: Any = clear(Store.open(Path(store)), keep, 3600 * grace_hours, dry_run)
    return {
        "version": done.version,
        "cleared_versions": done.versions,
        "parts": done.parts,
        "bytes": done.bytes,
        "folders": done.folders,
        "dry_run": dry_run,
    }
