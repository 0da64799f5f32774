"""One setting at a time."""

from __future__ import annotations

from benchmarks.study import published
from benchmarks.study.figures import Figures
from benchmarks.study.render import Table, Value, lines, shown
from benchmarks.study.sections.section import NOT_RUN, Section

NIGHT = {"added_existing": "added", "deleted": "deleted"}
"""Groups of a night, and what their MRR by vectors is called."""
PUBLISHED = ("published MRR", "published seconds", "published seconds online")


def sensitivity(figures: Figures) -> Section:
    """One setting at a time."""
    section = Section(
        "Sensitivity",
        "sensitivity",
        "One setting at a time, YAGO-3SP snapshot 1, each learnt for as many epochs (what reaches the budget before is "
        "stopped and looks worse than it is); then the night to snapshot 2, and how much of what it added and deleted "
        "is believed (MRR by vectors, a sample).",
    )
    by_kind: dict[str, list[str]] = {}
    for setting in figures.values("sensitivity", "setting"):
        by_kind.setdefault(setting.partition(": ")[0], []).append(setting)
    for kind, settings in by_kind.items():
        known = published.SENSITIVITY.get(kind, {})
        rows: list[tuple[Value, ...]] = []
        for setting in settings:
            found, value = figures.find("sensitivity", setting=setting), setting.partition(": ")[2]
            rows.append((value, figures.mean(found, "vectors", "paper", "mrr"),
                         figures.mean(found, "with_evidence", "paper", "mrr"), figures.mean(found, "fit", "epochs"),
                         figures.mean(found, "fit", "seconds"),
                         figures.mean(found, "online", "seconds"),
                         *(figures.mean(found, "online", "fidelity", group, "vectors", "mrr") for group in NIGHT),
                         *known.get(value, (None, None, None))))  # fmt: skip
        rows.sort(key=lambda row: [float(part) if _is_number(part) else 0.0 for part in str(row[0]).split(", ")])
        columns = (kind, "MRR by vectors", "MRR with evidence", "epochs", "seconds from scratch", "seconds online",
                   *NIGHT.values(), *PUBLISHED)  # fmt: skip
        kept = len(columns) if known else len(columns) - len(PUBLISHED)
        note = f"Published: {published.SOURCE}, YAGO-3SP on a TITAN Xp." if known else ""
        best = dict.fromkeys(("MRR by vectors", "MRR with evidence"), "max")
        section.tables.append(Table(kind, columns[:kept], [row[:kept] for row in rows], note, best))
        section.plots.append(_plot(kind, rows))
        ways = [told for told in (_best(rows, 1, "by vectors"), _best(rows, 2, "with evidence")) if told]
        if ways:
            section.says.append(f"{kind}: {'; '.join(ways)}.")
    if not section.tables:
        section.says.append(NOT_RUN)
    return section


def _best(rows: list[tuple[Value, ...]], column: int, way: str) -> str:
    """Which value has the highest MRR, and by how much; of values that make no difference none is named."""
    scored = {str(row[0]): row[column] for row in rows if isinstance(row[column], float)}
    span = max(scored.values(), default=0.0) - min(scored.values(), default=0.0)  # type: ignore[type-var, operator]
    if len(scored) < 2 or span < 0.0005:
        return ""
    return f"{way} best at {max(scored, key=lambda value: scored[value])}, {shown(span)} MRR above the worst"  # type: ignore[arg-type, return-value]


def _plot(kind: str, rows: list[tuple[Value, ...]]) -> str:
    """MRR by value, in even steps."""
    if len(rows) < 2:
        return ""
    series = {
        name: [(float(place), float(row[column])) for place, row in enumerate(rows) if isinstance(row[column], float)]  # type: ignore[arg-type]
        for column, name in ((1, "by vectors"), (2, "with evidence"), (6 + len(NIGHT), "published"))
        if len(rows[0]) > column
    }
    ticks = {float(place): str(row[0]) for place, row in enumerate(rows)}
    return lines(f"{kind}: test MRR, protocol paper", series, kind, "MRR", ticks)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
