"""A training as a job: it becomes a version, goes on after a stop, and logs its metrics."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import numpy as np
import pytest

from dkge_dist.learn.loop import StoppedError
from dkge_dist.records import Quality
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import TRAINED, DkgeError, Split, UsageError
from tests.graphs import assert_sound, head, movies, write_tsv
from tests.jobs.building import assert_joint_is_fresh
from tests.jobs.reads import counted_reads
from tests.models import assert_same_bits, history_of, model_of, vectors_of

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = [
    "model.dim=6", "context.cap=5", "train.batch_size=30", "train.negatives=8", "train.max_epochs=3",
    "train.eval_every=1", "train.patience=0",
]  # fmt: skip


@pytest.fixture
def graph(tmp_path: Path) -> Path:
    """A store with a snapshot and no model."""
    api.ingest(tmp_path / "store", write_tsv(tmp_path / "base.tsv", movies(100)), name="first", valid=8, test=8)
    return tmp_path / "store"


def stopped_after(batches: int, graph: Path, settings: list[str]) -> None:
    left = iter(range(batches - 1, -1, -1))
    with pytest.raises(StoppedError, match=str(graph / "training")):
        api.train(graph, settings=settings, stop=lambda: next(left) == 0)


def test_a_model_becomes_a_version_also_after_a_stop_and_another_night(graph: Path) -> None:
    first = api.train(graph, settings=SMALL)
    assert (first["version"], first["resumed"], first["epochs"], first["snapshot"]) == (2, False, 3, "first")
    assert list((graph / "training").iterdir()) == []
    before, evidence = vectors_of(graph), model_of(graph).model.evidence
    assert evidence is not None and first["evidence_fitted_on"] == "valid"
    stopped_after(6, graph, SMALL)
    assert head(graph).version == 2
    api.ingest(graph, write_tsv(graph.parent / "next.tsv", movies(110)), name="second")
    again = api.train(graph, snapshot="first", settings=[*SMALL, "threads=1", "train.checkpoint_seconds=1"])
    assert (again["version"], again["resumed"], again["snapshot"]) == (4, True, "first")
    assert_same_bits(before, vectors_of(graph))
    manifest = model_of(graph)
    assert manifest.model.evidence == evidence, "the very same part, by its checksum"
    assert (manifest.model.snapshot, manifest.current.snapshot) == (1, 3)
    assert [line["epoch"] for line in history_of(graph)] == [1, 2, 3]
    assert manifest.model.record.valid == again["valid"]
    assert_sound(graph)


def test_without_validation_evidence_is_fitted_on_train_and_the_report_says_so(tmp_path: Path) -> None:
    api.ingest(tmp_path / "store", write_tsv(tmp_path / "base.tsv", movies(100)))
    report = api.train(tmp_path / "store", settings=SMALL)
    assert (report["evidence_fitted_on"], report["valid"]) == ("train", {})
    assert model_of(tmp_path / "store").model.record["evidence_fitted_on"] == "train"


def test_without_evidence_none_is_kept(graph: Path) -> None:
    report = api.train(graph, settings=[*SMALL, "evidence=false"])
    assert model_of(graph).model.evidence is None
    assert "evidence_fitted_on" not in report
    found = api.evaluate(graph)
    assert found["evidence"] is False
    assert all(found["vectors"][name] == found[name] for name in Quality.METRICS)
    with pytest.raises(UsageError, match="learnt without"):
        api.answer(graph, "title1", "actor", why=True)


def test_other_settings_and_fresh_ones_start_anew(graph: Path) -> None:
    stopped_after(1, graph, SMALL)
    assert not api.train(graph, settings=[*SMALL, "seed=9"])["resumed"]
    assert not api.train(graph, settings=SMALL, fresh=True)["resumed"]
    stopped_after(1, graph, SMALL)
    assert api.train(graph, settings=SMALL)["resumed"]


def test_the_report_tells_what_was_learnt(graph: Path) -> None:
    heard: list[tuple[float, str]] = []
    report = api.train(graph, settings=[*SMALL, "threads=1"], progress=lambda *said: heard.append(said))
    assert (report["origin"], report["preset"], report["threads"], report["device"]) == ("scratch", "default", 1, "cpu")
    assert report["best_valid"] == report["valid"]["hits@10"] == model_of(graph).model.record.valid["hits@10"]
    assert report["triples_per_second"] > 0
    snapshot = Store.open(graph).snapshot(Store.open(graph).find_snapshot("first"))
    assert report["entities"] == snapshot.alive_entities.shape[0]
    assert (report["relations"], report["dim"]) == (2, 6)
    assert report["bytes_written"] > 0
    assert heard[-1] == (1.0, "writing the model")
    assert_joint_is_fresh(graph)


def test_the_best_validation_is_that_of_the_metric_asked_for(graph: Path) -> None:
    report = api.train(graph, settings=[*SMALL, "train.early_stopping_metric=mrr"])
    assert report["best_valid"] == report["valid"]["mrr"]


def test_it_opens_the_store_once_and_reads_no_part_twice(graph: Path) -> None:
    with counted_reads(graph) as reads:
        api.train(graph, settings=SMALL)
    assert reads.stores == 1
    assert set(reads.parts.values()) == {1}


def test_metrics_of_every_epoch_are_logged_while_it_runs(graph: Path) -> None:
    """One line of JSON an epoch; a training that is resumed begins with the epochs before."""
    stopped_after(8, graph, SMALL)
    (log,) = (graph / "training").glob("*/metrics.jsonl")
    assert [json.loads(line)["epoch"] for line in log.read_text().splitlines()] == [1, 2]
    before = log.read_text()
    seen: list[str] = []

    def progress(share: float, message: str) -> None:
        seen.append(log.read_text())

    api.train(graph, settings=SMALL, progress=progress)
    assert seen[0] == before
    assert seen[-1].startswith(before)
    assert [json.loads(line) for line in seen[-1].splitlines()] == history_of(graph)


def test_metrics_go_to_tensorboard_where_it_is_installed(graph: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("tensorboard") is None:
        with pytest.raises(UsageError, match=r"--tensorboard needs the extra: pip install 'dkge_dist\[tensorboard\]'"):
            api.train(graph, settings=SMALL, tensorboard=tmp_path / "board")
        return
    api.train(graph, settings=SMALL, tensorboard=tmp_path / "board")
    assert list((tmp_path / "board").glob("events.out.tfevents.*"))


def test_a_store_without_a_snapshot(tmp_path: Path) -> None:
    store = Store.open_or_new(tmp_path / "store")
    store.ensure()
    with pytest.raises(DkgeError, match="holds no snapshot yet; `dkge ingest"):
        api.train(tmp_path / "store")


def test_a_snapshot_without_train_triples_leaves_the_store_as_it_was(tmp_path: Path) -> None:
    folder = tmp_path / "given"
    write_tsv(folder / "train.txt", movies(4))
    api.ingest(tmp_path / "store", folder / "train.txt", valid=0)
    api.ingest(tmp_path / "store", write_changes_away(tmp_path), force=True)
    assert Store.open(tmp_path / "store").current_snapshot().snapshot.train == 0  # type: ignore[union-attr]
    with pytest.raises(DkgeError, match="no train triples"):
        api.train(tmp_path / "store", settings=SMALL)
    assert len(Store.open(tmp_path / "store").versions()) == 2


def write_changes_away(folder: Path) -> Path:
    """A night that deletes everything."""
    path = folder / "all.changes"
    path.write_text("".join(f"-\t{h}\t{r}\t{t}\n" for h, r, t in movies(4)), encoding="utf-8")
    return path


def test_splits_are_where_a_training_finds_them(graph: Path) -> None:
    store = Store.open(graph)
    manifest = store.find_snapshot("first")
    counts = [store.snapshot(manifest).count(split) for split in Split]
    assert counts == [84, 8, 8]
    report = api.train(graph, settings=[*SMALL, "train.max_epochs=1"])
    assert set(report["valid"]) == {*Quality.METRICS, "mrr_error", "triples"}


def test_a_refresh_goes_on_from_the_current_model(graph: Path) -> None:
    """With hardly any step its vectors stay; with larger ones all of them move."""
    api.train(graph, settings=SMALL)
    before, settings = vectors_of(graph).by_name(), model_of(graph).model.settings
    still = api.train(graph, refresh=True, settings=["online.refresh_learning_rate=1e-12", "online.refresh_epochs=2"])
    assert (still["version"], still["origin"], still["start"], still["epochs"]) == (3, "refresh", 2, 2)
    found = vectors_of(graph)
    for kind, tables in (("entities", found.entities), ("relations", found.relations)):
        for field in TRAINED:
            np.testing.assert_allclose(tables[field], before[f"{kind}/{field}"], atol=1e-6)
    for name, values in found.dense.items():
        np.testing.assert_allclose(values, before[name], atol=0.1, err_msg=name)
    larger = ["online.refresh_learning_rate=0.1", "online.refresh_epochs=3"]
    moved = api.train(graph, refresh=True, settings=larger)
    assert (moved["start"], moved["epochs"]) == (3, 3)
    by_how_much = {name: np.abs(values - before[name]).max() for name, values in vectors_of(graph).by_name().items()}
    del by_how_much["relation.gcn.attention"]  # no relation here has two paths to choose from
    assert min(by_how_much.values()) > 1e-3, by_how_much
    assert_joint_is_fresh(graph)
    kept = model_of(graph).model.settings
    assert kept["train"] == settings["train"], "a training from scratch is still what it was"
    assert_sound(graph)


def test_a_refresh_that_was_stopped_goes_on(graph: Path) -> None:
    api.train(graph, settings=SMALL)
    whole = api.train(graph, refresh=True)
    expected = vectors_of(graph)
    api.rollback(graph, 2)
    left = iter(range(5, -1, -1))
    with pytest.raises(StoppedError):
        api.train(graph, refresh=True, stop=lambda: next(left) == 0)
    again = api.train(graph, refresh=True)
    assert (again["resumed"], again["epochs"]) == (True, whole["epochs"])
    assert_same_bits(expected, vectors_of(graph))


def test_only_what_is_learnt_can_be_refreshed(graph: Path) -> None:
    with pytest.raises(DkgeError, match="no model"):
        api.train(graph, refresh=True)
    api.train(graph, settings=SMALL)
    api.ingest(graph, write_tsv(graph.parent / "next.tsv", movies(110)), name="second")
    with pytest.raises(DkgeError, match=r"version 2\) is of snapshot 'first', not of 'second'; `dkge update"):
        api.train(graph, refresh=True)
    with pytest.raises(UsageError, match=r"model\.dim=7: the model was learnt with 6"):
        api.train(graph, refresh=True, snapshot="first", settings=["model.dim=7"])
    with pytest.raises(UsageError, match="preset"):
        api.train(graph, refresh=True, snapshot="first", preset="paper")
