"""The seconds of a night, and what was learnt of it."""

from __future__ import annotations

from benchmarks.study import published
from benchmarks.study.figures import Figures
from benchmarks.study.render import Table, Value, bars
from benchmarks.study.sections.section import GROUPS, NOT_RUN, Row, Section, rows_of_comparison, snapshots_of

STATIC = ("GAKE", "TransE", "ComplEx", "ConvE", "RotatE")


def efficiency(figures: Figures) -> Section:
    """Seconds of a night, with what was learnt of it."""
    section = Section(
        "Efficiency",
        "efficiency",
        "The seconds until a night is learnt: static systems learn the snapshot anew (to the best model that "
        "validation found), the others what changed. Validation and fidelity are not counted. Beside them the fidelity "
        "of the night, MRR with train triples filtered: added facts should be high, deleted ones low, kept ones as "
        "before; of replaced answers the share that is above the old one.",
    )
    for data in published.TABLES:
        for number, snapshot in enumerate(snapshots_of(figures, data)):
            if number == 0:
                continue
            rows: list[tuple[Value, ...]] = []
            seconds: dict[str, float] = {}
            for row in rows_of_comparison():
                found = figures.find("comparison", system=row.system, data=data, snapshot=snapshot)
                if not found:
                    continue
                took = seconds_of_night(figures, row, data, snapshot)
                if took is not None:
                    seconds[row.name] = took
                rows.append((row.name, took, *(figures.mean(found, "night", row.way, group) for group in GROUPS)))
            if not rows:
                continue
            columns = ("system", "seconds", *(group.replace("_", " ") for group in GROUPS))
            faster = published.FASTER[data]
            note = (
                f"Published on {published.OTHER_GRAPH.get(data, data)}: online at least {faster[0]} times faster than "
                f"static systems, {faster[1]} times faster than puTransE online ({published.SOURCE})."
            )
            section.tables.append(Table(f"{data}, {snapshot}", columns, rows, note))
            section.plots.append(bars(f"{data}, {snapshot}: seconds, logarithmic", seconds, " s", log=True))
            section.says += _how_much_faster(data, snapshot, seconds)
    if not section.tables:
        section.says.append(NOT_RUN)
    return section


def seconds_of_night(figures: Figures, row: Row, data: str, snapshot: str) -> float | None:
    """Until a night is learnt, as timed on its own if it was; of static systems, until the model that was kept."""
    timed = figures.find("efficiency", system=row.system, data=data, snapshot=snapshot)
    found = timed or figures.find("comparison", system=row.system, data=data, snapshot=snapshot)
    where = () if timed else ("fit",)
    whole = figures.mean(found, *where, "best_seconds" if row.system in STATIC else "seconds")
    return whole - (figures.mean(found, *where, "measure_seconds") or 0.0) if whole is not None else None


def _how_much_faster(data: str, snapshot: str, seconds: dict[str, float]) -> list[str]:
    mine = seconds.get("ours, by vectors, online")
    if mine is None:
        return []
    static = {name: seconds[name] for name in STATIC if name in seconds}
    says = []
    if static:
        fastest = min(static, key=lambda name: static[name])
        times = static[fastest] / mine
        verdict = "as hoped" if times >= 20 else "less than the 20 times hoped for"
        says.append(
            f"{data}, {snapshot}: a night of ours takes {mine:.1f} s, {_times(times)} than {fastest} learnt "
            f"anew to its best, the fastest static system ({verdict})."
        )
    if "puTransE, online" in seconds:
        says.append(f"{data}, {snapshot}: {_times(seconds['puTransE, online'] / mine)} than puTransE online.")
    return says


def _times(ratio: float) -> str:
    """A ratio of seconds in words, also where we are slower."""
    if ratio < 1:
        return f"{1 / ratio:.1f} times slower"
    return f"{ratio:.0f} times faster" if ratio >= 10 else f"{ratio:.1f} times faster"
