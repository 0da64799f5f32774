"""The page: its tables, its sentences (also of defeats), and that it loads nothing."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from typing import Any

import pytest

from benchmarks.study import published
from benchmarks.study.figures import Figures
from benchmarks.study.page import html_page, markdown, sections
from benchmarks.study.render import Table, bars, lines, shown
from benchmarks.study.sections.comparison import comparison
from benchmarks.study.sections.efficiency import efficiency
from benchmarks.study.sections.questions import questions
from benchmarks.study.sections.robustness import robustness

METRICS = {"mr": 400.0, "hits@1": 0.3, "hits@3": 0.4}


def envelope(part: str, system: str, snapshot: str, result: dict[str, Any], data: str = "YAGO-3SP",
             setting: str = "") -> dict[str, Any]:  # fmt: skip
    cell = {"part": part, "system": system, "data": data, "snapshot": snapshot, "seed": 1, "setting": setting,
            "budget": 600.0}  # fmt: skip
    machine = {"cpu": "a <fast> one", "cores": 2, "load_before": 0.5, "versions": {"torch": "2"}}
    return {"cell": cell, "status": "done", "command": f"python -m benchmarks.study {part}", "machine": machine,
            "result": result}  # fmt: skip


def measured(mrr: float, seconds: float, **more: Any) -> dict[str, Any]:
    metrics = {**METRICS, "mrr": mrr, "hits@10": mrr + 0.1}
    held_out = {"leaked": 53, "paper": {**metrics, "without_train": metrics}, "filtered": metrics}
    fit = {"seconds": seconds, "best_seconds": seconds / 2, "stopped_by": "budget"}
    return {"vectors": held_out, "with_evidence": held_out, "fit": fit, **more}


def figures(ours: float) -> Figures:
    night = {"vectors": {"added_existing": 0.9, "deleted": 0.2}, "with_evidence": {"added_existing": 0.8}}
    return Figures([
        envelope("comparison", "ours", "snapshot1", measured(ours, 300)),
        envelope("comparison", "ours", "snapshot2", measured(ours, 300, night=night)),
        envelope("comparison", "ours, online", "snapshot2", measured(ours, 4, night=night)),
        envelope("comparison", "RotatE", "snapshot1", measured(0.41, 600)),
        envelope("comparison", "RotatE", "snapshot2", measured(0.41, 600, night=night)),
        envelope("efficiency", "ours, online", "snapshot2", {"seconds": 3.0}),
        envelope("robustness", "ours", "night-0", measured(0.5, 300)),
        envelope("robustness", "ours", "night-5", measured(0.5, 300)),
        envelope("robustness", "ours, online", "night-5", measured(0.48, 3)),
        envelope("sensitivity", "ours", "snapshot1", measured(0.4, 60, online={"seconds": 2}),
                 setting="hops, entity layers: 2, 1"),
        envelope("questions", "ours", "snapshot2",
                 {"vectors": {"added": {"mrr": 0.1, "p@1": 0, "mr": 99, "questions": 7}}}, setting="before"),
    ])  # fmt: skip


def test_a_victory_and_a_defeat_are_both_said() -> None:
    won = " ".join(comparison(figures(0.47)).says)
    assert "MRR of ours with evidence is .470, above all" in won
    assert "the next is RotatE as published (.463)" in won
    lost = " ".join(comparison(figures(0.42)).says)
    assert (
        "MRR of ours with evidence is .420, below RotatE as published (.463), DKGE, literal as published (.460)" in lost
    )


def test_the_published_row_stands_beside_ours() -> None:
    first, second = comparison(figures(0.47)).tables
    by_name = {row[0]: row for row in first.rows}
    assert by_name["RotatE"][2] == 0.41
    assert by_name["RotatE"][-3] == 0.463
    assert by_name["TransE"][1] == "not run"
    assert by_name["TransE"][-3] == 0.348, "the published figure stands there all the same"
    assert len(first.rows) == 9
    assert len(second.rows) == 13
    assert "53 test triples stand in train" in second.note


def test_times_are_to_the_best_of_static_systems() -> None:
    section = efficiency(figures(0.47))
    assert "takes 3.0 s, 100 times faster than RotatE" in " ".join(section.says)
    slow = figures(0.47)
    slow.done[5]["result"]["seconds"] = 600.0
    assert "takes 600.0 s, 2.0 times slower than RotatE" in " ".join(efficiency(slow).says)
    (table,) = section.tables
    assert ("RotatE", 300.0, 0.9, None, 0.2, None, None, None) in table.rows


def test_nights_until_so_much_is_lost() -> None:
    (table, *_) = robustness(figures(0.47)).tables
    assert table.rows[0] == ("ours, with evidence", "5", "5", "not in 5", pytest.approx(0.04))
    assert "another graph" in str(table.rows[-1][0])


def test_questions_are_told_by_version() -> None:
    section = questions(figures(0.47))
    assert section.tables[0].rows == [("added", "ours, by vectors", "before", 7, 0.1, 0.0, 99.0)]


def test_what_was_not_measured_says_so() -> None:
    for section in sections(Figures([])):
        assert "Not measured yet." in section.says, section.part


def test_the_page_needs_nothing_else() -> None:
    page = html_page(figures(0.47))
    assert not re.search(r"(src|href)=[\"']?(https?:|//|file:)", page)
    assert "<script" not in page
    assert "a &lt;fast&gt; one" in page
    assert "prefers-color-scheme: dark" in page
    assert "@media print" in page
    plots = re.findall(r"<svg.*?</svg>", page)
    assert len(plots) >= 3
    for plot in plots:
        ElementTree.fromstring(plot)
    assert "python -m benchmarks.study robustness" in page


def test_markdown_has_the_same_tables() -> None:
    text = markdown(figures(0.47))
    assert "| RotatE | **400** | .410 |" in text
    assert "**.470**" in text


def test_failures_are_told() -> None:
    failed = {**envelope("comparison", "ConvE", "snapshot1", {}), "status": "failed", "error": "out of memory"}
    assert "out of memory" in html_page(Figures([failed]))


def test_numbers_as_they_are_read() -> None:
    assert [shown(x) for x in (0.4603, 12345, 643.2, 12.34, 3.456, None, "x")] == [
        ".460", "12,345", "643", "12.3", "3.46", "–", "x",
    ]  # fmt: skip
    assert shown(0.25, "training s") == "0.25"
    assert [shown(x) for x in (-0.0001, -0.064)] == [".000", "−.064"]


def test_plots_of_nothing_are_nothing() -> None:
    assert bars("x", {}) == lines("x", {"a": []}, "x", "y") == ""
    assert "<polyline" in lines("x", {"a": [(1, 0.5)]}, "x", "y")
    Table("t", ("a",), [("x",)], best={"a": "max"}).html()


def test_published_tables_are_whole() -> None:
    for table in published.TABLES.values():
        assert len(table) == 8
        assert table["DKGE, literal, online"][0] is None
        assert all(row is None or list(row) == list(published.METRICS) for rows in table.values() for row in rows)
    assert published.TABLES["YAGO-3SP"]["ConvE"][1] == {
        "mr": 1319, "mrr": 0.45, "hits@10": 0.538, "hits@3": 0.473, "hits@1": 0.406,
    }  # fmt: skip
