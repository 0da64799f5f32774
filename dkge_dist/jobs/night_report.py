"""What the nights of a store did, for who was asleep. In: a store. Out: figures as JSON, and a page made of them.

Read off the versions: the cost follows the nights that are shown. Only changed answers ask models, within a budget of
rows that are compared, so that a larger graph is asked less and not longer.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dkge_dist.jobs.drift import load_ranked, reasons_to_train
from dkge_dist.jobs.report import Report, seconds_since
from dkge_dist.records import Estimate
from dkge_dist.runtime import Runtime
from dkge_dist.settings import RetrainPolicy
from dkge_dist.store.history import clear, updated_from
from dkge_dist.store.manifest import (
    Manifest,
    ModelEntry,
    ModelManifest,
    NamesManifest,
    RollbackManifest,
    SnapshotManifest,
    TableEntry,
    indexes_of,
    parts_of,
    tables_of,
)
from dkge_dist.store.store import Store
from dkge_dist.surfaces.pages.report import render_page
from dkge_dist.types import DkgeError

NIGHTS = 365
"""Snapshots that are shown, the newest."""
GROUPS = ("added_existing", "added_emerging", "deleted", "replaced", "kept_near", "kept_far")
PHASES = ("open", "plan", "learn", "measure")
"""Of an update, as its version keeps them; what is left of its seconds is writing."""
COUNTED = (
    "affected_entities", "affected_relations", "trained_triples", "epochs", "shards_touched", "shards_total",
    "bytes_pulled", "bytes_pushed",
)  # fmt: skip
CHANGED = ("added", "deleted", "emerging_entities", "removed_entities")
"""Of the change to the parent: on every page, also where a snapshot does not say."""
QUESTIONS, FEWEST_QUESTIONS = 40, 3
"""Asked about the last night, at most and at least."""
COMPARED_ROWS = 10_000_000
"""Entities that all questions of one model are compared with at most. A graph of 3 million is asked three."""
EXAMPLES = 12
"""Changed answers that are shown."""
KEEPS = (2, 10, 30, 100)
"""Newest versions that gc is asked to keep."""
MANY_VERSIONS = 5000
"""Of more versions, what gc would free is not looked for: it reads every one that was not cleared away."""
VALUE_BYTES = 4


def night_report(store: Store, runtime: Runtime, nights: int = NIGHTS, answers: bool = True) -> Report:
    """All figures of the page. What cannot be told is None, or a `notice` in its place."""
    began = time.monotonic()
    head, current = store.head(), store.current_snapshot()
    if head is None or current is None:
        raise DkgeError(f"{store}: holds no version; `dkge ingest {store} SOURCE` makes one")
    shown, others, left_out = _versions(store, head.version, nights)
    _fetch_validation(store, shown)
    entry = current.snapshot
    return {
        "store": str(store),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": head.version,
        "snapshot": entry.name,
        "model": head.current.model,
        "entities": entry.entities,
        "relations": entry.relations,
        "train": entry.train,
        "valid": entry.valid,
        "test": entry.test,
        "nights": _nights(store, shown, head),
        "others": others,
        "versions_left_out": left_out,
        "answers": _changed_answers(store, runtime, head) if answers else None,
        "storage": _storage(store, head),
        "seconds": seconds_since(began),
    }


def write_report(out: Path, figures: Report) -> int:
    """Write the page, all at once; its size in bytes."""
    page = render_page(figures).encode("utf-8", "replace")
    temporary = out.with_name(f".{out.name}.part")
    try:
        temporary.write_bytes(page)
        os.replace(temporary, out)
    except OSError as error:
        raise DkgeError(f"{out}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
    return len(page)


def _versions(store: Store, newest: int, nights: int) -> tuple[list[Manifest], list[Report], int]:
    """The versions of the newest snapshots, oldest first; what else happened; how many versions are older."""
    shown: list[Manifest] = []
    others: list[Report] = []
    number, snapshots = newest, 0
    while number and snapshots < nights:
        manifest = store.manifest(number)
        if isinstance(manifest, SnapshotManifest | ModelManifest):
            shown.append(manifest)
            snapshots += isinstance(manifest, SnapshotManifest)
        else:
            others.append(_other(manifest))
        number -= 1
    return shown[::-1], others[::-1], number


def _other(manifest: Manifest) -> Report:
    told: Report = {"version": manifest.version, "kind": manifest.kind, "created": manifest.created}
    if isinstance(manifest, RollbackManifest):
        told["to"] = manifest.to
    if isinstance(manifest, NamesManifest):
        told["named"] = manifest.named
    return told


def _fetch_validation(store: Store, shown: list[Manifest]) -> None:
    """The ranks of validation triples of all versions at once: from a bucket one by one would take a while."""
    models = [some for some in shown if isinstance(some, ModelManifest) and not store.is_cleared(some.version)]
    with suppress(DkgeError):  # Who reads a part says what is wrong with it.
        store.storage.fetch(some.model.validation.part for some in models if some.model.validation is not None)


def _nights(store: Store, shown: list[Manifest], head: Manifest) -> list[Report]:
    """The snapshots with the models that were learnt from them. A model of an older snapshot is left out with it."""
    current = _current_line(store, head, shown[0].version)
    current_model = _learnt(store, store.manifest(head.current.model)) if head.current.model is not None else None
    found: dict[int, Report] = {}
    for manifest in shown:
        if isinstance(manifest, SnapshotManifest):
            found[manifest.version] = _snapshot(store, manifest, manifest.version in current)
        elif isinstance(manifest, ModelManifest) and manifest.model.snapshot in found:
            night = found[manifest.model.snapshot]
            if not _is_folded(manifest):
                night["models"].append(_model(store, manifest, current_model))
    return list(found.values())


def _is_folded(manifest: ModelManifest) -> bool:
    """Does a version only fold the deltas of the one before it?"""
    return manifest.model.record.origin == "compact"


def _learnt(store: Store, manifest: Manifest | None) -> int | None:
    """The version in which a model was learnt: versions that fold it are not told apart from it."""
    while isinstance(manifest, ModelManifest) and _is_folded(manifest) and manifest.model.parent is not None:
        manifest = store.manifest(manifest.model.parent)
    return manifest.version if manifest is not None else None


def _current_line(store: Store, head: Manifest, first: int) -> set[int]:
    """The current snapshot and those that it stands on, back to a version. Cleared ones too: their manifests stay."""
    number: int | None = head.current.snapshot
    line = set()
    while number is not None and number >= first:
        line.add(number)
        manifest = store.manifest(number)
        number = manifest.snapshot.parent if isinstance(manifest, SnapshotManifest) else None
    return line


def _snapshot(store: Store, manifest: SnapshotManifest, is_current_line: bool) -> Report:
    entry = manifest.snapshot
    return {
        "snapshot": entry.name,
        "version": manifest.version,
        "created": manifest.created,
        "is_first": entry.parent is None,
        "rolled_back": not is_current_line,
        "cleared": store.is_cleared(manifest.version),
        "entities": entry.entities,
        "relations": entry.relations,
        "train": entry.train,
        **dict.fromkeys(CHANGED, 0),
        **entry.diff,
        "ingest_seconds": manifest.seconds,
        "bytes_written": _new_bytes(store, manifest),
        "models": [],
    }


def _model(store: Store, manifest: ModelManifest, current: int | None) -> Report:
    entry, facts = manifest.model, manifest.model.record
    told: Report = {
        "version": manifest.version,
        "created": manifest.created,
        "origin": "online" if facts.get("origin") == "online" else "scratch",
        "is_refresh": facts.get("origin") == "refresh",
        "parent": _learnt(store, updated_from(store, manifest)),
        "is_current": manifest.version == current,
        "took_over": manifest.current.model == manifest.version,
        "cleared": store.is_cleared(manifest.version),
        **{key: facts[key] for key in COUNTED if key in facts},
        "bytes_written": _new_bytes(store, manifest),
        "seconds": manifest.seconds,
        "phases": _phases(manifest),
        "valid": _validation(store, entry),
        "fidelity": _fidelity(dict(facts.get("fidelity") or {})),
        "drift": facts.get("drift"),
    }
    return {**told, **_decision(store, manifest)}


def _phases(manifest: ModelManifest) -> Report | None:
    """Seconds of an update by phase; None where its version does not keep them."""
    facts = manifest.model.record
    if any(f"{phase}_seconds" not in facts for phase in PHASES):
        return None
    spent = {phase: float(facts[f"{phase}_seconds"]) for phase in PHASES}
    return {**spent, "write": round(max(0.0, manifest.seconds - sum(spent.values())), 3)}


def _validation(store: Store, entry: ModelEntry) -> Report | None:
    """MRR of held-out triples; with the 99% interval where the ranks are still there and enough of them."""
    if entry.record.valid.mrr is None:
        return None
    told: Report = {"mrr": entry.record.valid.mrr, "hits@10": entry.record.valid.hits_at_10}
    with suppress(DkgeError):
        ranked = load_ranked(store, entry.validation)
        if ranked is not None and ranked.reciprocal.shape[0]:
            measured = Estimate.of(ranked.reciprocal.astype("float64"))
            told |= {"triples": measured.triples, **_interval(measured)}
    return told


def _fidelity(found: Report | None) -> Report | None:
    """MRR of each group as users get it: with evidence where there is some."""
    if not found:
        return None
    told: Report = {}
    for name in GROUPS:
        group = found.get(name) or {}
        values = group.get("with_evidence") or group.get("vectors") or {}
        if "mrr" not in values:
            continue
        triples = int(group["triples"])
        told[name] = {"mrr": values["mrr"], "triples": triples, "of": group.get("of", triples)}
        if "mrr_error" in values:
            told[name] |= _interval(Estimate(values["mrr"], values["mrr_error"], triples))
        if "new_above_old" in values:
            told[name]["new_above_old"] = values["new_above_old"]
    return told


def _interval(found: Estimate) -> dict[str, float]:
    """Within what an MRR can be; nothing where the triples are too few to tell."""
    return {"low": max(0.0, found.low), "high": min(1.0, found.high)} if found.has_enough_samples else {}


def _decision(store: Store, manifest: ModelManifest) -> Report:
    """What was decided about training from scratch, by the policy that the version was learnt under."""
    entry = manifest.model
    if entry.record.origin != "online":
        return {"decision": entry.record.why, "due": False}
    policy = (entry.settings.get("online") or {}).get("retrain_when")
    try:
        limits = RetrainPolicy.parse(str(policy)) if policy is not None else RetrainPolicy()
    except ValueError:
        return {"decision": None, "due": False, "policy": policy}
    drifted, by_count = reasons_to_train(store, manifest, limits)
    reasons = "; ".join(drifted + by_count)
    return {
        "decision": f"training from scratch is due: {reasons}" if reasons else "learnt online",
        "due": bool(reasons),
        "policy": policy,
    }


def _new_bytes(store: Store, manifest: Manifest) -> int:
    """What a version wrote: its parts that neither the version before it nor the model it stands on names."""
    known = [store.manifest(manifest.version - 1)] if manifest.version > 1 else []
    if isinstance(manifest, ModelManifest) and manifest.model.parent is not None:
        known.append(store.manifest(manifest.model.parent))
    old = {part.digest for part in parts_of(known)}
    sizes = {part.digest: part.size for part in parts_of(manifest) if part.digest not in old}
    tables = tables_of(manifest.model) if isinstance(manifest, ModelManifest) else []
    bases = {table.base.digest: _base_bytes(table) for table in tables if not old.issuperset(indexes_of(table))}
    return sum(sizes.values()) + sum(bases.values())


def _base_bytes(table: TableEntry) -> int:
    """Of the blocks of a table, which its manifest does not name one by one."""
    codes = table.dim // VALUE_BYTES if table.codes is not None else 0
    return table.rows * (table.dim + codes) * VALUE_BYTES


def _changed_answers(store: Store, runtime: Runtime, head: Manifest) -> Report:
    """Whose answers the last night changed, by the model before it and the one after it."""
    try:
        return _asked_about(store, runtime, head)
    except DkgeError as error:
        return {"notice": str(error)}


def _asked_about(store: Store, runtime: Runtime, head: Manifest) -> Report:
    after = store.manifest(head.current.model) if head.current.model is not None else None
    before = updated_from(store, after) if isinstance(after, ModelManifest) else None
    if not isinstance(after, ModelManifest) or before is None:
        return {"notice": "no night was learnt online since the last training"}
    # Numba and the kernels of questions, which nothing else here needs.
    from dkge_dist.jobs.changed_answers import End, changed_answers

    ends = [End(str(model.version), store.snapshot_manifest(model.model.snapshot)) for model in (before, after)]
    questions = min(QUESTIONS, max(FEWEST_QUESTIONS, COMPARED_ROWS // max(1, ends[1].manifest.snapshot.entities)))
    change = store.diff(ends[0].manifest, ends[1].manifest)
    found = changed_answers(store, runtime, (ends[0], ends[1]), change, questions, questions)
    # First those that got another best answer: the others only changed places behind it.
    found["examples"] = sorted(found["examples"], key=_same_best)[:EXAMPLES]
    return {"from": ends[0].manifest.snapshot.name, "to": ends[1].manifest.snapshot.name, **found}


def _same_best(question: Report) -> bool:
    best: list[Any] = [(question[when] or [{}])[0].get("entity") for when in ("before", "after")]
    return bool(best[0] == best[1])


def _storage(store: Store, head: Manifest) -> Report:
    """What is stored, and what gc would free of it once that is a day old."""
    found: Report = {"parts": 0, "bytes": 0, "gc": []}
    try:
        for item in store.storage.older_than(float("inf")):
            if item.kind == "part":
                found["parts"] += 1
                found["bytes"] += item.size
        cleared = sum(some.last - some.first + 1 for some in head.current.cleared)
        if head.version - cleared > MANY_VERSIONS:
            return {**found, "notice": f"what gc would free: `dkge gc {store} --keep N --dry-run`"}
        for keep in _keeps(head.version):
            done = clear(store, keep, 0.0, dry_run=True)
            found["gc"].append({"keep": keep, "versions": len(done.versions), "parts": done.parts, "bytes": done.bytes})
    except DkgeError as error:
        found["notice"] = str(error)
    return found


def _keeps(versions: int) -> Iterator[int]:
    return (keep for keep in KEEPS if keep < versions)
