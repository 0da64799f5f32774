"""Reports about the versions of a store as text: the log, a check, what went back or away."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from dkge_dist.surfaces.cli.output import format_cell, print_table
from dkge_dist.surfaces.cli.render.formats import format_share

LOG_COLUMNS = ("v", "published (UTC)", "kind", "name", "triples", "affected", "seconds", "mrr", "fidelity")
LOG_WIDTH = 100


def render_log(report: Mapping[str, Any]) -> None:
    """The versions of a store, then what they led back to and why. Kept to 100 columns; the JSON has more."""
    versions = report["versions"]
    print_table(LOG_COLUMNS, _fitting([_log_line(version) for version in versions]))
    if any(version["kind"] == "model" for version in versions):
        print("mrr: of validation triples; fidelity: mrr of added triples (all existed, some emerged), of deleted ones")
    for version in versions:
        if version["kind"] == "rollback":
            print(f"version {version['version']} went back to version {version['parent']}")
        if "why" in version:
            print(f"version {version['version']} was trained from scratch: {version['why']}")


def render_reported(report: Mapping[str, Any]) -> None:
    """Where the page is, and what it is about."""
    nights = sum(not night["is_first"] for night in report["nights"])
    print(f"{report['out']}: {nights:,} nights up to {report['snapshot']!r}, {report['page_bytes']:,} bytes")


def _log_line(version: Mapping[str, Any]) -> list[Any]:
    metrics, seconds = version.get("metrics"), version.get("seconds")
    return [
        version["version"],
        _format_time(version.get("created")),
        version["kind"],
        version.get("name") or "-",
        _format_change(version.get("added"), version.get("deleted")),
        version.get("affected_entities"),
        "-" if seconds is None else f"{seconds:,.1f}".rjust(len("seconds")),
        format_share(metrics["mrr"], 3) if metrics else "-",
        _format_fidelity(version["fidelity"]) if "fidelity" in version else "-",
    ]


def _format_time(created: str | None) -> str:
    """To the minute, as versions can be asked for."""
    try:
        return f"{datetime.fromisoformat(created or '').astimezone(UTC):%Y-%m-%d %H:%M}"
    except ValueError:
        return "-"


def _fitting(lines: list[list[Any]]) -> list[list[Any]]:
    """With names as long as there is room. Their ends are kept: that is where names of nights differ."""
    place = LOG_COLUMNS.index("name")
    columns = zip(LOG_COLUMNS, *([format_cell(cell) for cell in line] for line in lines), strict=True)
    widths = [max(map(len, column)) + len("  ") for column in columns]
    room = max(6, LOG_WIDTH + len("  ") - sum(widths) + widths[place] - len("  "))
    for line in lines:
        line[place] = line[place] if len(line[place]) <= room else f"…{line[place][1 - room :]}"
    return lines


def _format_change(more: int | None, less: int | None) -> str:
    return "-" if more is None or less is None else f"+{more:,} -{less:,}"


def _format_fidelity(fidelity: Mapping[str, Any]) -> str:
    """With evidence where there is some, as answers are given."""
    cells = []
    for group in ("added_existing", "added_emerging", "deleted"):
        found = fidelity[group].get("with_evidence") or fidelity[group].get("vectors")
        cells.append((format_share(found["mrr"]) if found else "-").rjust(3))
    return " ".join(cells)


def render_checked(report: Mapping[str, Any]) -> None:
    """Every problem of a store, then the totals."""
    for problem in report["problems"]:
        print(f"version {problem['version']}: {problem['problem']}")
    state = "ok" if report["ok"] else f"{len(report['problems'])} problems"
    print(f"{state}: {report['versions']} versions, {report['parts']} parts, {report['bytes']:,} bytes")


def render_rolled_back(report: Mapping[str, Any]) -> None:
    """What is current after a rollback."""
    model = f"model {report['model']}" if report["model"] else "no model"
    print(f"version {report['version']}: snapshot {report['snapshot']!r} and {model} are current again")


def render_aliases(report: Mapping[str, Any]) -> None:
    """Every alias and the version that it pins."""
    for name, version in report["aliases"].items():
        print(f"{name}  version {version}")
    if not report["aliases"]:
        print("no aliases")


def render_cleared(report: Mapping[str, Any]) -> None:
    """What gc cleared, or would clear."""
    verb = "would free" if report["dry_run"] else "freed"
    cleared = ", ".join(str(number) for number in report["cleared_versions"]) or "none"
    print(f"versions cleared: {cleared}")
    print(f"  {verb} {report['bytes']:,} bytes in {report['parts']:,} parts, {report['folders']} unfinished folders")
