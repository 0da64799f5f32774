"""Reports of models as text: what was learnt, and how well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dkge_dist.surfaces.cli.output import print_table
from dkge_dist.surfaces.cli.render.formats import METRICS, format_metric, format_metrics, format_named, format_triple
from dkge_dist.surfaces.cli.render.graph import render_ingested


def render_trained(report: Mapping[str, Any]) -> None:
    """A model learnt from scratch: its size, speed and best validation."""
    resumed = " (resumed)" if report["resumed"] else ""
    print(
        f"version {report['version']} is a model of {report['snapshot']!r}: {report['entities']:,} entities, "
        f"{report['relations']:,} relations, dimension {report['dim']}"
    )
    print(
        f"  {report['epochs']} epochs in {report['seconds']:.1f} s{resumed}, "
        f"{report['triples_per_second']:,.0f} triples/s"
    )
    if report["valid"]:
        print(f"  best validation: {format_metrics(report['valid'])}")


def render_update(report: Mapping[str, Any]) -> None:
    """An online update, done or only planned."""
    if report.get("unchanged"):
        print(f"nothing to do: version {report['version']} was learnt from {report['snapshot']!r}")
        return
    done = f"version {report['version']} brings" if "version" in report else "would bring"
    change = f"+{report['added']:,} -{report['deleted']:,}"
    print(f"{done} the model from {report['from']!r} to {report['snapshot']!r}: {change}")
    for noun in ("entities", "relations"):
        counts = ", ".join(f"{report[f'{kind}_{noun}']:,} {kind}" for kind in ("emerging", "affected", "removed"))
        print(f"  {noun}: {counts}")
    shards = f"{report['shards_touched']} of {report['shards_total']} shards"
    print(f"  {report['trained_triples']:,} triples to learn; {shards}")
    if "version" in report:
        print(f"  {report['epochs']} epochs, {report['bytes_written']:,} bytes written, {report['seconds']:.1f} s")
        if report["valid"]:
            print(f"  validation: {format_metrics(report['valid'])}")
        render_groups(report["fidelity"])


def render_night(report: Mapping[str, Any]) -> None:
    """A night: its snapshot, its decision, and what that led to."""
    render_ingested(report["ingest"])
    print(f"decision: {report['decision']}")
    if "drift" in report:
        print(f"  since the training of version {report['drift']['since']}: {_format_drift(report['drift'])}")
    if "update" in report:
        render_update(report["update"])
    if "train" in report:
        render_trained(report["train"])
    for found in report.get("evaluate", {}).values():
        render_evaluation(found)
    print(report["headline"])
    if "report" in report:
        print(f"report: {report['report']}")


def _format_drift(drift: Mapping[str, Any]) -> str:
    """What a night found, as far as there were enough triples."""
    found = []
    if drop := drift["mrr_drop"]:
        interval = f"99%: {-drop['high']:+.1f}% to {-drop['low']:+.1f}%, {drop['triples']:,} triples"
        found.append(f"validation MRR {-drop['percent']:+.1f}% ({interval})")
    if added := drift["added_mrr"]:
        interval = f"99%: {added['low']:.3f} to {added['high']:.3f}, {added['triples']:,} triples"
        found.append(f"MRR of added triples {added['mrr']:.3f} ({interval})")
    return "; ".join(found) or "too few triples to measure any drift"


def render_evaluation(report: dict[str, Any]) -> None:
    """Link prediction as a table: all triples, both sides, then categories and relations where asked for."""
    by = "with evidence" if report["evidence"] else "by vectors alone"
    print(
        f"version {report['version']} on {report['triples']:,} {report['split']} triples of {report['snapshot']!r} "
        f"({report['protocol']} protocol, {by}, {report['candidates']:,} candidates)"
    )
    lines = [("all", report["triples"], report), ("  tails", "", report["tail"]), ("  heads", "", report["head"])]
    if report["evidence"]:
        lines.append(("by vectors alone", "", report["vectors"]))
    other = "paper" if report["protocol"] == "filtered" else "filtered"
    lines.append((f"{other} protocol", "", report[other]))
    if report["leaked"] and report["without_train"]:
        lines.append(("not in train", report["triples"] - report["leaked"], report["without_train"]))
    for name, found in report.get("categories", {}).items():
        lines += [(name, found["triples"], found), ("  tails", "", found["tail"]), ("  heads", "", found["head"])]
    lines += [(format_named(found, "relation"), found["triples"], found) for found in report.get("relations", [])]
    print_table(
        ["", "triples", *METRICS],
        [[name, n, *(format_metric(m, found[m]) for m in METRICS)] for name, n, found in lines],
    )
    if "ranks" in report:
        ranked = (
            [*format_triple(line), f"{line['head_rank']:,.1f}", f"{line['tail_rank']:,.1f}"] for line in report["ranks"]
        )
        print_table(["head", "relation", "tail", "head rank", "tail rank"], list(ranked))


def render_fidelity(report: Mapping[str, Any]) -> None:
    """What became of the triples of a night, by vectors alone and with evidence."""
    print(f"version {report['version']}: from {report['since']!r} to {report['snapshot']!r}")
    render_groups(report)


def render_groups(report: Mapping[str, Any]) -> None:
    """The groups of triples of a night as a table; beside those that were there before, what the model then said."""
    before: Mapping[str, Any] | None = report.get("before")
    lines = []
    groups = {name: found for name, found in report.items() if isinstance(found, Mapping) and "vectors" in found}
    for group, found in groups.items():
        for way in ("vectors", "with_evidence"):
            values = found.get(way)
            if values and "mrr" in values:
                name, count = (group.replace("_", " "), found["triples"]) if way == "vectors" else ("", "")
                more = [values.get("new_above_old")]
                if before is not None:
                    more.insert(0, before.get(group, {}).get(way, {}).get("mrr"))
                numbers = [format_metric(metric, values[metric]) for metric in METRICS]
                shown = ["" if value is None else f"{value:.3f}" for value in more]
                lines.append([name, count, way.replace("_", " "), *numbers, *shown])
    columns = ["mrr before"] if before is not None else []
    print_table(["", "triples", "by", *METRICS, *columns, "new above old"], lines)
    if report["sampled"]:
        print("  (sampled: `dkge fidelity` is exact)")
