"""Reports of questions to a model as text: answers, scores, neighbours, evidence, exported vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dkge_dist.surfaces.cli.output import print_table
from dkge_dist.surfaces.cli.render.formats import format_counts, format_named, format_question, format_triple


def render_answers(report: dict[str, Any]) -> None:
    """The answers to each question: known facts, then predictions; below them the evidence of each, if asked for."""
    for question in report.get("questions", [report]):
        if "error" in question:
            continue
        print(format_question(question))
        key = "relation" if "relation" not in question else "entity"
        lines = [
            [f"  {format_named(found, key)}", f"{found['score']:.3f}", _format_state(found)]
            for found in question["answers"]
        ]
        print_table(["  answer", "score", ""], lines)
        # Below the table: sentences would push its scores out of sight.
        for found in question["answers"]:
            if "why" in found:
                print(f"\n  {format_named(found, key)}")
                for reason in found["why"]:
                    weight = f"{reason['weight']:+8.3f}"
                    if reason["kind"] != "other" or float(weight):
                        print(f"    {weight}  {reason['text']}")
    _render_origin(report)


def _format_state(found: dict[str, Any]) -> str:
    if found["known"]:
        return "known"
    if not found.get("deleted"):
        return ""
    return f"deleted in {found['deleted_in']}" if "deleted_in" in found else "deleted"


def _render_origin(report: dict[str, Any]) -> None:
    print(f"by version {report['version']}, learnt from {report['snapshot']!r}")


def render_scores(report: dict[str, Any]) -> None:
    """Triples with their scores, ranks and probabilities, and what these were calibrated on."""
    lines = []
    for found in report.get("triples", [report]):
        if "error" not in found:
            chance, threshold = found["probability"], found["threshold"]
            lines.append(
                [
                    *format_triple(found),
                    f"{found['score']:.3f}",
                    "-" if chance is None else f"{chance:.3f}",
                    "-" if threshold is None else f"{threshold:.3f}",
                    *("-" if found[rank] is None else f"{found[rank]:,.1f}" for rank in ("tail_rank", "head_rank")),
                    _format_state(found),
                ]
            )
    columns = ["head", "relation", "tail", "score", "probability", "threshold", "tail rank", "head rank", ""]
    print_table(columns, lines)
    print(f"ranks among {report['candidates']:,} entities; {_format_calibration(report['calibration'])}")
    _render_origin(report)


def _format_calibration(calibration: dict[str, Any] | None) -> str:
    if calibration is None:
        return "no probabilities: the model was trained without validation triples"
    true, wrong = calibration["triples"], calibration["corrupted"]
    return f"probabilities calibrated on {true:,} validation triples against {wrong:,} with another end"


def render_similar(report: dict[str, Any]) -> None:
    """The entities nearest to each."""
    for found in report.get("entities", [report]):
        if "error" not in found:
            print(format_named(found, "entity"))
            lines = [[f"  {format_named(near, 'entity')}", f"{near['score']:.3f}"] for near in found["similar"]]
            print_table(["  similar", "score"], lines)
    _render_origin(report)


def render_evidence(report: dict[str, Any]) -> None:
    """Two tables: what supports each relation, and the weights by side; then what the columns of weights mean."""
    fitted = f", fitted on {report['fitted_on']} triples" if report["fitted_on"] else ""
    print(f"evidence of version {report['version']} for {report['snapshot']!r}{fitted}")
    supports, weights = [], []
    for found in report["relations"]:
        name = relation = format_named(found, "relation")
        lines = [(_format_link(link), link["confidence"], link["pairs"], link["of"]) for link in found["links"]]
        lines += [(_format_path(path), path["confidence"], path["pairs"], path["of"]) for path in found["paths"]]
        for text, confidence, pairs, of in lines or [("nothing", None, None, None)]:
            shown = "-" if confidence is None else f"{confidence:.3f}"
            supports.append([name, text, shown, pairs, of])
            name = ""
        for side in ("tail", "head"):
            own = f"{found['own_entity']:.1f}"
            values = [f"{found['weights'][side][feature]:.2f}" for feature in report["features"]]
            weights.append([relation if side == "tail" else "", f"{side}s", *values, own])
    print_table(["relation", "supported by", "confidence", "pairs", "of"], supports)
    print("of the pairs that the supporting relation or path joins, so many have the relation too")
    print()
    print_table(["relation", "asked for", *report["features"], "own entity"], weights)
    print()
    print_table(["weight", "of what"], [*report["features"].items(), ("own entity", report["own_entity"])])


def _format_link(link: dict[str, Any]) -> str:
    shown = format_named(link, "relation")
    return shown if link["direction"] == "same" else f"{shown} (reversed)"


def _format_path(path: dict[str, Any]) -> str:
    return " → ".join(format_named(path, step, f"{step}_name") for step in ("first", "second"))


def render_exported(report: dict[str, Any], out: Path) -> None:
    """Which vectors were written, and how many."""
    if "since" in report:
        print(f"{out}: {report['what']} vectors from version {report['since']} to {report['version']}")
        for noun in ("entities", "relations"):
            print(f"  {noun}: {report[f'upserted_{noun}']:,} to upsert, {report[f'deleted_{noun}']:,} to delete")
        return
    sizes = {name: report[name] for name in ("entities", "relations", "dim")}
    print(f"{out}: {report['what']} vectors of {format_counts(sizes)}")
