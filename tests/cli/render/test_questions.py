"""Reports of questions to a model as text, line by line."""

from __future__ import annotations

import pytest

from dkge_dist.surfaces.cli.render.questions import (
    render_answers,
    render_evidence,
    render_scores,
)

Shown = pytest.CaptureFixture[str]


def test_answers_follow_their_question(capsys: Shown) -> None:
    why = [{"kind": "link", "weight": 2.0, "text": "d likes a"}]
    answers = [
        {"entity": "b c", "score": -1.5, "known": True},
        {"entity": "d", "score": -10.25, "known": False, "why": why},
    ]
    answers.append({"entity": "e", "score": -11.0, "known": False, "deleted": True, "deleted_in": "night-003"})
    origin = {"version": 4, "snapshot": "day 1"}
    questions = [{"line": 1, "error": "x"}, {"head": "a", "relation": "r", "answers": answers}]
    render_answers({"questions": questions, **origin})
    assert capsys.readouterr().out == (
        "a\tr\t?\n"
        "  answer  score\n"
        "  b c     -1.500   known\n"
        "  d       -10.250\n"
        "  e       -11.000  deleted in night-003\n"
        "\n"
        "  d\n"
        "      +2.000  d likes a\n"
        "by version 4, learnt from 'day 1'\n"
    )  # fmt: skip
    render_answers({"relation": "r", "tail": "a", "answers": [], **origin})
    assert capsys.readouterr().out.startswith("?\tr\ta\n")
    found = {"relation": "r", "score": 1.0, "known": False, "deleted": True}
    render_answers({"head": "a", "tail": "b", "answers": [found], **origin})
    assert capsys.readouterr().out.splitlines()[::2] == ["a\t?\tb", "  r       1.000  deleted"]


SCORED = {
    "head": "a", "relation": "r", "tail": "b", "score": -3.5, "known": True, "probability": 0.875, "threshold": -6.25,
    "tail_rank": 1.5, "head_rank": 1234.0,
}  # fmt: skip


def test_scores_are_a_table_with_what_they_were_calibrated_on(capsys: Shown) -> None:
    calibration = {"fitted_on": "valid", "triples": 105, "corrupted": 210}
    report = {"triples": [SCORED, {"line": 2, "error": "x"}], "candidates": 3000, "calibration": calibration}
    render_scores({**report, "version": 4, "snapshot": "day 1"})
    _, line, *rest = capsys.readouterr().out.splitlines()
    assert line.split() == ["a", "r", "b", "-3.500", "0.875", "-6.250", "1.5", "1,234.0", "known"]
    assert rest == [
        "ranks among 3,000 entities; probabilities calibrated on 105 validation triples against 210 with another end",
        "by version 4, learnt from 'day 1'",
    ]
    unknown = dict.fromkeys(("probability", "threshold", "tail_rank", "head_rank"))
    render_scores({**SCORED, **unknown, "candidates": 9, "calibration": None, "version": 4, "snapshot": "x"})
    _, line, told, _ = capsys.readouterr().out.splitlines()
    assert line.split()[4:] == ["-", "-", "-", "-", "known"] and "no probabilities" in told


def test_display_names_stand_before_labels(capsys: Shown) -> None:
    named = {"entity": "nm1", "name": "Keanu Reeves", "score": 1.0, "known": True, "why": []}
    question = {"head": "tt1", "head_name": "The Matrix", "relation": "P161", "relation_name": "cast member"}
    report = {**question, "answers": [named, {**named, "known": False}], "version": 2, "snapshot": "base"}
    render_answers(report)
    title, _, *lines = capsys.readouterr().out.splitlines()
    assert title == "The Matrix (tt1)\tcast member (P161)\t?"
    assert lines[0].startswith("  Keanu Reeves (nm1)  ")
    assert lines[-2:] == ["  Keanu Reeves (nm1)", "by version 2, learnt from 'base'"]


def test_a_rest_that_adds_nothing_is_not_shown(capsys: Shown) -> None:
    why = [{"kind": "link", "weight": 0.0, "text": "a link"}, {"kind": "other", "weight": 0.0004, "text": "the rest"}]
    answer = {"entity": "x", "score": 1.0, "known": False, "why": why}
    asked = {"head": "a", "relation": "r", "version": 2, "snapshot": "base"}
    render_answers({**asked, "answers": [answer]})
    shown = capsys.readouterr().out
    assert "  +0.000  a link\n" in shown and "the rest" not in shown
    why[1]["weight"] = -0.0006
    render_answers({**asked, "answers": [answer]})
    assert "  -0.001  the rest\n" in capsys.readouterr().out


def test_evidence_shows_supports_and_weights_in_words(capsys: Shown) -> None:
    weights = {"link": 1.5, "path": -0.25}
    render_evidence(
        {
            "version": 4, "snapshot": "day 1", "fitted_on": "valid", "features": {"link": "a link", "path": "a path"},
            "own_entity": "itself",
            "relations": [
                {
                    "relation": "plays", "own_entity": -72.34, "weights": {"tail": weights, "head": weights},
                    "links": [
                        {"relation": "joined", "direction": "same", "confidence": 0.9, "pairs": 1800, "of": 2000},
                        {"relation": "has", "direction": "opposite", "confidence": 0.5, "pairs": 1, "of": 2},
                    ],
                    "paths": [{"first": "a", "second": "b", "confidence": 0.25, "pairs": 10, "of": 20}],
                },
                {
                    "relation": "born", "own_entity": -1.0, "weights": {"tail": weights, "head": weights},
                    "links": [], "paths": [],
                },
            ],
        }
    )  # fmt: skip
    assert capsys.readouterr().out == (
        "evidence of version 4 for 'day 1', fitted on valid triples\n"
        "relation  supported by    confidence  pairs     of\n"
        "plays     joined          0.900       1,800  2,000\n"
        "          has (reversed)  0.500           1      2\n"
        "          a → b           0.250          10     20\n"
        "born      nothing         -               -      -\n"
        "of the pairs that the supporting relation or path joins, so many have the relation too\n"
        "\n"
        "relation  asked for  link  path   own entity\n"
        "plays     tails      1.50  -0.25  -72.3\n"
        "          heads      1.50  -0.25  -72.3\n"
        "born      tails      1.50  -0.25  -1.0\n"
        "          heads      1.50  -0.25  -1.0\n"
        "\n"
        "weight      of what\n"
        "link        a link\n"
        "path        a path\n"
        "own entity  itself\n"
    )
