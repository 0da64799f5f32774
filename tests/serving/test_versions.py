"""Following a store: a request sees one whole version and none fails."""

from __future__ import annotations

import os
import re
import shutil
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import dkge_dist
from dkge_dist.store.store import Store
from dkge_dist.surfaces.http.versions import NotReadyError, Versions
from dkge_dist.types import DkgeError
from tests.jobs.building import some_train, write_lines, write_night
from tests.serving.running import Server

pytestmark = pytest.mark.usefixtures("one_thread")


def publish_night(store: Path, number: int) -> int:
    """Learn another night; its version."""
    added = [f"e4\tr2\tnight{number}", f"night{number}\tr1\te{number}"]
    night = write_night(store.parent / f"again{number}.changes", added, some_train(store, 2))
    dkge_dist.ingest(store, night)
    return int(dkge_dist.update(store)["version"])


def test_published_under_load(store: Path) -> None:
    """Two versions come while four clients ask without a pause."""
    asked: dict[str, tuple[str, dict[str, object] | None]] = {
        "answer": ("/api/answer?head=e4&relation=r2&k=5", None),
        "batch": ("/api/answer", {"batch": [{"head": "e4", "relation": "r2"}] * 8, "k": 5}),
        "similar": ("/api/similar?entity=e4&k=5", None),
        "entity": ("/api/entity?label=e4&limit=100", None),
    }
    found: dict[str, list[tuple[int, bytes]]] = {name: [] for name in asked}
    stop = threading.Event()
    with Server(store) as server:
        server.ready(5)

        def client(name: str) -> None:
            path, body = asked[name]
            while not stop.is_set():
                reply = server.request("GET", path) if body is None else server.post(path, body)
                found[name].append((reply.status, reply.body))

        clients = [threading.Thread(target=client, args=(name,)) for name in asked]
        for one in clients:
            one.start()
        versions = [5, publish_night(store, 1)]
        server.ready(versions[-1])
        versions.append(publish_night(store, 2))
        server.ready(versions[-1])
        time.sleep(0.5)
        stop.set()
        for one in clients:
            one.join()
        # What each version says by itself, asked for by its number.
        for name, (path, body) in asked.items():
            assert {status for status, _ in found[name]} == {200}
            expected = set()
            for version in versions:
                if body is None:
                    expected.add(server.request("GET", f"{path}&version={version}").body)
                else:
                    expected.add(server.post(path, {**body, "version": str(version)}).body)
            # That a newer snapshot is not learnt yet is no part of what a version says.
            seen = {re.sub(rb',"notice":"[^"]*"', b"", answer) for _, answer in found[name]}
            assert len(expected) == 3
            assert seen <= expected, "an answer mixes versions"
    assert sum(map(len, found.values())) > 50


def test_an_alias_is_followed(store: Path) -> None:
    dkge_dist.alias(store, "production", 2)
    with Server(store, "--version", "production") as server:
        assert server.ready(2).get("/api/similar", entity="e4").json["version"] == 2
        assert server.get("/api/similar", entity="e4", version=5).json["version"] == 5
        assert server.get("/api/versions").json["aliases"] == {"production": 2}
        assert b"dkge_serve_versions_behind 1\n" in server.get("/metrics").body
        dkge_dist.alias(store, "production", 5)
        server.ready(5)
        dkge_dist.alias(store, "old", 2)
        assert server.get("/api/similar", entity="e4", version="old").json["version"] == 2


def test_several_processes(store: Path, tmp_path: Path) -> None:
    def requests(server: Server) -> float:
        told = server.get("/metrics").body.decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in told.splitlines() if 'total{route="/api/similar"' in line)

    with Server(store, "--workers", "2", env={"DKGE_CACHE": str(tmp_path / "cache")}) as server:
        server.ready(5)
        for _ in range(40):
            assert server.get("/api/similar", entity="e4", k=1).status == 200
        assert requests(server) == 40
        children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children").read_text().split()
        assert len(children) >= 2
        version = publish_night(store, 1)
        for _ in range(4):
            server.ready(version)
        assert requests(server) == 40
        assert server.end() == 0
    assert list((tmp_path / "cache" / "completion").glob("*.order"))


def test_a_killed_process_is_replaced(store: Path) -> None:
    with Server(store, "--workers", "2") as server:
        server.ready(5)
        listed = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
        before = listed.read_text().split()
        os.kill(int(before[-1]), signal.SIGKILL)
        deadline = time.monotonic() + 60
        while not set(listed.read_text().split()) - set(before):
            assert time.monotonic() < deadline
            time.sleep(0.1)
        for _ in range(20):
            assert server.get("/api/similar", entity="e4", k=1).status == 200
        assert server.end() == 0


class TestOpenVersions:
    """Without a server."""

    @pytest.fixture
    def versions(self, store: Path, tmp_path: Path) -> Iterator[Versions]:
        made = Versions(Store.open(store), None, tmp_path / "cache", 1)
        made.start(3600)
        yield made
        made.close()

    def test_who_asks_keeps_the_version_that_was_given(self, versions: Versions, store: Path) -> None:
        old = versions.at()
        version = publish_night(store, 1)
        assert versions.follow() and versions.current.model.version == version
        assert versions.at() is versions.current is not old
        assert old.model.embedding.candidates.shape[0] and old.model.known is not None
        assert not versions.follow()
        versions.close()
        with pytest.raises(NotReadyError):
            versions.at()

    def test_few_other_versions_stay_open(self, versions: Versions, store: Path) -> None:
        newest = publish_night(store, 1)
        second = versions.at("2")
        assert versions.at("2") is second
        assert versions.at(str(newest)).model.version == newest
        reopened = versions.at("base")
        assert reopened.model.version == 2 and reopened is not second, "the one not asked for longest is let go"

    def test_new_display_names_are_followed(self, versions: Versions, store: Path) -> None:
        names = write_lines(store.parent / "more.labels", ["e4\tThe Pier"])
        dkge_dist.ingest(store, names, format="labels")
        assert versions.follow() and not versions.follow()
        served = versions.at()
        assert served.model.version == 5
        completion = served.completion("entities")
        (row,) = completion.search("the pi", 5)
        assert completion.names.label(row) == "e4"
        assert [completion.names.label(some) for some in completion.search("the harbour", 5)] == ["e5"]

    def test_what_cannot_be_opened_is_told_and_the_old_one_stays(self, versions: Versions, store: Path) -> None:
        old = versions.current
        backup = Path(shutil.copytree(store, store.parent / "backup"))
        version = publish_night(store, 1)
        before = {path.name for path in (backup / "parts").rglob("*") if path.is_file()}
        for part in (store / "parts").rglob("*"):
            if part.is_file() and part.name not in before:
                part.unlink()
        with pytest.raises(DkgeError, match="missing"):
            versions.follow()
        assert versions.at() is old
        with pytest.raises(DkgeError, match="missing"):
            versions.at(str(version))
