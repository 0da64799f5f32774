"""Reports as text, line by line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dkge_dist.cli import render

Shown = pytest.CaptureFixture[str]
METRICS = {"mrr": 0.5, "hits@1": 0.25, "hits@3": 0.5, "hits@10": 0.75, "mr": 1234.5}

INGESTED: dict[str, Any] = {
    "unchanged": False, "name": "day 1", "version": 3, "entities": 1200, "relations": 4, "train": 5000, "valid": 20,
    "test": 30, "added": 10, "deleted": 2, "emerging_entities": 5, "removed_entities": 1, "emerging_relations": 1,
    "removed_relations": 0, "counts": {"duplicates": 2, "bad_lines": 0}, "rejects": None, "seconds": 1.26,
    "triples_per_second": 4000, "named_entities": 0, "named_relations": 0, "unnamed_entities": 0,
    "unnamed_relations": 0, "held_out_by_default": False,
    "misspellings": {"total": 0, "relations": [], "entities": [], "not_compared": 0},
}  # fmt: skip
TRAINED: dict[str, Any] = {
    "version": 4, "snapshot": "day 1", "entities": 1200, "relations": 4, "dim": 100, "epochs": 12, "seconds": 60.04,
    "resumed": False, "triples_per_second": 12345.6, "valid": METRICS,
}  # fmt: skip
PLANNED: dict[str, Any] = {
    "added": 10, "deleted": 2, "from": "day 1", "snapshot": "day 2", "emerging_entities": 5, "affected_entities": 70,
    "removed_entities": 1, "emerging_relations": 0, "affected_relations": 2, "removed_relations": 0,
    "shards_touched": 3, "shards_total": 8, "trained_triples": 900,
}  # fmt: skip
ABOVE = {**METRICS, "new_above_old": 0.875}
NIGHT: dict[str, Any] = {
    "added_existing": {"triples": 12, "vectors": METRICS, "with_evidence": METRICS},
    "added_emerging": {"triples": 0, "vectors": {}, "with_evidence": {}},
    "deleted": {"triples": 3, "vectors": METRICS},
    "replaced": {"triples": 1234, "vectors": ABOVE, "with_evidence": ABOVE},
    "kept_near": {"triples": 7, "vectors": METRICS, "with_evidence": METRICS},
    "kept_far": {"triples": 8, "vectors": METRICS, "with_evidence": METRICS},
    "sampled": True,
}
UPDATED = {
    **PLANNED, "version": 5, "epochs": 1, "bytes_written": 12345, "seconds": 2.0, "valid": None, "fidelity": NIGHT,
}  # fmt: skip
EVALUATED: dict[str, Any] = {
    **METRICS, "version": 4, "triples": 30, "split": "test", "snapshot": "day 1", "protocol": "filtered",
    "candidates": 1200, "tail": METRICS, "head": METRICS, "leaked": 0, "without_train": None, "evidence": True,
    "vectors": METRICS, "paper": METRICS, "filtered": METRICS,
}  # fmt: skip


def test_ingest_counts_the_snapshot_and_its_change(capsys: Shown) -> None:
    render.render_ingested(INGESTED)
    assert capsys.readouterr().out == (
        "'day 1' is version 3: 1,200 entities, 4 relations, 5,000 train + 20 valid + 30 test triples\n"
        "  +10 -2 train triples; entities: +5 -1; relations: +1 -0\n"
        "  noticed: duplicates 2\n"
        "  1.3 s, 4,000 triples/s\n"
    )


def test_ingest_without_a_change_names_the_version_that_has_it(capsys: Shown) -> None:
    render.render_ingested({**INGESTED, "unchanged": True, "counts": {}, "rejects": "rejects/x"})
    assert capsys.readouterr().out == (
        "nothing changed: 'day 1' (version 3) has the same content\n  bad lines were set aside in rejects/x\n"
    )


def test_ingest_counts_display_names_also_without_a_change(capsys: Shown) -> None:
    for unchanged in (True, False):
        report = {**INGESTED, "unchanged": unchanged, "named_entities": 1200}
        render.render_ingested(report)
        assert "  display names new or changed: entities 1,200\n" in capsys.readouterr().out
    render.render_ingested({**INGESTED, "unchanged": True, "unnamed_relations": 2})
    assert capsys.readouterr().out.splitlines()[:2] == [
        "no triple changed: 'day 1' (version 3) has the same content",
        "  display names taken away: relations 2",
    ]


def test_ingest_says_what_nobody_asked_for(capsys: Shown) -> None:
    misspelt = {
        "total": 9, "relations": [{"label": "directd by", "nearest": "directed by"}],
        "entities": [{"label": "Rosi", "nearest": "Rossi"}], "not_compared": 1234,
    }  # fmt: skip
    render.render_ingested({**INGESTED, "held_out_by_default": True, "misspellings": misspelt})
    assert capsys.readouterr().out.splitlines()[2:7] == [
        "  held out by default: 20 triples for validation, 30 for test (--valid 0 --test 0: none)",
        "  new relation 'directd by' (nearest: 'directed by')",
        "  new entity 'Rosi' (nearest: 'Rossi')",
        "  ... and 7 more new labels that look like known ones",
        "  1,234 new labels were not compared with known ones",
    ]
    render.render_ingested({**INGESTED, "held_out_by_default": True, "valid": 0, "test": 0})
    assert "nothing is held out of so small a graph" in capsys.readouterr().out


def test_training_shows_dimension_speed_and_best_validation(capsys: Shown) -> None:
    render.render_trained(TRAINED)
    assert capsys.readouterr().out == (
        "version 4 is a model of 'day 1': 1,200 entities, 4 relations, dimension 100\n"
        "  12 epochs in 60.0 s, 12,346 triples/s\n"
        "  best validation: mrr 0.500, hits@1 0.250, hits@3 0.500, hits@10 0.750, mr 1234.5\n"
    )
    render.render_trained({**TRAINED, "resumed": True, "valid": None})
    assert capsys.readouterr().out.splitlines()[1:] == ["  12 epochs in 60.0 s (resumed), 12,346 triples/s"]


def test_update_shows_what_was_learnt(capsys: Shown) -> None:
    render.render_groups(NIGHT)
    night = capsys.readouterr().out
    render.render_update(UPDATED)
    assert capsys.readouterr().out == (
        "version 5 brings the model from 'day 1' to 'day 2': +10 -2\n"
        "  entities: 5 emerging, 70 affected, 1 removed\n"
        "  relations: 0 emerging, 2 affected, 0 removed\n"
        "  900 triples to learn; 3 of 8 shards\n"
        "  1 epochs, 12,345 bytes written, 2.0 s\n"
        f"{night}"
    )


def test_fidelity_is_a_table_of_groups_by_vectors_and_with_evidence(capsys: Shown) -> None:
    """Without the groups that have no triples."""
    render.render_fidelity({**NIGHT, "version": 5, "since": "day 1", "snapshot": "day 2", "sampled": False})
    title, columns, *lines = capsys.readouterr().out.splitlines()
    assert title == "version 5: from 'day 1' to 'day 2'"
    assert columns.split() == ["triples", "by", "mrr", "hits@1", "hits@3", "hits@10", "mr", "new", "above", "old"]
    both = ["vectors", "with evidence"]
    names = ["added existing", "", "deleted", "replaced", "", "kept near", "", "kept far", ""]
    assert [line[:14].rstrip() for line in lines] == names
    assert [line[14:].split()[0] for line in lines if not line.startswith(" ")] == ["12", "3", "1,234", "7", "8"]
    ways = [way for line in lines for way in both if way in line]
    assert ways == [*both, "vectors", *both, *both, *both]
    assert ["0.875" in line for line in lines] == [name == "replaced" for name in names[:4]] + [True] + [False] * 4
    render.render_groups(NIGHT)
    assert capsys.readouterr().out.endswith("(sampled: `dkge fidelity` is exact)\n")


def test_fidelity_shows_what_the_model_before_the_night_said(capsys: Shown) -> None:
    before = {"version": 4, "kept_near": {"vectors": {"mrr": 0.625}}}
    render.render_groups({**NIGHT, "before": before, "sampled": False})
    columns, *lines = capsys.readouterr().out.splitlines()
    assert columns.split()[-5:] == ["mrr", "before", "new", "above", "old"]
    assert [line.startswith("kept near") for line in lines if "0.625" in line] == [True]


def test_planned_update_says_would(capsys: Shown) -> None:
    render.render_update(PLANNED)
    first, *others = capsys.readouterr().out.splitlines()
    assert first == "would bring the model from 'day 1' to 'day 2': +10 -2"
    assert len(others) == 3


def test_night_is_its_ingest_its_decision_and_what_followed(capsys: Shown) -> None:
    report = {"ingest": INGESTED, "decision": "updated online", "update": UPDATED, "evaluate": {"test": EVALUATED}}
    report["headline"] = "in one line"
    parts = [render.render_ingested, render.render_update, render.render_evaluation]
    for part, given in zip(parts, (INGESTED, UPDATED, EVALUATED), strict=True):
        part(given)
    expected = capsys.readouterr().out.splitlines()
    render.render_night(report)
    found = capsys.readouterr().out.splitlines()
    decision = found.index("decision: updated online")
    assert found[:decision] + found[decision + 1 :] == [*expected, "in one line"]


def test_night_tells_what_drift_was_found(capsys: Shown) -> None:
    drop = {"before": 0.4, "now": 0.38, "percent": 5.0, "low": -1.25, "high": 11.25, "triples": 1200}
    added = {"mrr": 0.75, "low": 0.5, "high": 1.0, "triples": 60}
    told = []
    for found in ((drop, added), (drop, None), (None, added), (None, None)):
        drift = {"since": 2, "mrr_drop": found[0], "added_mrr": found[1], "due": None}
        render.render_night({"ingest": INGESTED, "decision": "updated online", "drift": drift, "headline": "last"})
        told.append(capsys.readouterr().out.splitlines()[-2])
    fell = "validation MRR -5.0% (99%: -11.2% to +1.2%, 1,200 triples)"
    believed = "MRR of added triples 0.750 (99%: 0.500 to 1.000, 60 triples)"
    expected = [f"{fell}; {believed}", fell, believed, "too few triples to tell any drift"]
    assert told == [f"  since the training of version 2: {words}" for words in expected]


def test_evaluation_is_a_table_by_side_category_and_relation(capsys: Shown) -> None:
    part = {**METRICS, "triples": 12, "tail": METRICS, "head": METRICS}
    report = {
        **EVALUATED, "leaked": 5, "without_train": METRICS, "categories": {"1-N": part},
        "relations": [{**METRICS, "relation": "acted in", "triples": 7}],
    }  # fmt: skip
    render.render_evaluation(report)
    title, columns, *lines = capsys.readouterr().out.splitlines()
    assert title == "version 4 on 30 test triples of 'day 1' (filtered protocol, with evidence, 1,200 candidates)"
    assert columns.split() == ["triples", "mrr", "hits@1", "hits@3", "hits@10", "mr"]
    values = ["0.5000", "0.2500", "0.5000", "0.7500", "1,234.5"]
    assert [line.split()[-5:] for line in lines] == [values] * 10
    names = [line[:17].rstrip() for line in lines]
    assert names == [
        "all", "  tails", "  heads", "by vectors alone", "paper protocol", "not in train", "1-N", "  tails", "  heads",
        "acted in",
    ]  # fmt: skip
    assert [line[17:27].split()[0] for line in (lines[0], lines[5], lines[6], lines[9])] == ["30", "25", "12", "7"]


def test_evaluation_by_vectors_alone_says_so(capsys: Shown) -> None:
    render.render_evaluation({**EVALUATED, "evidence": False, "protocol": "paper"})
    title, _, *lines = capsys.readouterr().out.splitlines()
    assert "(paper protocol, by vectors alone, 1,200 candidates)" in title
    assert [line[:17].rstrip() for line in lines] == ["all", "  tails", "  heads", "filtered protocol"]


def test_answers_follow_their_question(capsys: Shown) -> None:
    why = [{"kind": "link", "weight": 2.0, "text": "d likes a"}]
    answers = [
        {"entity": "b c", "score": -1.5, "known": True},
        {"entity": "d", "score": -10.25, "known": False, "why": why},
    ]
    answers.append({"entity": "e", "score": -11.0, "known": False, "deleted": True, "deleted_in": "night-003"})
    origin = {"version": 4, "snapshot": "day 1"}
    questions = [{"line": 1, "error": "x"}, {"head": "a", "relation": "r", "answers": answers}]
    render.render_answers({"questions": questions, **origin})
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
    render.render_answers({"relation": "r", "tail": "a", "answers": [], **origin})
    assert capsys.readouterr().out.startswith("?\tr\ta\n")
    found = {"relation": "r", "score": 1.0, "known": False, "deleted": True}
    render.render_answers({"head": "a", "tail": "b", "answers": [found], **origin})
    assert capsys.readouterr().out.splitlines()[::2] == ["a\t?\tb", "  r       1.000  deleted"]


SCORED = {
    "head": "a", "relation": "r", "tail": "b", "score": -3.5, "known": True, "probability": 0.875, "threshold": -6.25,
    "tail_rank": 1.5, "head_rank": 1234.0,
}  # fmt: skip


def test_scores_are_a_table_with_what_they_were_calibrated_on(capsys: Shown) -> None:
    calibration = {"fitted_on": "valid", "triples": 105, "corrupted": 210}
    report = {"triples": [SCORED, {"line": 2, "error": "x"}], "candidates": 3000, "calibration": calibration}
    render.render_scores({**report, "version": 4, "snapshot": "day 1"})
    _, line, *rest = capsys.readouterr().out.splitlines()
    assert line.split() == ["a", "r", "b", "-3.500", "0.875", "-6.250", "1.5", "1,234.0", "known"]
    assert rest == [
        "ranks among 3,000 entities; probabilities calibrated on 105 validation triples against 210 with another end",
        "by version 4, learnt from 'day 1'",
    ]
    unknown = dict.fromkeys(("probability", "threshold", "tail_rank", "head_rank"))
    render.render_scores({**SCORED, **unknown, "candidates": 9, "calibration": None, "version": 4, "snapshot": "x"})
    _, line, told, _ = capsys.readouterr().out.splitlines()
    assert line.split()[4:] == ["-", "-", "-", "-", "known"] and "no probabilities" in told


def test_similar_entities_follow_theirs(capsys: Shown) -> None:
    found = {"entity": "a", "similar": [{"entity": "b", "score": -1.25}]}
    render.render_similar({"entities": [found, {"line": 2, "error": "x"}], "version": 4, "snapshot": "day 1"})
    assert capsys.readouterr().out == ("a\n  similar  score\n  b        -1.250\nby version 4, learnt from 'day 1'\n")


def test_display_names_stand_before_labels(capsys: Shown) -> None:
    named = {"entity": "nm1", "name": "Keanu Reeves", "score": 1.0, "known": True, "why": []}
    question = {"head": "tt1", "head_name": "The Matrix", "relation": "P161", "relation_name": "cast member"}
    report = {**question, "answers": [named, {**named, "known": False}], "version": 2, "snapshot": "base"}
    render.render_answers(report)
    title, _, *lines = capsys.readouterr().out.splitlines()
    assert title == "The Matrix (tt1)\tcast member (P161)\t?"
    assert lines[0].startswith("  Keanu Reeves (nm1)  ")
    assert lines[-2:] == ["  Keanu Reeves (nm1)", "by version 2, learnt from 'base'"]
    relation = {**METRICS, "relation": "P161", "name": "cast member", "triples": 7}
    render.render_evaluation({**EVALUATED, "relations": [relation]})
    assert capsys.readouterr().out.splitlines()[-1].startswith("cast member (P161)")


def test_diff_shows_counts_examples_and_the_file(capsys: Shown) -> None:
    report = {
        "from": "one", "to": "two", "added": 1200, "deleted_valid": 3, "seconds": 1.0, "out": "x.changes",
        "added_examples": [["a", "r", "b"]], "deleted_examples": [["c", "r", "d"]],
    }  # fmt: skip
    render.render_diff(report)
    assert capsys.readouterr().out.splitlines() == [
        "one -> two",
        "  added                             1,200",
        "  deleted valid                         3",
        "  + a\tr\tb",
        "  - c\tr\td",
        "  written to x.changes",
    ]


def test_a_rest_that_adds_nothing_is_not_shown(capsys: Shown) -> None:
    why = [{"kind": "link", "weight": 0.0, "text": "a link"}, {"kind": "other", "weight": 0.0004, "text": "the rest"}]
    answer = {"entity": "x", "score": 1.0, "known": False, "why": why}
    asked = {"head": "a", "relation": "r", "version": 2, "snapshot": "base"}
    render.render_answers({**asked, "answers": [answer]})
    shown = capsys.readouterr().out
    assert "  +0.000  a link\n" in shown and "the rest" not in shown
    why[1]["weight"] = -0.0006
    render.render_answers({**asked, "answers": [answer]})
    assert "  -0.001  the rest\n" in capsys.readouterr().out


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
    render.render_diff(report)
    shown = capsys.readouterr().out.splitlines()
    assert shown[1:3] == ["  + Anna (a)\tknows (r)\tBert (b)", "  - Bert (b)\ta\tc"]
    assert shown[4] == "  Anna (a)  (2 changed triples)"
    assert shown[-3:-1] == ["  Anna (a)\tr\t?", "    before  Xena (x) (known), y"]


def test_evaluation_shows_ranks_of_triples_by_name(capsys: Shown) -> None:
    line = {"head": "a", "head_name": "Anna", "relation": "r", "tail": "b", "head_rank": 1.0, "tail_rank": 1234.5}
    render.render_evaluation({**EVALUATED, "ranks": [line]})
    assert capsys.readouterr().out.splitlines()[-1].split() == ["Anna", "(a)", "r", "b", "1.0", "1,234.5"]


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
    render.render_diff(report)
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


def test_log_shows_metrics_fidelity_and_reasons_of_models(capsys: Shown) -> None:
    changes = {"added": 17_472, "deleted": 18_405, "emerging_entities": 3_000, "removed_entities": 1_040}
    fidelity = {
        "added_existing": {"triples": 9, "vectors": {"mrr": 0.875}, "with_evidence": {"mrr": 0.75}},
        "added_emerging": {"triples": 0, "vectors": {}, "with_evidence": {}},
        "deleted": {"triples": 9, "vectors": {"mrr": 0.125}},
        "sampled": True,
    }
    versions = [
        {"version": 1, "kind": "snapshot", "name": "2026-01-31", "parent": None, **changes, "seconds": 9.0,
         "created": "2026-01-31T03:05:59+00:00"},
        {
            "version": 2, "kind": "model", "name": "2026-01-31", "parent": 1, "metrics": METRICS,
            "why": "every 2 nights", "seconds": 1234.5,
        },
        {
            "version": 3, "kind": "model", "name": "2026-02-01", "parent": 2, **changes, "affected_entities": 12_345,
            "shards_touched": 4, "metrics": METRICS, "fidelity": fidelity, "seconds": 12.25,
            "created": "2026-02-01T05:05:59+02:00",
        },
        {"version": 4, "kind": "rollback", "name": "2026-01-31", "parent": 2, "seconds": 0.0},
    ]  # fmt: skip
    render.render_log({"versions": versions})
    shown = capsys.readouterr().out
    columns, *lines = shown.splitlines()
    assert columns.split() == " ".join(render.LOG_COLUMNS).split()
    assert [" ".join(line.split()) for line in lines] == [
        "1 2026-01-31 03:05 snapshot 2026-01-31 +17,472 -18,405 - 9.0 - -",
        "2 - model 2026-01-31 - - 1,234.5 .500 -",
        "3 2026-02-01 03:05 model 2026-02-01 +17,472 -18,405 12,345 12.2 .500 .75 - .12",
        "4 - rollback 2026-01-31 - - 0.0 - -",
        "mrr: of validation triples; fidelity: mrr of added triples (all existed, some emerged), of deleted ones",
        "version 2 was trained from scratch: every 2 nights",
        "version 4 went back to version 2",
    ]
    assert max(map(len, [columns, *lines[:4]])) <= 100


def test_log_fits_100_columns_whatever_the_names_are(capsys: Shown) -> None:
    """Names give way: what they end with is shown."""
    change = {
        "added": 17_472,
        "deleted": 18_405,
        "affected_entities": 1_012_345,
        "created": "2026-02-01T03:05:59+00:00",
    }
    found = {"triples": 9, "vectors": {"mrr": 1.0}}
    fidelity = {"added_existing": found, "added_emerging": found, "deleted": found}
    version = {
        "kind": "snapshot", **change, "seconds": 12_345.6, "metrics": METRICS, "fidelity": fidelity,
    }  # fmt: skip
    names = ["a-long-name-of-a-source-of-2026-02-01", "short"]
    render.render_log({"versions": [{**version, "version": 12_345, "name": name} for name in names]})
    _, *lines = capsys.readouterr().out.splitlines()
    assert [len(line) for line in lines] == [100, 100]
    assert "2026-02-01 03:05  snapshot  …" in lines[0] and "-02-01  +17,472 -18,405" in lines[0]
    assert "snapshot  short " in lines[1]
    assert lines[1].endswith("12,345.6  .500  1.0 1.0 1.0")


def test_log_of_snapshots_alone_explains_no_metrics(capsys: Shown) -> None:
    render.render_log({"versions": [{"version": 1, "kind": "snapshot", "name": "base", "seconds": 1.0}]})
    assert len(capsys.readouterr().out.splitlines()) == 2


@pytest.mark.parametrize(
    ("problems", "last"),
    [
        ([], "ok: 3 versions, 9 parts, 1,234 bytes"),
        ([{"version": 2, "problem": "part x is damaged"}], "1 problems: 3 versions, 9 parts, 1,234 bytes"),
    ],
)
def test_check_lists_problems_before_the_totals(problems: list[dict[str, Any]], last: str, capsys: Shown) -> None:
    report = {"ok": not problems, "problems": problems, "versions": 3, "parts": 9, "bytes": 1234}
    render.render_checked(report)
    assert capsys.readouterr().out.splitlines() == [*(["version 2: part x is damaged"] if problems else []), last]


@pytest.mark.parametrize(("model", "words"), [(7, "model 7"), (None, "no model")])
def test_rollback_says_what_is_current(model: int | None, words: str, capsys: Shown) -> None:
    render.render_rolled_back({"version": 9, "snapshot": "base", "model": model})
    assert capsys.readouterr().out == f"version 9: snapshot 'base' and {words} are current again\n"


@pytest.mark.parametrize(("dry_run", "verb"), [(True, "would free"), (False, "freed")])
def test_gc_says_what_it_freed_or_would(dry_run: bool, verb: str, capsys: Shown) -> None:
    report = {"dry_run": dry_run, "cleared_versions": [2, 3], "bytes": 4096, "parts": 1000, "folders": 0}
    render.render_cleared(report)
    assert capsys.readouterr().out == (
        f"versions cleared: 2, 3\n  {verb} 4,096 bytes in 1,000 parts, 0 unfinished folders\n"
    )


def test_export_and_synth_name_the_folder_and_the_sizes(capsys: Shown) -> None:
    render.render_exported({"what": "joint", "entities": 60, "relations": 4, "dim": 8}, Path("out"))
    render.render_synthesised({"entities": 3000, "triples": 7500, "seed": 0, "files": ["x"]}, Path("movies"))
    assert capsys.readouterr().out == (
        "out: joint vectors of entities 60, relations 4, dim 8\nmovies: entities 3,000, triples 7,500\n"
    )


def test_counts_leave_out_zeros_and_what_is_no_number() -> None:
    assert render.format_counts({"bad_lines": 1200, "duplicates": 0, "files": ["x"], "share": 0.5}) == (
        "bad lines 1,200, share 0.5"
    )


def test_evidence_shows_supports_and_weights_in_words(capsys: Shown) -> None:
    weights = {"link": 1.5, "path": -0.25}
    render.render_evidence(
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
