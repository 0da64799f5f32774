"""Hooks after a publish: a command or a URL is told, and whatever becomes of it, the version is published."""

from __future__ import annotations

import json
import shlex
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

import dkge_dist
from dkge_dist.records import NightRecord
from dkge_dist.settings import Settings, load_settings, settings_of_model
from dkge_dist.store.store import Store
from dkge_dist.surfaces.events import Announcer, EventLog, HookError, run_hook
from tests.jobs.building import ADDED, write_night

MESSAGE = {"version": 4, "snapshot": "night", "headline": "night: +1 −0"}


def script(folder: Path, text: str) -> str:
    (folder / "hook.py").write_text(text)
    return shlex.join([sys.executable, str(folder / "hook.py"), str(folder / "told")])


@pytest.fixture
def url() -> Iterator[tuple[str, list[bytes]]]:
    """A server that keeps what it is told, and answers with the status that its path names."""
    told: list[bytes] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told.append(self.rfile.read(int(self.headers["content-length"])))
            self.send_response(int(self.path[1:]))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", told
        server.shutdown()
        thread.join()


def test_a_command_gets_json_on_stdin(tmp_path: Path) -> None:
    run_hook(script(tmp_path, "import sys; open(sys.argv[1], 'w').write(sys.stdin.read())"), MESSAGE, 60)
    assert json.loads((tmp_path / "told").read_text()) == MESSAGE


def test_a_url_gets_json(url: tuple[str, list[bytes]]) -> None:
    run_hook(f"{url[0]}/204", MESSAGE, 60)
    assert json.loads(url[1][0]) == MESSAGE
    with pytest.raises(HookError, match="status 500"):
        run_hook(f"{url[0]}/500", MESSAGE, 60)
    with pytest.raises(HookError, match="could not be told"):
        run_hook("http://127.0.0.1:1/secret", MESSAGE, 60)


def test_commands_that_fail(tmp_path: Path) -> None:
    with pytest.raises(HookError, match=r"ended with 3: no room"):
        run_hook(script(tmp_path, "import sys; print('no room', file=sys.stderr); sys.exit(3)"), MESSAGE, 60)
    with pytest.raises(HookError, match="could not be started"):
        run_hook(str(tmp_path / "none"), MESSAGE, 60)
    with pytest.raises(HookError, match="could not be started"):
        run_hook("''", MESSAGE, 60)


def test_one_that_takes_too_long_is_ended_with_all_it_started(tmp_path: Path) -> None:
    began = time.monotonic()
    with pytest.raises(HookError, match="took longer than 1 s"):
        run_hook("sh -c 'sleep 100 & sleep 100'", MESSAGE, 1)
    assert time.monotonic() - began < 30


def test_no_shell_reads_it(tmp_path: Path) -> None:
    run_hook(f"{shlex.quote(sys.executable)} -c pass '; touch {tmp_path}/made'", MESSAGE, 60)
    assert not (tmp_path / "made").exists()


def test_failures_are_told_and_the_log_has_one_id(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "log", "nightly")
    announcer = Announcer(Settings(on_publish=str(tmp_path / "none")), log)
    announcer.published("store", 4, "night", "a line")
    report = announcer.finished(NightRecord(version=4, warning="drift"))
    log.close()
    assert report["warning"].startswith("drift; on_publish: version 4: the command could not be started")
    assert report["on_publish"][0]["ok"] is False and report["run"] == log.run
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["published", "hook", "finished"]
    assert {line["run"] for line in lines} == {log.run}


def test_a_store_never_says_what_is_run() -> None:
    stored = load_settings(None, {"on_publish": "touch made", "seed": 3})
    assert "on_publish" not in stored.of_the_model()
    assert settings_of_model({**stored.model_dump(mode="json")}).on_publish is None
    assert settings_of_model(stored.of_the_model(), None, ["on_publish=touch x"]).on_publish == "touch x"


@pytest.mark.usefixtures("one_thread")
def test_a_night_tells(store: Path, tmp_path: Path) -> None:
    hook = script(tmp_path, "import sys; open(sys.argv[1], 'a').write(sys.stdin.read() + '\\n'); sys.exit(5)")
    night = write_night(tmp_path / "night1.changes", ADDED, [])
    given = {"on_publish": hook}
    report = dkge_dist.nightly(store, night, settings=given, log_json=tmp_path / "log", metrics=tmp_path / "night.prom")
    (told,) = [json.loads(line) for line in (tmp_path / "told").read_text().splitlines()]
    assert (told["version"], told["snapshot"], told["headline"]) == (4, "night1", report["headline"])
    assert told["run"] == report["run"]
    assert "ended with 5" in report["warning"] and Store.open(store).find_model().version == 4
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert lines[0]["event"] == "started" and lines[-1]["event"] == "finished"
    assert {"progress", "published", "hook"} <= {line["event"] for line in lines}
    assert {line["run"] for line in lines} == {report["run"]}

    from prometheus_client.parser import text_string_to_metric_families

    families = {one.name: one for one in text_string_to_metric_families((tmp_path / "night.prom").read_text())}
    update = {sample.labels["figure"]: sample.value for sample in families["dkge_night_update"].samples}
    assert {key: update[key] for key in ("learn_seconds", "open_seconds")} == {
        key: report["update"][key] for key in ("learn_seconds", "open_seconds")
    }
    assert families["dkge_night_seconds"].samples[0].value == report["seconds"]
    assert families["dkge_model_version"].samples[0].value == 4
    assert families["dkge_night_unchanged"].samples[0].value == 0
    assert [path.name for path in tmp_path.glob(".night*")] == []

    again = dkge_dist.nightly(store, night, settings=given, metrics=tmp_path / "night.prom")
    assert again["unchanged"] and "on_publish" not in again
    assert "dkge_night_unchanged 1\n" in (tmp_path / "night.prom").read_text()
