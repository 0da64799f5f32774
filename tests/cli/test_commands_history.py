"""`dkge log`, `report`, `check`, `rollback` and `gc`: what they report and print, and how they fail."""

from __future__ import annotations

import shutil
from pathlib import Path

from dkge_dist.surfaces import api
from dkge_dist.surfaces.cli.render.formats import format_share
from tests.cli.running import Ended, Run, dkge, error_of
from tests.graphs import head

VERSION_KEYS = {
    "version", "kind", "name", "parent", "created", "format", "entities", "relations", "train", "valid", "test",
    "added", "deleted", "emerging_entities", "removed_entities", "counts", "stored", "seconds",
}  # fmt: skip


def test_log_lists_the_versions(store: Path, run: Run) -> None:
    ended = dkge("log", store, "--json")
    assert (ended.code, ended.stderr) == (0, "")
    versions = ended.json["versions"]
    assert [version["version"] for version in versions] == [1, 2, 3]
    assert [version["parent"] for version in versions] == [None, 1, 2]
    assert [version["stored"] for version in versions] == ["full", "change", "change"]
    assert all(set(version) >= VERSION_KEYS for version in versions)
    assert api.log(store) == ended.json
    shown = run("log", store)
    assert shown.code == 0
    times = [f"{version['created'][:10]} {version['created'][11:16]}" for version in versions]
    assert [" ".join(line.split()[:5]) for line in shown.stdout.splitlines()[1:]] == [
        f"1 {times[0]} snapshot snapshot-000",
        f"2 {times[1]} snapshot night-001",
        f"3 {times[2]} snapshot night-002",
    ]


def test_log_has_the_fidelity_of_online_updates(updated: tuple[Path, Ended], run: Run) -> None:
    store, update = updated
    versions = dkge("log", store, "--json").json["versions"]
    assert [version.get("fidelity") for version in versions] == [None, None, None, update.json["fidelity"]]
    added = update.json["fidelity"]["added_emerging"]["with_evidence"]["mrr"]
    assert f" {format_share(added)} " in run("log", store).stdout.splitlines()[4]


def test_report_writes_a_page_and_prints_its_figures(updated: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
    ended = dkge("report", updated[0], tmp_path / "nights.html", "--json")
    assert (ended.code, ended.stderr) == (0, "")
    assert ended.json["out"] == str(tmp_path / "nights.html")
    assert (tmp_path / "nights.html").stat().st_size == ended.json["page_bytes"]
    assert [night["snapshot"] for night in ended.json["nights"]] == ["base", "night1"]
    shown = run("report", updated[0], tmp_path / "other.html", "--no-answers", "--nights", "1")
    assert (shown.code, shown.stderr) == (0, "")
    assert shown.stdout.startswith(f"{tmp_path}/other.html: 1 nights up to 'night1', ")
    assert "Answers that changed" not in (tmp_path / "other.html").read_text(encoding="utf-8")
    assert "Is a directory" in error_of(run("report", updated[0], tmp_path, "--json"), 1)


def test_a_night_says_where_its_report_is_or_why_there_is_none(
    copy: Path, folder: Path, tmp_path: Path, run: Run
) -> None:
    failed = run("nightly", copy, folder / "night1.changes", "--report", tmp_path / "no" / "nights.html", "--json")
    assert failed.code == 0
    problem = failed.json["report_problem"]
    assert problem.startswith("the night is done, its report is not: ")
    assert failed.stderr == f"dkge: {problem}\n"
    shown = run("nightly", copy, folder / "night2.changes", "--report", tmp_path / "nights.html")
    assert (shown.code, shown.stdout.splitlines()[-1]) == (0, f"report: {tmp_path}/nights.html")
    assert "night2" in (tmp_path / "nights.html").read_text(encoding="utf-8")


def test_versions_by_date(updated: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
    store = Path(shutil.copytree(updated[0], tmp_path / "store"))
    label = api.diff(store, "1", "3", examples=1)["added_examples"][0]
    asked = run("answer", store, label[0], label[1], "--as-of", "2999-01-01", "--json")
    assert (asked.code, asked.json["version"]) == (0, 4)
    created = head(store).created
    assert run("evaluate", store, "--as-of", created[:16], "--json").json["version"] == 4
    error = error_of(run("evaluate", store, "--as-of", "1999-01-01", "--json"), 1)
    assert error.startswith(f"{store}: nothing was published by 1999-01-01; version 1 is of 2")
    assert "'2026-13-01' is no date" in error_of(run("diff", store, "2026-13-01", "3", "--json"), 2)
    ended = run("rollback", store, created[:10], "--json")
    assert (ended.json["to"], ended.json["model"]) == (4, 4)


def test_check_of_a_sound_store(store: Path) -> None:
    ended = dkge("check", store, "--json")
    assert (ended.code, ended.stderr) == (0, "")
    assert set(ended.json) == {"ok", "versions", "parts", "bytes", "problems", "seconds"}
    assert ended.json["ok"] is True
    assert ended.json["versions"] == 3


def test_check_names_the_damaged_part(store: Path, tmp_path: Path, run: Run) -> None:
    damaged = Path(shutil.copytree(store, tmp_path / "store"))
    part = sorted((damaged / "parts").rglob("*"))[-1]
    content = bytearray(part.read_bytes())
    content[len(content) // 2] ^= 1
    part.write_bytes(content)
    ended = run("check", damaged, "--json")
    assert ended.code == 1
    assert ended.json["ok"] is False
    (problem,) = ended.json["problems"]
    assert f"part {part} is damaged" in problem["problem"]
    shown = run("check", damaged)
    assert shown.code == 1
    assert f"version {problem['version']}: {problem['problem']}\n1 problems: 3 versions" in shown.stdout


def test_rollback_makes_an_older_version_current(updated: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
    store = Path(shutil.copytree(updated[0], tmp_path / "store"))
    ended = run("rollback", store, "2", "--json")
    assert (ended.code, ended.json["version"], ended.json["model"], ended.json["snapshot"]) == (0, 5, 2, "base")
    shown = run("rollback", store, "1")
    assert shown.stdout == "version 6: snapshot 'base' and no model are current again\n"
    assert error_of(run("rollback", store, "77", "--json"), 1) == f"{store}: no version 77"
    assert run("rollback", store, "x", "--json").code == 2
    assert run("log", store).code == 0


def test_gc_clears_old_versions(updated: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
    store = Path(shutil.copytree(updated[0], tmp_path / "store"))
    dry = run("gc", store, "--keep", "1", "--dry-run", "--grace-hours", "0")
    assert (dry.code, dry.stderr) == (0, "")
    assert dry.stdout.startswith("versions cleared: 2\n  would free ")
    ended = run("gc", store, "--keep", "1", "--grace-hours", "0", "--json")
    assert set(ended.json) == {"version", "cleared_versions", "parts", "bytes", "folders", "dry_run"}
    assert ended.json["cleared_versions"] == [2]
    assert "version 2 was cleared away by `dkge gc`" in error_of(run("evaluate", store, "--as-of", "2", "--json"), 1)
    assert run("check", store, "--json").json["ok"] is True
    assert run("gc", store, "--keep", "0", "--json").code == 2
    assert run("log", store).code == 0
    assert head(store).kind == "gc"


def test_aliases(copy: Path, run: Run) -> None:
    assert run("alias", copy).stdout == "no aliases\n"
    assert run("alias", copy, "production", "2").stdout == "production  version 2\n"
    assert run("alias", copy, "--json").json == {"aliases": {"production": 2}}
    assert run("similar", copy, "e1", "--as-of", "production", "--json").json["version"] == 2
    assert run("alias", copy, "production", "--remove", "--json").json == {"aliases": {}}
    for words in (("production", "--remove"), ("production",), ("2", "2"), ("--remove",)):
        ended = run("alias", copy, *words, "--json")
        assert ended.code == 2 and "alias" in ended.json["error"]
    assert run("alias", copy, "production", "9", "--json").code == 1
