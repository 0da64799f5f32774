"""Versions of a store: list them, verify them, go back to one, clear old ones."""

from __future__ import annotations

import time
from typing import Any

from dkge_dist.ask.results import Log
from dkge_dist.records import VersionRecord
from dkge_dist.store.check import check as check_store
from dkge_dist.store.history import clear, set_alias
from dkge_dist.store.history import rollback as roll_back
from dkge_dist.store.manifest import Manifest, ModelManifest, NamesManifest, RollbackManifest, SnapshotManifest
from dkge_dist.store.store import Store
from dkge_dist.types import ProgressCallback, Report, seconds_since


def log(store: Store) -> Log:
    """Every version: what it is, its parent, what it changed."""
    return Log(versions=[describe_version(store, store.manifest(number)) for number in store.versions()])


def describe_version(store: Store, manifest: Manifest) -> VersionRecord:
    """What a version is, its parent, what it changed."""
    more: dict[str, Any] = {"name": _snapshot_name(store, manifest.current.snapshot)}
    if isinstance(manifest, ModelManifest):
        model = manifest.model
        more = {"name": _snapshot_name(store, model.snapshot), "parent": model.parent or model.snapshot}
        more = {**model.record, **more, "metrics": model.record.valid}
    elif isinstance(manifest, SnapshotManifest):
        entry = manifest.snapshot
        stored = "full" if entry.base is not None else "change"
        sizes = entry.model_dump(include={"format", "entities", "relations", "train", "valid", "test"})
        more = {"name": entry.name, "parent": entry.parent, **sizes, **entry.diff}
        more |= {"counts": entry.counts, "stored": stored}
    elif isinstance(manifest, RollbackManifest):
        more["parent"] = manifest.to
    elif isinstance(manifest, NamesManifest):
        more["named"] = manifest.named
    more |= {"version": manifest.version, "kind": manifest.kind, "created": manifest.created}
    return VersionRecord(**{**more, "seconds": manifest.seconds})


def _snapshot_name(store: Store, version: int) -> str | None:
    manifest = store.manifest(version)
    return manifest.snapshot.name if isinstance(manifest, SnapshotManifest) else None


def check(store: Store, progress: ProgressCallback | None) -> Report:
    """Verify every checksum and that the parts fit together; `problems` names what is broken."""
    began = time.monotonic()

    def on_version(done: int, total: int) -> None:
        if progress is not None:
            progress(done / total, "checking versions")

    result = check_store(store, on_version)
    problems = [{"version": problem.version, "problem": problem.message} for problem in result.problems]
    return {
        "ok": not problems,
        "versions": result.versions,
        "parts": result.parts,
        "bytes": result.bytes,
        "problems": problems,
        "seconds": seconds_since(began),
    }


def rollback(store: Store, version: int | str) -> Report:
    """Make the state of an earlier version (a number or a date) current again."""
    manifest = roll_back(store, version if isinstance(version, int) else store.find_version(version))
    return {
        "version": manifest.version,
        "to": manifest.to,
        "snapshot": store.snapshot_manifest(manifest.current.snapshot).snapshot.name,
        "model": manifest.current.model,
    }


def gc(store: Store, keep: int, dry_run: bool, grace_hours: float, progress: ProgressCallback | None = None) -> Report:
    """Clear old versions and what killed writers left."""

    def on_file(done: int, total: int) -> None:
        if progress is not None:
            progress(done / total, "removing files")

    done = clear(store, keep, 3600 * grace_hours, dry_run, on_file)
    return {
        "version": done.version,
        "cleared_versions": done.versions,
        "parts": done.parts,
        "bytes": done.bytes,
        "folders": done.folders,
        "dry_run": dry_run,
    }


def alias(store: Store, name: str | None, version: str | None, remove: bool) -> Report:
    """Let an alias pin a version, or remove it; then all that there are."""
    if name is not None and remove:
        store.remove_alias(name)
    elif name is not None and version is not None:
        set_alias(store, name, version)
    return {"aliases": store.aliases()}
