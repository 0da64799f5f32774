"""`dkge fidelity`: what it reports and prints, and how it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from dkge_dist.surfaces import api
from tests.cli.running import FIDELITY_KEYS, METRICS, Ended, Run, error_of, without_time


def test_report_has_the_promised_keys(updated: tuple[Path, Ended], run: Run) -> None:
    ended = run("fidelity", updated[0], "--json")
    assert (ended.code, ended.stderr) == (0, "")
    report = ended.json
    assert set(report) >= {*FIDELITY_KEYS, "version", "snapshot", "since", "sampled", "seconds"}
    assert (report["version"], report["since"], report["snapshot"], report["sampled"]) == (4, "base", "night1", False)
    for group in FIDELITY_KEYS:
        found = report[group]
        assert set(found) == {"triples", "vectors", "with_evidence"}
        for way in ("vectors", "with_evidence"):
            assert set(found[way]) - {"new_above_old", "mrr_error"} == (METRICS if found["triples"] else set())
    added = report["added_existing"]["triples"] + report["added_emerging"]["triples"]
    assert (added, report["added"], report["deleted_triples"], report["deleted"]["triples"]) == (5, 5, 1, 1)
    assert report["kept_far"]["triples"] > 0
    assert without_time(report) == without_time(api.fidelity(updated[0]))


def test_without_evidence_only_vectors_are_measured(updated: tuple[Path, Ended], run: Run) -> None:
    whole = run("fidelity", updated[0], "--json").json
    report = run("fidelity", updated[0], "--no-evidence", "--json").json
    for group in FIDELITY_KEYS:
        assert report[group] == {key: whole[group][key] for key in ("triples", "vectors")}


def test_table(updated: tuple[Path, Ended], run: Run) -> None:
    ended = run("fidelity", updated[0])
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.stdout.startswith("version 4: from 'base' to 'night1'\n")
    assert "added emerging" in ended.stdout and "kept far" in ended.stdout and "sampled" not in ended.stdout


def test_night_from_another_snapshot(updated: tuple[Path, Ended], run: Run) -> None:
    """From the model's own snapshot nothing happened."""
    report = run("fidelity", updated[0], "--from", "night1", "--json").json
    assert (report["added"], report["deleted_triples"], report["since"]) == (0, 0, "night1")
    assert all(report[group]["triples"] == 0 for group in FIDELITY_KEYS - {"kept_far"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "version 2 is of the first snapshot: there was no night before it"), (["--from", "x"], "no snapshot 'x'")],
)
def test_error_names_what_is_missing(trained: tuple[Path, Ended], run: Run, arguments: list[str], message: str) -> None:
    assert message in error_of(run("fidelity", trained[0], *arguments, "--json"), 1)


def test_missing_model_is_an_error(store: Path, run: Run) -> None:
    assert "there is no model yet" in error_of(run("fidelity", store, "--json"), 1)
