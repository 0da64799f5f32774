"""Versions of a store: listed, verified, rolled back to, cleared."""

from __future__ import annotations

from pathlib import Path

import pytest

import dkge_dist
from dkge_dist import check, log, rollback
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import UsageError
from tests.graphs import head, listing
from tests.jobs.building import ADDED, ingest_night

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def nights(store: Path, tmp_path: Path) -> Path:
    """Snapshot 1 with model 2, night 3 with model 4."""
    ingest_night(tmp_path / "night.changes", store, ADDED, [])
    dkge_dist.update(store, settings=["threads=1"])
    return store


def test_a_log_tells_what_every_version_is(nights: Path) -> None:
    lines = log(nights)["versions"]
    assert [(line["version"], line["kind"], line["name"], line["parent"]) for line in lines] == [
        (1, "snapshot", "base", None),
        (2, "model", "base", 1),
        (3, "snapshot", "night", 1),
        (4, "model", "night", 2),
    ]
    assert (lines[0]["valid"], lines[0]["test"], lines[0]["stored"]) == (20, 20, "full")
    assert (lines[2]["added"], lines[2]["emerging_entities"], lines[2]["stored"]) == (len(ADDED), 2, "change")
    assert (lines[1]["origin"], lines[3]["origin"]) == ("scratch", "online")
    assert set(lines[3]["metrics"]) >= {"mrr", "hits@10"}
    assert lines[3]["emerging_entities"] == 2
    assert all(line["seconds"] >= 0 and line["created"] for line in lines)


def test_a_log_tells_where_a_rollback_went(nights: Path) -> None:
    dkge_dist.rollback(nights, 2)
    line = log(nights)["versions"][-1]
    assert (line["version"], line["kind"], line["name"], line["parent"]) == (5, "rollback", "base", 2)


def test_a_sound_store(nights: Path) -> None:
    heard: list[float] = []
    report = check(nights, progress=lambda share, message: heard.append(share))
    assert (report["ok"], report["problems"], report["versions"]) == (True, [], 4)
    assert report["parts"] > 10
    assert report["bytes"] > 0
    assert heard == sorted(heard)
    assert heard[-1] == 1.0


def test_a_damaged_part_is_named_with_its_version(nights: Path) -> None:
    store = Store.open(nights)
    part = store.storage.part_path(store.model_manifest(4).model.entities["joint"].deltas[0].part)
    data = bytearray(part.read_bytes())
    data[-1] ^= 1
    part.chmod(0o644)
    part.write_bytes(data)
    report = check(nights)
    assert not report["ok"]
    assert [problem["version"] for problem in report["problems"]] == [4]
    assert part.name in report["problems"][0]["problem"]


def test_a_rollback_is_a_version_and_can_be_rolled_back(nights: Path) -> None:
    report = rollback(nights, 2)
    assert report == {"version": 5, "to": 2, "snapshot": "base", "model": 2}
    assert dkge_dist.answer(nights, "e1", "r1")["snapshot"] == "base"
    assert rollback(nights, 4)["model"] == 4
    assert (head(nights).current.snapshot, head(nights).current.model) == (3, 4)


def test_old_versions_are_cleared_and_what_is_needed_stays(nights: Path, tmp_path: Path) -> None:
    ingest_night(tmp_path / "n2.changes", nights, ["e2\tr0\tlast"], [])
    dkge_dist.train(nights, settings=["model.dim=4", "train.max_epochs=1", "threads=1"])
    answers = dkge_dist.answer(nights, "e1", "r1")["answers"]
    dry = dkge_dist.gc(nights, keep=1, dry_run=True, grace_hours=0)
    assert dry["dry_run"]
    before = listing(nights)
    assert 2 in dry["cleared_versions"]
    assert listing(nights) == before
    done = dkge_dist.gc(nights, keep=1, grace_hours=0)
    assert done["cleared_versions"] == dry["cleared_versions"]
    assert (done["parts"], done["bytes"]) == (dry["parts"], dry["bytes"])
    assert dkge_dist.answer(nights, "e1", "r1")["answers"] == answers
    assert dkge_dist.check(nights)["ok"]
    with pytest.raises(StoreError, match="version 2 was cleared away"):
        dkge_dist.answer(nights, "e1", "r1", version="2")


def test_one_version_is_kept_at_least(nights: Path) -> None:
    with pytest.raises(UsageError, match="--keep 0: at least one version is kept"):
        api.gc(nights, keep=0)
