"""Public functions about the versions of a store: what they are, how they differ, which are kept."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from dkge_dist.jobs.report import PathLike, ProgressOption, Report, shown
from dkge_dist.jobs.runtimes import ClusterOptions, choose_runtime
from dkge_dist.settings import SettingsGiven, load_settings
from dkge_dist.store.store import Store
from dkge_dist.surfaces.api.arguments import VersionName, as_path, version_name
from dkge_dist.types import UsageError

if TYPE_CHECKING:
    from dkge_dist.ask.results import Log


def log(store: PathLike) -> Log:
    """Every version: what it is, its parent, what it changed."""
    from dkge_dist.jobs import maintenance as job

    return job.log(Store.open(store))


def report(store: PathLike, out: PathLike | None = None, *, nights: int | None = None, answers: bool = True) -> Report:
    """What the newest `nights` did (a year of them by default), as one self-contained HTML page for who was asleep.

    What came and went, quality and fidelity, drift and what the policy decided, costs, storage and what gc would free.
    `answers` also asks the models before and after the last night whose answers changed. The figures are returned;
    without `out` nothing is written.
    """
    from dkge_dist.jobs import night_report as job

    if nights is not None and nights < 1:
        raise UsageError(f"--nights {nights}: at least one is shown")
    figures = job.night_report(Store.open(store), choose_runtime(ClusterOptions()), nights or job.NIGHTS, answers)
    if out is not None:
        figures |= {"out": os.fspath(out), "page_bytes": job.write_report(Path(out), figures)}
    return figures


def diff(
    store: PathLike,
    old: str | int,
    new: str | int,
    *,
    out: PathLike | None = None,
    examples: int = 0,
    affected: bool = False,
    answers: bool = False,
    config: PathLike | None = None,
    settings: SettingsGiven = (),
) -> Report:
    """What changed from snapshot `old` to snapshot `new` (names, version numbers or dates).

    `out` writes the train triples as a change file; `examples` is how many of everything to show. `affected` adds who
    is affected under the context settings, `answers` which questions of changed triples (a sample) have other best
    answers by the model of `new` than by the model of `old`.
    """
    from dkge_dist.jobs import diff as job

    chosen = load_settings(as_path(config), settings)
    runtime = choose_runtime(ClusterOptions()) if answers else None
    chosen_for = chosen if affected else None
    return job.diff(Store.open(store), str(old), str(new), as_path(out), examples, chosen_for, runtime)


def check(store: PathLike, *, progress: ProgressOption = None) -> Report:
    """Verify every checksum and that the parts fit together; `problems` names what is broken."""
    from dkge_dist.jobs import maintenance as job

    with shown(progress, "check") as callback:
        return job.check(Store.open(store), callback)


def rollback(store: PathLike, version: int | str) -> Report:
    """Make the state of an earlier version or date current again. Loses nothing: it can be rolled back itself."""
    from dkge_dist.jobs import maintenance as job

    return job.rollback(Store.open(store), version)


def alias(store: PathLike, name: str | None = None, version: VersionName = None, *, remove: bool = False) -> Report:
    """Let the alias `name` pin a version, or `remove` it; without a name, nothing is done. All aliases afterwards.

    An alias may be used wherever a version may. `gc` keeps the version that it pins.
    """
    from dkge_dist.jobs import maintenance as job

    if (name is None and (remove or version is not None)) or (name is not None and remove == (version is not None)):
        raise UsageError("name an alias and its version, an alias to remove, or neither to list them")
    return job.alias(Store.open(store), name, version_name(version), remove)


def gc(
    store: PathLike,
    *,
    keep: int,
    dry_run: bool = False,
    grace_hours: float = 24.0,
    progress: ProgressOption = None,
) -> Report:
    """Clear old versions but the newest `keep` and all that is needed, and whatever killed writers left."""
    from dkge_dist.jobs import maintenance as job

    if keep < 1:
        raise UsageError(f"--keep {keep}: at least one version is kept")
    with shown(progress, "gc") as callback:
        return job.gc(Store.open(store), keep, dry_run, grace_hours, callback)
