"""`dkge evidence`: what it reports and prints, and how it fails."""

from __future__ import annotations

from pathlib import Path

from dkge_dist.surfaces import api
from tests.cli.running import Ended, Run, error_of, without_time


def test_report_is_that_of_the_function(trained: tuple[Path, Ended], run: Run) -> None:
    ended = run("evidence", trained[0], "--top", "3", "--json")
    assert (ended.code, ended.stderr) == (0, "")
    assert without_time(ended.json) == without_time(api.evidence_table(trained[0], top=3))
    assert {len(line["links"]) for line in ended.json["relations"]} <= {0, 1, 2, 3}


def test_table_of_one_relation(trained: tuple[Path, Ended], run: Run) -> None:
    name = api.evidence_table(trained[0])["relations"][0]["relation"]
    ended = run("evidence", trained[0], "--relation", name, "--top", "2")
    assert (ended.code, ended.stderr) == (0, "")
    first, columns, *lines = ended.stdout.splitlines()
    assert first == "evidence of version 2 for 'base', fitted on valid triples"
    assert columns.split() == ["relation", "supported", "by", "confidence", "pairs", "of"]
    assert lines[0].startswith(name)
    assert "the candidate has any evidence at all" in ended.stdout


def test_errors_name_what_is_missing(trained: tuple[Path, Ended], store: Path, run: Run) -> None:
    assert "no relation 'x'" in error_of(run("evidence", trained[0], "--relation", "x", "--json"), 1)
    assert "no model" in error_of(run("evidence", store, "--json"), 1)
    assert run("evidence", trained[0], "--top", "0").code == 2
