"""The nightly summary: what the nights of a store did. In: a store. Out: figures, and a page made of them.

Read off the versions: the cost follows the nights that are shown. Only changed answers ask models, within a budget of
rows that are compared, so that a larger graph is asked less and not longer.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dkge_dist.measure.drift import reasons_to_train
from dkge_dist.records import ChangedAnswers, VersionRecord
from dkge_dist.runtime import Runtime
from dkge_dist.settings import RetrainPolicy
from dkge_dist.store.history import clear, describe_version, updated_from
from dkge_dist.store.manifest import (
    Manifest,
    ModelManifest,
    SnapshotManifest,
    TableEntry,
    indexes_of,
    parts_of,
    tables_of,
)
from dkge_dist.store.store import Store
from dkge_dist.surfaces.pages.figures import (
    GcEstimate,
    ModelSummary,
    NightlySummary,
    NightSummary,
    StorageSummary,
)
from dkge_dist.surfaces.pages.report import render_page
from dkge_dist.types import DkgeError, seconds_since

NIGHTS = 365
"""Snapshots that are shown, the newest."""
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


def nightly_summary(store: Store, runtime: Runtime, nights: int = NIGHTS, answers: bool = True) -> NightlySummary:
    """All figures of the page. What cannot be measured is None, or a `notice` in its place."""
    began = time.monotonic()
    head, current = store.head(), store.current_snapshot()
    if head is None or current is None:
        raise DkgeError(f"{store}: holds no version; `dkge ingest {store} SOURCE` makes one")
    shown, others, left_out = _versions(store, head.version, nights)
    entry = current.snapshot
    return NightlySummary(
        store=str(store),
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        version=head.version,
        snapshot=entry.name,
        model=head.current.model,
        entities=entry.entities,
        relations=entry.relations,
        train=entry.train,
        valid=entry.valid,
        test=entry.test,
        nights=_nights(store, shown, head),
        others=others,
        versions_left_out=left_out,
        answers=_changed_answers(store, runtime, head) if answers else None,
        storage=_storage(store, head),
        seconds=seconds_since(began),
    )


def write_report(out: Path, figures: NightlySummary) -> int:
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


def _versions(store: Store, newest: int, nights: int) -> tuple[list[Manifest], list[VersionRecord], int]:
    """The versions of the newest snapshots, oldest first; what else happened; how many versions are older."""
    shown: list[Manifest] = []
    others: list[VersionRecord] = []
    number, snapshots = newest, 0
    while number and snapshots < nights:
        manifest = store.manifest(number)
        if isinstance(manifest, SnapshotManifest | ModelManifest):
            shown.append(manifest)
            snapshots += isinstance(manifest, SnapshotManifest)
        else:
            others.append(describe_version(store, manifest))
        number -= 1
    return shown[::-1], others[::-1], number


def _nights(store: Store, shown: list[Manifest], head: Manifest) -> list[NightSummary]:
    """The snapshots with the models that were learnt from them. A model of an older snapshot is left out with it."""
    line = _current_line(store, head, shown[0].version)
    current = _learnt(store, store.manifest(head.current.model)) if head.current.model is not None else None
    found: dict[int, NightSummary] = {}
    for manifest in shown:
        if isinstance(manifest, SnapshotManifest):
            found[manifest.version] = _snapshot(store, manifest, manifest.version not in line)
        elif isinstance(manifest, ModelManifest) and manifest.model.snapshot in found and not _is_folded(manifest):
            found[manifest.model.snapshot].models.append(_model(store, manifest, current))
    return list(found.values())


def _is_folded(manifest: ModelManifest) -> bool:
    """Does a version only fold the deltas of the one before it?"""
    return manifest.model.record.origin == "compact"


def _learnt(store: Store, manifest: Manifest | None) -> int | None:
    """The version in which a model was learnt: versions that fold it are not shown apart from it."""
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


def _snapshot(store: Store, manifest: SnapshotManifest, rolled_back: bool) -> NightSummary:
    entry = manifest.snapshot
    return NightSummary(
        snapshot=entry.name,
        version=manifest.version,
        created=manifest.created,
        is_first=entry.parent is None,
        rolled_back=rolled_back,
        cleared=store.is_cleared(manifest.version),
        entities=entry.entities,
        relations=entry.relations,
        train=entry.train,
        **{name: entry.diff.get(name, 0) for name in ("added", "deleted", "emerging_entities", "removed_entities")},
        ingest_seconds=manifest.seconds,
        bytes_written=_new_bytes(store, manifest),
        models=[],
    )


def _model(store: Store, manifest: ModelManifest, current: int | None) -> ModelSummary:
    return ModelSummary(
        version=manifest.version,
        created=manifest.created,
        seconds=manifest.seconds,
        record=manifest.model.record,
        parent=_learnt(store, updated_from(store, manifest)),
        is_current=manifest.version == current,
        promoted=manifest.current.model == manifest.version,
        cleared=store.is_cleared(manifest.version),
        bytes_written=_new_bytes(store, manifest),
        **_due(store, manifest),
    )


def _due(store: Store, manifest: ModelManifest) -> dict[str, str]:
    """Why training from scratch was due after a night, by the policy that it was learnt under."""
    policy = (manifest.model.settings.get("online") or {}).get("retrain_when")
    if manifest.model.record.origin != "online" or policy is None:
        return {}
    drifted, by_count = reasons_to_train(store, manifest, RetrainPolicy.parse(str(policy)))
    due = {"due": "; ".join(drifted + by_count)} if drifted or by_count else {}
    return {"policy": str(policy), **due}


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


def _changed_answers(store: Store, runtime: Runtime, head: Manifest) -> ChangedAnswers:
    """Whose answers the last night changed, by the model before it and the one after it."""
    after = store.manifest(head.current.model) if head.current.model is not None else None
    before = updated_from(store, after) if isinstance(after, ModelManifest) else None
    if not isinstance(after, ModelManifest) or before is None:
        return ChangedAnswers(notice="no night was learnt online since the last training")
    # Numba and the kernels of questions, which nothing else here needs.
    from dkge_dist.measure.changed_answers import End, changed_answers

    ends = [End(str(model.version), store.snapshot_manifest(model.model.snapshot)) for model in (before, after)]
    questions = min(QUESTIONS, max(FEWEST_QUESTIONS, COMPARED_ROWS // max(1, ends[1].manifest.snapshot.entities)))
    try:
        change = store.diff(ends[0].manifest, ends[1].manifest)
        found = changed_answers(store, runtime, (ends[0], ends[1]), change, questions, questions)
    except DkgeError as error:
        return ChangedAnswers(notice=str(error))
    # First those that got another best answer: the others only changed places behind it.
    return found.with_(examples=sorted(found.examples, key=_has_same_best)[:EXAMPLES])


def _has_same_best(question: dict[str, Any]) -> bool:
    best: list[Any] = [(question[when] or [{}])[0].get("entity") for when in ("before", "after")]
    return bool(best[0] == best[1])


def _storage(store: Store, head: Manifest) -> StorageSummary:
    """What is stored, and what gc would free of it once that is a day old."""
    sizes, gc, notice = [], [], {}
    try:
        sizes = [item.size for item in store.storage.older_than(float("inf")) if item.kind == "part"]
        cleared = sum(some.last - some.first + 1 for some in head.current.cleared)
        if head.version - cleared > MANY_VERSIONS:
            notice["notice"] = f"what gc would free: `dkge gc {store} --keep N --dry-run`"
        else:
            for keep in (keep for keep in KEEPS if keep < head.version):
                done = clear(store, keep, 0.0, dry_run=True)
                gc.append(GcEstimate(keep=keep, versions=len(done.versions), parts=done.parts, bytes=done.bytes))
    except DkgeError as error:
        notice["notice"] = str(error)
    return StorageSummary(parts=len(sizes), bytes=sum(sizes), gc=gc, **notice)
