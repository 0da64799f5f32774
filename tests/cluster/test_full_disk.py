"""The disk fills up while a training on shards runs: a message, the checkpoint before is there, no attempt after it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from dkge_dist.surfaces import api
from dkge_dist.types import DkgeError
from tests.cluster.disturbed import WORDS, disturbed
from tests.graphs import movies, write_tsv

pytestmark = pytest.mark.slow


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only an administrator can make a small disk")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.parametrize("shards", [None, 2])
def test_a_full_disk_ends_a_training_with_a_message(small_disk: Path, tmp_path: Path, shards: int | None) -> None:
    store = small_disk / "store"
    source = write_tsv(tmp_path / "movies.tsv", movies(400))
    api.ingest(store, source, valid=40, test=40)
    ballast = small_disk / "ballast"

    def fill_up() -> None:
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(4096))

    heard: list[str] = []
    accident = disturbed({5: fill_up})

    def progress(share: float, message: str) -> None:
        heard.append(message)
        accident(share, message)

    words = [*WORDS, "train.max_epochs=12", "train.eval_every=12"]
    with pytest.raises(DkgeError, match="No space left on device"):
        api.train(store, settings=words, shards=shards, progress=progress)
    assert ballast.exists()
    epochs = [int(message.removeprefix("epoch ").partition("/")[0]) for message in heard if message.startswith("epoch")]
    assert epochs == sorted(epochs), "no attempt after the one that failed"
    (kept,) = (store / "training").glob("*/last-*")
    ballast.unlink()
    report = api.train(store, settings=words, shards=shards)
    assert report["resumed"]
    assert not kept.exists()
    assert api.check(store)["ok"]
