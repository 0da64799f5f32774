"""How reports read to people."""

from __future__ import annotations

from typing import Any

from dkge_dist.cli.output import table

METRICS = ("mrr", "hits@1", "hits@3", "hits@10", "mr")


def render_ingested(report: dict[str, Any]) -> None:
    """What an ingest did."""
    if report["unchanged"]:
        print(f"nothing changed: {report['name']!r} (version {report['version']}) holds just this")
        _show_noticed(report)
        return
    print(
        f"{report['name']!r} is version {report['version']}: {report['entities']:,} entities, {report['relations']:,} "
        f"relations, {report['train']:,} train + {report['valid']:,} valid + {report['test']:,} test triples"
    )
    print(
        f"  +{report['added']:,} -{report['deleted']:,} train triples; entities: +{report['emerging_entities']:,} "
        f"-{report['removed_entities']:,}; relations: +{report['emerging_relations']:,} "
        f"-{report['removed_relations']:,}"
    )
    _show_noticed(report)
    print(f"  {report['seconds']:.1f} s, {report['triples_per_second']:,} triples/s")


def _show_noticed(report: dict[str, Any]) -> None:
    if report["counts"]:
        print(f"  noticed: {in_words(report['counts'])}")
    if report["rejects"]:
        print(f"  bad lines were set aside in {report['rejects']}")


def _log_metric(found: dict[str, float] | None) -> str:
    return f"{found['mrr']:.3f}" if found else "-"


def render_diff(report: dict[str, Any]) -> None:
    """What changed between two snapshots."""
    print(f"{report['from']} -> {report['to']}")
    skipped = {"from", "to", "seconds", "out", "added_examples", "deleted_examples"}
    for key, value in report.items():
        if key not in skipped:
            print(f"  {key.replace('_', ' '):26} {value:>12,}")
    for side, sign in (("added", "+"), ("deleted", "-")):
        for row in report.get(f"{side}_examples", []):
            print(f"  {sign} " + "\t".join(row))
    if "out" in report:
        print(f"  written to {report['out']}")


def render_trained(report: dict[str, Any]) -> None:
    """What a training learnt."""
    resumed = " (resumed)" if report["resumed"] else ""
    print(
        f"version {report['version']} is a model of {report['snapshot']!r}: {report['entities']:,} entities, "
        f"{report['relations']:,} relations, {report['dim']} numbers each"
    )
    print(
        f"  {report['epochs']} epochs in {report['seconds']:.1f} s{resumed}, "
        f"{report['triples_per_second']:,.0f} triples/s"
    )
    if report["valid"]:
        print(f"  best validation: {_metrics_words(report['valid'])}")


def _metrics_words(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {found[name]:.1f}" if name == "mr" else f"{name} {found[name]:.3f}" for name in METRICS)


def render_evaluation(report: dict[str, Any]) -> None:
    """Link prediction as a table."""
    print(
        f"version {report['version']} on {report['triples']:,} {report['split']} triples of {report['snapshot']!r} "
        f"({report['protocol']} protocol, {report['candidates']:,} candidates)"
    )
    lines = [("all", report["triples"], report), ("  tails", "", report["tail"]), ("  heads", "", report["head"])]
    if report["leaked"] and report["without_train"]:
        lines.append(("not in train", report["triples"] - report["leaked"], report["without_train"]))
    for name, found in report.get("categories", {}).items():
        lines += [(name, found["triples"], found), ("  tails", "", found["tail"]), ("  heads", "", found["head"])]
    lines += [(found["relation"], found["triples"], found) for found in report.get("relations", [])]
    table(["", "triples", *METRICS], [[name, n, *(_metric(m, found[m]) for m in METRICS)] for name, n, found in lines])


def _metric(name: str, value: float) -> str:
    return f"{value:,.1f}" if name == "mr" else f"{value:.4f}"


def render_answers(report: dict[str, Any]) -> None:
    """Answers, nearest first."""
    for question in report.get("questions", [report]):
        asked = (question.get("head", "?"), question["relation"], question.get("tail", "?"))
        print("\t".join(asked))
        lines = [[a["entity"], f"{a['score']:.3f}", "known" if a["known"] else ""] for a in question["answers"]]
        table(["  answer", "distance", ""], [[f"  {entity}", *rest] for entity, *rest in lines])


def render_log(report: dict[str, Any]) -> None:
    """The versions of a store."""
    columns = ["version", "kind", "name", "parent", "added", "deleted", "emerging_entities", "removed_entities",
               "affected_entities", "shards_touched", "train", "valid", "test", "entities", "stored", "epochs",
               "seconds"]  # fmt: skip
    lines = [
        [v.get(c) for c in columns] + [_log_metric(v.get("metrics")), v.get("why", "")] for v in report["versions"]
    ]
    table([*(c.removesuffix("_entities").removesuffix("_touched") for c in columns), "valid mrr", ""], lines)


def in_words(counts: dict[str, Any]) -> str:
    """Named numbers, those that are zero left out."""
    shown = {name: value for name, value in counts.items() if isinstance(value, int | float) and value}
    return ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in shown.items())


def render_update(report: dict[str, Any]) -> None:
    """What an update did, or would do."""
    if report.get("unchanged"):
        print(f"nothing to do: version {report['version']} was learnt from {report['snapshot']!r}")
        return
    done = f"version {report['version']} brings" if "version" in report else "would bring"
    change = f"+{report['added']:,} -{report['deleted']:,}"
    print(f"{done} the model from {report['from']!r} to {report['snapshot']!r}: {change}")
    for noun in ("entities", "relations"):
        told = ", ".join(f"{report[f'{kind}_{noun}']:,} {kind}" for kind in ("emerging", "affected", "removed"))
        print(f"  {noun}: {told}")
    shards = f"{report['shards_touched']} of {report['shards_total']} shards"
    print(f"  {report['trained_triples']:,} triples to learn; {shards}")
    if "version" in report:
        print(f"  {report['epochs']} epochs, {report['bytes_written']:,} bytes written, {report['seconds']:.1f} s")
        if report["valid"]:
            print(f"  validation: {_metrics_words(report['valid'])}")


def render_night(report: dict[str, Any]) -> None:
    """What a night did."""
    render_ingested(report["ingest"])
    print(f"decision: {report['decision']}")
    if "update" in report:
        render_update(report["update"])
    if "train" in report:
        render_trained(report["train"])
    for found in report.get("evaluate", {}).values():
        render_evaluation(found)
