"""(h, r, ?) before and after a night."""

from __future__ import annotations

from benchmarks.study import published
from benchmarks.study.figures import Figures
from benchmarks.study.render import Table, Value, bars, shown
from benchmarks.study.sections.section import NOT_RUN, WAYS, Section


def questions(figures: Figures, part: str = "questions") -> Section:
    """(h, r, ?) before and after a night."""
    section = Section(
        "Questions" if part == "questions" else "Real data that changes: Debian packages",
        part,
        "Tails of facts of a night, asked of the version before it and of versions after it, as of each. After the "
        "night, what was added should be known, what was deleted not, the new answer above the old.",
    )
    for data in figures.values(part, "data"):
        rows: list[tuple[Value, ...]] = []
        for system, way in (("ours", "vectors"), ("ours", "with_evidence"), ("DKGE, literal", "vectors")):
            for as_of in ("before", "online", "from scratch"):
                found = figures.find(part, data=data, system=system, setting=as_of)
                groups = list(found[0]["result"].get(way, {})) if found else []
                for group in groups:
                    name = f"{system}, {WAYS[way]}" if system == "ours" else system
                    told = (figures.mean(found, way, group, metric) for metric in ("mrr", "p@1", "mr"))
                    count = figures.mean(found, way, group, "questions")
                    rows.append((group, name, as_of, int(count or 0), *told))
        rows.sort(key=lambda row: str(row[0]))
        columns = ("facts", "system", "version", "questions", "MRR", "P@1", "mean rank")
        if rows:
            section.tables.append(Table(data, columns, rows))
            section.plots.append(_plot(figures, part, data))
            section.says += _what_was_learnt(figures, part, data)
    if part == "questions" and section.tables:
        known: list[tuple[Value, ...]] = [(name, *values) for name, values in published.QUESTIONS.items()]
        section.tables.append(Table(f"As published: ten questions on DBpedia-3SP ({published.SOURCE})",
                                    ("questions", "MRR on snapshots 1 / 2 / 3", "P@1"), known))  # fmt: skip
    if not section.tables:
        section.says.append(NOT_RUN)
    return section


def _plot(figures: Figures, part: str, data: str) -> str:
    """Ours by vectors: facts of each kind, before the night, online, from scratch."""
    values = {}
    for group in ("added", "deleted", "replaced: the new answer", "replaced: the old answer", "stayed, near"):
        for as_of in ("before", "online", "from scratch"):
            found = figures.find(part, data=data, system="ours", setting=as_of)
            mrr = figures.mean(found, "vectors", group, "mrr")
            if mrr is not None:
                values[f"{group.removeprefix('replaced: ')}, {as_of}"] = mrr
    return bars(f"{data}: MRR of the facts of a night by vectors of ours", values)


def _what_was_learnt(figures: Figures, part: str, data: str) -> list[str]:
    says = []
    for group in ("added", "deleted"):
        told = [
            f"{as_of} {shown(value)}"
            for as_of in ("before", "online", "from scratch")
            if (value := figures.mean(
                figures.find(part, data=data, system="ours", setting=as_of), "vectors", group, "mrr")) is not None
        ]  # fmt: skip
        if told:
            says.append(f"{data}: MRR of {group} facts by vectors of ours: {', '.join(told)}.")
    return says
