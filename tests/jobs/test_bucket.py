"""Whole jobs on a store in a bucket: what comes out is what comes out of a folder, and accidents leave it whole."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dkge_dist
from dkge_dist.learn.loop import StoppedError
from dkge_dist.store.manifest import ModelManifest, SnapshotManifest, parts_of
from dkge_dist.store.storage import StoreError
from dkge_dist.store.storage.bucket import BucketStorage, Lease
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import DkgeError
from tests.bucket_server import Proxy, Weather
from tests.cli.running import dkge
from tests.graphs import dense, fresh_labels, write_changes, write_tsv
from tests.store.nights import SETTINGS

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).parents[2]
Location = str | Path


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("sources")
    base = dense(150, entities=20)
    nights = {
        f"night{n}": write_changes(folder / f"night{n}.changes", fresh_labels(n), base[5 * n : 5 * n + 2])
        for n in (1, 2, 3)
    }
    return {"base": write_tsv(folder / "base.tsv", base), **nights}


def first_model(store: Location, sources: dict[str, Path]) -> None:
    api.ingest(store, sources["base"], valid=8, test=8)
    api.train(store, settings=SETTINGS)


def facts(store: Location) -> list[Any]:
    """What the versions of a store hold: names of parts, but for those that say how long something took."""
    opened, found = Store.open(store), []
    for number in opened.versions():
        manifest = opened.manifest(number)
        named = [part.digest for part in parts_of([manifest.entity_segments, manifest.relation_segments])]
        match manifest:
            case SnapshotManifest():
                named += [part.digest for part in parts_of(manifest.snapshot)]
            case ModelManifest():
                entry = manifest.model
                kept = [entry.entities, entry.relations, entry.dense, entry.evidence, entry.validation]
                named += [part.digest for part in parts_of([some for some in kept if some is not None])]
        found.append((number, manifest.kind, manifest.current, named))
    return found


def assert_whole(store: Location) -> None:
    assert api.check(store)["problems"] == []


def all_steps(store: Location, sources: dict[str, Path], out: Path) -> dict[str, Any]:
    """Every command once."""
    first_model(store, sources)
    api.nightly(store, sources["night1"])
    api.ingest(store, sources["night2"])
    api.update(store)
    told = {
        "answer": api.answer(store, "e1", "r1")["answers"],
        "diff": api.diff(store, "base", "night1")["added"],
        "evaluate": api.evaluate(store)["mrr"],
        "fidelity": api.fidelity(store)["kept_far"],
    }
    api.export(store, out, format="npy")
    api.rollback(store, 4)
    api.gc(store, keep=2, grace_hours=0)
    told["log"] = [(line["version"], line["kind"]) for line in api.log(store)["versions"]]
    told["exported"] = sorted((path.name, path.read_bytes()) for path in out.iterdir())
    told["zarr"] = dkge_dist.open_version(store)["entities/joint"][:].tobytes()
    assert_whole(store)
    return told


def test_every_command_does_what_it_does_in_a_folder(bucket: str, sources: dict[str, Path], tmp_path: Path) -> None:
    told = [all_steps(store, sources, tmp_path / name) for store, name in ((bucket, "a"), (tmp_path / "store", "b"))]
    assert told[0] == told[1]
    assert facts(bucket) == facts(tmp_path / "store")
    left = {found.name.split("/")[0] for found in BucketStorage(bucket).objects.walk("")}
    assert left == {"head", "parts", "probe", "store.json", "versions"}, "no lease, no training, no mark is left"


def test_command_line_takes_the_address(bucket: str, sources: dict[str, Path]) -> None:
    ended = dkge("ingest", bucket, str(sources["base"]), "--json")
    assert ended.code == 0, ended.stderr
    assert ended.json["version"] == 1
    ended = dkge("log", bucket)
    assert ended.code == 0 and "base" in ended.stdout
    ended = dkge("log", f"{bucket}-other")
    assert ended.code == 1 and f"{bucket}-other: no store here yet" in ended.stderr
    ended = dkge("log", "gs://bucket/store")
    assert ended.code == 1 and "there is no storage for gs:// locations" in ended.stderr


def test_night_downloads_what_the_one_before_changed(
    proxy: Proxy, bucket: str, sources: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def downloaded() -> int:
        return sum(line.startswith(b"GET") and b"/parts/" in line for line in proxy.seen)

    first_model(bucket, sources)
    api.nightly(bucket, sources["night1"])
    assert downloaded() == 0, "what a machine wrote it has"
    monkeypatch.setenv("DKGE_CACHE", str(tmp_path / "other-machine"))
    api.nightly(bucket, sources["night2"])
    everything = downloaded()
    assert everything > 10
    monkeypatch.setenv("DKGE_CACHE", str(tmp_path / "cache"))
    proxy.seen.clear()
    api.nightly(bucket, sources["night3"])
    assert 0 < downloaded() < everything / 2
    assert_whole(bucket)


def test_training_that_was_stopped_goes_on_elsewhere(
    bucket: str, sources: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = [*SETTINGS, "train.max_epochs=4", "train.eval_every=1", "train.patience=0"]
    for store in (bucket, tmp_path / "store"):
        api.ingest(store, sources["base"], valid=8, test=8)
    api.train(tmp_path / "store", settings=settings)
    left = iter(range(2, -1, -1))
    with pytest.raises(StoppedError, match=rf"the same command goes on from here \({bucket}/training/"):
        api.train(bucket, settings=settings, stop=lambda: next(left) == 0)
    monkeypatch.setenv("DKGE_CACHE", str(tmp_path / "other-machine"))
    (training,) = Store.open(bucket).trainings
    assert training.snapshot == 1
    assert api.gc(bucket, keep=1, grace_hours=1)["folders"] == 0, "a young training stays"
    report = api.train(bucket, settings=settings)
    assert report["resumed"]
    assert list(Store.open(bucket).trainings) == []
    assert facts(bucket) == facts(tmp_path / "store")


def test_training_at_work_keeps_others_out(bucket: str, sources: dict[str, Path]) -> None:
    api.ingest(bucket, sources["base"], valid=8, test=8)
    asked: list[str] = []

    def stop() -> bool:
        if not asked:
            asked.append("")
            with pytest.raises(DkgeError, match=r"is being trained already: .* process \d+ on "):
                api.train(bucket, settings=SETTINGS)
            assert api.gc(bucket, keep=1, grace_hours=0)["folders"] == 0
        return False

    api.train(bucket, settings=SETTINGS, stop=stop)
    assert asked


def test_abandoned_training_is_cleared(bucket: str, sources: dict[str, Path]) -> None:
    api.ingest(bucket, sources["base"], valid=8, test=8)
    with pytest.raises(StoppedError):
        api.train(bucket, settings=SETTINGS, stop=lambda: True)
    assert api.gc(bucket, keep=1, grace_hours=0, dry_run=True)["folders"] == 1
    assert api.gc(bucket, keep=1, grace_hours=0)["folders"] == 1
    assert not [found.name for found in BucketStorage(bucket).objects.walk("training")]


@pytest.mark.parametrize("damage", [b"", b"not a checkpoint", None])
def test_damaged_checkpoint_is_named(bucket: str, sources: dict[str, Path], damage: bytes | None) -> None:
    api.ingest(bucket, sources["base"], valid=8, test=8)
    with pytest.raises(StoppedError):
        api.train(bucket, settings=SETTINGS, stop=lambda: True)
    objects = BucketStorage(bucket).objects
    names = [found.name for found in objects.walk("training") if "/last-" in found.name]
    assert {name.rpartition("/")[2] for name in names} >= {"dense.safetensors", "000000000000.safetensors"}
    for name in names:
        content = objects.read(name).data
        objects.delete(name) if damage is None else objects.put(name, damage)
        if damage is not None or not name.endswith("1.json"):
            with pytest.raises(DkgeError, match=rf"{bucket}/training/.*last-000000001: damaged checkpoint"):
                api.train(bucket, settings=SETTINGS)
        objects.put(name, content)
    assert not api.train(bucket, settings=SETTINGS, fresh=True)["resumed"]


def start(command: str, store: str, source: Path, stderr: int = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    script = f"import sys; from dkge_dist import api; store, source = sys.argv[1:]; api.{command}"
    return subprocess.Popen([sys.executable, "-c", script, store, str(source)], cwd=ROOT, stderr=stderr)


@pytest.mark.slow
def test_two_writers_at_once(bucket: str, sources: dict[str, Path]) -> None:
    """Both read version 1; one publishes version 2, the other says so and changes nothing."""
    api.ingest(bucket, sources["base"], valid=8, test=8)
    writers = [start("ingest(store, source)", bucket, sources[f"night{n}"], subprocess.PIPE) for n in (1, 2)]
    ended = [(writer.communicate(timeout=120)[1], writer.returncode) for writer in writers]
    lost = [error for error, code in ended if code]
    assert len(lost) < 2
    assert all(b"published by another writer" in error for error in lost)
    assert Store.open(bucket).versions() == [*range(1, 4 - len(lost))]
    assert_whole(bucket)


@pytest.mark.slow
def test_slow_and_failing_network(proxy: Proxy, bucket: str, sources: dict[str, Path], tmp_path: Path) -> None:
    """Nights on it are those of a folder, though connections end, bytes change and all is late."""
    weather = Weather(seed=11, delay=0.003, cut=2, spoil=3)
    proxy.requests, proxy.answers = weather.request, weather.answer
    for store in (bucket, tmp_path / "store"):
        first_model(store, sources)
        for number in (1, 2, 3):
            api.nightly(store, sources[f"night{number}"])
    assert facts(bucket) == facts(tmp_path / "store")
    assert_whole(bucket)


def end_leases(bucket: str) -> None:
    """As when minutes have passed since a process was killed."""
    objects = BucketStorage(bucket).objects
    for found in [*objects.walk("leases"), *objects.walk("staging")]:
        lease = Lease.parse(objects.read(found.name).data)
        objects.put(found.name, lease._replace(until=0.0).to_json())


COMMANDS = ["ingest(store, source)", "nightly(store, source)", "rollback(store, 1)", "gc(store, keep=1, grace_hours=0)"]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", COMMANDS)
def test_kills(proxy: Proxy, bucket: str, sources: dict[str, Path], command: str) -> None:
    """Killed while any of its requests is under way, before or after it is served: all of the old or all of the new."""
    first_model(bucket, sources)
    if "source" not in command:
        api.nightly(bucket, sources["night1"])
    rng = random.Random(command)
    for attempt in range(6):
        before = Store.open(bucket).versions()
        writes = [0]
        fatal, is_served = rng.randrange(1, 30), rng.random() < 0.5
        process = start(command, bucket, sources["night1"])

        def count(request: bytes, fatal: int = fatal, writes: list[int] = writes) -> bool:
            writes[0] += not request.startswith((b"GET", b"HEAD"))
            return writes[0] == fatal

        def kill(data: bytes, process: subprocess.Popen[bytes] = process) -> None:
            process.send_signal(signal.SIGKILL)

        if is_served:
            proxy.answers = lambda request, data: kill(data) if count(request) else data
        else:
            proxy.instead = lambda request: kill(request) or b"" if count(request) else None
        assert process.wait(120) in (0, -signal.SIGKILL)
        proxy.answers, proxy.instead = lambda request, data: data, lambda request: None
        after = Store.open(bucket).versions()
        assert after[: len(before)] == before, f"attempt {attempt}: nothing published is lost"
        assert_whole(bucket)
        end_leases(bucket)
    api.nightly(bucket, sources["night2"])
    api.gc(bucket, keep=1, grace_hours=0)
    assert_whole(bucket)
    with pytest.raises(StoreError, match="no version 999"):
        api.rollback(bucket, 999)
