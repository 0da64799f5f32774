"""From the method as written to the published figure."""

from __future__ import annotations

from benchmarks.study import published
from benchmarks.study.figures import Figures
from benchmarks.study.render import Table, Value, bars, shown
from benchmarks.study.sections.section import NOT_RUN, Section


def from_text(figures: Figures) -> Section:
    """What of the authors' code explains the published figure."""
    section = Section(
        "From the text to the published figure",
        "from_text",
        "The literal method, then what the authors' published code does otherwise than the text: each difference "
        "alone, then one after the other. YAGO-3SP snapshot 1, test, protocol paper, the same seconds for each; the "
        "literal method is also trained to its end, and then also asked without the question's own entity, which a "
        "short relation leaves nearest to itself.",
    )
    rows: list[tuple[Value, ...]] = []
    for setting in figures.values("from_text", "setting"):
        found = figures.find("from_text", setting=setting)
        told = (figures.mean(found, "vectors", "paper", metric) for metric in ("mrr", "hits@10", "hits@1", "mr"))
        rows.append((setting, *told, figures.mean(found, "fit", "epochs"), figures.mean(found, "fit", "seconds")))
    if not rows:
        section.says.append(NOT_RUN)
        return section
    order = ("literal", "alone", "up to")
    rows.sort(key=lambda row: order.index(str(row[0]).partition(":")[0].partition(",")[0]))
    goal = published.TABLES["YAGO-3SP"]["DKGE, literal"][0]
    assert goal is not None
    rows.append(("as published", goal["mrr"], goal["hits@10"], goal["hits@1"], goal["mr"], None, None))
    columns = ("variant", "MRR", "Hits@10", "Hits@1", "MR", "epochs", "seconds")
    section.tables.append(Table("Variants", columns, rows, f"Published: {published.SOURCE}."))
    scored = {str(row[0]): float(row[1]) for row in rows[:-1] if isinstance(row[1], float)}
    if scored:
        goals = dict.fromkeys(scored, goal["mrr"])
        section.plots.append(bars("Variants: test MRR, protocol paper", scored, marks=goals))
        best = max(scored, key=lambda name: scored[name])
        reached = "reaches" if scored[best] >= goal["mrr"] else "does not reach"
        section.says.append(
            f"The best variant, {best}, has an MRR of {shown(scored[best])} and {reached} the published "
            f"{shown(goal['mrr'])}" + ("." if reached == "reaches" else ": in these seconds no difference explains it.")
        )
    if "literal" in scored:
        gains = {name: value - scored["literal"] for name, value in scored.items() if name.startswith("alone")}
        if gains:
            most = max(gains, key=lambda name: gains[name])
            section.says.append(f"Alone, the most is brought by {most.partition(': ')[2]}: {gains[most]:+.3f} MRR.")
    return section
