"""Requests about the versions of a store: what they are, which are kept, which is current."""

from __future__ import annotations

import os
import time
from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dkge_dist.surfaces.requests.fields import OnStore, Option, Quietly, Request, VersionName, argument, version_name
from dkge_dist.types import PathLike, UsageError, seconds_since

if TYPE_CHECKING:
    from dkge_dist.ask.results import Log
    from dkge_dist.records import AliasRecord, CheckRecord, GcRecord, RollbackRecord
    from dkge_dist.surfaces.pages.figures import NightlySummary


@dataclass(frozen=True)
class VersionLog(OnStore, Request["Log"]):
    """Show the versions of STORE."""

    def run(self) -> Log:
        """Every version: what it is, its parent, what it changed."""
        from dkge_dist.ask.results import Log
        from dkge_dist.store.history import describe_version

        store = self.open_store()
        return Log(versions=[describe_version(store, store.manifest(number)) for number in store.versions()])


@dataclass(frozen=True)
class NightReport(OnStore, Request["NightlySummary"]):
    """Write one self-contained page about the nights of STORE.

    What came and went, quality and fidelity, drift and what the policy decided, costs, storage and what gc would free.
    The figures are returned; without `out` nothing is written.
    """

    out: Annotated[PathLike | None, argument("OUT.html", "Where the page is written.", words=Path, default=MISSING)] = (
        None
    )
    _: KW_ONLY
    nights: Annotated[int, Option("The newest nights are shown, so many at most.", at_least=1)] = 365
    answers: Annotated[bool, Option("Ask whose answers the last night changed.")] = True

    def run(self) -> NightlySummary:
        """Collect the figures, and write the page."""
        from dkge_dist.runtime import LocalRuntime
        from dkge_dist.surfaces import nightly_summary as job

        if self.nights < 1:
            raise UsageError(f"--nights {self.nights}: at least one is shown")
        figures = job.nightly_summary(self.open_store(), LocalRuntime(), self.nights, self.answers)
        if self.out is None:
            return figures
        return figures.with_(out=os.fspath(self.out), page_bytes=job.write_report(Path(self.out), figures))


@dataclass(frozen=True)
class Check(OnStore, Request["CheckRecord"]):
    """Verify every checksum of STORE and that its parts fit together.

    `problems` names what is broken.
    """

    _: KW_ONLY
    progress: Quietly = None

    def run(self) -> CheckRecord:
        """Read all of it."""
        from dkge_dist.records import CheckRecord, ProblemRecord
        from dkge_dist.store.check import check
        from dkge_dist.surfaces.progress import counted, shown

        began = time.monotonic()
        with shown(self.progress, "check") as callback:
            found = check(self.open_store(), counted(callback, "checking versions"))
        return CheckRecord(
            ok=not found.problems,
            versions=found.versions,
            parts=found.parts,
            bytes=found.bytes,
            problems=[ProblemRecord(version=some.version, problem=some.message) for some in found.problems],
            seconds=seconds_since(began),
        )


@dataclass(frozen=True)
class Rollback(OnStore, Request["RollbackRecord"]):
    """Make what was current at version V current again. Nothing is lost; a rollback can be rolled back."""

    version: Annotated[int | str, argument("V", "Version number, or a date (UTC), as in `dkge log`.")]

    def run(self) -> RollbackRecord:
        """Publish the state of that version once more."""
        from dkge_dist.records import RollbackRecord
        from dkge_dist.store.history import rollback

        store, to = self.open_store(), self.version
        manifest = rollback(store, to if isinstance(to, int) else store.find_version(to))
        snapshot = store.snapshot_manifest(manifest.current.snapshot).snapshot.name
        model = manifest.current.model
        return RollbackRecord(version=manifest.version, to=manifest.to, snapshot=snapshot, model=model)


@dataclass(frozen=True)
class Alias(OnStore, Request["AliasRecord"]):
    """Name a version; the name may be used wherever a version may, and gc keeps what it pins."""

    name: Annotated[str | None, argument("NAME", "Such as production; none: list them.")] = None
    version: Annotated[VersionName, argument("V", "The version it pins: a number, a snapshot or a date (UTC).")] = None
    _: KW_ONLY
    remove: Annotated[bool, Option("Remove the alias; its version stays.")] = False

    def run(self) -> AliasRecord:
        """All aliases afterwards."""
        from dkge_dist.records import AliasRecord
        from dkge_dist.store.history import set_alias

        is_change = self.remove or self.version is not None
        if (self.name is None and is_change) or (self.name is not None and self.remove == (self.version is not None)):
            raise UsageError("name an alias and its version, an alias to remove, or neither to list them")
        store, version = self.open_store(), version_name(self.version)
        if self.name is not None and self.remove:
            store.remove_alias(self.name)
        elif self.name is not None and version is not None:
            set_alias(store, self.name, version)
        return AliasRecord(aliases=store.aliases())


@dataclass(frozen=True)
class Collect(OnStore, Request["GcRecord"]):
    """Clear away old versions, and whatever killed writers left behind."""

    _: KW_ONLY
    keep: Annotated[int, Option("Newest versions to keep, with all that they need.", at_least=1)]
    dry_run: Annotated[bool, Option("Show what would be cleared, and clear nothing.")] = False
    grace_hours: Annotated[float, Option("Leave younger files alone: a writer may be at work.", at_least=0)] = 24.0
    progress: Quietly = None

    def run(self) -> GcRecord:
        """Clear them."""
        from dkge_dist.records import GcRecord
        from dkge_dist.store.history import clear
        from dkge_dist.surfaces.progress import counted, shown

        if self.keep < 1:
            raise UsageError(f"--keep {self.keep}: at least one version is kept")
        with shown(self.progress, "gc") as callback:
            grace_seconds, on_file = 3600 * self.grace_hours, counted(callback, "removing files")
            done = clear(self.open_store(), self.keep, grace_seconds, self.dry_run, on_file)
        sizes = {"parts": done.parts, "bytes": done.bytes, "folders": done.folders}
        return GcRecord(version=done.version, cleared_versions=done.versions, **sizes, dry_run=self.dry_run)
