"""Whole trainings on Ray: one worker learns what is learnt in this process, to the bit; each resumes the other's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.learn.loop import StoppedError
from dkge_dist.store.manifest import ModelEntry
from dkge_dist.store.models import load_arrays
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import DkgeError
from tests.cli.running import Ended, dkge
from tests.graphs import assert_sound, head, movies, write_tsv
from tests.models import load_history, load_vectors

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.timeout(600)]

SMALL = ["model.dim=7", "context.cap=5", "train.batch_size=40", "train.negatives=16", "train.patience=0", "threads=1"]
LONG = [*SMALL, "train.max_epochs=80", "train.eval_every=40"]
SHORT = [*SMALL, "train.max_epochs=3", "train.eval_every=1", "train.products=float32"]
TRIPLES = 400


@pytest.fixture(scope="module")
def untrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """250 entities in four blocks."""
    folder = tmp_path_factory.mktemp("training")
    triples = movies(TRIPLES)
    copies = [(title, "known for", person) for title, _, person in triples[::3]]
    source = write_tsv(folder / "base.tsv", [*triples, *copies])
    api.ingest(folder / "store", source, valid=20, test=20)
    return folder / "store"


@pytest.fixture
def store(untrained: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(untrained, tmp_path / "store"))


@pytest.fixture(scope="module")
def trained_here(untrained: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """What an undisturbed training in this process comes to."""
    stores = {}
    for name, words in (("long", LONG), ("short", SHORT)):
        stores[name] = Path(shutil.copytree(untrained, tmp_path_factory.mktemp(name) / "store"))
        api.train(stores[name], settings=words)
        evidence = model(stores[name]).evidence
        assert evidence is not None
        assert load_arrays(Store.open(stores[name]), evidence)["weights.relation"].any(), "there is something to weigh"
    return stores


def model(store: Path) -> ModelEntry:
    return Store.open(store).find_model().model


def assert_same_parts(one: Path, other: Path) -> None:
    """Every table and the dense parameters are the very same parts, by their checksums."""
    mine, theirs = model(one), model(other)
    assert mine.entities == theirs.entities
    assert mine.relations == theirs.relations
    assert mine.dense == theirs.dense
    assert mine.evidence == theirs.evidence is not None
    assert mine.record.valid == theirs.record.valid


def untimed_history(store: Path) -> list[dict[str, float]]:
    lines = load_history(Store.open(store), model(store))
    return [{k: v for k, v in line.items() if k not in ("seconds", "triples_per_second")} for line in lines]


def stops_after(batches: int) -> Iterator[bool]:
    yield from [False] * (batches - 1)
    yield True


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_training_stopped_on_ray_is_finished_in_this_process(store: Path, trained_here: dict[str, Path]) -> None:
    heard: list[tuple[float, str]] = []

    def stop() -> bool:
        return bool(heard) and heard[-1][1].startswith("epoch ")

    with pytest.raises(StoppedError, match=r"stopped in epoch \d+; the same command goes on from here"):
        api.train(
            store, settings=LONG, shards=3, stop=stop, progress=lambda share, message: heard.append((share, message))
        )
    assert heard[0] == (0.0, "reading evidence off the graph")
    assert heard[-1][1].startswith("epoch ") and 0 < heard[-1][0] < 1
    assert head(store).version == 1
    report = api.train(store, settings=LONG)
    assert report["resumed"]
    assert report["epochs"] == 80
    assert_same_parts(store, trained_here["long"])
    assert untimed_history(store) == untimed_history(trained_here["long"])
    assert list((store / "training").iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_refresh_on_shards_is_that_in_this_process(trained_here: dict[str, Path], tmp_path: Path) -> None:
    here, there = (Path(shutil.copytree(trained_here["short"], tmp_path / name)) for name in ("here", "there"))
    api.train(here, refresh=True)
    report = api.train(there, refresh=True, shards=3)
    assert (report["origin"], report["shards"], report["epochs"]) == ("refresh", 3, 4)
    assert_same_parts(here, there)


@pytest.mark.usefixtures("ray_here")
@pytest.mark.parametrize(("device", "backend"), [("cuda", "nccl"), ("auto", "gloo")])
def test_backend_goes_by_the_device_and_the_graph_is_once_on_a_node(
    store: Path, monkeypatch: pytest.MonkeyPatch, device: str, backend: str
) -> None:
    """There is no GPU here, so `auto` means none; what Ray Train is asked for can be seen all the same."""
    import ray

    asked: dict[str, Any] = {}

    class Trainer:
        def __init__(self, function: Any, **options: Any) -> None:
            asked.update(options)

        def fit(self) -> None:
            given = asked["train_loop_config"]["assignment"].job
            assert isinstance(given, ray.ObjectRef), "a reference, however many workers there are"
            asked["jobs"] = [ray.get(given), ray.get(given)]
            raise RuntimeError("enough")

    monkeypatch.setattr("dkge_dist.cluster.workers.TorchTrainer", Trainer)
    monkeypatch.setattr("dkge_dist.cluster.runtime.require_workers", lambda *arguments: None)
    with pytest.raises(DkgeError, match="the workers failed: enough"):
        api.train(store, settings=[*SHORT, f"device={device}"], shards=1)
    assert asked["torch_config"].backend == backend
    scaling = asked["scaling_config"]
    assert scaling.use_gpu == (backend == "nccl")
    assert scaling.resources_per_worker == {"CPU": 1, **({"GPU": 1} if backend == "nccl" else {})}
    one, other = (job.graph.train.head for job in asked["jobs"])
    assert np.shares_memory(one, other), "two workers of one node look at the same memory"


@pytest.mark.slow
@pytest.mark.usefixtures("ray_here")
def test_training_stopped_in_this_process_is_finished_by_two_workers(
    store: Path, trained_here: dict[str, Path]
) -> None:
    """They add up in another order, so this is equal up to rounding."""
    left = stops_after(4)
    with pytest.raises(StoppedError):
        api.train(store, settings=SHORT, stop=lambda: next(left))
    report = api.train(store, settings=SHORT, shards=2, workers=2)
    assert report["resumed"]
    assert (report["version"], report["epochs"], report["shards"], report["workers"]) == (2, 3, 2, 2)
    assert report["triples_per_second"] > 0
    alone, both = (load_vectors(Store.open(path), model(path)) for path in (trained_here["short"], store))
    for kind in ("entities", "relations", "dense"):
        for name, values in getattr(both, kind).items():
            assert np.isfinite(values).all()
            expected = getattr(alone, kind)[name]
            np.testing.assert_allclose(values, expected, atol=1e-4 * np.abs(expected).max(), err_msg=f"{kind} {name}")
    assert (np.abs(both.entities["joint"]).sum(1) > 0).all(), "every share of o* was written"
    assert report["valid"] == pytest.approx(model(trained_here["short"]).record.valid, rel=0.05)
    lines, expected_lines = untimed_history(store), untimed_history(trained_here["short"])
    assert [line["loss"] for line in lines] == pytest.approx([line["loss"] for line in expected_lines], rel=1e-4)
    stats = report["shard_stats"]
    assert sum(of["rows"] for of in stats) == report["entities"]
    assert all(of["push_calls"] and of["pull_calls"] and of["write_calls"] for of in stats)
    assert_sound(store)


def succeeded(ended: Ended) -> Ended:
    assert ended.code == 0, ended.stderr
    return ended


@pytest.mark.slow
def test_commands_start_ray_themselves(store: Path, trained_here: dict[str, Path]) -> None:
    """From the start to the end with one worker: all parts are those that are written without Ray."""
    trained = succeeded(dkge("train", store, *SHORT, "--shards", "3", "--json")).json
    assert (trained["version"], trained["epochs"], trained["shards"], trained["workers"]) == (2, 3, 3, 1)
    assert_same_parts(store, trained_here["short"])
    assert untimed_history(store) == untimed_history(trained_here["short"])
    local = api.evaluate(store)
    found = succeeded(dkge("evaluate", store, "--shards", "2", "--json")).json
    assert {**found, "seconds": 0} == {**local, "seconds": 0}
    assert_sound(store)
