"""Reports about versions as text, line by line."""

from __future__ import annotations

import pytest

from dkge_dist.surfaces.cli.render.history import (
    LOG_COLUMNS,
    render_log,
)
from tests.cli.render.reports import METRICS

Shown = pytest.CaptureFixture[str]


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
    render_log({"versions": versions})
    shown = capsys.readouterr().out
    columns, *lines = shown.splitlines()
    assert columns.split() == " ".join(LOG_COLUMNS).split()
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
    render_log({"versions": [{**version, "version": 12_345, "name": name} for name in names]})
    _, *lines = capsys.readouterr().out.splitlines()
    assert [len(line) for line in lines] == [100, 100]
    assert "2026-02-01 03:05  snapshot  …" in lines[0] and "-02-01  +17,472 -18,405" in lines[0]
    assert "snapshot  short " in lines[1]
    assert lines[1].endswith("12,345.6  .500  1.0 1.0 1.0")
