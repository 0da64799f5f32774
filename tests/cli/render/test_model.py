"""Reports of models as text, line by line."""

from __future__ import annotations

from typing import Any

import pytest

from dkge_dist.surfaces.cli.render.graph import render_ingested
from dkge_dist.surfaces.cli.render.model import (
    render_evaluation,
    render_fidelity,
    render_groups,
    render_night,
    render_update,
)
from tests.cli.render.reports import INGESTED, METRICS

Shown = pytest.CaptureFixture[str]
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


def test_fidelity_is_a_table_of_groups_by_vectors_and_with_evidence(capsys: Shown) -> None:
    """Without the groups that have no triples."""
    render_fidelity({**NIGHT, "version": 5, "since": "day 1", "snapshot": "day 2", "sampled": False})
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
    render_groups(NIGHT)
    assert capsys.readouterr().out.endswith("(sampled: `dkge fidelity` is exact)\n")


def test_fidelity_shows_what_the_model_before_the_night_said(capsys: Shown) -> None:
    before = {"version": 4, "kept_near": {"vectors": {"mrr": 0.625}}}
    render_groups({**NIGHT, "before": before, "sampled": False})
    columns, *lines = capsys.readouterr().out.splitlines()
    assert columns.split()[-5:] == ["mrr", "before", "new", "above", "old"]
    assert [line.startswith("kept near") for line in lines if "0.625" in line] == [True]


def test_night_is_its_ingest_its_decision_and_what_followed(capsys: Shown) -> None:
    report = {"ingest": INGESTED, "decision": "updated online", "update": UPDATED, "evaluate": {"test": EVALUATED}}
    report["headline"] = "in one line"
    parts = [render_ingested, render_update, render_evaluation]
    for part, given in zip(parts, (INGESTED, UPDATED, EVALUATED), strict=True):
        part(given)
    expected = capsys.readouterr().out.splitlines()
    render_night(report)
    found = capsys.readouterr().out.splitlines()
    decision = found.index("decision: updated online")
    assert found[:decision] + found[decision + 1 :] == [*expected, "in one line"]


def test_night_tells_what_drift_was_found(capsys: Shown) -> None:
    drop = {"before": 0.4, "now": 0.38, "percent": 5.0, "low": -1.25, "high": 11.25, "triples": 1200}
    added = {"mrr": 0.75, "low": 0.5, "high": 1.0, "triples": 60}
    told = []
    for found in ((drop, added), (drop, None), (None, added), (None, None)):
        drift = {"since": 2, "mrr_drop": found[0], "added_mrr": found[1], "due": None}
        render_night({"ingest": INGESTED, "decision": "updated online", "drift": drift, "headline": "last"})
        told.append(capsys.readouterr().out.splitlines()[-2])
    fell = "validation MRR -5.0% (99%: -11.2% to +1.2%, 1,200 triples)"
    believed = "MRR of added triples 0.750 (99%: 0.500 to 1.000, 60 triples)"
    expected = [f"{fell}; {believed}", fell, believed, "too few triples to measure any drift"]
    assert told == [f"  since the training of version 2: {words}" for words in expected]


def test_evaluation_is_a_table_by_side_category_and_relation(capsys: Shown) -> None:
    part = {**METRICS, "triples": 12, "tail": METRICS, "head": METRICS}
    report = {
        **EVALUATED, "leaked": 5, "without_train": METRICS, "categories": {"1-N": part},
        "relations": [{**METRICS, "relation": "acted in", "triples": 7}],
    }  # fmt: skip
    render_evaluation(report)
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


def test_evaluation_shows_ranks_of_triples_by_name(capsys: Shown) -> None:
    line = {"head": "a", "head_name": "Anna", "relation": "r", "tail": "b", "head_rank": 1.0, "tail_rank": 1234.5}
    render_evaluation({**EVALUATED, "ranks": [line]})
    assert capsys.readouterr().out.splitlines()[-1].split() == ["Anna", "(a)", "r", "b", "1.0", "1,234.5"]


def test_evaluation_shows_display_names_before_labels(capsys: Shown) -> None:
    relation = {**METRICS, "relation": "P161", "name": "cast member", "triples": 7}
    render_evaluation({**EVALUATED, "relations": [relation]})
    assert capsys.readouterr().out.splitlines()[-1].startswith("cast member (P161)")
