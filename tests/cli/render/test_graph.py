"""Reports about graphs as text, line by line."""

from __future__ import annotations

import pytest

from dkge_dist.surfaces.cli.render.graph import render_diff, render_ingested
from tests.cli.render.reports import INGESTED

Shown = pytest.CaptureFixture[str]


def test_ingest_counts_the_snapshot_and_its_change(capsys: Shown) -> None:
    render_ingested(INGESTED)
    assert capsys.readouterr().out == (
        "'day 1' is version 3: 1,200 entities, 4 relations, 5,000 train + 20 valid + 30 test triples\n"
        "  +10 -2 train triples; entities: +5 -1; relations: +1 -0\n"
        "  noticed: duplicates 2\n"
        "  1.3 s, 4,000 triples/s\n"
    )


def test_ingest_without_a_change_names_the_version_that_has_it(capsys: Shown) -> None:
    render_ingested({**INGESTED, "unchanged": True, "counts": {}, "rejects": "rejects/x"})
    assert capsys.readouterr().out == (
        "nothing changed: 'day 1' (version 3) has the same content\n  bad lines were set aside in rejects/x\n"
    )


def test_ingest_counts_display_names_also_without_a_change(capsys: Shown) -> None:
    for unchanged in (True, False):
        report = {**INGESTED, "unchanged": unchanged, "named_entities": 1200}
        render_ingested(report)
        assert "  display names new or changed: entities 1,200\n" in capsys.readouterr().out
    render_ingested({**INGESTED, "unchanged": True, "unnamed_relations": 2})
    assert capsys.readouterr().out.splitlines()[:2] == [
        "no triple changed: 'day 1' (version 3) has the same content",
        "  display names taken away: relations 2",
    ]


def test_ingest_says_what_nobody_asked_for(capsys: Shown) -> None:
    misspelt = {
        "total": 9, "relations": [{"label": "directd by", "nearest": "directed by"}],
        "entities": [{"label": "Rosi", "nearest": "Rossi"}], "not_compared": 1234,
    }  # fmt: skip
    render_ingested({**INGESTED, "held_out_by_default": True, "misspellings": misspelt})
    assert capsys.readouterr().out.splitlines()[2:7] == [
        "  held out by default: 20 triples for validation, 30 for test (--valid 0 --test 0: none)",
        "  new relation 'directd by' (nearest: 'directed by')",
        "  new entity 'Rosi' (nearest: 'Rossi')",
        "  ... and 7 more new labels that look like known ones",
        "  1,234 new labels were not compared with known ones",
    ]
    render_ingested({**INGESTED, "held_out_by_default": True, "valid": 0, "test": 0})
    assert "nothing is held out of so small a graph" in capsys.readouterr().out


def test_diff_shows_display_names_beside_labels(capsys: Shown) -> None:
    best = [{"entity": "x", "name": "Xena", "known": True}, {"entity": "y", "known": False}]
    report = {
        "from": "one", "to": "two", "added_examples": [["a", "r", "b"]], "deleted_examples": [["b", "a", "c"]],
        "entity_names": {"a": "Anna", "b": "Bert"}, "relation_names": {"r": "knows"},
        "affected_entity_examples": [{"entity": "a", "name": "Anna", "changed_triples": 2, "context_changed": False}],
        "answers": {
            "models": [2, 4], "questions": 2, "asked": 2, "differ": 1,
            "examples": [{"head": "a", "head_name": "Anna", "relation": "r", "before": best, "after": best}],
        },
    }  # fmt: skip
    render_diff(report)
    shown = capsys.readouterr().out.splitlines()
    assert shown[1:3] == ["  + Anna (a)\tknows (r)\tBert (b)", "  - Bert (b)\ta\tc"]
    assert shown[4] == "  Anna (a)  (2 changed triples)"
    assert shown[-3:-1] == ["  Anna (a)\tr\t?", "    before  Xena (x) (known), y"]


def test_diff_names_who_is_affected_and_whose_answers_changed(capsys: Shown) -> None:
    answers = {"before": [{"entity": "x", "known": True, "score": 1.0}], "after": [{"entity": "y z", "known": False}]}
    report = {
        "from": "one", "to": "two", "added": 7, "affected_seconds": 1.5,
        "affected_entity_examples": [{"entity": "a", "changed_triples": 1200, "context_changed": True}],
        "affected_relation_examples": [{"relation": "r", "changed_triples": 0, "context_changed": False}],
        "answers": {
            "models": [2, 4], "questions": 1000, "asked": 200, "differ": 150,
            "examples": [{"head": "a", "relation": "r", **answers}, {"tail": "b", "relation": "r", **answers}],
        },
    }  # fmt: skip
    render_diff(report)
    assert capsys.readouterr().out.splitlines() == [
        "one -> two",
        "  added                                 7",
        "affected entities, those in most changed triples first",
        "  a  (1,200 changed triples, context changed)",
        "affected relations, those in most changed triples first",
        "  r  (0 changed triples)",
        "200 of 1,000 questions of changed triples, by the models of version 2 and 4: 150 have other best answers",
        "  a\tr\t?",
        "    before  x (known)",
        "    after   y z",
        "  ?\tr\tb",
        "    before  x (known)",
        "    after   y z",
    ]
