"""`dkge train`, `update` and `nightly`: what they report and print, how they fail, and what a stop leaves."""

from __future__ import annotations

import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from tests.cli.running import (
    DKGE,
    EVALUATE_KEYS,
    FIDELITY_KEYS,
    TRAIN_KEYS,
    UPDATE_KEYS,
    Ended,
    Run,
    error_of,
    without_progress,
    without_time,
)
from tests.graphs import (
    LEARN,
    assert_same_vectors,
    assert_sound,
    fresh_labels,
    listing,
    vectors,
    write_changes,
)
from tests.jobs.building import GENTLE, RING, SPOILT, ring_night, ring_store
from tests.models import model_of


@pytest.fixture(scope="module")
def learnt_ring(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ring_store(tmp_path_factory.mktemp("ring"))


@pytest.fixture
def drifting(learnt_ring: Path, tmp_path: Path) -> Path:
    """A store whose validation triples are enough for drift to be told."""
    return Path(shutil.copytree(learnt_ring, tmp_path / "ring"))


class TestTrain:
    def test_report_has_the_promised_keys(self, trained: tuple[Path, Ended]) -> None:
        store, ended = trained
        assert (ended.code, ended.stderr) == (0, "")
        report = ended.json
        assert set(report) >= TRAIN_KEYS
        assert (report["version"], report["epochs"], report["resumed"]) == (2, 2, False)
        assert report["triples_per_second"] > 0
        assert 0 < report["best_valid"] <= 1
        assert api.log(store)["versions"][1]["kind"] == "model"
        assert not list((store / "training").glob("*/last*"))

    def test_report_as_text(self, copy: Path, run: Run) -> None:
        ended = run("train", copy, *LEARN, "train.max_epochs=1", "seed=3")
        assert (ended.code, ended.stderr) == (0, "")
        assert ended.stdout.startswith("version 3 is a model of 'base': 60 entities, 4 relations, dimension 8\n")
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
    def test_error_names_what_is_wrong(
        self, trained: tuple[Path, Ended], run: Run, arguments: list[str], code: int, message: str
    ) -> None:
        before = listing(trained[0] / "versions")
        assert message in error_of(run("train", trained[0], *arguments, "--json"), code)
        assert listing(trained[0] / "versions") == before

    def test_missing_store_is_an_error_of_every_command(self, tmp_path: Path, run: Run) -> None:
        for command in (["train"], ["update"], ["evaluate"], ["rollback", "1"], ["gc", "--keep", "1"]):
            where = [command[0], tmp_path / "absent", *command[1:], "--json"]
            assert f"{tmp_path}/absent: no store here yet" in error_of(run(*where), 1)

    def test_training_that_is_worse_is_told(self, drifting: Path, run: Run) -> None:
        ended = run("train", drifting, *RING, "train.max_epochs=1", "--json")
        assert (ended.code, model_of(drifting).version) == (0, 3)
        assert ended.json["warning"].startswith("version 3 is measurably worse than version 2: validation MRR 0.")
        assert ended.json["warning"].endswith(f"; `dkge rollback {drifting} 2` goes back")
        assert ended.stderr == f"dkge: {ended.json['warning']}\n"


LONG = [*LEARN, "train.max_epochs=20", "train.batch_size=40", "train.patience=0", "train.eval_every=5"]


@pytest.fixture(scope="module")
def uninterrupted(folder: Path) -> Path:
    """A longer training that ran to its end."""
    store = folder / "uninterrupted"
    api.ingest(store, folder / "base.tsv", valid=20, test=20)
    api.train(store, settings=LONG)
    return store


class TestStopped:
    @pytest.mark.parametrize(
        "number", [signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)], ids=["SIGINT", "SIGTERM"]
    )
    def test_signal_leaves_a_checkpoint_that_is_resumed(
        self, uninterrupted: Path, folder: Path, tmp_path: Path, number: signal.Signals, run: Run
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
        message = error_of(Ended(command.returncode, stdout, without_progress(stderr)), 1)
        assert message.startswith("stopped in epoch ")
        assert "the same command goes on from here" in message
        assert Store.open(store).versions() == [1]
        (left,) = (store / "training").iterdir()
        assert list(left.glob("last*"))
        ended = run("train", store, *LONG, "--json")
        assert ended.code == 0
        assert ended.json["resumed"] is True
        assert ended.json["epochs"] == 20
        assert_same_vectors(vectors(store, 2), vectors(uninterrupted, 2))
        found, expected = (without_time(api.evaluate(path)) for path in (store, uninterrupted))
        assert found == expected
        assert_sound(store)


class TestUpdate:
    def test_report_has_the_promised_keys(self, updated: tuple[Path, Ended]) -> None:
        store, ended = updated
        assert (ended.code, ended.stderr) == (0, "")
        report = ended.json
        assert set(report) >= UPDATE_KEYS
        assert (report["version"], report["parent"], report["added"], report["deleted"]) == (4, 2, 5, 1)
        assert (report["emerging_entities"], report["emerging_relations"]) == (2, 1)
        logged = api.log(store)["versions"][-1]
        for key in ("added", "affected_entities", "epochs", "shards_touched"):
            assert logged[key] == report[key]

    def test_report_tells_what_the_night_learnt(self, updated: tuple[Path, Ended], run: Run) -> None:
        """Sampled; kept with the version, too."""
        store, ended = updated
        found = ended.json["fidelity"]
        assert set(found) == {*FIDELITY_KEYS, "sampled"}
        assert found["sampled"] is True
        assert found["added_existing"]["triples"] + found["added_emerging"]["triples"] == ended.json["added"]
        assert model_of(store, 4).model.record["fidelity"] == found

    def test_text_tells_what_the_night_learnt(self, copy: Path, folder: Path, run: Run) -> None:
        api.ingest(copy, folder / "night1.changes")
        shown = run("update", copy).stdout
        assert "added emerging" in shown and "(sampled: `dkge fidelity` is exact)" in shown

    def test_plan_changes_nothing(self, copy: Path, folder: Path, run: Run) -> None:
        api.ingest(copy, folder / "night1.changes")
        before = listing(copy)
        ended = run("update", copy, "--plan", "--shards", "3", "--json")
        assert (ended.code, ended.stderr) == (0, "")
        assert ended.json["shards_total"] == 3
        assert "would bring the model from 'base' to 'night1': +5 -1" in run("update", copy, "--plan").stdout
        assert listing(copy) == before

    def test_update_twice_changes_nothing(self, updated: tuple[Path, Ended], run: Run) -> None:
        before = listing(updated[0])
        ended = run("update", updated[0], "--json")
        assert (ended.code, ended.json["version"], ended.json["unchanged"]) == (0, 4, True)
        assert set(ended.json) >= UPDATE_KEYS
        assert run("update", updated[0]).stdout == "nothing to do: version 4 was learnt from 'night1'\n"
        assert listing(updated[0]) == before

    def test_update_to_an_earlier_snapshot(self, updated: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
        """What the later snapshot added is removed again."""
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
    def test_error_names_what_is_wrong(
        self, updated: tuple[Path, Ended], run: Run, arguments: list[str], code: int, message: str
    ) -> None:
        assert message in error_of(run("update", updated[0], *arguments, "--json"), code)

    def test_missing_model_is_an_error(self, folder: Path, tmp_path: Path, run: Run) -> None:
        api.ingest(tmp_path / "store", folder / "base.tsv")
        for command in (["update"], ["evaluate"], ["answer", "e1", "r1"], ["export", tmp_path / "out"]):
            where = [command[0], tmp_path / "store", *command[1:], "--json"]
            assert "there is no model yet; `dkge train" in error_of(run(*where), 1)


class TestNightly:
    def test_nightly_is_idempotent(self, copy: Path, folder: Path, run: Run) -> None:
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

    def test_report_as_text(self, copy: Path, folder: Path, run: Run) -> None:
        ended = run("nightly", copy, folder / "night1.changes")
        assert (ended.code, ended.stderr) == (0, "")
        assert "decision: updated online" in ended.stdout
        assert "version 4 brings the model from 'base' to 'night1': +5 -1" in ended.stdout

    def test_first_night_trains_from_scratch(self, folder: Path, tmp_path: Path, run: Run) -> None:
        words = [*LEARN, "--valid", "20", "--test", "20"]
        ended = run("nightly", tmp_path / "store", folder / "base.tsv", *words, "--json")
        assert ended.code == 0
        assert (ended.json["decision"], ended.json["version"]) == ("there was no model yet", 2)
        assert set(ended.json["train"]) >= TRAIN_KEYS
        assert run("nightly", tmp_path / "store", folder / "night1.changes", "--json").json["version"] == 4

    def test_ingested_night_is_only_updated(self, copy: Path, folder: Path, run: Run) -> None:
        api.ingest(copy, folder / "night1.changes")
        report = run("nightly", copy, folder / "night1.changes", "--json").json
        assert report["ingest"]["unchanged"] is True
        assert (report["decision"], report["version"]) == ("updated online", 4)

    def test_onto_is_checked_and_since_learns_several_nights(self, copy: Path, folder: Path, run: Run) -> None:
        """--onto refuses a night that follows another snapshot; --since learns several nights from an earlier model."""
        night = [folder / "night1.changes", "--onto", "base", "--json"]
        assert run("nightly", copy, *night).json["version"] == 4
        before = listing(copy)
        message = error_of(run("nightly", copy, folder / "night2.changes", "--onto", "base", "--json"), 1)
        assert "is to follow snapshot 'base' (version 1), but snapshot 'night1' (version 3) is current" in message
        again = run("nightly", copy, *night)
        assert (again.code, again.json["unchanged"]) == (0, True)
        assert listing(copy) == before
        assert "no model" in error_of(run("nightly", copy, folder / "night2.changes", "--since", "1", "--json"), 1)
        both = run("nightly", copy, folder / "night2.changes", "--onto", "night1", "--since", "2", "--json")
        assert (both.code, both.json["decision"], both.json["version"]) == (0, "updated online", 6)
        assert (both.json["update"]["from"], both.json["update"]["parent"]) == ("base", 2)
        assert both.json["update"]["added"] > 5
        assert run("nightly", copy, folder / "night2.changes", "--since", "2", "--json").json["unchanged"] is True
        assert_sound(copy)

    def test_policy_retrains_every_so_many_nights(self, copy: Path, folder: Path, run: Run) -> None:
        words = ["online.retrain_when=every 2 nights"]
        first = run("nightly", copy, folder / "night1.changes", *words, "--json").json
        assert first["decision"] == "updated online"
        second = run("nightly", copy, folder / "night2.changes", "--json")
        assert second.code == 0
        assert second.json["decision"] == "every 2 nights: this is night 2 since the last training"
        assert set(second.json["train"]) >= TRAIN_KEYS
        last = api.log(copy)["versions"][-1]
        assert (last["why"], last["origin"]) == (second.json["decision"], "scratch")
        reason = f"version {last['version']} was trained from scratch: {last['why']}"
        assert reason in run("log", copy).stdout.splitlines()
        night = write_changes(folder / "night3.changes", fresh_labels(3), [])
        assert run("nightly", copy, night, "--json").json["decision"] == "updated online"

    def test_drift_is_told_with_the_command_to_run(self, drifting: Path, tmp_path: Path, run: Run) -> None:
        """On the second night, in the JSON and on stderr; nothing is trained."""
        first = run("nightly", drifting, ring_night(tmp_path, 1), *SPOILT, "--json")
        assert (first.code, first.stderr, first.json["decision"]) == (0, "", "updated online")
        second = run("nightly", drifting, ring_night(tmp_path, 2), "--json")
        assert (second.code, second.json["version"]) == (0, 6)
        why = second.json["drift"]["due"]
        assert why.startswith("mrr_drop > 3%: validation MRR fell by ")
        assert second.stderr == f"dkge: {why}; `dkge train {drifting}` trains from scratch\n"
        assert second.json["decision"] == f"updated online; training from scratch is due: {why}"
        shown = run("nightly", drifting, tmp_path / "n2.changes")
        assert (shown.code, shown.stderr) == (0, second.stderr)
        assert "decision: nothing new to learn; training from scratch is due: mrr_drop > 3%" in shown.stdout
        assert "  since the training of version 2: validation MRR -" in shown.stdout
        trained = run("nightly", drifting, tmp_path / "n2.changes", "online.on_drift=train", "--json")
        assert (trained.code, trained.stderr, trained.json["version"]) == (0, "", 7)
        assert set(trained.json["train"]) >= TRAIN_KEYS
        assert run("log", drifting).stdout.splitlines()[-1].endswith(trained.json["decision"])

    def test_training_that_is_not_promoted_is_reported(self, drifting: Path, tmp_path: Path, run: Run) -> None:
        words = [*GENTLE, "online.retrain_when=every 1 nights", "train.max_epochs=1"]
        ended = run("nightly", drifting, ring_night(tmp_path, 1), *words)
        assert ended.code == 0
        assert "version 4 stays current" in ended.stdout
        assert "version 5 is a model of 'n1'" in ended.stdout
        assert ended.stderr.startswith("dkge: version 5 was trained from scratch and does not replace version 4")
        assert ended.stderr.endswith(f"; `dkge rollback {drifting} 5` makes it current\n")
        assert "is not promoted: validation MRR" in run("log", drifting).stdout.splitlines()[-1]
        assert run("rollback", drifting, "5", "--json").json["model"] == 5

    def test_bad_source_changes_nothing(self, copy: Path, tmp_path: Path, run: Run) -> None:
        before = listing(copy)
        source = tmp_path / "bad.changes"
        source.write_text("+\ta\tb\n")
        assert f"{source}:1: " in error_of(run("nightly", copy, source, "--json"), 1)
        assert "no such file" in error_of(run("nightly", copy, tmp_path / "absent", "--json"), 1)
        assert listing(copy) == before
