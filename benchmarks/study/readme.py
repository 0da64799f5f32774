"""The results in the README: tables of the page, shortened, between two marks. Nothing there is typed by hand."""

from __future__ import annotations

from pathlib import Path

from benchmarks.report import PROJECT
from benchmarks.study.figures import Figures
from benchmarks.study.published import TABLES
from benchmarks.study.render import Table, Value, standalone
from benchmarks.study.sections.comparison import comparison_picture
from benchmarks.study.sections.efficiency import seconds_of_night
from benchmarks.study.sections.section import Row, rows_of_comparison, snapshots_of

README, PICTURE = PROJECT / "README.md", PROJECT / "docs" / "study.svg"
BEGIN, END = "<!-- study: begin (python -m benchmarks.study readme) -->", "<!-- study: end -->"
DATA = "YAGO-3SP"
GROUPS = {"added_existing": "added", "deleted": "deleted", "kept_near": "kept nearby"}
"""Of a night: what is shown, and what it is called."""


def block(figures: Figures) -> str:
    """What stands between the marks."""
    tables = [table.markdown() for table in (_held_out(figures), _night(figures)) if table.rows]
    picture = f"![Test MRR of every system, measured and published](docs/{PICTURE.name})"
    return "\n".join([BEGIN, "", picture, "", *tables, END])


def _held_out(figures: Figures) -> Table:
    snapshot = snapshots_of(figures, DATA)[0]
    rows: list[tuple[Value, ...]] = []
    for row in rows_of_comparison():
        found = figures.find("comparison", system=row.system, data=DATA, snapshot=snapshot)
        known = TABLES[DATA].get(row.name, [None])[0]
        if found:
            told = (figures.mean(found, row.way, "paper", metric) for metric in ("mr", "mrr", "hits@10", "hits@1"))
            rows.append((row.name, *told, figures.mean(found, "fit", "seconds"), known["mrr"] if known else None))
    columns = ("", "MR", "MRR", "Hits@10", "Hits@1", "seconds", "MRR as published")
    rows.sort(key=lambda row: -(row[2] if isinstance(row[2], float) else 0.0))
    best = {"MR": "min"} | dict.fromkeys(columns[2:5], "max")
    return Table(
        f"{DATA}, {snapshot}, test, protocol `paper`: {figures.told('comparison', DATA)}", columns, rows, best=best
    )


def _night(figures: Figures) -> Table:
    """The first night: seconds, and what was learnt of it."""
    snapshots = snapshots_of(figures, DATA)
    rows: list[tuple[Value, ...]] = []
    for row in rows_of_comparison() if len(snapshots) > 1 else []:
        found = figures.find("comparison", system=row.system, data=DATA, snapshot=snapshots[1])
        if found:
            learnt = (figures.mean(found, "night", row.way, group) for group in GROUPS)
            rows.append((_how(row), seconds_of_night(figures, row, DATA, snapshots[1]), *learnt))
    rows.sort(key=lambda row: row[1] if isinstance(row[1], float) else 0.0)
    return Table(f"A night of {DATA} (+900 −150 triples): seconds until it is learnt, then MRR of its triples",
                 ("", "seconds", *GROUPS.values()), rows)  # fmt: skip


def _how(row: Row) -> str:
    return row.name if row.name.endswith("online") else f"{row.name}, learnt anew"


def write(figures: Figures, path: Path = README, picture: Path = PICTURE) -> None:
    """Put the block into the README, and the picture beside it."""
    if not figures.find("comparison", data=DATA):
        raise SystemExit(f"nothing measured of {DATA}: python -m benchmarks.study comparison --data yago")
    text = path.read_text()
    before, found, rest = text.partition(BEGIN)
    _, closed, after = rest.partition(END)
    if not (found and closed):
        raise SystemExit(f"{path}: the lines {BEGIN!r} and {END!r} are not there")
    path.write_text(before + block(figures) + after)
    picture.write_text(standalone(comparison_picture(figures)))
