"""Thirty nights without retraining."""

from __future__ import annotations

from benchmarks.study import published
from benchmarks.study.figures import Figures, value_at
from benchmarks.study.render import Points, Table, Value, lines, shown
from benchmarks.study.sections.section import NOT_RUN, WAYS, Section

ROBUST = (("ours", "with_evidence"), ("ours", "vectors"), ("DKGE, literal", "vectors"), ("puTransE", "vectors"))


def robustness(figures: Figures) -> Section:
    """Thirty nights without retraining."""
    section = Section(
        "Robustness",
        "robustness",
        "Every night is learnt online; at every fifth the same snapshot is also learnt from scratch. The loss is that "
        "of test MRR, protocol paper, against from scratch.",
    )
    curves: dict[str, Points] = {}
    rows: list[tuple[Value, ...]] = []
    for system, way in ROBUST:
        name = f"{system}, {WAYS[way]}" if system == "ours" else system
        losses: dict[int, float] = {}
        for snapshot in figures.values("robustness", "snapshot"):
            night = int(snapshot.rpartition("-")[2])
            online = figures.mean(
                figures.find("robustness", system=f"{system}, online", snapshot=snapshot, setting=""),
                way,
                "paper",
                "mrr",
            )
            scratch = figures.mean(figures.find("robustness", system=system, snapshot=snapshot), way, "paper", "mrr")
            if scratch is not None and night == 0:
                curves.setdefault(f"{name}, online", []).append((0, scratch))
            if online is not None:
                curves.setdefault(f"{name}, online", []).append((night, online))
            if online is not None and scratch:
                losses[night] = 1 - online / scratch
        if losses:
            until = [
                next((str(night) for night, loss in sorted(losses.items()) if loss >= limit), f"not in {max(losses)}")
                for limit in published.NIGHTS_UNTIL
            ]
            rows.append((name, *until, losses[max(losses)]))
    if rows:
        columns = ("system", *(f"nights until {limit:.0%} lost" for limit in published.NIGHTS_UNTIL), "lost at the end")
        rows.append(("DKGE as published, IMDB-30SP (another graph)", *map(str, published.NIGHTS_UNTIL.values()), None))
        note = f"To within five nights. Published: {published.SOURCE}."
        section.tables.append(Table("Nights until so much of the MRR is lost", columns, rows, note))
        section.plots.append(lines("Test MRR, learnt online every night", curves, "night", "test MRR, protocol paper"))
        section.says += [f"{row[0]}: {shown(row[-1])} of the MRR is lost at the end." for row in rows[:-1]]
    several = _several_at_once(figures)
    if several is not None:
        section.tables.append(several)
    if not section.tables:
        section.says.append(NOT_RUN)
    return section


def _several_at_once(figures: Figures) -> Table | None:
    rows: list[tuple[Value, ...]] = []
    for setting in figures.values("robustness", "setting"):
        for system in ("ours, online", "DKGE, literal, online"):
            found = [one for one in figures.find("robustness", setting=setting) if one["cell"]["system"] == system]
            if not found:
                continue
            last = max(int(one["cell"]["snapshot"].rpartition("-")[2]) for one in found)
            at_end = [one for one in found if one["cell"]["snapshot"].endswith(f"-{last}")]
            seeds = len({one["cell"]["seed"] for one in found})
            took = [value_at(one["result"], ("fit", "seconds")) or 0.0 for one in found]
            rows.append((system, setting or "1 at once", len(found) // seeds, sum(took) / seeds,
                         sum(took) / len(took), figures.mean(at_end, "vectors", "paper", "mrr"),
                         figures.mean(at_end, "with_evidence", "paper", "mrr")))  # fmt: skip
    columns = ("system", "nights", "updates", "seconds of all", "seconds of one", "MRR at the end", "with evidence")
    note = "Published: three nights at once cost at least five times one night, and lower the loss."
    return Table("Several nights at once", columns, rows, note) if rows else None
