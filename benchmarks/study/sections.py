"""What the page says: a section a part, made of what has been measured, with what is published beside it.

Sentences are made from the figures, so that they also say where we lose.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from benchmarks.study import published
from benchmarks.study.cells import Result
from benchmarks.study.cost_model import BELIEVED, COSTS, Cluster, Point, bottleneck, fit, left_out
from benchmarks.study.figures import Figures, value_at
from benchmarks.study.render import Points, Table, Value, bars, lines, shown

NOT_RUN = "Not measured yet."
PEERS = ("GAKE", "puTransE", "TransE", "ComplEx", "ConvE", "RotatE")
STATIC = ("GAKE", "TransE", "ComplEx", "ConvE", "RotatE")
GROUPS = ("added_existing", "added_emerging", "deleted", "replaced", "kept_near", "kept_far")
ROBUST = (("ours", "with_evidence"), ("ours", "vectors"), ("DKGE, literal", "vectors"), ("puTransE", "vectors"))
MACHINES = Cluster(machines=32, cores=16, memory=64e9, bytes_per_second=1.25e9)
"""Machines as one rents them, with 10 Gbit/s between them."""
WAYS = {"vectors": "by vectors", "with_evidence": "with evidence"}


@dataclass
class Section:
    """A part on the page."""

    title: str
    part: str
    about: str
    says: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    plots: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """A line of the comparison: a system and the way that it ranks."""

    name: str
    system: str
    way: str = "vectors"


def rows_of_comparison() -> list[Row]:
    """Peers, the literal method, ours; then those who learn online."""
    ours = [Row(f"ours, {text}", "ours", way) for way, text in WAYS.items()]
    online = [Row(f"ours, {text}, online", "ours, online", way) for way, text in WAYS.items()]
    return [
        *(Row(name, name) for name in PEERS),
        Row("DKGE, literal", "DKGE, literal"),
        *ours,
        Row("puTransE, online", "puTransE, online"),
        Row("DKGE, literal, online", "DKGE, literal, online"),
        *online,
    ]


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
        snapshots = _snapshots(figures, data)
        section.plots.append(_comparison_bars(figures, data, snapshots))
        for number, snapshot in enumerate(snapshots):
            table = _comparison_table(figures, data, snapshot, number, tables)
            section.tables.append(table)
            section.says += _who_wins(figures, data, snapshot, number, tables)
    if not section.tables:
        section.says.append(NOT_RUN)
    return section


def _snapshots(figures: Figures, data: str) -> list[str]:
    found = {one["cell"]["snapshot"] for one in figures.done if one["cell"]["part"] == "comparison"
             and one["cell"]["data"] == data}  # fmt: skip
    # The first is `snapshot...` in both kinds of graphs; nights follow.
    return sorted(found, key=lambda name: (not name.startswith("snapshot"), name))


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


def _comparison_bars(figures: Figures, data: str, snapshots: list[str]) -> str:
    if not snapshots:
        return ""
    values = {}
    for row in rows_of_comparison():
        found = figures.find("comparison", system=row.system, data=data, snapshot=snapshots[0])
        mrr = figures.mean(found, row.way, "paper", "mrr")
        if mrr is not None:
            values[row.name] = mrr
    return bars(f"{data}, {snapshots[0]}: test MRR, protocol paper", dict(sorted(values.items(), key=lambda v: -v[1])))


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


def efficiency(figures: Figures) -> Section:
    """Seconds of a night, with what was learnt of it."""
    section = Section(
        "Efficiency",
        "efficiency",
        "The seconds until a night is learnt: static systems learn the snapshot anew (to the best model that "
        "validation found), the others what changed. Beside them the fidelity of the night, MRR with train triples "
        "filtered: added facts should be high, deleted ones low, kept ones as before; of replaced answers the "
        "share that is above the old one.",
    )
    for data in published.TABLES:
        for number, snapshot in enumerate(_snapshots(figures, data)):
            if number == 0:
                continue
            rows: list[tuple[Value, ...]] = []
            seconds: dict[str, float] = {}
            for row in rows_of_comparison():
                found = figures.find("comparison", system=row.system, data=data, snapshot=snapshot)
                timed = figures.find("efficiency", system=row.system, data=data, snapshot=snapshot)
                if not found:
                    continue
                key = "best_seconds" if row.system in STATIC else "seconds"
                took = figures.mean(timed, "seconds") if timed else figures.mean(found, "fit", key)
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


def sensitivity(figures: Figures) -> Section:
    """One setting at a time."""
    section = Section(
        "Sensitivity",
        "sensitivity",
        "One setting at a time, YAGO-3SP snapshot 1, each learnt in the same seconds (what needs longer looks worse "
        "than it is); the night to snapshot 2.",
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
                         figures.mean(found, "with_evidence", "paper", "mrr"), figures.mean(found, "fit", "seconds"),
                         figures.mean(found, "online", "seconds"), *known.get(value, (None, None, None))))  # fmt: skip
        rows.sort(key=lambda row: [float(part) if _is_number(part) else 0.0 for part in str(row[0]).split(", ")])
        columns = (kind, "MRR by vectors", "MRR with evidence", "seconds from scratch", "seconds online",
                   "published MRR", "published seconds", "published seconds online")  # fmt: skip
        kept = len(columns) if known else 5
        note = f"Published: {published.SOURCE}, YAGO-3SP on a TITAN Xp." if known else ""
        best = dict.fromkeys(("MRR by vectors", "MRR with evidence"), "max")
        section.tables.append(Table(kind, columns[:kept], [row[:kept] for row in rows], note, best))
        scored = {str(row[0]): row[1] for row in rows if isinstance(row[1], float)}
        if len(scored) > 1:
            best_value = max(scored, key=lambda value: scored[value])
            span = max(scored.values()) - min(scored.values())
            section.says.append(f"{kind}: best by vectors at {best_value}; best and worst are {shown(span)} MRR apart.")
    if not section.tables:
        section.says.append(NOT_RUN)
    return section


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


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
            section.says += _what_was_learnt(figures, part, data)
    if part == "questions" and section.tables:
        known: list[tuple[Value, ...]] = [(name, *values) for name, values in published.QUESTIONS.items()]
        section.tables.append(Table(f"As published: ten questions on DBpedia-3SP ({published.SOURCE})",
                                    ("questions", "MRR on snapshots 1 / 2 / 3", "P@1"), known))  # fmt: skip
    if not section.tables:
        section.says.append(NOT_RUN)
    return section


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


def from_text(figures: Figures) -> Section:
    """What of the authors' code explains the published figure."""
    section = Section(
        "From the text to the published figure",
        "from_text",
        "The literal method, then what the authors' published code does otherwise than the text: each difference "
        "alone, then one after the other. YAGO-3SP snapshot 1, test, protocol paper, the same seconds for each; the "
        "literal method is also trained to its end.",
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


def scale(figures: Figures) -> Section:
    """Large graphs, and what a night costs by size."""
    section = Section(
        "Scale",
        "scale",
        "A graph of the size of IMDB-13, learnt for parts of the budget, and its nights; the same change on graphs of "
        "several sizes; changes of several sizes on one graph; throughput. Seconds, CPU seconds and peak memory are "
        "those of the whole command.",
        plots=[],
    )
    for table in (_large_graph(figures), _nights_by_size(figures), _throughput(figures)):
        if table is not None:
            section.tables.append(table)
    points = cost_points(figures)
    if points:
        by_change = [(math.log10(point.changed), point.cpu_seconds) for point in points]
        section.plots.append(
            lines(
                "CPU seconds of a night by the size of the change",
                {"nights": by_change},
                "log10 of changed triples",
                "CPU s",
            )
        )
        table, says = _cost_model(points)
        section.says += says
        if table is not None:
            section.tables.append(table)
    if not section.tables:
        section.says.append(NOT_RUN)
    else:
        section.says.append(f"Published: {published.SCALE}.")
    return section


def _large_graph(figures: Figures) -> Table | None:
    rows: list[tuple[Value, ...]] = []
    for one in figures.done:
        cell, result = one["cell"], one["result"]
        if cell["part"] != "scale" or not cell["data"].startswith("imdb-13") or "report" not in result:
            continue
        report = result["report"]
        valid = report.get("valid", report.get("best_valid", {}))
        groups = (value_at(result, ("fidelity", group, "vectors", "mrr")) for group in GROUPS if group != "replaced")
        step = f"{cell['setting']}, {cell['snapshot']}, {cell['budget']:g} s"
        rows.append((step, result["seconds"], result["cpu_seconds"], result["peak_bytes"] / 1e9,
                     value_at(valid, ("mrr",)), *groups))  # fmt: skip
    columns = ("step", "seconds", "CPU seconds", "peak GB", "validation MRR",
               *(group.replace("_", " ") for group in GROUPS if group != "replaced"))  # fmt: skip
    return Table("imdb-13 (synthetic)", columns, rows) if rows else None


def _night_cells(figures: Figures) -> list[Result]:
    return [
        one
        for one in figures.done
        if one["cell"]["part"] == "scale" and one["cell"]["setting"] == "night" and "rows" in one["result"]
    ]


def _nights_by_size(figures: Figures) -> Table | None:
    rows: list[tuple[Value, ...]] = []
    for one in _night_cells(figures):
        result = one["result"]
        report = result["report"]
        rows.append((one["cell"]["data"], report["added"] + report["deleted"], report["trained_triples"],
                     report["seconds"], result["cpu_seconds"], result["peak_bytes"] / 1e9,
                     f"{result['shards_touched']} of {result['shards_total']}"))  # fmt: skip
    rows.sort(key=lambda row: (str(row[0]), row[1]))  # type: ignore[arg-type, return-value]
    columns = ("graph", "changed triples", "trained triples", "seconds", "CPU seconds", "peak GB", "shards touched")
    return Table("Nights by the size of the graph and of the change", columns, rows) if rows else None


def _throughput(figures: Figures) -> Table | None:
    rows: list[tuple[Value, ...]] = [
        (one["cell"]["setting"], one["result"]["triples_per_second"], one["result"]["gflops"])
        for one in figures.done
        if one["cell"]["part"] == "scale" and "gflops" in one["result"]
    ]
    columns = ("case", "triples a second", "GFLOP/s of a matrix product, same run")
    return Table("Throughput of training", columns, rows) if rows else None


def cost_points(figures: Figures) -> list[Point]:
    """The nights that the cost model is fitted to."""
    points = []
    for one in _night_cells(figures):
        result = one["result"]
        report = result["report"]
        changed = report["added"] + report["deleted"]
        moved = (report.get("bytes_pulled") or 0) + (report.get("bytes_pushed") or 0) + report["bytes_written"]
        name = f"{result['rows']:,} rows, dimension {result['dim']}, {changed:,} changed"
        points.append(
            Point(name, result["rows"], result["triples"], changed, report["trained_triples"], result["dim"],
                  result["cpu_seconds"], result["peak_bytes"], moved)
        )  # fmt: skip
    return sorted(points, key=lambda point: (point.changed, point.rows))


def _cost_model(points: list[Point]) -> tuple[Table | None, list[str]]:
    """Predictions of points left out, and of 100 M entities on 32 machines if these are good enough."""
    if len(points) < 5:
        return None, ["The cost model needs five nights at least."]
    rows: list[tuple[Value, ...]] = []
    worst: dict[str, float] = {}
    for cost in COSTS:
        errors = left_out(cost, points)
        rows += [(cost, name, error) for name, error in errors]
        worst[cost] = max((abs(error) for _, error in errors), default=math.inf)
    says = [
        f"Cost model, {cost}: a night that it was not fitted on is predicted to within {worst[cost]:.0%}"
        + (" (asked: 25%)." if worst[cost] <= BELIEVED else ", more than the 25% asked: not to be believed.")
        for cost in COSTS
        if worst[cost] < math.inf
    ]
    says.append(_at_100_million(points))
    return Table("Cost model: nights left out of the fit", ("cost", "night", "predicted / measured − 1"), rows), says


def _at_100_million(points: list[Point]) -> str:
    largest = points[-1]
    share = 100e6 / largest.rows
    night = replace(largest, rows=100e6, triples=largest.triples * share)
    fits = {cost: fit(cost, points) for cost in COSTS}
    found = bottleneck(fits, night, MACHINES)
    cost = {"CPU": "cpu_seconds", "network": "moved", "memory": "memory"}[str(found["bottleneck"])]
    term, part = fits[cost].most(night)
    return (
        f"100 M entities on {MACHINES.machines} machines ({MACHINES.cores} cores, {MACHINES.memory / 1e9:.0f} GB, "
        f"{MACHINES.bytes_per_second / 1e9:.2g} GB/s each), a night of {night.changed:,.0f} triples: "
        f"{found['cpu_seconds']:,.1f} s of CPU, {found['network_seconds']:,.1f} s of network, "
        f"{float(found['memory_a_machine']) / 1e9:,.1f} GB a machine if all is spread evenly; "
        f"the bottleneck is {found['bottleneck']}, of which {part:.0%} are for {term}."
    )


def sections(figures: Figures) -> list[Section]:
    """The whole page."""
    return [
        comparison(figures),
        efficiency(figures),
        robustness(figures),
        sensitivity(figures),
        questions(figures),
        scale(figures),
        questions(figures, "debian"),
        from_text(figures),
    ]
