"""`dkge synth`, `ingest` and `diff`: what they report, print and write."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

from tests.cli.running import DKGE, Ended, Run, dkge, error_of
from tests.graphs import lines, movies

NIGHT_KEYS = {
    "from", "to", "added", "deleted", "emerging_entities", "removed_entities", "emerging_relations",
    "removed_relations", "affected_entities", "affected_relations", "seconds",
}  # fmt: skip


def test_synth_reports_what_it_wrote(synthesised: tuple[Path, Ended]) -> None:
    out, ended = synthesised
    assert ended.code == 0
    assert ended.stderr == ""
    report = ended.json
    assert (report["entities"], report["nights"], report["seed"], report["relations"]) == (800, 2, 4, 14)
    assert report["files"] == ["snapshot-000.tsv", "night-001.changes", "night-002.changes", "names.tsv"]
    assert sorted(path.name for path in out.iterdir()) == sorted(report["files"])
    assert (out / "snapshot-000.tsv").read_bytes().count(b"\n") == report["triples"]


def test_ingest_reports_the_new_snapshot(synthesised: tuple[Path, Ended], ingested: tuple[Path, list[Ended]]) -> None:
    made, (first, *nights) = synthesised[1].json, ingested[1]
    report = first.json
    assert (first.code, first.stderr) == (0, "")
    assert (report["version"], report["name"], report["format"]) == (1, "snapshot-000", "tsv")
    assert (report["entities"], report["triples"]) == (made["entities"], made["triples"])
    assert (report["valid"], report["test"]) == (30, 20)
    for number, night in enumerate(nights, 2):
        assert night.code == 0
        assert (night.json["version"], night.json["name"]) == (number, f"night-00{number - 1}")
        assert night.json["added"] >= made["added"] - 5


def test_diff_counts_and_writes_the_change(store: Path, tmp_path: Path) -> None:
    out = tmp_path / "two-nights.changes"
    ended = dkge("diff", store, "snapshot-000", "night-002", "--affected", "context.cap=5", "--examples", "2",
                 "--out", out, "--json")  # fmt: skip
    assert (ended.code, ended.stderr) == (0, "")
    report = ended.json
    assert set(report) >= NIGHT_KEYS
    assert (report["from"], report["to"], report["out"]) == ("snapshot-000", "night-002", str(out))
    assert report["affected_entities"] > 0
    assert report["context_changed_entities"] <= report["affected_entities"]
    assert [len(row) for row in report["added_examples"]] == [3, 3]
    written = out.read_text().splitlines()
    assert sum(line.startswith("+\t") for line in written) == report["added"]
    assert sum(line.startswith("-\t") for line in written) == report["deleted"]


def test_diff_of_answers(updated: tuple[Path, Ended], store: Path, run: Run) -> None:
    ended = run("diff", updated[0], "base", "night1", "--answers", "--affected", "--examples", "2", "--json")
    assert (ended.code, ended.stderr) == (0, "")
    answers = ended.json["answers"]
    assert answers["models"] == [2, 4]
    assert len(answers["examples"]) == min(2, answers["differ"])
    assert all(line["before"] != line["after"] for line in answers["examples"])
    assert len(ended.json["affected_entity_examples"]) == 2
    error = error_of(run("diff", store, "1", "2", "--answers", "--json"), 1)
    assert "no model was learnt from snapshot 'snapshot-000'" in error


def test_diff_as_text(store: Path, run: Run) -> None:
    ended = run("diff", store, "1", "2")
    assert ended.code == 0
    assert ended.stdout.startswith("snapshot-000 -> night-001\n")
    assert "emerging entities" in ended.stdout
    assert "\n  + " in ended.stdout
    assert "affected" not in ended.stdout


def test_ingest_as_text(tmp_path: Path, run: Run) -> None:
    source = tmp_path / "naïve.tsv"
    source.write_text(lines(movies(40) + movies(2)) + "bad line\n")
    ended = run("ingest", tmp_path / "store", source, "--max-bad-lines", "1")
    assert (ended.code, ended.stderr) == (0, "")
    assert "'naïve' is version 1: " in ended.stdout
    assert "noticed: duplicates 2, bad lines 1" in ended.stdout
    assert str(tmp_path / "store" / "rejects") in ended.stdout
    again = run("ingest", tmp_path / "store", source, "--max-bad-lines", "1")
    assert again.code == 0
    assert again.stdout.startswith("nothing changed: 'naïve' (version 1) has the same content\n")
    assert "bad lines 1" in again.stdout


HEADED = "\ufeffobject;subject;predicate\r\nb;a;r\r\n"


def test_ingest_reads_a_spreadsheet(tmp_path: Path, run: Run) -> None:
    (tmp_path / "sheet.csv").write_text(HEADED, newline="")
    ended = run("ingest", tmp_path / "store", tmp_path / "sheet.csv")
    assert (ended.code, ended.stderr) == (0, "")
    assert "2 entities, 1 relations, 1 train" in ended.stdout
    assert "header lines (head = 'subject', relation = 'predicate', tail = 'object') 1" in ended.stdout
    assert "nothing is held out of so small a graph" in ended.stdout


def test_ingest_reads_columns_by_name(tmp_path: Path, run: Run) -> None:
    (tmp_path / "films.csv").write_text("film,year,job,who\na,1999,r,b\n")
    columns = ("--columns", "film,job,who")
    assert run("ingest", tmp_path / "store", tmp_path / "films.csv", *columns).code == 0
    wrong = run("ingest", tmp_path / "store", tmp_path / "films.csv", "--columns", "film,who")
    assert wrong.code == 2
    assert "--columns film,who: three different names or numbers" in wrong.stderr


def test_ingest_reads_several_files_and_patterns(tmp_path: Path, run: Run) -> None:
    for number in range(3):
        (tmp_path / f"{number}.tsv").write_text(lines(movies(10, first=10 * number)))
    ended = run("ingest", tmp_path / "one", f"{tmp_path}/[01].tsv", tmp_path / "2.tsv", "--name", "all", "--json")
    assert (ended.code, ended.json["train"], ended.json["format"]) == (0, 30, "tsv")
    none = run("ingest", tmp_path / "one", f"{tmp_path}/*.ttl")
    assert (none.code, none.stderr) == (1, f"dkge: {tmp_path}/*.ttl: no file matches\n")


def test_ingest_reads_a_pipe(tmp_path: Path) -> None:
    command = [DKGE, "ingest", str(tmp_path / "store"), "-", "--json"]
    done = subprocess.run(command, input=gzip.compress(lines(movies(40)).encode()), capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    report = json.loads(done.stdout)
    assert (report["name"], report["train"]) == ("stdin", 40)


def test_ingest_points_out_misspellings(tmp_path: Path, run: Run) -> None:
    (tmp_path / "base.tsv").write_text("film\tdirected by\tperson\n")
    (tmp_path / "night.changes").write_text("+\tfilm\tdirectd by\tnobody\n")
    assert run("ingest", tmp_path / "store", tmp_path / "base.tsv").code == 0
    strict = run("ingest", tmp_path / "store", tmp_path / "night.changes", "--strict")
    assert strict.code == 1
    assert "new relation 'directd by' (nearest: 'directed by'). If that is right, leave out --strict" in strict.stderr
    told = run("ingest", tmp_path / "store", tmp_path / "night.changes")
    assert told.code == 0
    assert "\n  new relation 'directd by' (nearest: 'directed by')\n" in told.stdout
