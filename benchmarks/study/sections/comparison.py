"""Every system on every snapshot."""

from __future__ import annotations

from benchmarks.study import published
from benchmarks.study.cells import Result
from benchmarks.study.figures import Figures, value_at
from benchmarks.study.render import Table, Value, bars, shown
from benchmarks.study.sections.section import NOT_RUN, Section, rows_of_comparison, snapshots_of


def comparison(figures: Figures) -> Section:
    """Every system, every snapshot."""
    section = Section(
        "Comparison",
        "comparison",
        "Every system learns the same snapshots in the same seconds, and one evaluator ranks all of them. Protocol "
        "`paper` takes train triples out of the competition, `filtered` all known ones. `not in train` leaves out the "
        "held-out triples that stand in a later train split. Settings of others are the best of four on validation "
        "Hits@10 of snapshot 1.",
    )
    for data, tables in published.TABLES.items():
        snapshots = snapshots_of(figures, data)
        section.plots.append(_comparison_bars(figures, data, snapshots))
        for number, snapshot in enumerate(snapshots):
            table = _comparison_table(figures, data, snapshot, number, tables)
            section.tables.append(table)
            section.says += _who_wins(figures, data, snapshot, number, tables)
    if not section.tables:
        section.says.append(NOT_RUN)
    return section


def _comparison_table(
    figures: Figures, data: str, snapshot: str, number: int, tables: dict[str, list[published.Metrics | None]]
) -> Table:
    source = published.OTHER_GRAPH.get(data, data)
    columns = ("system", "MR", "MRR", "Hits@10", "Hits@3", "Hits@1", "MRR filtered", "MRR not in train", "training s",
               "ended by", "published MR", "published MRR", "published Hits@10", "published Hits@1")  # fmt: skip
    rows: list[tuple[Value, ...]] = []
    for row in rows_of_comparison():
        if number == 0 and row.name.endswith("online"):
            continue
        found = figures.find("comparison", system=row.system, data=data, snapshot=snapshot)
        known = tables.get(row.name, [None] * 3)[number] if number < 3 else None
        beside = [known[name] if known else None for name in ("mr", "mrr", "hits@10", "hits@1")]
        if not found:
            rows.append((row.name, *["not run"], *[None] * 8, *beside))
            continue
        paper = [figures.mean(found, row.way, "paper", metric) for metric in published.METRICS]
        rows.append((
            row.name,
            *paper,
            figures.mean(found, row.way, "filtered", "mrr"),
            figures.mean(found, row.way, "paper", "without_train", "mrr"),
            figures.mean(found, "fit", "seconds"),
            _ended_by(found),
            *beside,
        ))  # fmt: skip
    leaked = _first_value(figures, data, snapshot, "leaked")
    note = f"Published: {published.SOURCE}, {source}." + (
        f" {leaked:.0f} test triples stand in train." if leaked else ""
    )
    best = {"MR": "min"} | dict.fromkeys(("MRR", "Hits@10", "Hits@3", "Hits@1", "MRR filtered"), "max")
    return Table(f"{data}, {snapshot}", columns, rows, note, best)


def _ended_by(found: list[Result]) -> str:
    """What ended the training: the budget cut it short, validation got no better, or it was done."""
    reasons = {one["result"]["fit"].get("stopped_by", "end") for one in found}
    return ", ".join(sorted(reasons))


def _first_value(figures: Figures, data: str, snapshot: str, name: str) -> float | None:
    for one in figures.find("comparison", data=data, snapshot=snapshot):
        value = value_at(one["result"], ("vectors", name))
        if value is not None:
            return value
    return None


def comparison_picture(figures: Figures) -> str:
    """The first snapshot of the first data set that was measured."""
    measured = ((data, snapshots) for data in published.TABLES if (snapshots := snapshots_of(figures, data)))
    return next((_comparison_bars(figures, data, snapshots) for data, snapshots in measured), "")


def _comparison_bars(figures: Figures, data: str, snapshots: list[str]) -> str:
    if not snapshots:
        return ""
    values = {}
    for row in rows_of_comparison():
        found = figures.find("comparison", system=row.system, data=data, snapshot=snapshots[0])
        mrr = figures.mean(found, row.way, "paper", "mrr")
        if mrr is not None:
            values[row.name] = mrr
    values = dict(sorted(values.items(), key=lambda value: -value[1]))
    # What is published of another graph is no mark to measure ours by.
    known = published.TABLES[data] if data not in published.OTHER_GRAPH else {}
    marks = {name: row[0]["mrr"] for name, row in known.items() if row[0] is not None}
    return bars(f"{data}, {snapshots[0]}: test MRR, protocol paper", values, marks=marks)


def _who_wins(
    figures: Figures, data: str, snapshot: str, number: int, tables: dict[str, list[published.Metrics | None]]
) -> list[str]:
    """Ours with evidence against every system measured here and every published row, in MRR and Hits@10."""
    says = []
    ours = figures.find("comparison", system="ours", data=data, snapshot=snapshot)
    for metric, label in (("mrr", "MRR"), ("hits@10", "Hits@10")):
        mine = figures.mean(ours, "with_evidence", "paper", metric)
        if mine is None:
            continue
        others = {}
        for row in rows_of_comparison():
            if row.system.startswith("ours"):
                continue
            found = figures.find("comparison", system=row.system, data=data, snapshot=snapshot)
            value = figures.mean(found, row.way, "paper", metric)
            if value is not None:
                others[row.name] = value
        if data not in published.OTHER_GRAPH and number < 3:
            others |= {f"{name} as published": row[number][metric] for name, row in tables.items() if row[number]}  # type: ignore[index]
        above = {name: value for name, value in others.items() if value > mine}
        place = f"{data}, {snapshot}: {label} of ours with evidence is {shown(mine)}, "
        if above:
            told = ", ".join(f"{name} ({shown(value)})" for name, value in sorted(above.items(), key=lambda v: -v[1]))
            says.append(f"{place}below {told}.")
        elif others:
            best = max(others, key=lambda name: others[name])
            says.append(f"{place}above all {len(others)} others; the next is {best} ({shown(others[best])}).")
    return says
