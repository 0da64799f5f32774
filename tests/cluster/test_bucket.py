"""A cluster without a shared file system: shards and workers read and write the bucket themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from dkge_dist.cluster.server import ShardServer
from dkge_dist.store.remote_trainings import RemoteFolder
from dkge_dist.store.storage import open_storage
from dkge_dist.store.storage.bucket import BucketStorage
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.tables.checkpoint import DamagedCheckpointError
from tests.cli.running import DKGE, dkge
from tests.cluster.test_server_files import assert_read_by, trained
from tests.graphs import fresh_labels, movies, write_changes, write_tsv
from tests.tables.rows import BLOCK, ROWS

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def folder(bucket: str) -> RemoteFolder:
    return RemoteFolder(bucket, "training/key/last-000000001/entities", BLOCK)


def save(made: list[ShardServer], folder: RemoteFolder) -> None:
    for server in made:
        server.save_checkpoint("now", folder)


@pytest.mark.parametrize(("writers", "readers"), [(3, 2), (2, 3), (None, 3), (3, None), (25, 1)])
def test_checkpoint_is_read_by_another_number_of_shards(
    folder: RemoteFolder, writers: int | None, readers: int | None
) -> None:
    made, twin = trained(writers or 1)
    if writers is None:
        twin.save_checkpoint(folder)
    else:
        save(made, folder)
    assert len(folder.names()) == -(-ROWS // BLOCK), "whoever wrote it"
    assert_read_by(readers, folder, twin)


def test_checkpoint_that_is_not_whole_is_refused(folder: RemoteFolder) -> None:
    made, twin = trained(2)
    save(made, folder)
    first = folder / folder.names()[1]
    content = first.read_bytes()
    for damage in (None, b"", content[:-4], (folder / folder.names()[-1]).read_bytes()):
        first.remove() if damage is None else first.write_bytes(damage)
        with pytest.raises(DamagedCheckpointError, match=f"{first}: "):
            twin.load_checkpoint(folder)
    first.write_bytes(content)
    twin.load_checkpoint(folder)


def test_blocks_and_deltas_go_to_the_bucket(bucket: str) -> None:
    made, twin = trained(3)
    blocks = [server.save_blocks("now", bucket)[0] for server in made]
    storage = open_storage(bucket)
    storage.require(blob for fields in blocks for some in fields.values() for _, blob in some)
    with storage.staging() as staging:
        tables = twin.save(staging, BLOCK)
        assert staging.written < sum(table.base.size for table in tables.values()) + 1, "the blocks were there"


WORDS = ["model.dim=7", "context.cap=5", "train.batch_size=40", "train.negatives=16", "train.patience=0", "threads=1"]
LONG = [*WORDS, "train.max_epochs=60", "train.eval_every=20", "train.checkpoint_seconds=0.2"]


def tables(store: str | Path) -> Any:
    entry = Store.open(store).find_model().model
    return entry.entities, entry.relations, entry.dense


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_training_and_night_on_ray(bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped on two shards, finished on three, with the cache of another machine; what comes out is as without Ray."""
    source = write_tsv(tmp_path / "base.tsv", movies(400))
    night = write_changes(tmp_path / "night.changes", fresh_labels(1), movies(400)[3:5])
    for store in (bucket, tmp_path / "store"):
        api.ingest(store, source, valid=20, test=20)
    api.train(tmp_path / "store", settings=LONG)
    objects = BucketStorage(bucket).objects
    with subprocess.Popen([DKGE, "train", bucket, "--shards", "2", *LONG], stderr=subprocess.PIPE) as process:
        while not any("/last-" in found.name and found.name.endswith(".json") for found in objects.walk("training")):
            assert process.poll() is None, process.stderr and process.stderr.read()
            time.sleep(0.2)
        process.send_signal(signal.SIGTERM)
        assert process.stderr is not None
        told = process.stderr.read()
        assert process.wait(120) == 1, told
    monkeypatch.setenv("DKGE_CACHE", str(tmp_path / "other-machine"))
    ended = dkge("train", bucket, "--shards", "3", "--json", *LONG)
    assert ended.code == 0, ended.stderr
    assert ended.json["resumed"]
    assert tables(bucket) == tables(tmp_path / "store")
    assert not [found.name for found in objects.walk("training")]
    api.nightly(tmp_path / "store", night, settings=["online.retrain_when=never"])
    ended = dkge("nightly", bucket, str(night), "--shards", "2", "--json", "online.retrain_when=never")
    assert ended.code == 0, ended.stderr
    assert api.check(bucket)["problems"] == []
    assert os.listdir(tmp_path / "other-machine" / "parts"), "shards cache what they read"
    here, there = (api.evaluate(store)["mrr"] for store in (bucket, tmp_path / "store"))
    assert here == there
