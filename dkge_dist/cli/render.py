"""Reports as text for people. In: the report of one command, as its JSON has it. Out: lines on stdout."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dkge_dist.cli.output import format_cell, print_table

METRICS = ("mrr", "hits@1", "hits@3", "hits@10", "mr")
NAME_COUNTS = ("named_entities", "named_relations", "unnamed_entities", "unnamed_relations")
LOG_COLUMNS = ("v", "published (UTC)", "kind", "name", "triples", "affected", "seconds", "mrr", "fidelity")
LOG_WIDTH = 100


def render_synthesised(report: dict[str, Any], out: Path) -> None:
    """The sizes of a synthetic graph."""
    print(f"{out}: {format_counts(report)}")


def render_ingested(report: dict[str, Any]) -> None:
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


def _render_held_out(report: dict[str, Any]) -> None:
    """What nobody asked for is said."""
    if report["held_out_by_default"] and report["valid"] + report["test"]:
        print(
            f"  held out by default: {report['valid']:,} triples for validation, {report['test']:,} for test "
            "(--valid 0 --test 0: none)"
        )
    elif report["held_out_by_default"]:
        print("  nothing is held out of so small a graph, so nothing can be measured (--valid N --test N: so many)")


def _render_misspellings(found: dict[str, Any]) -> None:
    """A few new labels that look like known ones, and how many more there are."""
    for noun, kind in (("relation", "relations"), ("entity", "entities")):
        for pair in found[kind]:
            print(f"  new {noun} {pair['label']!r} (nearest: {pair['nearest']!r})")
    more = found["total"] - len(found["relations"]) - len(found["entities"])
    if more:
        print(f"  ... and {more:,} more new labels that look like known ones")
    if found["not_compared"]:
        print(f"  {found['not_compared']:,} new labels were not compared with known ones")


def _render_notices(report: dict[str, Any]) -> None:
    for verb, said in (("named", "new or changed"), ("unnamed", "taken away")):
        counts = {noun: report[f"{verb}_{noun}"] for noun in ("entities", "relations")}
        if any(counts.values()):
            print(f"  display names {said}: {format_counts(counts)}")
    if report["counts"]:
        print(f"  noticed: {format_counts(report['counts'])}")
    if report["rejects"]:
        print(f"  bad lines were set aside in {report['rejects']}")


def render_diff(report: dict[str, Any]) -> None:
    """Sizes of the change between two snapshots, a few of its triples, who is affected, and whose answers changed."""
    print(f"{report['from']} -> {report['to']}")
    for key, value in report.items():
        if isinstance(value, int):
            print(f"  {key.replace('_', ' '):26} {value:>12,}")
    names = (report.get("entity_names", {}), report.get("relation_names", {}), report.get("entity_names", {}))
    for side, sign in (("added", "+"), ("deleted", "-")):
        for row in report.get(f"{side}_examples", []):
            print(f"  {sign} " + "\t".join(_format_label(*pair) for pair in zip(row, names, strict=True)))
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
        print(f"  {_format_named(line, noun)}  ({line['changed_triples']:,} changed triples{context})")


def _render_changed_answers(report: dict[str, Any]) -> None:
    one, other = report["models"]
    sample = f"{report['asked']:,} of " if report["asked"] < report["questions"] else ""
    print(
        f"{sample}{report['questions']:,} questions of changed triples, by the models of version {one} and {other}: "
        f"{report['differ']:,} have other best answers"
    )
    for question in report["examples"]:
        print("  " + _format_question(question))
        for when in ("before", "after"):
            answers = (_format_named(line, "entity") + (" (known)" if line["known"] else "") for line in question[when])
            print(f"    {when:6}  {', '.join(answers)}")


def render_trained(report: dict[str, Any]) -> None:
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
        print(f"  best validation: {_format_metrics(report['valid'])}")


def render_update(report: dict[str, Any]) -> None:
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
            print(f"  validation: {_format_metrics(report['valid'])}")
        render_groups(report["fidelity"])


def render_night(report: dict[str, Any]) -> None:
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


def _format_drift(drift: dict[str, Any]) -> str:
    """What a night found; nothing where that cannot be told."""
    told = []
    if drop := drift["mrr_drop"]:
        interval = f"99%: {-drop['high']:+.1f}% to {-drop['low']:+.1f}%, {drop['triples']:,} triples"
        told.append(f"validation MRR {-drop['percent']:+.1f}% ({interval})")
    if added := drift["added_mrr"]:
        interval = f"99%: {added['low']:.3f} to {added['high']:.3f}, {added['triples']:,} triples"
        told.append(f"MRR of added triples {added['mrr']:.3f} ({interval})")
    return "; ".join(told) or "too few triples to tell any drift"


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
    lines += [(_format_named(found, "relation"), found["triples"], found) for found in report.get("relations", [])]
    print_table(
        ["", "triples", *METRICS],
        [[name, n, *(_format_metric(m, found[m]) for m in METRICS)] for name, n, found in lines],
    )
    if "ranks" in report:
        ranked = (
            [*_format_parts(line), f"{line['head_rank']:,.1f}", f"{line['tail_rank']:,.1f}"] for line in report["ranks"]
        )
        print_table(["head", "relation", "tail", "head rank", "tail rank"], list(ranked))


GROUPS = ("added_existing", "added_emerging", "deleted", "replaced", "kept_near", "kept_far")


def render_fidelity(report: dict[str, Any]) -> None:
    """What became of the triples of a night, by vectors alone and with evidence."""
    print(f"version {report['version']}: from {report['since']!r} to {report['snapshot']!r}")
    render_groups(report)


def render_groups(report: dict[str, Any]) -> None:
    """The groups of triples of a night as a table; beside those that were there before, what the model then said."""
    before: dict[str, Any] | None = report.get("before")
    lines = []
    for group in GROUPS:
        found = report[group]
        for way in ("vectors", "with_evidence"):
            values = found.get(way)
            if values and "mrr" in values:
                name, count = (group.replace("_", " "), found["triples"]) if way == "vectors" else ("", "")
                more = [values.get("new_above_old")]
                if before is not None:
                    more.insert(0, before.get(group, {}).get(way, {}).get("mrr"))
                numbers = [_format_metric(metric, values[metric]) for metric in METRICS]
                shown = ["" if value is None else f"{value:.3f}" for value in more]
                lines.append([name, count, way.replace("_", " "), *numbers, *shown])
    columns = ["mrr before"] if before is not None else []
    print_table(["", "triples", "by", *METRICS, *columns, "new above old"], lines)
    if report["sampled"]:
        print("  (sampled: `dkge fidelity` is exact)")


def render_answers(report: dict[str, Any]) -> None:
    """The answers to each question: known facts, then predictions; below them the evidence of each, if asked for."""
    for question in report.get("questions", [report]):
        if "error" in question:
            continue
        print(_format_question(question))
        key = "relation" if "relation" not in question else "entity"
        lines = [
            [f"  {_format_named(found, key)}", f"{found['score']:.3f}", _format_state(found)]
            for found in question["answers"]
        ]
        print_table(["  answer", "score", ""], lines)
        # Below the table: sentences would push its scores out of sight.
        for found in question["answers"]:
            if "why" in found:
                print(f"\n  {_format_named(found, key)}")
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
                    *_format_parts(found),
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
        return "no probabilities: the model was trained without validation triples, or by an older program"
    true, wrong = calibration["triples"], calibration["corrupted"]
    return f"probabilities calibrated on {true:,} validation triples against {wrong:,} with another end"


def render_similar(report: dict[str, Any]) -> None:
    """The entities nearest to each."""
    for found in report.get("entities", [report]):
        if "error" not in found:
            print(_format_named(found, "entity"))
            lines = [[f"  {_format_named(near, 'entity')}", f"{near['score']:.3f}"] for near in found["similar"]]
            print_table(["  similar", "score"], lines)
    _render_origin(report)


def _format_parts(found: dict[str, Any]) -> list[str]:
    """Head, relation and tail."""
    return [_format_named(found, part, f"{part}_name") for part in ("head", "relation", "tail")]


def _format_question(found: dict[str, Any]) -> str:
    return "\t".join(_format_parts(found))


def _format_label(label: str, names: dict[str, str]) -> str:
    return f"{names[label]} ({label})" if label in names else label


def _format_named(found: dict[str, Any], key: str, name_key: str = "name") -> str:
    """A label, behind its display name where it has one; `?` for what is asked for."""
    label = str(found.get(key, "?"))
    return f"{found[name_key]} ({label})" if name_key in found else label


def render_evidence(report: dict[str, Any]) -> None:
    """Two tables: what supports each relation, and the weights by side; then what the columns of weights mean."""
    fitted = f", fitted on {report['fitted_on']} triples" if report["fitted_on"] else ""
    print(f"evidence of version {report['version']} for {report['snapshot']!r}{fitted}")
    supports, weights = [], []
    for found in report["relations"]:
        name = relation = _format_named(found, "relation")
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
    shown = _format_named(link, "relation")
    return shown if link["direction"] == "same" else f"{shown} (reversed)"


def _format_path(path: dict[str, Any]) -> str:
    return " → ".join(_format_named(path, step, f"{step}_name") for step in ("first", "second"))


def render_exported(report: dict[str, Any], out: Path) -> None:
    """Which vectors were written, and how many."""
    if "since" in report:
        print(f"{out}: {report['what']} vectors from version {report['since']} to {report['version']}")
        for noun in ("entities", "relations"):
            print(f"  {noun}: {report[f'upserted_{noun}']:,} to upsert, {report[f'deleted_{noun}']:,} to delete")
        return
    sizes = {name: report[name] for name in ("entities", "relations", "dim")}
    print(f"{out}: {report['what']} vectors of {format_counts(sizes)}")


def render_log(report: dict[str, Any]) -> None:
    """The versions of a store, then what they led back to and why. Kept to 100 columns; the JSON has more."""
    versions = report["versions"]
    print_table(LOG_COLUMNS, _fitting([_log_line(version) for version in versions]))
    if any(version["kind"] == "model" for version in versions):
        print("mrr: of validation triples; fidelity: mrr of added triples (all existed, some emerged), of deleted ones")
    for version in versions:
        if version["kind"] == "rollback":
            print(f"version {version['version']} went back to version {version['parent']}")
        if "why" in version:
            print(f"version {version['version']} was trained from scratch: {version['why']}")


def render_reported(report: dict[str, Any]) -> None:
    """Where the page is, and what it is about."""
    nights = sum(not night["is_first"] for night in report["nights"])
    print(f"{report['out']}: {nights:,} nights up to {report['snapshot']!r}, {report['page_bytes']:,} bytes")


def _log_line(version: dict[str, Any]) -> list[Any]:
    metrics, seconds = version.get("metrics"), version.get("seconds")
    return [
        version["version"],
        _format_time(version.get("created")),
        version["kind"],
        version.get("name") or "-",
        _format_change(version.get("added"), version.get("deleted")),
        version.get("affected_entities"),
        "-" if seconds is None else f"{seconds:,.1f}".rjust(len("seconds")),
        format_share(metrics["mrr"], 3) if metrics else "-",
        _format_fidelity(version["fidelity"]) if "fidelity" in version else "-",
    ]


def _format_time(created: str | None) -> str:
    """To the minute, as versions can be asked for."""
    try:
        return f"{datetime.fromisoformat(created or '').astimezone(UTC):%Y-%m-%d %H:%M}"
    except ValueError:
        return "-"


def _fitting(lines: list[list[Any]]) -> list[list[Any]]:
    """With names as long as there is room. Their ends are kept: that is where names of nights differ."""
    place = LOG_COLUMNS.index("name")
    columns = zip(LOG_COLUMNS, *([format_cell(cell) for cell in line] for line in lines), strict=True)
    widths = [max(map(len, column)) + len("  ") for column in columns]
    room = max(6, LOG_WIDTH + len("  ") - sum(widths) + widths[place] - len("  "))
    for line in lines:
        line[place] = line[place] if len(line[place]) <= room else f"…{line[place][1 - room :]}"
    return lines


def format_share(value: float, digits: int = 2) -> str:
    """A number from 0 to 1, in one letter more than it has digits."""
    return f"{value:.{digits}f}".removeprefix("0")[: digits + 1]


def _format_change(more: int | None, less: int | None) -> str:
    return "-" if more is None or less is None else f"+{more:,} -{less:,}"


def _format_fidelity(fidelity: dict[str, Any]) -> str:
    """With evidence where there is some, as answers are given."""
    cells = []
    for group in ("added_existing", "added_emerging", "deleted"):
        found = fidelity[group].get("with_evidence") or fidelity[group].get("vectors")
        cells.append((format_share(found["mrr"]) if found else "-").rjust(3))
    return " ".join(cells)


def render_checked(report: dict[str, Any]) -> None:
    """Every problem of a store, then the totals."""
    for problem in report["problems"]:
        print(f"version {problem['version']}: {problem['problem']}")
    state = "ok" if report["ok"] else f"{len(report['problems'])} problems"
    print(f"{state}: {report['versions']} versions, {report['parts']} parts, {report['bytes']:,} bytes")


def render_rolled_back(report: dict[str, Any]) -> None:
    """What is current after a rollback."""
    model = f"model {report['model']}" if report["model"] else "no model"
    print(f"version {report['version']}: snapshot {report['snapshot']!r} and {model} are current again")


def render_aliases(report: dict[str, Any]) -> None:
    """Every alias and the version that it pins."""
    for name, version in report["aliases"].items():
        print(f"{name}  version {version}")
    if not report["aliases"]:
        print("no aliases")


def render_cleared(report: dict[str, Any]) -> None:
    """What gc cleared, or would clear."""
    verb = "would free" if report["dry_run"] else "freed"
    cleared = ", ".join(str(number) for number in report["cleared_versions"]) or "none"
    print(f"versions cleared: {cleared}")
    print(f"  {verb} {report['bytes']:,} bytes in {report['parts']:,} parts, {report['folders']} unfinished folders")


def format_counts(counts: dict[str, Any]) -> str:
    """Named numbers in one line, zeros left out."""
    shown = {name: value for name, value in counts.items() if isinstance(value, int | float) and value}
    return ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in shown.items())


def _format_metrics(found: dict[str, float]) -> str:
    return ", ".join(f"{name} {found[name]:.1f}" if name == "mr" else f"{name} {found[name]:.3f}" for name in METRICS)


def _format_metric(name: str, value: float) -> str:
    return f"{value:,.1f}" if name == "mr" else f"{value:.4f}"
