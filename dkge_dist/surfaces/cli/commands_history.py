"""Commands about a store's versions: list, report, verify, roll back, clear away."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dkge_dist.surfaces.cli.options import Json, Quiet, StoreLocation
from dkge_dist.surfaces.cli.output import emit, progress_bar
from dkge_dist.surfaces.cli.render.history import (
    render_aliases,
    render_checked,
    render_cleared,
    render_log,
    render_reported,
    render_rolled_back,
)


def log(store: StoreLocation, as_json: Json = False) -> None:
    """Show the versions of STORE."""
    from dkge_dist.surfaces import api

    emit(api.log(store), as_json, render_log)


def report(
    store: StoreLocation,
    out: Annotated[Path, typer.Argument(metavar="OUT.html", help="Where the page is written.")],
    nights: Annotated[int, typer.Option(min=1, help="The newest nights are shown, so many at most.")] = 365,
    answers: Annotated[bool, typer.Option(help="Ask whose answers the last night changed.")] = True,
    as_json: Json = False,
) -> None:
    """Write one self-contained page about the nights of STORE, for who was asleep."""
    from dkge_dist.surfaces import api

    emit(api.report(store, out, nights=nights, answers=answers), as_json, render_reported)


def check(store: StoreLocation, quiet: Quiet = False, as_json: Json = False) -> None:
    """Verify every checksum of STORE and that its parts fit together."""
    from dkge_dist.surfaces import api

    with progress_bar("check", quiet) as progress:
        report = api.check(store, progress=progress)
    emit(report, as_json, render_checked)
    if not report["ok"]:
        raise typer.Exit(1)


def rollback(
    store: StoreLocation,
    version: Annotated[str, typer.Argument(metavar="V", help="Version number, or a date (UTC), as in `dkge log`.")],
    as_json: Json = False,
) -> None:
    """Make what was current at version V current again. Nothing is lost; a rollback can be rolled back."""
    from dkge_dist.surfaces import api

    emit(api.rollback(store, version), as_json, render_rolled_back)


def alias(
    store: StoreLocation,
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="Such as production; none: list them.")] = None,
    version: Annotated[
        str | None, typer.Argument(metavar="V", help="The version it pins: a number, a snapshot or a date (UTC).")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the alias; its version stays.")] = False,
    as_json: Json = False,
) -> None:
    """Name a version; the name may be used wherever a version may, and gc keeps what it pins."""
    from dkge_dist.surfaces import api

    emit(api.alias(store, name, version, remove=remove), as_json, render_aliases)


def gc(
    store: StoreLocation,
    keep: Annotated[int, typer.Option(min=1, help="Newest versions to keep, with all that they need.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would be cleared, and clear nothing.")] = False,
    grace_hours: Annotated[float, typer.Option(min=0, help="Leave younger files alone: a writer may be at work.")] = 24,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Clear away old versions, and whatever killed writers left behind."""
    from dkge_dist.surfaces import api

    with progress_bar("gc", quiet) as progress:
        report = api.gc(store, keep=keep, dry_run=dry_run, grace_hours=grace_hours, progress=progress)
    emit(report, as_json, render_cleared)
