"""`dkge answer`, `score` and `similar`: what they report and print, and how they fail."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dkge_dist.ask.model import open_model
from dkge_dist.evidence.scores import MEMORISATION_DAMPING as DAMPING
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import Split
from tests.cli.running import Ended, Run, dkge, error_of
from tests.graphs import LEARN, content, dense, everything, vectors, write_changes, write_tsv
from tests.reference_evidence import combined


class TestAnswer:
    def test_report_has_the_promised_keys(self, trained: tuple[Path, Ended]) -> None:
        ended = dkge("answer", trained[0], "e1", "r1", "--top", "5", "--json")
        assert (ended.code, ended.stderr) == (0, "")
        report = ended.json
        assert (report["head"], report["relation"], report["version"]) == ("e1", "r1", 2)
        assert all(set(answer) == {"entity", "score", "known"} for answer in report["answers"])
        known = [answer for answer in report["answers"] if answer["known"]]
        predicted = [answer for answer in report["answers"] if not answer["known"]]
        assert report["answers"] == [*known, *predicted] and known and len(predicted) == 5
        for part in (known, predicted):
            scores = [answer["score"] for answer in part]
            assert scores == sorted(scores, reverse=True)

    def test_known_facts_may_be_left_out(self, trained: tuple[Path, Ended], run: Run) -> None:
        both = run("answer", trained[0], "e1", "r1", "--top", "5", "--json").json
        new = run("answer", trained[0], "e1", "r1", "--top", "5", "--new-only", "--json").json
        assert new["answers"] == [answer for answer in both["answers"] if not answer["known"]]

    def test_why_tells_the_evidence_of_each_answer(self, trained: tuple[Path, Ended], run: Run) -> None:
        """Its weights add up to E, which counts less where vectors know by heart."""
        evidence = open_model(Store.open(trained[0]), None).evidence
        assert evidence is not None
        asked = ("answer", trained[0], "e1", "r1", "--top", "60", "--json")
        told = {answer["entity"]: answer for answer in run(*asked, "--why").json["answers"]}
        alone = {answer["entity"]: answer["score"] for answer in run(*asked, "--no-evidence").json["answers"]}
        assert len(told) == len(alone) == 60
        for entity, answer in told.items():
            weight = sum(reason["weight"] for reason in answer["why"])
            score = combined(-alone[entity], weight, evidence.weights.near, DAMPING)
            assert answer["score"] == pytest.approx(score, abs=1e-4)
            assert all(set(reason) == {"kind", "weight", "text"} for reason in answer["why"])
        assert {reason["kind"] for answer in told.values() for reason in answer["why"]} > {"self", "other", "company"}
        shown = run("answer", trained[0], "e1", "r1", "--top", "3", "--why").stdout
        assert "for being connected at all" in shown

    def test_why_without_evidence_is_wrong_usage(self, trained: tuple[Path, Ended], run: Run) -> None:
        message = error_of(run("answer", trained[0], "e1", "r1", "--why", "--no-evidence", "--json"), 2)
        assert message.startswith("--why tells evidence")

    @pytest.mark.parametrize("side", ["tail", "head"])
    def test_all_entities_are_ranked_and_known_ones_marked(
        self, trained: tuple[Path, Ended], run: Run, side: str
    ) -> None:
        store = trained[0]
        asked = ["e1", "r1"] if side == "tail" else ["r1", "--tail", "e1"]
        answers = run("answer", store, *asked, "--top", "1000", "--no-evidence", "--json").json["answers"]
        assert sorted(answer["entity"] for answer in answers) == sorted(f"e{i}" for i in range(60))
        graph = everything(store, "base")
        for answer in answers:
            triple = ("e1", "r1", answer["entity"]) if side == "tail" else (answer["entity"], "r1", "e1")
            assert answer["known"] == (triple in graph)
        assert any(answer["known"] for answer in answers)
        opened = Store.open(store)
        entities, relations = (dict(zip(names.labels(range(len(names))), values, strict=True)) for names, values in zip(
            opened.dictionaries(opened.head()),
            (vectors(store, 2)["entities/joint"], vectors(store, 2)["relations/joint"]),
            strict=True,
        ))  # fmt: skip
        query = entities["e1"] + relations["r1"] if side == "tail" else entities["e1"] - relations["r1"]
        for answer in answers:
            distance = float(np.abs(query - entities[answer["entity"]]).sum())
            assert answer["score"] == pytest.approx(-distance, abs=1e-4)

    def test_known_in_any_split(self, trained: tuple[Path, Ended], run: Run) -> None:
        for split in (Split.VALID, Split.TEST):
            h, r, t = sorted(content(trained[0], "base")[split])[0]
            answers = run("answer", trained[0], h, r, "--top", "60", "--json").json["answers"]
            assert {"entity": t, "known": True}.items() <= next(a for a in answers if a["entity"] == t).items()

    def test_report_as_text(self, trained: tuple[Path, Ended], run: Run) -> None:
        ended = run("answer", trained[0], "r1", "--tail", "e1", "--top", "3", "--new-only")
        assert (ended.code, ended.stderr) == (0, "")
        first, columns, *answers, last = ended.stdout.splitlines()
        assert first == "?\tr1\te1"
        assert columns.split() == ["answer", "score"]
        assert len(answers) == 3
        assert last == "by version 2, learnt from 'base'"

    def test_relations_are_asked_for_with_a_question_mark(self, trained: tuple[Path, Ended], run: Run) -> None:
        h, r, t = min(everything(trained[0], "base"))
        report = run("answer", trained[0], h, "?", t, "--top", "2", "--json").json
        assert (report["head"], report["tail"]) == (h, t) and "relation" not in report
        assert {"relation": r, "known": True}.items() <= report["answers"][0].items()
        assert all(set(answer) == {"relation", "score", "known"} for answer in report["answers"])
        assert run("answer", trained[0], h, "?", t).stdout.startswith(f"{h}\t?\t{t}\n")
        same = run("answer", trained[0], h, r, "?", "--json").json
        assert same["answers"] == run("answer", trained[0], h, r, "--json").json["answers"]

    def test_a_newer_snapshot_is_told_on_stderr_and_in_the_report(self, copy: Path, folder: Path, run: Run) -> None:
        api.ingest(copy, folder / "night1.changes")
        notice = f"snapshot 'night1' is newer and not learnt yet: `dkge update {copy}`"
        for command in (("answer", "e1", "r1"), ("score", "e1", "r1", "e2"), ("similar", "e1")):
            ended = run(command[0], copy, *command[1:], "--json")
            assert (ended.json["notice"], ended.stderr) == (notice, f"dkge: {notice}\n")
            assert run(command[0], copy, *command[1:], "--as-of", "2").stderr == ""

    def test_batch_answers_as_single_questions(self, trained: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
        batch = tmp_path / "questions.tsv"
        batch.write_text("e1\tr1\t?\n\n?\tr2\te3\r\ne1\tr1\t?\n")
        report = run("answer", trained[0], "--batch", batch, "--top", "4", "--json").json
        one, two, three = report["questions"]
        assert one == three
        assert (one["head"], two["tail"]) == ("e1", "e3")
        alone = run("answer", trained[0], "r2", "--tail", "e3", "--top", "4", "--json").json
        assert two["answers"] == alone["answers"]
        assert run("answer", trained[0], "--batch", batch, "--top", "2").stdout.startswith("e1\tr1\t?\n")

    def test_bad_lines_of_a_batch_are_told_and_the_others_answered(
        self, trained: tuple[Path, Ended], tmp_path: Path
    ) -> None:
        batch = tmp_path / "questions.tsv"
        batch.write_text("e1\tr1\t?\n\ne1\tr1\nnobody\tr1\t?\n?\tr2\te3\n")
        ended = dkge("answer", trained[0], "--batch", batch, "--top", "2", "--json")
        assert (ended.code, ended.json["failed"]) == (0, 2)
        one, two, three, four = ended.json["questions"]
        assert (one["head"], four["tail"]) == ("e1", "e3")
        assert two["line"] == 3 and two["error"].startswith("expected `head<TAB>relation<TAB>?`")
        assert (three["line"], three["error"][:18]) == (4, "no entity 'nobody'")
        told = [f"dkge: {batch}, line {failure['line']}: {failure['error']}" for failure in (two, three)]
        assert ended.stderr.splitlines() == told

    @pytest.mark.parametrize("command", ["answer", "score", "similar"])
    def test_a_batch_of_which_nothing_can_be_answered_fails(
        self, trained: tuple[Path, Ended], tmp_path: Path, run: Run, command: str
    ) -> None:
        batch = tmp_path / "questions.tsv"
        batch.write_text("?\tr1\t?\nnobody\tr1\te1\n")
        ended = run(command, trained[0], "--batch", batch, "--json")
        assert (ended.code, ended.json["failed"]) == (1, 2)
        assert ended.json["error"] == f"{batch}: none of its 2 lines can be answered"
        assert ended.stderr.splitlines()[-1] == f"dkge: {ended.json['error']}"

    @pytest.mark.parametrize("command", ["answer", "score", "similar"])
    @pytest.mark.parametrize(
        ("lines", "code", "message"),
        [(b"\n\n", 2, ": holds no "), (b"\xff\xfe", 2, ": not UTF-8: "), (None, 1, ": No such file or directory")],
    )
    def test_files_that_are_no_batch_are_errors(
        self, trained: tuple[Path, Ended], tmp_path: Path, run: Run, command: str, lines: bytes | None, code: int,
        message: str,
    ) -> None:  # fmt: skip
        batch = tmp_path / "questions.tsv"
        if lines is not None:
            batch.write_bytes(lines)
        assert error_of(run(command, trained[0], "--batch", batch, "--json"), code).startswith(f"{batch}{message}")

    def test_unknown_name_suggests_near_ones(self, folder: Path, tmp_path: Path, run: Run) -> None:
        base = [*dense(), ("The Third Man", "r0", "e1"), ("Third Man Out", "r1", "e2"), ("The Third Man", "r1", "e5")]
        api.ingest(tmp_path / "store", write_tsv(tmp_path / "base.tsv", base))
        api.train(tmp_path / "store", settings=[*LEARN, "train.max_epochs=1"])
        message = error_of(run("answer", tmp_path / "store", "the 3rd man", "r0", "--json"), 1)
        assert message.startswith("no entity 'the 3rd man'; nearest: The Third Man, Third Man Out")
        assert error_of(run("answer", tmp_path / "store", "zzzzzzzz", "r0", "--json"), 1) == "no entity 'zzzzzzzz'"

    def test_only_newlines_end_a_line_of_a_batch(self, tmp_path: Path, run: Run) -> None:
        """A line of a batch ends where a line of a source does: at a newline alone."""
        odd = "a\u2028b\x0b\x0c\x1c\x85d"
        api.ingest(
            tmp_path / "store", write_tsv(tmp_path / "base.tsv", [*dense(), (odd, "r0", "e1"), (odd, "r1", "e2")])
        )
        api.train(tmp_path / "store", settings=[*LEARN, "train.max_epochs=1"])
        batch = tmp_path / "questions.tsv"
        batch.write_text(f"{odd}\tr0\t?\ne1\tr0\n", newline="")
        first, second = run("answer", tmp_path / "store", "--batch", batch, "--json").json["questions"]
        assert (first["head"], second["line"]) == (odd, 2)

    @pytest.mark.parametrize(
        "arguments",
        [[], ["e1"], ["e1", "r1", "e2"], ["e1", "r1", "--tail", "e2"], ["--tail", "e2"], ["e1", "r1", "--batch", "x"]],
    )
    def test_wrong_usage(self, trained: tuple[Path, Ended], run: Run, arguments: list[str]) -> None:
        assert "ask with HEAD RELATION" in error_of(run("answer", trained[0], *arguments, "--json"), 2)

    def test_bytes_that_are_no_text_are_no_label(self, trained: tuple[Path, Ended]) -> None:
        ended = dkge("answer", trained[0], "\udcff", "r1", "--json")
        assert ended.code == 1 and ended.json["error"].startswith("no entity '\\udcff'")

    def test_as_of_asks_an_older_model(self, updated: tuple[Path, Ended], run: Run) -> None:
        now = run("answer", updated[0], "e1", "r0", "--top", "99", "--json").json
        assert (now["version"], len(now["answers"])) == (4, 62)
        assert {"new1a", "new1b"} <= {answer["entity"] for answer in now["answers"]}
        old = run("answer", updated[0], "e1", "r0", "--top", "99", "--as-of", "2", "--json").json
        assert (old["version"], len(old["answers"])) == (2, 60)
        assert error_of(run("answer", updated[0], "new1a", "r1", "--as-of", "2", "--json"), 1).startswith(
            "no entity 'new1a'"
        )

    def test_removed_objects_are_no_answers(self, copy: Path, tmp_path: Path, run: Run) -> None:
        gone = [triple for triple in everything(copy, "base") if "e7" in triple or triple[1] == "r3"]
        night = write_changes(tmp_path / "gone.changes", [], gone)
        api.ingest(copy, night, force=True)
        api.update(copy)
        left = "is not in snapshot 'gone' (it was in another one)"
        assert error_of(run("answer", copy, "e7", "r1", "--json"), 1) == f"'e7' {left}"
        assert error_of(run("answer", copy, "e1", "r3", "--json"), 1) == f"'r3' {left}"
        answers = run("answer", copy, "e1", "r1", "--top", "99", "--json").json["answers"]
        assert "e7" not in {answer["entity"] for answer in answers}
        assert len(answers) == 59
        assert run("answer", copy, "e7", "r3", "--as-of", "2", "--json").code == 0


class TestDisplayNames:
    """As processes: a store is named, asked by name, and asked wrongly."""

    def test_asked_by_name_by_label_and_wrongly(self, copy: Path, tmp_path: Path) -> None:
        names = tmp_path / "names.tsv"
        names.write_text("e1\tThe Matrix\ne2\tHamlet\ne3\tHamlet\nr1\tcast member\n", encoding="utf-8")
        named = dkge("ingest", copy, names, "--format", "labels", "--json")
        assert (named.code, named.json["named_entities"], named.json["named_relations"]) == (0, 3, 1)
        by_name, by_label = dkge("answer", copy, "the matrix", "cast member"), dkge("answer", copy, "e1", "r1")
        assert by_name.code == by_label.code == 0
        assert by_name.stdout == by_label.stdout
        assert by_name.stdout.startswith("The Matrix (e1)\tcast member (r1)\t?\n")
        namesakes = error_of(dkge("answer", copy, "Hamlet", "r1", "--json"), 1)
        assert namesakes.startswith("2 entities are named 'Hamlet': e2 (")
        typo = error_of(dkge("answer", copy, "The Matirx", "r1", "--json"), 1)
        assert typo.startswith("no entity 'The Matirx'; nearest: The Matrix (e1)")

    def test_ranks_have_names_beside_labels(self, copy: Path, tmp_path: Path, run: Run) -> None:
        (tmp_path / "names.tsv").write_text("e1\tThe Matrix\nr1\tcast member\n", encoding="utf-8")
        run("ingest", copy, tmp_path / "names.tsv", "--format", "labels")
        (tmp_path / "given.tsv").write_text("The Matrix\tr1\te2\n", encoding="utf-8")
        (line,) = run("evaluate", copy, "--triples", tmp_path / "given.tsv", "--ranks", "--json").json["ranks"]
        assert {key: value for key, value in line.items() if "rank" not in key and key != "vectors"} == {
            "head": "e1", "head_name": "The Matrix", "relation": "r1", "relation_name": "cast member", "tail": "e2",
        }  # fmt: skip

    def test_wrong_files_are_told(self, copy: Path, folder: Path, tmp_path: Path, run: Run) -> None:
        names = tmp_path / "names.tsv"
        names.write_text("e1\tone\ne2\n", encoding="utf-8")
        told = error_of(run("ingest", copy, names, "--format", "labels", "--json"), 1)
        assert told == f"{names}:2: 1 columns instead of 2: 'e2'"
        told = error_of(run("nightly", copy, folder / "night1.changes", "--labels", "nothing.tsv", "--json"), 1)
        assert told == "nothing.tsv: no such file"
        (tmp_path / "x.tsv").write_text("a\tb\tc\n")
        told = error_of(run("ingest", copy, tmp_path / "x.tsv", "--label-language", "de", "--json"), 2)
        assert told == "--label-language is for ntriples, nquads, turtle, trig, rdfxml sources, this one is tsv"

    def test_a_night_brings_names(self, copy: Path, folder: Path, tmp_path: Path, run: Run) -> None:
        names = tmp_path / "names.tsv"
        names.write_text("new1a\tNewcomer\n", encoding="utf-8")
        night = run("nightly", copy, folder / "night1.changes", "--labels", names, *LEARN, "--json")
        assert (night.code, night.json["ingest"]["named_entities"]) == (0, 1)
        assert run("answer", copy, "newcomer", "r1", "--json").json["head"] == "new1a"


class TestScore:
    def test_report_has_the_promised_keys(self, trained: tuple[Path, Ended], run: Run) -> None:
        """Ranks are those of `evaluate --ranks`, and a probability is one half at the threshold."""
        h, r, t = min(content(trained[0], "base")[Split.TEST])
        ended = dkge("score", trained[0], h, r, t, "--json")
        assert (ended.code, ended.stderr) == (0, "")
        found = ended.json
        assert set(found) == {
            "head", "relation", "tail", "score", "known", "probability", "threshold", "tail_rank", "head_rank",
            "version", "snapshot", "evidence", "candidates", "calibration", "seconds",
        }  # fmt: skip
        assert found["known"] and found["candidates"] == 60
        assert (found["probability"] > 0.5) == (found["score"] > found["threshold"])
        assert found["calibration"]["fitted_on"] == "valid" and 0 < found["calibration"]["triples"] < 20
        ranked = run("evaluate", trained[0], "--ranks", "--json").json["ranks"]
        (same,) = (line for line in ranked if (line["head"], line["relation"], line["tail"]) == (h, r, t))
        assert (found["tail_rank"], found["head_rank"]) == (same["tail_rank"], same["head_rank"])

    def test_batch_and_options(self, trained: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
        batch = tmp_path / "triples.tsv"
        batch.write_text("e1\tr1\te2\ne1\tr1\te2\tx\ne3\tr2\te1\n")
        report = run("score", trained[0], "--batch", batch, "--json").json
        one, bad, two = report["triples"]
        assert bad == {"line": 2, "error": "expected `head<TAB>relation<TAB>tail`"}
        for found in (one, two):
            labels = [found[part] for part in ("head", "relation", "tail")]
            alone = run("score", trained[0], *labels, "--json").json
            assert found.items() <= alone.items()
        quick = run("score", trained[0], "--batch", batch, "--no-ranks", "--no-evidence", "--json").json
        assert quick["evidence"] is False and quick["triples"][0]["tail_rank"] is None
        assert quick["triples"][0]["score"] != one["score"]
        shown = run("score", trained[0], "--batch", batch)
        assert "probabilities calibrated on" in shown.stdout and "line 2: expected" in shown.stderr

    @pytest.mark.parametrize("arguments", [[], ["e1", "r1"], ["e1", "r1", "e2", "e3"], ["e1", "--batch", "x"]])
    def test_wrong_usage(self, trained: tuple[Path, Ended], run: Run, arguments: list[str]) -> None:
        assert "name HEAD RELATION TAIL" in error_of(run("score", trained[0], *arguments, "--json"), 2)
        assert "a whole triple is scored" in error_of(run("score", trained[0], "e1", "?", "e2", "--json"), 2)


class TestSimilar:
    def test_the_nearest_entities_by_their_joint_vectors(
        self, updated: tuple[Path, Ended], tmp_path: Path, run: Run
    ) -> None:
        opened = Store.open(updated[0])
        names, values = opened.dictionaries(opened.head())[0], vectors(updated[0], 4)["entities/joint"]
        distances = dict(zip(names.labels(range(len(names))), np.abs(values - values[3]).sum(1).tolist(), strict=True))
        entity = names.label(3)
        ended = dkge("similar", updated[0], entity, "--top", "99", "--json")
        assert (ended.code, ended.stderr, ended.json["entity"]) == (0, "", entity)
        found = {line["entity"]: line["score"] for line in ended.json["similar"]}
        assert found == pytest.approx({name: -value for name, value in distances.items() if name != entity}, abs=1e-4)
        assert list(found.values()) == sorted(found.values(), reverse=True)
        batch = tmp_path / "entities"
        batch.write_text(f"{entity}\nnobody\na\tb\n")
        some, *bad = run("similar", updated[0], "--batch", batch, "--top", "2", "--json").json["entities"]
        assert some == {"entity": entity, "similar": ended.json["similar"][:2]}
        assert bad[1] == {"line": 3, "error": "expected one entity"} and bad[0]["error"].startswith("no entity")
        assert run("similar", updated[0], entity).stdout.startswith(f"{entity}\n  similar")
        assert "name an ENTITY" in error_of(run("similar", updated[0], "--json"), 2)
