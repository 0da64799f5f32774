"""Jobs on a real Ray head with token authentication: through the jobs API, `ray job submit` and `ray submit`.

The head is a process of its own in a session of its own, so that ending it ends nothing else.
"""

from __future__ import annotations

import json
import os
import secrets
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import dkge_dist

LAUNCH = Path(__file__).parents[2] / "launch"
RAY = str(Path(sys.executable).with_name("ray"))
PATIENCE = 600.0
"""Seconds for anything: on a machine with nothing else to do all of this takes one minute."""

pytestmark = pytest.mark.timeout(1800)


@dataclass(frozen=True)
class Head:
    """A running head: address of its jobs API, its token, and the environment of clients."""

    url: str
    token: str
    folder: Path
    env: dict[str, str]

    def client(self, token: str | None) -> Any:
        from ray.job_submission import JobSubmissionClient

        return JobSubmissionClient(self.url, headers={"Authorization": f"Bearer {token}"} if token else {})

    def run(self, entrypoint: str) -> tuple[str, str]:
        """Submit, follow to the end; its status and what it printed."""
        client = self.client(self.token)
        job = client.submit_job(entrypoint=entrypoint)
        soon(lambda: client.get_job_status(job).is_terminal(), f"the end of {entrypoint}")
        return client.get_job_status(job).value, client.get_job_logs(job)


def soon(happens: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not happens():
        assert time.monotonic() < deadline, f"{what} did not come in {PATIENCE:g} s"
        time.sleep(0.2)


def free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def processes_of(session: int) -> list[int]:
    """Processes of a session: workers have process groups of their own."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            found.append(int(stat.parent.name))
    return found


def end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    deadline = time.monotonic() + 20
    while processes_of(process.pid) and time.monotonic() < deadline:
        time.sleep(0.2)
    for left in processes_of(process.pid):
        os.kill(left, signal.SIGKILL)


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    folder = Path(tempfile.mkdtemp(prefix="dkge-"))  # Not pytest's: paths of sockets must be short.
    token = secrets.token_hex(32)
    (folder / "token").write_text(token)
    (folder / "token").chmod(0o600)
    env = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
    env |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(folder / "token"), "RAY_TMPDIR": str(folder)}
    dashboard, agent, client = free_ports(3)
    command = [
        RAY, "start", "--head", "--block", "--disable-usage-stats", "--port=0", "--node-ip-address=127.0.0.1",
        "--dashboard-host=127.0.0.1", f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}",
        f"--ray-client-server-port={client}", "--min-worker-port=0", "--max-worker-port=0", "--num-cpus=2",
        f"--object-store-memory={100 << 20}", f"--memory={2 << 30}",
    ]  # fmt: skip
    log = folder / "head.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
    started = Head(f"http://127.0.0.1:{dashboard}", token, folder, env)
    try:

        def is_up() -> bool:
            assert process.poll() is None, log.read_text()
            return "Ray runtime started" in log.read_text()

        soon(is_up, "the head")
        yield started
    finally:
        end(process)
        shutil.rmtree(folder, ignore_errors=True)
    assert processes_of(process.pid) == []


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory, one_thread: None) -> Path:
    """A folder with a store that has a model, and the night that comes next."""
    folder = tmp_path_factory.mktemp("learnt")
    dkge_dist.synth(folder / "movies", entities=300, triples=900, nights=1)
    dkge_dist.ingest(folder / "store", folder / "movies" / "snapshot-000.tsv", valid=20, test=0)
    settings = ["model.dim=8", "train.max_epochs=1", "train.negatives=32", "online.max_epochs=2", "threads=1"]
    dkge_dist.train(folder / "store", settings=settings)
    return folder


@pytest.fixture
def workspace(learnt: Path, tmp_path: Path) -> Path:
    """A copy of it, to write to."""
    shutil.copytree(learnt, tmp_path / "workspace")
    return tmp_path / "workspace"


def versions(workspace: Path) -> list[str]:
    return [f"{entry['kind']} {entry['name']}" for entry in dkge_dist.log(workspace / "store")["versions"]]


def nightly(workspace: Path, script: str | Path = LAUNCH / "nightly.py") -> list[str]:
    night = workspace / "movies" / "night-001.changes"
    return [sys.executable, str(script), str(workspace / "store"), str(night), "--shards", "2", "--json"]


def report(output: str) -> dict[str, Any]:
    """The line of JSON among what a job printed."""
    (line,) = (line for line in output.splitlines() if line.startswith("{"))
    return json.loads(line)  # type: ignore[no-any-return]


@pytest.mark.parametrize("token", [None, "wrong" * 10])
def test_jobs_without_the_token_are_refused(head: Head, token: str | None) -> None:
    from ray.exceptions import AuthenticationError

    before = len(head.client(head.token).list_jobs())
    with pytest.raises(AuthenticationError):
        head.client(token).submit_job(entrypoint="true")
    assert len(head.client(head.token).list_jobs()) == before


def test_dashboard_listens_on_loopback_only(head: Head) -> None:
    """127.0.0.2 is this machine too, and would be answered by a socket that is bound to every address."""
    port = int(head.url.rpartition(":")[2])
    with closing(socket.create_connection(("127.0.0.1", port), timeout=60)):
        pass
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", port), timeout=60)


@pytest.mark.slow
def test_night_submitted_twice_is_learnt_once(head: Head, workspace: Path, tmp_path: Path) -> None:
    status, output = head.run(shlex.join(nightly(workspace)))
    assert status == "SUCCEEDED", output
    done = report(output)
    assert done["decision"] == "updated online" and done["update"]["shards_total"] == 2
    after = versions(workspace)
    assert after[-2:] == ["snapshot night-001", "model night-001"]

    # Again, as the documentation says it: with nothing but the script in the working directory.
    (tmp_path / "work" / "launch").mkdir(parents=True)
    shutil.copy(LAUNCH / "nightly.py", tmp_path / "work" / "launch")
    again = [RAY, "job", "submit", "--address", head.url, "--working-dir", str(tmp_path / "work"), "--"]
    ended = subprocess.run(
        [*again, *nightly(workspace, "launch/nightly.py")],
        env=head.env, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert report(ended.stdout)["unchanged"] is True
    assert versions(workspace) == after


@pytest.mark.slow
def test_failed_night_may_be_submitted_again(head: Head, workspace: Path) -> None:
    night, before = workspace / "movies" / "night-001.changes", versions(workspace)
    right = night.read_text()
    night.write_text(right + "not a change\n")
    status, output = head.run(shlex.join(nightly(workspace)))
    assert status == "FAILED"
    assert f"{night}" in report(output)["error"] and f"{right.count(chr(10)) + 1}" in report(output)["error"]
    assert f"dkge: {report(output)['error']}" in output
    assert versions(workspace) == before

    night.write_text(right)
    status, output = head.run(shlex.join(nightly(workspace)))
    assert status == "SUCCEEDED", output
    assert versions(workspace)[len(before) :] == ["snapshot night-001", "model night-001"]


SMALL = ["model.dim=8", "train.max_epochs=1", "train.negatives=32", "threads=1"]


def scalability(workspace: Path, pairs: str) -> list[str]:
    script = str(LAUNCH / "scalability.py")
    return [sys.executable, script, str(workspace / "store"), "--pairs", pairs, "--seconds", "5", "--json", *SMALL]


@pytest.mark.slow
def test_scalability_does_not_change_the_store(head: Head, workspace: Path) -> None:
    before, files = versions(workspace), sorted(workspace.rglob("*"))
    status, output = head.run(shlex.join(scalability(workspace, "0:1")))
    assert status == "SUCCEEDED", output
    (run,) = report(output)["runs"]
    assert (run["shards"], run["workers"], run["by_shard"]) == (0, 1, [])
    assert run["triples_per_second"] > 0 and run["cpu_seconds"]["total"] > 0
    assert versions(workspace) == before and sorted(workspace.rglob("*")) == files


@pytest.mark.slow
def test_scalability_measures_every_pair_that_has_room(head: Head, workspace: Path) -> None:
    before, files = versions(workspace), sorted(workspace.rglob("*"))
    status, output = head.run(shlex.join([*scalability(workspace, "1:1,2:2,64:1"), "--wait", "5"]))
    assert status == "FAILED"
    *runs, refused = report(output)["runs"]
    assert "no room for 64 shards" in refused["error"]
    for run, shards in zip(runs, (1, 2), strict=True):
        assert [of["shard"] for of in run["by_shard"]] == list(range(shards))
        assert run["bytes_pulled"] == sum(of["bytes_pulled"] for of in run["by_shard"]) > 0
        assert run["cpu_seconds"]["shards"] > 0 and run["cpu_seconds"]["workers"] > 0
    assert versions(workspace) == before and sorted(workspace.rglob("*")) == files


@pytest.mark.slow
def test_training_as_a_job(head: Head, workspace: Path) -> None:
    words = [sys.executable, str(LAUNCH / "train.py"), str(workspace / "store"), "--shards", "2", "--json", *SMALL]
    status, output = head.run(shlex.join(words))
    assert status == "SUCCEEDED", output
    assert (report(output)["shards"], report(output)["workers"], report(output)["epochs"]) == (2, 1, 1)
    assert versions(workspace)[-1] == f"model {report(output)['snapshot']}"


SSH = """#!/bin/bash
# As ssh does: what follows user@host is one line for a shell there.
while [[ $1 != *@* ]]; do shift; done
shift
exec bash -c "$*" < /dev/null
"""
RSYNC = """#!/bin/bash
source=${@: -2:1} target=${@: -1}
target=${target#*:}
exec cp "$source" "${target/#\\~/$HOME}"
"""


@pytest.mark.slow
def test_ray_submit_runs_the_night(head: Head, workspace: Path, tmp_path: Path) -> None:
    """What `ray submit` copies and runs, with this machine as the head node, by an `ssh` that runs commands here."""
    home = tmp_path / "home"
    for name, text in (("bin/ssh", SSH), ("bin/rsync", RSYNC), ("home/.bashrc", _bashrc())):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    config = {
        "cluster_name": "here",
        "provider": {"type": "local", "head_ip": "127.0.0.1", "worker_ips": []},
        "auth": {"ssh_user": "user"},
        # `ray submit` starts and stops nothing today; if a later version does, these commands do nothing.
        "head_start_ray_commands": ["true"],
        "worker_start_ray_commands": ["true"],
    }
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump(config))
    state = {"tags": {"ray-node-type": "head", "ray-node-status": "up-to-date"}, "state": "running"}
    (head.folder / "ray" / "cluster-here.state").write_text(json.dumps({"127.0.0.1": state}))
    env = {**head.env, "HOME": str(home), "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    words = nightly(workspace)[2:]
    ended = subprocess.run(
        [RAY, "submit", "--no-config-cache", str(tmp_path / "cluster.yaml"), str(LAUNCH / "nightly.py"), "--", *words],
        env=env, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert (home / "nightly.py").read_bytes() == (LAUNCH / "nightly.py").read_bytes()
    assert report(ended.stdout)["update"]["shards_total"] == 2
    assert versions(workspace)[-1] == "model night-001"


def _bashrc() -> str:
    """As cluster.yaml sets it up on a node: our `python` is first on the path."""
    return f"export PATH={Path(sys.executable).parent}:$PATH RAY_AUTH_MODE=token\n"
