"""Learning and asking as commands: what they print, how they end, and that a training survives being stopped."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import zarr

from dkge_dist import api
from dkge_dist.cli.main import main
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError, Split
from tests.cli.test_cli import DKGE, Ended, dkge
from tests.graphs import (
    LEARN,
    assert_same_vectors,
    assert_sound,
    content,
    dense,
    everything,
    fresh_labels,
    head,
    listing,
    vectors,
    write_changes,
    write_tsv,
)

TRAIN_KEYS = {"version", "epochs", "seconds", "triples_per_second", "best_valid"}
METRICS = {"mr", "mrr", "hits@1", "hits@3", "hits@10"}
EVALUATE_KEYS = METRICS | {"triples", "seconds"}
UPDATE_KEYS = {
    "version", "added", "deleted", "emerging_entities", "affected_entities", "emerging_relations",
    "affected_relations", "trained_triples", "epochs", "seconds", "shards_touched", "shards_total", "bytes_pulled",
    "bytes_pushed", "bytes_written",
}  # fmt: skip

Run = Callable[..., Ended]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The command without a process of its own."""

    def command(*arguments: str | Path) -> Ended:
        monkeypatch.setattr(sys, "argv", ["dkge", *map(str, arguments)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        stdout, stderr = capsys.readouterr()
        return Ended(int(ended.value.code or 0), stdout, stderr)

    return command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source of a graph and of two nights."""
    path = tmp_path_factory.mktemp("learning")
    write_tsv(path / "base.tsv", dense())
    for number in (1, 2):
        write_changes(path / f"night{number}.changes", fresh_labels(number), [dense()[100 * number]])
    return path


@pytest.fixture(scope="module")
def trained(folder: Path) -> tuple[Path, Ended]:
    """A store with a trained model."""
    store = folder / "trained"
    api.ingest(store, folder / "base.tsv", valid=20, test=20)
    return store, dkge("train", store, *LEARN, "--json")


@pytest.fixture(scope="module")
def updated(folder: Path, trained: tuple[Path, Ended]) -> tuple[Path, Ended]:
    """Snapshot 1 with model 2, night 3 with model 4."""
    store = Path(shutil.copytree(trained[0], folder / "updated"))
    api.ingest(store, folder / "night1.changes")
    return store, dkge("update", store, "--json")


@pytest.fixture
def copy(trained: tuple[Path, Ended], tmp_path: Path) -> Path:
    return Path(shutil.copytree(trained[0], tmp_path / "store"))


def failed(ended: Ended, code: int) -> str:
    """What a command that failed said, the same in one line on stderr and in the JSON."""
    assert ended.code == code
    assert ended.stderr.startswith("dkge: ")
    assert ended.stderr.count("\n") == 1
    assert ended.json == {"error": ended.stderr.removeprefix("dkge: ").removesuffix("\n")}
    return str(ended.json["error"])


def without_time(report: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in report.items() if "seconds" not in key}


def test_help_imports_no_torch() -> None:
    script = (
        "import sys; sys.argv = ['dkge', '--help']\n"
        "from dkge_dist.cli.main import main\n"
        "try:\n    main()\nfinally:\n    print(sorted({'torch', 'numba', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    for command in ("train", "update", "nightly", "rollback", "gc", "evaluate", "answer", "export"):
        assert f"\n  {command} " in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


class TestTrain:
    def test_json(self, trained: tuple[Path, Ended]) -> None:
        store, ended = trained
        assert (ended.code, ended.stderr) == (0, "")
        report = ended.json
        assert set(report) >= TRAIN_KEYS
        assert (report["version"], report["epochs"], report["resumed"]) == (2, 2, False)
        assert report["triples_per_second"] > 0
        assert 0 < report["best_valid"] <= 1
        assert api.log(store)["versions"][1]["kind"] == "model"
        assert not list((store / "training").glob("*/last*"))

    def test_for_people(self, copy: Path, run: Run) -> None:
        ended = run("train", copy, *LEARN, "train.max_epochs=1", "seed=3")
        assert (ended.code, ended.stderr) == (0, "")
        assert ended.stdout.startswith("version 3 is a model of 'base': 60 entities, 4 relations, 8 numbers each\n")
        assert "best validation: mrr 0." in ended.stdout

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (["model.dims=8"], 2, "command line: no setting 'model.dims'; did you mean 'model.dim'?"),
            (["model.dim=0"], 2, "model.dim"),
            (["--preset", "none"], 2, "none"),
            (["--snapshot", "nobody"], 1, "no snapshot 'nobody'"),
            (["device=cuda:9"], 2, "device=cuda:9: this machine has "),
            (["online.retrain_when=sometimes"], 2, "online.retrain_when"),
        ],
    )
    def test_what_users_can_act_on(
        self, trained: tuple[Path, Ended], run: Run, arguments: list[str], code: int, message: str
    ) -> None:
        before = listing(trained[0] / "versions")
        assert message in failed(run("train", trained[0], *arguments, "--json"), code)
        assert listing(trained[0] / "versions") == before

    def test_no_store(self, tmp_path: Path, run: Run) -> None:
        for command in (["train"], ["update"], ["evaluate"], ["rollback", "1"], ["gc", "--keep", "1"]):
            where = [command[0], tmp_path / "absent", *command[1:], "--json"]
            assert f"{tmp_path}/absent: no store here yet" in failed(run(*where), 1)


LONG = [*LEARN, "train.max_epochs=20", "train.batch_size=40", "train.patience=0", "train.eval_every=5"]


@pytest.fixture(scope="module")
def undisturbed(folder: Path) -> Path:
    """A longer training that nobody disturbed."""
    store = folder / "undisturbed"
    api.ingest(store, folder / "base.tsv", valid=20, test=20)
    api.train(store, settings=LONG)
    return store


class TestStopped:
    @pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
    def test_leaves_a_checkpoint_and_goes_on_from_it(
        self, undisturbed: Path, folder: Path, tmp_path: Path, number: signal.Signals, run: Run
    ) -> None:
        store = tmp_path / "store"
        api.ingest(store, folder / "base.tsv", valid=20, test=20)
        command = subprocess.Popen(
            [DKGE, "train", str(store), *LONG, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        while command.poll() is None and not any(
            path.stat().st_size for path in store.glob("training/*/metrics.jsonl")
        ):
            time.sleep(0.01)
        command.send_signal(number)
        stdout, stderr = command.communicate(timeout=60)
        message = failed(Ended(command.returncode, stdout, stderr), 1)
        assert message.startswith("stopped in epoch ")
        assert "the same command goes on from here" in message
        assert Store.open(store).versions() == [1]
        (left,) = (store / "training").iterdir()
        assert list(left.glob("last*"))
        ended = run("train", store, *LONG, "--json")
        assert ended.code == 0
        assert ended.json["resumed"] is True
        assert ended.json["epochs"] == 20
        assert_same_vectors(vectors(store, 2), vectors(undisturbed, 2))
        found, expected = (without_time(api.evaluate(path)) for path in (store, undisturbed))
        assert found == expected
        assert_sound(store)


class TestEvaluate:
    def test_json(self, trained: tuple[Path, Ended], run: Run) -> None:
        ended = run("evaluate", trained[0], "--relations", "--categories", "--json")
        assert (ended.code, ended.stderr) == (0, "")
        report = ended.json
        assert set(report) >= EVALUATE_KEYS
        assert (report["triples"], report["version"], report["candidates"]) == (20, 2, 60)
        assert set(report["head"]) == set(report["tail"]) == METRICS
        for name in METRICS:
            assert report[name] == pytest.approx((report["head"][name] + report["tail"][name]) / 2)
        for tables in (report["relations"], list(report["categories"].values())):
            assert sum(line["triples"] for line in tables) == 20
            mean = sum(line["triples"] * line["mrr"] for line in tables) / 20
            assert mean == pytest.approx(report["mrr"])

    def test_protocols_and_splits(self, trained: tuple[Path, Ended], run: Run) -> None:
        paper = run("evaluate", trained[0], "--split", "valid", "--json").json
        filtered = run("evaluate", trained[0], "--split", "valid", "--protocol", "filtered", "--json").json
        assert paper["mrr"] == pytest.approx(trained[1].json["valid"]["mrr"])
        assert filtered["mr"] <= paper["mr"]
        assert run("evaluate", trained[0], "--split", "train", "--json").code == 2

    def test_for_people(self, trained: tuple[Path, Ended], run: Run) -> None:
        ended = run("evaluate", trained[0], "--categories", "--relations")
        assert (ended.code, ended.stderr) == (0, "")
        first, columns, *lines = ended.stdout.splitlines()
        assert first == "version 2 on 20 test triples of 'base' (paper protocol, 60 candidates)"
        assert columns.split() == ["triples", "mrr", "hits@1", "hits@3", "hits@10", "mr"]
        assert lines[0].split()[:2] == ["all", "20"]

    def test_as_of(self, updated: tuple[Path, Ended], trained: tuple[Path, Ended], run: Run) -> None:
        old = without_time(api.evaluate(trained[0]))
        for option in (["--as-of", "2"], ["--version", "3"], ["--as-of", "base"]):
            assert without_time(run("evaluate", updated[0], *option, "--json").json) == old
        for option in (["--as-of", "night1"], ["--as-of", "4"], []):
            assert run("evaluate", updated[0], *option, "--json").json["version"] == 4
        assert "there is no model at '1' yet" in failed(run("evaluate", updated[0], "--as-of", "1", "--json"), 1)
        assert "no snapshot 'x'" in failed(run("evaluate", updated[0], "--as-of", "x", "--json"), 1)

    def test_nothing_was_held_out(self, folder: Path, tmp_path: Path, run: Run) -> None:
        api.ingest(tmp_path / "store", folder / "base.tsv")
        assert run("train", tmp_path / "store", *LEARN, "train.max_epochs=1", "--json").code == 0
        message = failed(run("evaluate", tmp_path / "store", "--json"), 1)
        assert message == f"{tmp_path}/store: snapshot 'base' has no test triples; ingest with --test N"

    def test_all_of_it_leaked(self, tmp_path: Path, run: Run) -> None:
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


class TestAnswer:
    def test_json(self, trained: tuple[Path, Ended]) -> None:
        ended = dkge("answer", trained[0], "e1", "r1", "--top", "5", "--json")
        assert (ended.code, ended.stderr) == (0, "")
        report = ended.json
        assert (report["head"], report["relation"], report["version"]) == ("e1", "r1", 2)
        assert [set(answer) for answer in report["answers"]] == [{"entity", "score", "known"}] * 5
        scores = [answer["score"] for answer in report["answers"]]
        assert scores == sorted(scores)

    @pytest.mark.parametrize("side", ["tail", "head"])
    def test_everybody_is_ranked_and_what_is_known_is_marked(
        self, trained: tuple[Path, Ended], run: Run, side: str
    ) -> None:
        store = trained[0]
        asked = ["e1", "r1"] if side == "tail" else ["r1", "--tail", "e1"]
        answers = run("answer", store, *asked, "--top", "1000", "--json").json["answers"]
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
            assert answer["score"] == pytest.approx(float(np.abs(query - entities[answer["entity"]]).sum()), abs=1e-4)

    def test_known_in_whatever_split(self, trained: tuple[Path, Ended], run: Run) -> None:
        for split in (Split.VALID, Split.TEST):
            h, r, t = sorted(content(trained[0], "base")[split])[0]
            answers = run("answer", trained[0], h, r, "--top", "60", "--json").json["answers"]
            assert {"entity": t, "known": True}.items() <= next(a for a in answers if a["entity"] == t).items()

    def test_for_people(self, trained: tuple[Path, Ended], run: Run) -> None:
        ended = run("answer", trained[0], "r1", "--tail", "e1", "--top", "3")
        assert (ended.code, ended.stderr) == (0, "")
        first, columns, *answers = ended.stdout.splitlines()
        assert first == "?\tr1\te1"
        assert columns.split() == ["answer", "distance"]
        assert len(answers) == 3

    def test_many(self, trained: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
        batch = tmp_path / "questions.tsv"
        batch.write_text("e1\tr1\t?\n\n?\tr2\te3\r\ne1\tr1\t?\n")
        report = run("answer", trained[0], "--batch", batch, "--top", "4", "--json").json
        one, two, three = report["questions"]
        assert one == three
        assert (one["head"], two["tail"]) == ("e1", "e3")
        alone = run("answer", trained[0], "r2", "--tail", "e3", "--top", "4", "--json").json
        assert two["answers"] == alone["answers"]
        assert run("answer", trained[0], "--batch", batch, "--top", "2").stdout.startswith("e1\tr1\t?\n")

    @pytest.mark.parametrize(
        ("lines", "code", "message"),
        [
            ("e1\tr1\t?\n\ne1\tr1\n", 2, ", line 3: expected `head<TAB>relation<TAB>?` or "),
            ("?\tr1\t?\n", 2, ", line 1: expected "),
            ("e1\tr1\te2\n", 2, ", line 1: expected "),
            ("e1\tr1\t?\nnobody\tr1\t?\n", 1, ", line 2: no entity 'nobody'"),
            ("e1\tr1\t?\n?\tr11\te1\n", 1, ", line 2: no relation 'r11'; nearest: r1"),
            ("\n\n", 2, ": holds no question"),
            (b"\xff\xfe", 2, ": not UTF-8: "),
            (None, 1, ": No such file or directory"),
        ],
    )
    def test_errors_name_the_line(
        self, trained: tuple[Path, Ended], tmp_path: Path, run: Run, lines: str | bytes | None, code: int, message: str
    ) -> None:
        batch = tmp_path / "questions.tsv"
        if lines is not None:
            batch.write_bytes(lines.encode() if isinstance(lines, str) else lines)
        assert failed(run("answer", trained[0], "--batch", batch, "--json"), code).startswith(f"{batch}{message}")

    def test_unknown_names_suggest_near_ones(self, folder: Path, tmp_path: Path, run: Run) -> None:
        base = [*dense(), ("The Third Man", "r0", "e1"), ("Third Man Out", "r1", "e2"), ("The Third Man", "r1", "e5")]
        api.ingest(tmp_path / "store", write_tsv(tmp_path / "base.tsv", base))
        api.train(tmp_path / "store", settings=[*LEARN, "train.max_epochs=1"])
        message = failed(run("answer", tmp_path / "store", "the 3rd man", "r0", "--json"), 1)
        assert message.startswith("no entity 'the 3rd man'; nearest: The Third Man, Third Man Out")
        assert failed(run("answer", tmp_path / "store", "zzzzzzzz", "r0", "--json"), 1) == "no entity 'zzzzzzzz'"

    def test_labels_with_odd_line_ends(self, tmp_path: Path, run: Run) -> None:
        """A line of a batch ends where a line of a source does: at a newline alone."""
        odd = "a\u2028b\x0b\x0c\x1c\x85d"
        api.ingest(
            tmp_path / "store", write_tsv(tmp_path / "base.tsv", [*dense(), (odd, "r0", "e1"), (odd, "r1", "e2")])
        )
        api.train(tmp_path / "store", settings=[*LEARN, "train.max_epochs=1"])
        batch = tmp_path / "questions.tsv"
        batch.write_text(f"{odd}\tr0\t?\ne1\tr0\n", newline="")
        assert f"{batch}, line 2: expected" in failed(run("answer", tmp_path / "store", "--batch", batch, "--json"), 2)
        batch.write_text(f"{odd}\tr0\t?\n", newline="")
        assert run("answer", tmp_path / "store", "--batch", batch, "--json").json["questions"][0]["head"] == odd

    @pytest.mark.parametrize(
        "arguments",
        [[], ["e1"], ["e1", "r1", "e2"], ["e1", "r1", "--tail", "e2"], ["--tail", "e2"], ["e1", "r1", "--batch", "x"]],
    )
    def test_wrong_usage(self, trained: tuple[Path, Ended], run: Run, arguments: list[str]) -> None:
        assert "ask with HEAD RELATION" in failed(run("answer", trained[0], *arguments, "--json"), 2)

    def test_as_of(self, updated: tuple[Path, Ended], run: Run) -> None:
        now = run("answer", updated[0], "e1", "r0", "--top", "99", "--json").json
        assert (now["version"], len(now["answers"])) == (4, 62)
        assert {"new1a", "new1b"} <= {answer["entity"] for answer in now["answers"]}
        old = run("answer", updated[0], "e1", "r0", "--top", "99", "--as-of", "2", "--json").json
        assert (old["version"], len(old["answers"])) == (2, 60)
        assert failed(run("answer", updated[0], "new1a", "r1", "--as-of", "2", "--json"), 1).startswith(
            "no entity 'new1a'"
        )

    def test_who_has_left(self, copy: Path, tmp_path: Path, run: Run) -> None:
        gone = [triple for triple in everything(copy, "base") if "e7" in triple or triple[1] == "r3"]
        night = write_changes(tmp_path / "gone.changes", [], gone)
        api.ingest(copy, night, force=True)
        api.update(copy)
        left = "is not in snapshot 'gone' (it was in another one)"
        assert failed(run("answer", copy, "e7", "r1", "--json"), 1) == f"'e7' {left}"
        assert failed(run("answer", copy, "e1", "r3", "--json"), 1) == f"'r3' {left}"
        answers = run("answer", copy, "e1", "r1", "--top", "99", "--json").json["answers"]
        assert "e7" not in {answer["entity"] for answer in answers}
        assert len(answers) == 59
        assert run("answer", copy, "e7", "r3", "--as-of", "2", "--json").code == 0


class TestExport:
    @pytest.fixture(params=["joint", "knowledge", "context"])
    def what(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def expected(self, store: Path, what: str) -> dict[str, tuple[list[str], np.ndarray]]:
        opened = Store.open(store)
        snapshot = opened.snapshot(opened.current_snapshot())
        found = {}
        for kind, names, flags in zip(
            ("entities", "relations"),
            opened.dictionaries(opened.head()),
            (snapshot.entities_alive, snapshot.relations_alive),
            strict=True,
        ):
            rows = np.flatnonzero(flags)
            found[kind] = (names.labels(rows), vectors(store, 4)[f"{kind}/{what}"][rows])
        return found

    @pytest.mark.parametrize("format", ["parquet", "npy", "safetensors", "zarr"])
    def test_read_back(self, updated: tuple[Path, Ended], tmp_path: Path, run: Run, format: str, what: str) -> None:
        out = tmp_path / "new" / "out"
        ended = run("export", updated[0], out, "--format", format, "--what", what, "--json")
        assert (ended.code, ended.stderr) == (0, "")
        assert (ended.json["entities"], ended.json["relations"], ended.json["dim"]) == (62, 5, 8)
        assert sorted(path.name for path in out.iterdir()) == ended.json["files"]
        assert list(out.parent.iterdir()) == [out]
        for kind, (labels, values) in self.expected(updated[0], what).items():
            if format == "parquet":
                table = pq.read_table(out / f"{kind}.parquet")
                found_labels = table["label"].to_pylist()
                found = np.array(table["vector"].to_pylist(), np.float32)
            else:
                found_labels = json.loads((out / f"{kind}.json").read_text(encoding="utf-8"))
                if format == "npy":
                    found = np.load(out / f"{kind}.npy", allow_pickle=False)
                elif format == "safetensors":
                    found = safetensors.numpy.load_file(out / "vectors.safetensors")[kind]
                else:
                    found = zarr.open_array(out / kind, mode="r")[:]
            assert found_labels == labels
            assert found.dtype == np.float32
            assert np.array_equal(found, values)

    def test_blocks_of_a_larger_zarr(self, tmp_path: Path) -> None:
        from dkge_dist.store.export import Vectors, write_vectors

        values = np.random.default_rng(0).random((1000, 3), np.float32)
        labels = [f"a\tb\nc{i}é" for i in range(1000)]
        write_vectors(tmp_path / "out", "zarr", [Vectors("entities", np.arange(1000), labels, values)])
        assert np.array_equal(zarr.open_array(tmp_path / "out" / "entities", mode="r")[:], values)
        assert json.loads((tmp_path / "out" / "entities.json").read_text(encoding="utf-8")) == labels

    def test_for_people_and_as_of(self, updated: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
        ended = run("export", updated[0], tmp_path / "out", "--version", "2")
        assert (ended.code, ended.stderr) == (0, "")
        assert ended.stdout == f"{tmp_path}/out: joint vectors of entities 60, relations 4, dim 8\n"

    def test_what_is_there_stays(self, updated: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
        (tmp_path / "kept").write_text("x")
        for out in (tmp_path, tmp_path / "kept"):
            message = failed(run("export", updated[0], out, "--json"), 2)
            assert message == f"{out}: exists already; name a new or empty folder"
        assert [path.name for path in tmp_path.iterdir()] == ["kept"]
        assert run("export", updated[0], tmp_path / "x", "--format", "csv", "--json").code == 2


class TestUpdate:
    def test_json(self, updated: tuple[Path, Ended]) -> None:
        store, ended = updated
        assert (ended.code, ended.stderr) == (0, "")
        report = ended.json
        assert set(report) >= UPDATE_KEYS
        assert (report["version"], report["parent"], report["added"], report["deleted"]) == (4, 2, 5, 1)
        assert (report["emerging_entities"], report["emerging_relations"]) == (2, 1)
        logged = api.log(store)["versions"][-1]
        for key in ("added", "affected_entities", "epochs", "shards_touched"):
            assert logged[key] == report[key]

    def test_a_plan_does_nothing(self, copy: Path, folder: Path, run: Run) -> None:
        api.ingest(copy, folder / "night1.changes")
        before = listing(copy)
        ended = run("update", copy, "--plan", "--shards", "3", "--json")
        assert (ended.code, ended.stderr) == (0, "")
        assert ended.json["shards_total"] == 3
        assert "would bring the model from 'base' to 'night1': +5 -1" in run("update", copy, "--plan").stdout
        assert listing(copy) == before

    def test_nothing_to_do(self, updated: tuple[Path, Ended], run: Run) -> None:
        before = listing(updated[0])
        ended = run("update", updated[0], "--json")
        assert (ended.code, ended.json["version"], ended.json["unchanged"]) == (0, 4, True)
        assert set(ended.json) >= UPDATE_KEYS
        assert run("update", updated[0]).stdout == "nothing to do: version 4 was learnt from 'night1'\n"
        assert listing(updated[0]) == before

    def test_back_in_time(self, updated: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
        """To an earlier snapshot: what came later is removed again."""
        store = Path(shutil.copytree(updated[0], tmp_path / "store"))
        report = run("update", store, "--to", "base", "--json").json
        assert (report["added"], report["deleted"], report["removed_entities"]) == (1, 5, 2)
        assert_sound(store)

    @pytest.mark.parametrize(
        ("arguments", "code", "message"),
        [
            (["--to", "nobody"], 1, "no snapshot 'nobody'"),
            (["--since", "nobody"], 1, "no snapshot 'nobody'"),
            (["model.dim=9"], 2, "the model was learnt with"),
            (["online.max_epoch=9"], 2, "did you mean 'online.max_epochs'?"),
        ],
    )
    def test_what_users_can_act_on(
        self, updated: tuple[Path, Ended], run: Run, arguments: list[str], code: int, message: str
    ) -> None:
        assert message in failed(run("update", updated[0], *arguments, "--json"), code)

    def test_no_model_yet(self, folder: Path, tmp_path: Path, run: Run) -> None:
        api.ingest(tmp_path / "store", folder / "base.tsv")
        for command in (["update"], ["evaluate"], ["answer", "e1", "r1"], ["export", tmp_path / "out"]):
            where = [command[0], tmp_path / "store", *command[1:], "--json"]
            assert "there is no model yet; `dkge train" in failed(run(*where), 1)


class TestNightly:
    def test_twice_does_nothing_twice(self, copy: Path, folder: Path, run: Run) -> None:
        first = run("nightly", copy, folder / "night1.changes", "--json")
        assert (first.code, first.stderr) == (0, "")
        report = first.json
        assert (report["version"], report["decision"], report["unchanged"]) == (4, "updated online", False)
        assert set(report["update"]) >= UPDATE_KEYS
        assert set(report["evaluate"]) == {"valid", "test"}
        assert all(set(found) >= EVALUATE_KEYS for found in report["evaluate"].values())
        before = listing(copy)
        again = run("nightly", copy, folder / "night1.changes", "--json")
        assert (again.code, again.json["unchanged"], again.json["version"]) == (0, True, 4)
        assert listing(copy) == before
        shown = run("nightly", copy, folder / "night1.changes")
        assert (shown.code, shown.stderr) == (0, "")
        assert "decision: nothing new to learn" in shown.stdout
        assert listing(copy) == before

    def test_for_people(self, copy: Path, folder: Path, run: Run) -> None:
        ended = run("nightly", copy, folder / "night1.changes")
        assert (ended.code, ended.stderr) == (0, "")
        assert "decision: updated online" in ended.stdout
        assert "version 4 brings the model from 'base' to 'night1': +5 -1" in ended.stdout

    def test_the_first_night(self, folder: Path, tmp_path: Path, run: Run) -> None:
        words = [*LEARN, "--valid", "20", "--test", "20"]
        ended = run("nightly", tmp_path / "store", folder / "base.tsv", *words, "--json")
        assert ended.code == 0
        assert (ended.json["decision"], ended.json["version"]) == ("there was no model yet", 2)
        assert set(ended.json["train"]) >= TRAIN_KEYS
        assert run("nightly", tmp_path / "store", folder / "night1.changes", "--json").json["version"] == 4

    def test_half_a_night_is_taken_up(self, copy: Path, folder: Path, run: Run) -> None:
        api.ingest(copy, folder / "night1.changes")
        report = run("nightly", copy, folder / "night1.changes", "--json").json
        assert report["ingest"]["unchanged"] is True
        assert (report["decision"], report["version"]) == ("updated online", 4)

    def test_onto_and_since(self, copy: Path, folder: Path, run: Run) -> None:
        """A night that is to follow another one is refused; several nights are learnt at once from an earlier model."""
        night = [folder / "night1.changes", "--onto", "base", "--json"]
        assert run("nightly", copy, *night).json["version"] == 4
        before = listing(copy)
        message = failed(run("nightly", copy, folder / "night2.changes", "--onto", "base", "--json"), 1)
        assert "is to follow snapshot 'base' (version 1), but snapshot 'night1' (version 3) is current" in message
        again = run("nightly", copy, *night)
        assert (again.code, again.json["unchanged"]) == (0, True)
        assert listing(copy) == before
        assert "no model" in failed(run("nightly", copy, folder / "night2.changes", "--since", "1", "--json"), 1)
        both = run("nightly", copy, folder / "night2.changes", "--onto", "night1", "--since", "2", "--json")
        assert (both.code, both.json["decision"], both.json["version"]) == (0, "updated online", 6)
        assert (both.json["update"]["from"], both.json["update"]["parent"]) == ("base", 2)
        assert both.json["update"]["added"] > 5
        assert run("nightly", copy, folder / "night2.changes", "--since", "2", "--json").json["unchanged"] is True
        assert_sound(copy)

    def test_every_so_many_nights(self, copy: Path, folder: Path, run: Run) -> None:
        words = ["online.retrain_when=every 2 nights"]
        first = run("nightly", copy, folder / "night1.changes", *words, "--json").json
        assert first["decision"] == "updated online"
        second = run("nightly", copy, folder / "night2.changes", "--json")
        assert second.code == 0
        assert second.json["decision"] == "every 2 nights: this is night 2 since the last training"
        assert set(second.json["train"]) >= TRAIN_KEYS
        assert "update" not in second.json
        last = api.log(copy)["versions"][-1]
        assert (last["why"], last["origin"]) == (second.json["decision"], "scratch")
        assert run("log", copy).stdout.splitlines()[-1].endswith(second.json["decision"])
        night = write_changes(folder / "night3.changes", fresh_labels(3), [])
        assert run("nightly", copy, night, "--json").json["decision"] == "updated online"

    @pytest.fixture
    def drifting(self, tmp_path: Path) -> tuple[Path, Path, float]:
        """A model of a ring, and a night that turns the graph into one that nobody can learn; the model's MRR."""
        ring = [(f"e{i}", f"r{k}", f"e{(i + k + 1) % 40}") for i in range(40) for k in range(4)]
        store = tmp_path / "store"
        settings = [*LEARN, "model.dim=16", "train.max_epochs=40", "train.patience=0", "online.max_epochs=0"]
        api.ingest(store, write_tsv(tmp_path / "base.tsv", ring), valid=15, test=15)
        learnt = api.train(store, settings=settings)
        return store, write_tsv(tmp_path / "other.tsv", dense(160, seed=4, entities=40)), learnt["valid"]["mrr"]

    @pytest.mark.parametrize(("policy", "retrains"), [("mrr_drop > 10%", True), ("mrr_drop > 99%", False)])
    def test_drift(self, drifting: tuple[Path, Path, float], run: Run, policy: str, retrains: bool) -> None:
        """Validation falls, and the policy decides."""
        store, other, before = drifting
        words = ["--force", "--valid", "15", "--test", "15", f"online.retrain_when={policy}"]
        report = run("nightly", store, other, *words, "--json").json
        drop = 100 * (1 - report["update"]["valid"]["mrr"] / before)
        assert 10 < drop < 99
        assert ("train" in report) is retrains
        last = api.log(store)["versions"][-1]
        if retrains:
            assert report["decision"] == f"{policy}: validation MRR fell by {drop:.1f}%"
            assert last["why"] == report["decision"]
            assert report["version"] == last["version"] == 5
        else:
            assert report["decision"] == "updated online"
            assert last["origin"] == "online"

    def test_a_retraining_that_was_stopped_is_taken_up(self, drifting: tuple[Path, Path, float]) -> None:
        store, other, _ = drifting
        words: dict[str, Any] = {
            "force": True, "valid": 15, "test": 15, "settings": ["online.retrain_when=mrr_drop > 10%"]
        }  # fmt: skip
        with pytest.raises(DkgeError, match="the same command goes on from here"):
            api.nightly(store, other, **words, stop=lambda: True)
        report = api.nightly(store, other, **words)
        assert report["train"]["resumed"] is True
        assert report["decision"].startswith("mrr_drop > 10%")

    def test_a_bad_source_changes_nothing(self, copy: Path, tmp_path: Path, run: Run) -> None:
        before = listing(copy)
        source = tmp_path / "bad.changes"
        source.write_text("+\ta\tb\n")
        assert f"{source}:1: " in failed(run("nightly", copy, source, "--json"), 1)
        assert "no such file" in failed(run("nightly", copy, tmp_path / "absent", "--json"), 1)
        assert listing(copy) == before


class TestHistory:
    def test_rollback(self, updated: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
        store = Path(shutil.copytree(updated[0], tmp_path / "store"))
        ended = run("rollback", store, "2", "--json")
        assert (ended.code, ended.json["version"], ended.json["model"], ended.json["snapshot"]) == (0, 5, 2, "base")
        shown = run("rollback", store, "1")
        assert shown.stdout == "version 6: snapshot 'base' and no model are in force again\n"
        assert failed(run("rollback", store, "77", "--json"), 1) == f"{store}: no version 77"
        assert run("rollback", store, "x", "--json").code == 2
        assert run("log", store).code == 0

    def test_gc(self, updated: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
        store = Path(shutil.copytree(updated[0], tmp_path / "store"))
        dry = run("gc", store, "--keep", "1", "--dry-run", "--grace-hours", "0")
        assert (dry.code, dry.stderr) == (0, "")
        assert dry.stdout.startswith("versions cleared: 2\n  would free ")
        ended = run("gc", store, "--keep", "1", "--grace-hours", "0", "--json")
        assert set(ended.json) == {"version", "cleared_versions", "parts", "bytes", "folders", "dry_run"}
        assert ended.json["cleared_versions"] == [2]
        assert "version 2 was cleared away by `dkge gc`" in failed(run("evaluate", store, "--as-of", "2", "--json"), 1)
        assert run("check", store, "--json").json["ok"] is True
        assert run("gc", store, "--keep", "0", "--json").code == 2
        assert run("log", store).code == 0
        assert head(store).kind == "gc"
