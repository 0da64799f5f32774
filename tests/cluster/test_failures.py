"""A shard, a worker, a whole node is lost: real processes are killed, and the result is that of a quiet run.

With one worker a training that was disturbed ends bit for bit where an undisturbed one ends: it resumes from a
checkpoint, and everything random follows from the seed, the epoch and the batch.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import ray

from dkge_dist.cluster.session import SPARE_BYTES, ClusterConfig, shard_actors
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.types import DkgeError
from tests.cluster.disturbed import WORDS, assert_same_models, disturbed, store_of
from tests.cluster.nodes import Nodes, kill, processes, soon
from tests.graphs import listing, write_changes


@pytest.fixture(scope="module")
def nodes() -> Iterator[Nodes]:
    # One Ray at a time: others of this session are over or will start their own.
    ray.shutdown()
    made = Nodes()
    made.add()
    made.add()
    yield made
    made.close()


@pytest.mark.slow
def test_shards_are_spread_over_nodes_with_room(nodes: Nodes) -> None:
    """The head has no room for any of them: each node has one, or all but one."""
    plan, row_bytes = ShardPlan(1000, 64, 2), 1 << 20
    with shard_actors(ClusterConfig(2, wait_seconds=60), plan, row_bytes) as actors:
        ray.get([actor.address.remote() for actor in actors])
        (group,) = (of for of in ray.util.placement_group_table().values() if of["state"] == "CREATED")
        assert group["strategy"] == "SPREAD"
        bundles = [group["bundles"][number]["memory"] for number in range(2)]
        assert bundles == [plan.size(shard) * row_bytes + SPARE_BYTES for shard in range(2)]
        there = set(group["bundles_to_node_id"].values())
        assert there == {node.node_id for node in nodes.nodes}
    assert all(of["state"] == "REMOVED" for of in ray.util.placement_group_table().values())
    with (
        # Together they would fit; on the nodes as they are they do not.
        pytest.raises(DkgeError, match=r"no room for 3 shards of up to 1\.\d+ GB after 1 s: 3 nodes with"),
        shard_actors(ClusterConfig(3, wait_seconds=1), ShardPlan(3000, 64, 3), (5 << 28) // 1024),
    ):
        pass


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_training_survives_the_loss_of_a_shard_a_worker_and_a_node(tmp_path: Path, nodes: Nodes) -> None:
    undisturbed, store = store_of(tmp_path / "one"), store_of(tmp_path / "other")
    api.train(undisturbed, settings=WORDS)
    happened = []
    accidents: dict[int, Callable[[], object]] = {
        5: lambda: happened.append(kill("ShardActor")),
        20: lambda: happened.append(kill("RayTrainWorker")),
        35: lambda: (nodes.lose(), nodes.add(), happened.append(True)),
    }
    report = api.train(store, settings=WORDS, shards=3, progress=disturbed(accidents), wait_seconds=60)
    assert happened == [True, True, True]
    assert report["epochs"] == 60
    assert_same_models(undisturbed, store)
    assert not list((store / "training").iterdir())
    assert api.check(store)["ok"]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_update_that_loses_a_shard_leaves_the_store_as_it_was(tmp_path: Path, nodes: Nodes) -> None:
    store = store_of(tmp_path)
    api.train(store, settings=WORDS)
    api.ingest(store, write_changes(tmp_path / "night.changes", added=[("title1", "actor", "newcomer")]), name="second")
    before = listing(store)
    killed = []

    def progress(share: float, message: str) -> None:
        if not killed:
            killed.append(kill("ShardActor"))

    with pytest.raises(DkgeError, match=r"shard \d.*(gone|restarted|reached).* is as it was"):
        api.update(store, settings=["online.max_epochs=50", "online.patience=0"], shards=2, progress=progress)
    assert killed == [True]
    assert listing(store) == before
    assert api.update(store, shards=2)["version"] == Store.open(store).head().version  # type: ignore[union-attr]


LONG_NIGHT = ["online.epochs_over=affected", "online.max_epochs=1000000", "online.patience=0"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["update", *LONG_NIGHT], "the store is as before"),
        (["train", *WORDS, "train.max_epochs=5000"], "the same command goes on from here"),
    ],
    ids=["update", "train"],
)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["SIGINT", "SIGTERM"])
def test_interrupt_takes_the_actors_down_and_leaves_the_cluster(
    tmp_path: Path, nodes: Nodes, command: list[str], told: str, number: signal.Signals
) -> None:
    store = store_of(tmp_path)
    api.train(store, settings=[*WORDS, "train.max_epochs=1"])
    api.ingest(store, write_changes(tmp_path / "night.changes", added=[("title1", "actor", "newcomer")]), name="second")
    before = {name: of for name, of in listing(store).items() if not name.startswith("training/")}
    words = [command[0], str(store), *command[1:], "--shards", "2", "--address", nodes.cluster.address, "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "dkge_dist.surfaces.cli", *words],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    try:
        soon(lambda: len(processes("ShardActor")) == 2 or process.poll() is not None)
        time.sleep(5)  # Somewhere in the middle of it.
        assert process.poll() is None, process.communicate()
        process.send_signal(number)
        stdout, stderr = process.communicate(timeout=240)
        assert process.returncode == 1, stderr
        assert told in json.loads(stdout)["error"]
    finally:
        process.kill()
        process.communicate()
    soon(lambda: not processes("ShardActor") and not processes("RayTrainWorker"))
    assert len([node for node in ray.nodes() if node["Alive"]]) == 3
    after = {name: of for name, of in listing(store).items() if not name.startswith("training/")}
    assert after == before
