"""The runtime on Ray gives what the runtime in this process gives: tables of a model, and runs of a worker function."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.ask.model import Model, open_model
from dkge_dist.ask.ranks import JointEmbedding, rank
from dkge_dist.cluster.errors import ShardLostError
from dkge_dist.cluster.runtime import RayRuntime
from dkge_dist.cluster.session import ClusterConfig
from dkge_dist.cluster.table import RayTable
from dkge_dist.records import TrainingRecord
from dkge_dist.runtime import LocalRuntime, Monitor, Runtime
from dkge_dist.store.models import ModelMetadata, load_arrays, publish_model, save_model
from dkge_dist.store.store import Store
from dkge_dist.store.tables import block_rows, load_table
from dkge_dist.surfaces import api
from dkge_dist.surfaces.cli.main import main
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import ROW, DkgeError, Field, Split, UsageError
from tests.cluster import worker_functions as functions
from tests.graphs import LEARN, dense, listing, write_tsv
from tests.tables.rows import START

pytestmark = [pytest.mark.usefixtures("one_thread", "ray_here"), pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model whose joint vectors have few different values, so that many entities are equally far."""
    folder = tmp_path_factory.mktemp("runtime")
    source = write_tsv(folder / "graph.tsv", dense(count=1200, entities=300))
    api.ingest(folder / "store", source, valid=20, test=60)
    api.train(folder / "store", settings=LEARN)
    store = Store.open(folder / "store")
    manifest = store.find_model()
    entry = manifest.model
    rng = np.random.default_rng(0)
    tables = [LocalTable.stored(store.storage, kind) for kind in (entry.entities, entry.relations)]
    for table in tables:
        joint = table.shard.values[Field.JOINT]
        table.shard.values[Field.JOINT] = rng.integers(0, 2, joint.shape).astype(np.float32)
    with store.storage.staging() as staging:
        saved = (
            tables[0].save(staging, manifest.block_rows),
            tables[1].save(staging, block_rows(tables[1].rows)),
        )
        assert entry.evidence is not None
        metadata = ModelMetadata(entry.settings, TrainingRecord(), [], load_arrays(store, entry.evidence))
        publish_model(store, save_model(staging, entry.snapshot, saved, load_arrays(store, entry.dense), metadata), 0.0)
    return open_model(store)


def test_ranks_of_single_triples_agree(opened: Model) -> None:
    """Not only their means; with ties, with candidates left out, and rows in the order they were asked for."""
    snapshot, model = opened.snapshot, opened.manifest
    relations = load_table(opened.store.storage, model.model.relations[Field.JOINT])
    candidates = np.flatnonzero(snapshot.entities_alive)[::2].astype(ROW)
    triples, train = snapshot.triples(Split.TEST), snapshot.triples(Split.TRAIN)
    asked, evidence = np.array([299, 3, 3, 64, 299, 130], ROW), opened.evidence
    assert evidence is not None
    runtimes: list[Runtime] = [LocalRuntime(), RayRuntime(ClusterConfig(3))]
    found = []
    for runtime in runtimes:
        with runtime.open_index(opened.store, model) as entities:
            embedding = JointEmbedding(entities, relations, candidates)
            ranks, scored = rank(embedding, triples, train), rank(embedding, triples, train, evidence)
            pulled = embedding.vectors(asked)
            found.append((ranks.tail, ranks.head, pulled, entities, scored.tail, scored.head))
            if isinstance(entities, RayTable):
                held = [of["rows"] for of in entities.stats()]
    (here, there) = found
    for number in (0, 1, 2, 4, 5):
        assert np.array_equal(here[number], there[number])
    assert not np.array_equal(here[0], here[4]) and not np.array_equal(here[1], here[5])
    assert (here[0] % 1 == 0.5).any(), "ties get the mean of the best and the worst rank"
    assert held == [128, 108, 64], "blocks of 64 rows, round robin"


def test_ties_are_broken_alike(opened: Model) -> None:
    store = opened.store.storage.location
    alone = api.answer(store, "e5", "r0", top=40, evidence=False)
    assert len({found["score"] for found in alone["answers"]}) < 8, "the test is about ties"
    there = api.answer(store, "e5", "r0", top=40, evidence=False, shards=3)
    assert {**there, "seconds": 0} == {**alone, "seconds": 0}
    scored = api.answer(store, "e5", "r0", top=40)
    assert {**api.answer(store, "e5", "r0", top=40, shards=3), "seconds": 0} == {**scored, "seconds": 0}
    assert [found["entity"] for found in scored["answers"]] != [found["entity"] for found in alone["answers"]]


def test_tables_have_room_for_new_rows(opened: Model) -> None:
    rows = (400, 9)
    runtimes: list[Runtime] = [LocalRuntime(), RayRuntime(ClusterConfig(2))]
    pulled = []
    for runtime in runtimes:
        with runtime.open_tables(opened.store, opened.manifest, rows) as tables:
            assert (tables.entities.rows, tables.relations.rows) == rows
            every = [{field: np.arange(count, dtype=ROW) for field in Field} for count in rows]
            pulled.append([table.pull(wanted) for table, wanted in zip(tables, every, strict=True)])
    for one, other in zip(*pulled, strict=True):
        for field in Field:
            assert one[field].tobytes() == other[field].tobytes()
    assert not pulled[0][0][Field.JOINT][300:].any()


def test_lost_shard_leaves_the_store_as_it_was(opened: Model) -> None:
    runtime = RayRuntime(ClusterConfig(1))
    with (
        pytest.raises(DkgeError, match=r"^shard 0 is gone; .*store is as it was, and the same command starts again$"),
        runtime.open_index(opened.store, opened.manifest),
    ):
        raise ShardLostError("shard 0 is gone")


class Listening(Monitor):
    """Wants the run to stop as soon as it has heard of it."""

    def __init__(self) -> None:
        self.heard: list[tuple[float, str]] = []
        self.epochs: list[dict[str, Any]] = []

    def progress(self, share: float, message: str) -> None:
        self.heard.append((share, message))

    def epoch(self, metrics: dict[str, Any]) -> None:
        self.epochs.append(metrics)

    def should_stop(self) -> bool:
        return bool(self.heard)


def test_run_gives_the_result_of_rank_0_and_the_tables(tmp_path: Path) -> None:
    monitor = Listening()
    runtime = RayRuntime(ClusterConfig(2, workers=2))
    spec = functions.spec_of(functions.take_a_step, {"a": 1}, tmp_path)
    with runtime.run(spec, monitor) as done:
        assert done.result == {"rank": 0, "world": 2, "total": 3.0, "job": {"a": 1}, "stopped": True}
        entities = done.tables.entities.pull({Field.KNOWLEDGE: np.arange(START.rows, dtype=ROW)})[Field.KNOWLEDGE]
        relations = done.tables.relations.pull({Field.CONTEXT: np.arange(4, dtype=ROW)})[Field.CONTEXT]
        expected = START.whole()[Field.KNOWLEDGE]
        for row, times in ((9, 2), (20, 1), (21, 1)):
            expected[row] -= np.float32(functions.SGD.rate * times)
        assert np.array_equal(entities, expected)
        expected = functions.RELATIONS.whole()[Field.CONTEXT]
        for row, times in ((0, 2), (1, 1), (2, 1)):
            expected[row] -= np.float32(functions.SGD.rate * times)
        assert np.array_equal(relations, expected)
        assert (done.facts["shards"], done.facts["workers"]) == (2, 2)
        assert [of["push_calls"] for of in done.facts["shard_stats"]] == [2, 2]
    assert monitor.epochs == [{"epoch": 1, "rank": 0}]
    assert set(monitor.heard) == {(0.5, "rank 0 waits")}
    shutil.rmtree(tmp_path / "workers")  # Ray Train keeps notes there, and nothing else is left.
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda store, **where: api.train(store, **where), {"workers": 2}),
        (lambda store, **where: api.train(store, **where), {"address": "auto"}),
        (lambda store, **where: api.update(store, **where), {"address": "auto"}),
        (lambda store, **where: api.evaluate(store, **where), {"address": "auto"}),
        (lambda store, **where: api.answer(store, "e1", "r0", **where), {"address": "auto"}),
        (lambda store, **where: api.nightly(store, "nowhere", **where), {"workers": 2}),
    ],
)
def test_workers_and_addresses_go_with_shards(opened: Model, call: Callable[..., Any], where: dict[str, Any]) -> None:
    store = Path(opened.store.storage.location)
    before = listing(store)
    with pytest.raises(UsageError, match=r"--workers and --address go with --shards N"):
        call(store, **where)
    assert listing(store) == before


@pytest.mark.parametrize("where", [{"shards": 0}, {"shards": -1}, {"shards": 2, "workers": 0}])
def test_at_least_one_shard_and_one_worker(opened: Model, where: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="at least one of each"):
        api.train(opened.store.storage.location, **where)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--workers", "2"],
        ["train", "--address", "auto"],
        ["update", "--address", "auto"],
        ["evaluate", "--address", "auto"],
        ["train", "--shards", "0"],
        ["train", "--shards", "2", "--workers", "0"],
    ],
    ids=" ".join,
)
def test_wrong_usage_ends_with_exit_code_2(
    opened: Model, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["dkge", words[0], opened.store.storage.location, *words[1:]])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert "--shards" in told.err or "--workers" in told.err
    assert told.out == ""
