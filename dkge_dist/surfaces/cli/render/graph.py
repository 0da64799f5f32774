"""Reports about graphs as text: synthesised, ingested, compared. Lines on stdout, as for all commands."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dkge_dist.surfaces.cli.render.formats import format_counts, format_label, format_named, format_question

NAME_COUNTS = ("named_entities", "named_relations", "unnamed_entities", "unnamed_relations")


def render_synthesised(report: Mapping[str, Any], out: Path) -> None:
    """The sizes of a synthetic graph."""
    print(f"{out}: {format_counts(report)}")


def render_ingested(report: Mapping[str, Any]) -> None:
    """The new snapshot and how it differs from its parent."""
    if report["unchanged"]:
        what = "no triple" if any(report[key] for key in NAME_COUNTS) else "nothing"
        print(f"{what} changed: {report['name']!r} (version {report['version']}) has the same content")
        _render_notices(report)
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
    _render_held_out(report)
    _render_misspellings(report["misspellings"])
    _render_notices(report)
    print(f"  {report['seconds']:.1f} s, {report['triples_per_second']:,} triples/s")


def _render_held_out(report: Mapping[str, Any]) -> None:
    """What nobody asked for is said."""
    if report["held_out_by_default"] and report["valid"] + report["test"]:
        print(
            f"  held out by default: {report['valid']:,} triples for validation, {report['test']:,} for test "
            "(--valid 0 --test 0: none)"
        )
    elif report["held_out_by_default"]:
        print("  nothing is held out of so small a graph, so nothing can be measured (--valid N --test N: so many)")


def _render_misspellings(found: Mapping[str, Any]) -> None:
    """A few new labels that look like known ones, and how many more there are."""
    for noun, kind in (("relation", "relations"), ("entity", "entities")):
        for pair in found[kind]:
            print(f"  new {noun} {pair['label']!r} (nearest: {pair['nearest']!r})")
    more = found["total"] - len(found["relations"]) - len(found["entities"])
    if more:
        print(f"  ... and {more:,} more new labels that look like known ones")
    if found["not_compared"]:
        print(f"  {found['not_compared']:,} new labels were not compared with known ones")


def _render_notices(report: Mapping[str, Any]) -> None:
    for verb, said in (("named", "new or changed"), ("unnamed", "taken away")):
        counts = {noun: report[f"{verb}_{noun}"] for noun in ("entities", "relations")}
        if any(counts.values()):
            print(f"  display names {said}: {format_counts(counts)}")
    if report["counts"]:
        print(f"  noticed: {format_counts(report['counts'])}")
    if report["rejects"]:
        print(f"  bad lines were set aside in {report['rejects']}")


def render_diff(report: Mapping[str, Any]) -> None:
    """Sizes of the change between two snapshots, a few of its triples, who is affected, and whose answers changed."""
    print(f"{report['from']} -> {report['to']}")
    for key, value in report.items():
        if isinstance(value, int):
            print(f"  {key.replace('_', ' '):26} {value:>12,}")
    names = (report.get("entity_names", {}), report.get("relation_names", {}), report.get("entity_names", {}))
    for side, sign in (("added", "+"), ("deleted", "-")):
        for row in report.get(f"{side}_examples", []):
            print(f"  {sign} " + "\t".join(format_label(*pair) for pair in zip(row, names, strict=True)))
    for noun, plural in (("entity", "entities"), ("relation", "relations")):
        _render_affected(noun, plural, report.get(f"affected_{noun}_examples", []))
    if "answers" in report:
        _render_changed_answers(report["answers"])
    if "out" in report:
        print(f"  written to {report['out']}")


def _render_affected(noun: str, plural: str, found: list[dict[str, Any]]) -> None:
    if found:
        print(f"affected {plural}, those in most changed triples first")
    for line in found:
        context = ", context changed" if line["context_changed"] else ""
        print(f"  {format_named(line, noun)}  ({line['changed_triples']:,} changed triples{context})")


def _render_changed_answers(report: Mapping[str, Any]) -> None:
    one, other = report["models"]
    sample = f"{report['asked']:,} of " if report["asked"] < report["questions"] else ""
    print(
        f"{sample}{report['questions']:,} questions of changed triples, by the models of version {one} and {other}: "
        f"{report['differ']:,} have other best answers"
    )
    for question in report["examples"]:
        print("  " + format_question(question))
        for when in ("before", "after"):
            answers = (format_named(line, "entity") + (" (known)" if line["known"] else "") for line in question[when])
            print(f"    {when:6}  {', '.join(answers)}")
