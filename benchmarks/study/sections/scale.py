"""Large graphs, what a night costs by size, and the cost model."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import replace

from benchmarks.study import published
from benchmarks.study.cells import Result
from benchmarks.study.cost_model import BELIEVED, COSTS, Cluster, Point, bottleneck, fit, left_out
from benchmarks.study.figures import Figures, value_at
from benchmarks.study.graphs import HELD_OUT, LARGE_DIM
from benchmarks.study.render import Table, Value, lines
from benchmarks.study.sections.section import GROUPS, NOT_RUN, Section
from dkge_dist.settings import load_settings

MACHINES = Cluster(machines=32, cores=16, memory=64e9, bytes_per_second=1.25e9)
"""Machines as one rents them, with 10 Gbit/s between them."""


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
    for table in (_large_graph(figures), _memory(figures), _nights_by_size(figures), _throughput(figures)):
        if table is not None:
            section.tables.append(table)
    points = cost_points(figures)
    if points:
        by_change = [(math.log10(point.changed), point.cpu_seconds) for point in points if point.tells("cpu_seconds")]
        section.plots.append(
            lines(
                "CPU seconds of a night by the size of the change",
                {"nights": by_change},
                "log10 of changed triples",
                "CPU s",
            )
        )
        table, says = _cost_model(points, large_points(figures))
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
    note = "Of the first and the last night fidelity is measured exactly, by vectors."
    return Table("imdb-13 (synthetic)", columns, rows, note) if rows else None


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
        took = report["seconds"] if not result.get("stopped") else f"{report['seconds']:.0f} (stopped)"
        rows.append((one["cell"]["data"], report["added"] + report["deleted"], report["trained_triples"], took,
                     *((None, None) if result.get("shards") else (result["cpu_seconds"], result["peak_bytes"] / 1e9)),
                     *((report[name] or 0) / 1e6 for name in ("bytes_pulled", "bytes_pushed", "bytes_written")),
                     f"{result['shards_touched']} of {result['shards_total']}"))  # fmt: skip
    rows.sort(key=lambda row: (str(row[0]), row[1]))  # type: ignore[arg-type, return-value]
    columns = ("graph", "changed triples", "trained triples", "seconds", "CPU seconds", "peak GB",
               "MB pulled", "MB pushed", "MB written", "shards touched")  # fmt: skip
    note = "Nights that were stopped learnt for the whole budget, and had more to learn: their seconds tell no cost."
    return Table("Nights by the size of the graph and of the change", columns, rows, note) if rows else None


def _memory(figures: Figures) -> Table | None:
    for one in figures.find("scale", setting="memory by part"):
        parts = one["result"]["bytes"]
        rows: list[tuple[Value, ...]] = [(name, count / 1e9) for name, count in parts.items()]
        peaks = [
            other["result"]["peak_bytes"] / 1e9 for other in figures.find("scale", setting="from scratch")
            if other["cell"]["data"] == one["cell"]["data"]
        ]  # fmt: skip
        rows.append(("all of these", sum(parts.values()) / 1e9))
        rows += [("measured peak of a training, all that is mapped and loaded included", peak) for peak in peaks[:1]]
        return Table(f"{one['cell']['data']}: memory by part", ("part", "GB"), rows)
    return None


def _throughput(figures: Figures) -> Table | None:
    rows: list[tuple[Value, ...]] = []
    for one in figures.done:
        result = one["result"]
        if one["cell"]["part"] == "scale" and "limit" in result:
            rate, limit = result["triples_per_second"], result["limit"]
            rows.append((one["cell"]["setting"], rate, limit, rate / limit, result["gflops"], result["copy_gb"]))
    columns = ("case", "triples a second", "limit of the same minute", "share of it", "GFLOP/s of a product",
               "GB/s of a copy")  # fmt: skip
    note = (
        "Published settings. The limit is what the products and bytes of a step need at these rates, one after the "
        "other, all cores at work."
    )
    return Table("Throughput of training", columns, rows, note) if rows else None


def cost_points(figures: Figures) -> list[Point]:
    """The nights that the cost model is fitted to."""
    points = []
    share, since_fit = load_settings().online.refit_evidence, Counter[str]()
    # Names of snapshots begin with their number: the nights of a graph in their order.
    for one in sorted(_night_cells(figures), key=lambda one: int(one["cell"]["snapshot"].partition(" ")[0])):
        result = one["result"]
        report = result["report"]
        changed = report["added"] + report["deleted"]
        data = one["cell"]["data"]
        since_fit[data] += changed
        refitted = 0 < share * (result["triples"] - 2 * HELD_OUT) <= since_fit[data]
        if refitted:
            since_fit[data] = 0
        moved = (report.get("bytes_pulled") or 0) + (report.get("bytes_pushed") or 0)
        name = f"{result['rows']:,} rows, dimension {result['dim']}, {changed:,} changed"
        points.append(
            Point(name, result["rows"], result["triples"], changed, report["trained_triples"], result["dim"],
                  result["cpu_seconds"], result["peak_bytes"], moved, result.get("stopped", False),
                  result.get("shards", 0), refitted)
        )  # fmt: skip
    return sorted(points, key=lambda point: (point.changed, point.rows))


def large_points(figures: Figures) -> list[Point]:
    """The nights of `imdb-13`: the cost model is not fitted to them, and its terms were not chosen by them."""
    every = [
        one for one in figures.done if one["cell"]["part"] == "scale" and one["cell"]["data"].startswith("imdb-13")
    ]
    ingested = {
        name: command["report"]
        for one in every
        if one["cell"]["setting"] == "ingest"
        for name, command in one["result"]["commands"].items()
    }
    points = []
    for one in every:
        result, name = one["result"], one["cell"]["snapshot"]
        if one["cell"]["setting"] == "night" and name in ingested:
            report, graph = result["report"], ingested[name]
            points.append(
                Point(name, graph["entities"], graph["triples"], report["added"] + report["deleted"],
                      report["trained_triples"], LARGE_DIM, result["cpu_seconds"], result["peak_bytes"], 0)
            )  # fmt: skip
    return points


def _cost_model(points: list[Point], large: list[Point]) -> tuple[Table | None, list[str]]:
    """Predictions of points left out, and of 100 M entities on 32 machines if these are good enough."""
    told = {cost: [point for point in points if point.tells(cost)] for cost in COSTS}
    if min(map(len, told.values())) < 5:
        return None, ["The cost model needs five nights at least, with shards and without."]
    rows: list[tuple[Value, ...]] = []
    worst: dict[str, float] = {}
    usual: dict[str, float] = {}
    for cost in COSTS:
        errors = left_out(cost, points)
        rows += [(cost, name, error) for name, error in errors]
        worst[cost] = max((abs(error) for _, error in errors), default=math.inf)
        usual[cost] = statistics.median([abs(error) for _, error in errors] or [math.inf])
    says = [
        f"Cost model, {cost}: a night that it was not fitted on is predicted to within {worst[cost]:.0%}, half of them "
        f"to within {usual[cost]:.0%}"
        + (" (asked: 25%)." if worst[cost] <= BELIEVED else ", more than the 25% asked: not to be believed.")
        for cost in COSTS
        if worst[cost] < math.inf
    ]
    for cost in ("cpu_seconds", "memory") if large else ():
        found = [fit(cost, points).predict(point) / getattr(point, cost) - 1 for point in large]
        says.append(
            f"Cost model, {cost}: the nights of imdb-13, which had no part in the choice of its terms either, are "
            f"predicted {min(found):+.0%} to {max(found):+.0%} off (asked: 25%)."
        )
    says.append(_at_100_million(points))
    return Table("Cost model: nights left out of the fit", ("cost", "night", "predicted / measured − 1"), rows), says


def _at_100_million(points: list[Point]) -> str:
    largest = [point for point in points if not point.shards][-1]
    share = 100e6 / largest.rows
    night = replace(largest, rows=100e6, triples=largest.triples * share)
    fits = {cost: fit(cost, points) for cost in COSTS}
    found = bottleneck(fits, night, MACHINES)
    return (
        f"100 M entities on {MACHINES.machines} machines ({MACHINES.cores} cores, {MACHINES.memory / 1e9:.0f} GB, "
        f"{MACHINES.bytes_per_second / 1e9:.2g} GB/s each), a night of {night.changed:,.0f} triples: "
        f"{found['cpu_seconds']:,.0f} s if its worker uses all cores of a machine as well as one core here, "
        f"{found['network_seconds']:,.1f} s of that machine's network, "
        f"{float(found['memory_a_machine']) / 1e9:,.1f} GB a machine; "
        f"the bottleneck is {found['bottleneck']}, of which {found['share']:.0%} are for {found['term']}."
    )
