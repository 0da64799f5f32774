"""Requests about the versions of a store: what they are, which are kept, which is current."""

from __future__ import annotations

import os
from dataclasses import KW_ONLY, MISSING, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from dkge_dist.surfaces.requests.fields import OnStore, Option, Quietly, Request, VersionName, argument, version_name
from dkge_dist.types import PathLike, Report, UsageError

if TYPE_CHECKING:
    from dkge_dist.ask.results import Log
    from dkge_dist.surfaces.pages.figures import NightlySummary


@dataclass(frozen=True)
class VersionLog(OnStore, Request["Log"]):
    """Show the versions of STORE."""

    def run(self) -> Log:
        """Every version: what it is, its parent, what it changed."""
        from dkge_dist.jobs import maintenance as job

        return job.log(self.open_store())


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
class Check(OnStore, Request[Report]):
    """Verify every checksum of STORE and that its parts fit together.

    `problems` names what is broken.
    """

    _: KW_ONLY
    progress: Quietly = None

    def run(self) -> Report:
        """Read all of it."""
        from dkge_dist.jobs import maintenance as job
        from dkge_dist.surfaces.progress import shown

        with shown(self.progress, "check") as callback:
            return job.check(self.open_store(), callback)


@dataclass(frozen=True)
class Rollback(OnStore, Request[Report]):
    """Make what was current at version V current again. Nothing is lost; a rollback can be rolled back."""

    version: Annotated[int | str, argument("V", "Version number, or a date (UTC), as in `dkge log`.")]

    def run(self) -> Report:
        """Publish the state of that version once more."""
        from dkge_dist.jobs import maintenance as job

        return job.rollback(self.open_store(), self.version)


@dataclass(frozen=True)
class Alias(OnStore, Request[Report]):
    """Name a version; the name may be used wherever a version may, and gc keeps what it pins."""

    name: Annotated[str | None, argument("NAME", "Such as production; none: list them.")] = None
    version: Annotated[VersionName, argument("V", "The version it pins: a number, a snapshot or a date (UTC).")] = None
    _: KW_ONLY
    remove: Annotated[bool, Option("Remove the alias; its version stays.")] = False

    def run(self) -> Report:
        """All aliases afterwards."""
        from dkge_dist.jobs import maintenance as job

        is_change = self.remove or self.version is not None
        if (self.name is None and is_change) or (self.name is not None and self.remove == (self.version is not None)):
            raise UsageError("name an alias and its version, an alias to remove, or neither to list them")
        return job.alias(self.open_store(), self.name, version_name(self.version), self.remove)


@dataclass(frozen=True)
class Collect(OnStore, Request[Report]):
    """Clear away old versions, and whatever killed writers left behind."""

    _: KW_ONLY
    keep: Annotated[int, Option("Newest versions to keep, with all that they need.", at_least=1)]
    dry_run: Annotated[bool, Option("Show what would be cleared, and clear nothing.")] = False
    grace_hours: Annotated[float, Option("Leave younger files alone: a writer may be at work.", at_least=0)] = 24.0
    progress: Quietly = None

    def run(self) -> Report:
        """Clear them."""
        from dkge_dist.jobs import maintenance as job
        from dkge_dist.surfaces.progress import shown

        if self.keep < 1:
            raise UsageError(f"--keep {self.keep}: at least one version is kept")
        with shown(self.progress, "gc") as callback:
            return job.gc(self.open_store(), self.keep, self.dry_run, self.grace_hours, callback)
