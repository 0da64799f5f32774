"""`dkge evaluate`: what it reports and prints, and how it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from dkge_dist.surfaces import api
from dkge_dist.types import Split
from tests.cli.running import EVALUATE_KEYS, METRICS, Ended, Run, error_of, without_time
from tests.graphs import LEARN, content, write_tsv


class TestEvaluate:
    def test_report_has_the_promised_keys(self, trained: tuple[Path, Ended], run: Run) -> None:
        ended = run("evaluate", trained[0], "--relations", "--categories", "--json")
        assert (ended.code, ended.stderr) == (0, "")
        report = ended.json
        assert set(report) >= EVALUATE_KEYS
        assert (report["triples"], report["version"], report["candidates"]) == (20, 2, 60)
        assert set(report["head"]) == set(report["tail"]) == METRICS
        assert all(set(report[name]) >= METRICS for name in ("filtered", "paper", "vectors"))
        assert {name: report[name] for name in METRICS}.items() <= report["filtered"].items()
        for name in METRICS:
            assert report[name] == pytest.approx((report["head"][name] + report["tail"][name]) / 2)
        for tables in (report["relations"], list(report["categories"].values())):
            assert sum(line["triples"] for line in tables) == 20
            mean = sum(line["triples"] * line["mrr"] for line in tables) / 20
            assert mean == pytest.approx(report["mrr"])

    def test_protocols_and_splits(self, trained: tuple[Path, Ended], run: Run) -> None:
        filtered = run("evaluate", trained[0], "--split", "valid", "--json").json
        paper = run("evaluate", trained[0], "--split", "valid", "--protocol", "paper", "--json").json
        assert filtered["mr"] <= paper["mr"]
        for one, other in ((filtered, paper), (paper, filtered)):
            assert {name: other[name] for name in METRICS}.items() <= one[other["protocol"]].items()
        assert run("evaluate", trained[0], "--split", "train", "--json").code == 2

    def test_without_evidence_vectors_alone_rank(self, trained: tuple[Path, Ended], run: Run) -> None:
        with_evidence = run("evaluate", trained[0], "--json").json
        alone = run("evaluate", trained[0], "--no-evidence", "--json").json
        assert (with_evidence["evidence"], alone["evidence"]) == (True, False)
        assert {name: alone[name] for name in METRICS}.items() <= with_evidence["vectors"].items()
        assert alone["mrr"] != with_evidence["mrr"]
        shown = run("evaluate", trained[0], "--no-evidence").stdout
        assert "by vectors alone, " in shown.splitlines()[0]

    def test_triples_of_a_file_are_ranked_one_by_one(
        self, trained: tuple[Path, Ended], tmp_path: Path, run: Run
    ) -> None:
        """Those of a split, given as a file, have the metrics of the split; the mean of their ranks is its MR."""
        test = sorted(content(trained[0], "base")[Split.TEST])
        path = write_tsv(tmp_path / "given.tsv", test)
        split = run("evaluate", trained[0], "--json").json
        given = run("evaluate", trained[0], "--triples", path, "--ranks", "--json").json
        assert {name: given[name] for name in METRICS} == pytest.approx({name: split[name] for name in METRICS})
        assert (given["split"], given["triples"]) == (str(path), 20)
        lines = given["ranks"]
        assert [(line["head"], line["relation"], line["tail"]) for line in lines] == test
        for found, mr in ((lines, split["mr"]), ([line["vectors"] for line in lines], split["vectors"]["mr"])):
            assert sum(line["head_rank"] + line["tail_rank"] for line in found) / 40 == pytest.approx(mr)
        assert "ranks" not in split

    @pytest.mark.parametrize(
        ("lines", "code", "message"),
        [
            ("e1\tr1\te2\n\ne1\tr1\n", 2, ", line 3: expected `head<TAB>relation<TAB>tail`"),
            ("e1\tr1\te2\te3\n", 2, ", line 1: expected "),
            ("e1\tr1\te2\nnobody\tr1\te2\n", 1, ", line 2: no entity 'nobody'"),
            ("e1\tr1\te2\ne1\tr1\tnobody\n", 1, ", line 2: no entity 'nobody'"),
            ("e1\tr1\te2\ne1\tr11\te2\n", 1, ", line 2: no relation 'r11'; nearest: r1"),
            ("\n\n", 2, ": holds no triple"),
            (b"\xff\xfe", 2, ": not UTF-8: "),
            (None, 1, ": No such file or directory"),
        ],
    )
    def test_errors_in_a_file_of_triples_name_the_line(
        self, trained: tuple[Path, Ended], tmp_path: Path, run: Run, lines: str | bytes | None, code: int, message: str
    ) -> None:
        path = tmp_path / "given.tsv"
        if lines is not None:
            path.write_bytes(lines.encode() if isinstance(lines, str) else lines)
        ended = run("evaluate", trained[0], "--triples", path, "--json")
        assert error_of(ended, code).startswith(f"{path}{message}")

    def test_report_as_text(self, trained: tuple[Path, Ended], run: Run) -> None:
        ended = run("evaluate", trained[0], "--categories", "--relations")
        assert (ended.code, ended.stderr) == (0, "")
        first, columns, *lines = ended.stdout.splitlines()
        assert first == "version 2 on 20 test triples of 'base' (filtered protocol, with evidence, 60 candidates)"
        assert columns.split() == ["triples", "mrr", "hits@1", "hits@3", "hits@10", "mr"]
        assert lines[0].split()[:2] == ["all", "20"]

    def test_as_of_evaluates_an_older_model(
        self, updated: tuple[Path, Ended], trained: tuple[Path, Ended], run: Run
    ) -> None:
        old = without_time(api.evaluate(trained[0]))
        for option in (["--as-of", "2"], ["--version", "3"], ["--as-of", "base"]):
            assert without_time(run("evaluate", updated[0], *option, "--json").json) == old
        for option in (["--as-of", "night1"], ["--as-of", "4"], []):
            assert run("evaluate", updated[0], *option, "--json").json["version"] == 4
        assert "there is no model at '1' yet" in error_of(run("evaluate", updated[0], "--as-of", "1", "--json"), 1)
        assert "no snapshot 'x'" in error_of(run("evaluate", updated[0], "--as-of", "x", "--json"), 1)

    def test_no_test_triples_is_an_error(self, folder: Path, tmp_path: Path, run: Run) -> None:
        api.ingest(tmp_path / "store", folder / "base.tsv")
        assert run("train", tmp_path / "store", *LEARN, "train.max_epochs=1", "--json").code == 0
        message = error_of(run("evaluate", tmp_path / "store", "--json"), 1)
        assert message == f"{tmp_path}/store: snapshot 'base' has no test triples; ingest with --test N"

    def test_leaked_test_triples_are_counted(self, tmp_path: Path, run: Run) -> None:
        """Published splits may hold their test triples in train as well."""
        triples = [(i % 7, i % 13, i % 3) for i in range(90)]
        source = tmp_path / "source"
        source.mkdir()
        (source / "entity2id.txt").write_text("13\n" + "".join(f"e{i}\t{i}\n" for i in range(13)))
        (source / "relation2id.txt").write_text("3\n" + "".join(f"r{i}\t{i}\n" for i in range(3)))
        known = sorted(set(triples))
        for name, some in (("train", known), ("valid", known[:3]), ("test", known[:5])):
            lines = "".join(f"{h} {t} {r}\n" for h, t, r in some)
            (source / f"{name}2id.txt").write_text(f"{len(some)}\n{lines}")
        api.ingest(tmp_path / "store", source)
        api.train(tmp_path / "store", settings=[*LEARN, "train.max_epochs=1"])
        report = run("evaluate", tmp_path / "store", "--json").json
        assert (report["leaked"], report["triples"]) == (5, 5)
        shown = run("evaluate", tmp_path / "store")
        assert (shown.code, shown.stderr) == (0, "")
        assert "5 test triples" in shown.stdout
