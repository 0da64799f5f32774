"""The files of launch/: valid for the programs that read them, guarded by a token, doing what their comments say."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

LAUNCH = Path(__file__).parents[2] / "launch"


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((LAUNCH / name).read_text(encoding="utf-8")))


def of_kind(name: str, kind: str) -> dict[str, Any]:
    return next(document for document in documents(name) if document["kind"] == kind)


def claims(pod: dict[str, Any]) -> dict[str, str]:
    """Claims of a pod by where its containers mount them."""
    by_name = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in pod["volumes"]
        if "persistentVolumeClaim" in volume
    }
    mounts = [mount for container in pod["containers"] for mount in container["volumeMounts"]]
    return {mount["mountPath"]: by_name[mount["name"]] for mount in mounts if mount["name"] in by_name}


def validated(config: dict[str, Any]) -> dict[str, Any]:
    from ray.autoscaler._private.util import prepare_config, validate_config

    prepared = prepare_config(config)
    validate_config(prepared)
    return prepared


class TestClusterYaml:
    def test_ray_accepts_it(self) -> None:
        prepared = validated(documents("cluster.yaml")[0])
        assert prepared["available_node_types"]["local.cluster.node"]["max_workers"] == 2

    def test_ray_accepts_the_lines_for_aws(self) -> None:
        marked = re.findall(r"^#: (.*)$", (LAUNCH / "cluster.yaml").read_text(encoding="utf-8"), re.MULTILINE)
        rented = yaml.safe_load("\n".join(marked))
        assert rented["provider"]["type"] == "aws"
        validated({**documents("cluster.yaml")[0], **rented})

    def test_nodes_require_the_token(self) -> None:
        config = documents("cluster.yaml")[0]
        assert config["file_mounts"]["~/.ray/auth_token"] == "~/.ray/auth_token"
        starts = [
            command
            for command in config["head_start_ray_commands"] + config["worker_start_ray_commands"]
            if "ray start" in command
        ]
        assert len(starts) == 2
        assert all(command.startswith("export RAY_AUTH_MODE=token ") for command in starts)
        assert "--head" in starts[0] and "--dashboard-host=127.0.0.1" in starts[0].split()

    def test_ray_submit_runs_the_installed_python(self) -> None:
        config = documents("cluster.yaml")[0]
        assert config["file_mounts"]["~/dkge_dist"] == "."
        assert (LAUNCH.parent / "pyproject.toml").is_file() and (LAUNCH.parent / "constraints.txt").is_file()
        setup = config["setup_commands"]
        assert any("pip install" in command and command.endswith(" ~/dkge_dist") for command in setup)
        assert any("PATH=~/dkge/bin:$PATH" in command and "RAY_AUTH_MODE=token" in command for command in setup)

    def test_setup_may_be_repeated(self, tmp_path: Path) -> None:
        command = next(c for c in documents("cluster.yaml")[0]["setup_commands"] if ".bashrc" in c)
        for _ in range(2):
            subprocess.run(["bash", "-c", command], env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]}, check=True)
        shown = subprocess.run(
            ["bash", "-c", "source ~/.bashrc; echo $PATH $RAY_AUTH_MODE"],
            env={"HOME": str(tmp_path), "PATH": os.environ["PATH"]}, check=True, capture_output=True, text=True,
        ).stdout  # fmt: skip
        assert shown.startswith(f"{tmp_path}/dkge/bin:") and shown.endswith(" token\n")
        assert (tmp_path / ".bashrc").read_text().count("dkge/bin") == 1


class TestKubernetes:
    def test_job_runs_an_existing_script_and_ends_with_it(self) -> None:
        spec = of_kind("rayjob.yaml", "RayJob")["spec"]
        python, script, *words = shlex.split(spec["entrypoint"])
        assert python == "python" and script.startswith("/opt/dkge/launch/")
        assert (LAUNCH / Path(script).name).is_file()
        assert words == ["/dkge/store", "/dkge/incoming/NIGHT", "--shards", "8", "--json"]
        assert spec["shutdownAfterJobFinishes"] is True and spec["backoffLimit"] > 0

    def test_job_requires_the_token(self) -> None:
        cluster = of_kind("rayjob.yaml", "RayJob")["spec"]["rayClusterSpec"]
        assert cluster["authOptions"] == {"mode": "token", "secretName": "dkge-ray-token"}
        assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"

    def test_all_pods_mount_the_store(self) -> None:
        claim = of_kind("store-claim.yaml", "PersistentVolumeClaim")
        assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
        cluster = of_kind("rayjob.yaml", "RayJob")["spec"]["rayClusterSpec"]
        cron = of_kind("nightly-cronjob.yaml", "CronJob")["spec"]["jobTemplate"]["spec"]["template"]
        groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
        for pod in (*(group["template"]["spec"] for group in groups), cron["spec"]):
            assert claims(pod) == {"/dkge": claim["metadata"]["name"]}

    def test_image_has_the_pinned_ray(self) -> None:
        pinned = re.search(r"^ray==(.*)$", (LAUNCH.parent / "constraints.txt").read_text(), re.MULTILINE)
        assert pinned is not None
        for name in ("rayjob.yaml", "rayjob-bucket.yaml"):
            assert of_kind(name, "RayJob")["spec"]["rayClusterSpec"]["rayVersion"] == pinned[1]

    def test_nights_never_run_at_once(self) -> None:
        spec = of_kind("nightly-cronjob.yaml", "CronJob")["spec"]
        assert spec["concurrencyPolicy"] == "Forbid"
        assert spec["jobTemplate"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"

    def test_cron_job_has_only_the_rights_it_needs(self) -> None:
        rules = of_kind("nightly-cronjob.yaml", "Role")["rules"]
        assert rules == [{"apiGroups": ["ray.io"], "resources": ["rayjobs"], "verbs": ["create", "get", "delete"]}]


KUBECTL = """#!/bin/sh
# Takes every job and says that it succeeded, but for those that name a bad night; the first look finds it running.
case $1 in
  create)
    cat > "$FAKE/job"; grep entrypoint: "$FAKE/job" >> "$FAKE/created"
    rm -f "$FAKE/seen"; echo rayjob.ray.io/one ;;
  get)
    [ -e "$FAKE/seen" ] || { touch "$FAKE/seen"; printf Running/RUNNING; exit 0; }
    if grep -q bad "$FAKE/job"; then printf Failed/FAILED; else printf Complete/SUCCEEDED; fi ;;
  delete) echo "$2" >> "$FAKE/deleted" ;;
esac
"""


class TestNightsInOrder:
    """Both schedules take the files of incoming/ in order, and stop at the first that fails."""

    def bring(self, place: Path, *names: str) -> None:
        (place / "incoming").mkdir(exist_ok=True)
        for name in (*names, ".half-written"):
            (place / "incoming" / name).touch()

    def left(self, place: Path) -> list[str]:
        return sorted(path.name for path in (place / "incoming").glob("[!.]*"))

    def script(self, folder: Path, name: str, text: str) -> Path:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return path

    def test_cron_job_takes_nights_in_order(self, tmp_path: Path) -> None:
        cron = of_kind("nightly-cronjob.yaml", "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
        container = cron["containers"][0]
        self.script(tmp_path, "bin/kubectl", KUBECTL)
        given = {"DKGE": str(tmp_path), "TEMPLATE": str(LAUNCH / "rayjob.yaml"), "POLL_SECONDS": "0"}
        assert {item["name"] for item in container["env"]} == given.keys()
        env = {"PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "FAKE": str(tmp_path), **given}
        command = [*container["command"], *container["args"]]

        assert subprocess.run(command, env=env, check=True, capture_output=True).stdout == b""  # Nothing came.
        self.bring(tmp_path, "2.changes", "1.changes", "3-bad.changes", "4.changes")
        ended = subprocess.run(command, env=env, check=False, capture_output=True, text=True)
        assert ended.returncode == 1 and "3-bad.changes: rayjob.ray.io/one ended as Failed/FAILED" in ended.stdout
        assert self.left(tmp_path) == ["3-bad.changes", "4.changes"]
        created = [line.split()[4] for line in (tmp_path / "created").read_text().splitlines()]
        assert created == [f"/dkge/incoming/{name}.changes" for name in ("1", "2", "3-bad")]
        assert (tmp_path / "deleted").read_text().splitlines() == ["rayjob.ray.io/one"] * 2  # The failed one stays.

        (tmp_path / "incoming" / "3-bad.changes").rename(tmp_path / "incoming" / "3.changes")
        subprocess.run(command, env=env, check=True, capture_output=True)
        assert self.left(tmp_path) == []
        self.bring(tmp_path, "5; rm x")
        assert subprocess.run(command, env=env, check=False, capture_output=True).returncode == 1

    @pytest.mark.skipif(shutil.which("flock") is None, reason="needs flock")
    def test_crontab_takes_nights_in_order(self, tmp_path: Path) -> None:
        lines = [line for line in (LAUNCH / "crontab").read_text(encoding="utf-8").splitlines() if line[:1] not in "#"]
        settings = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z_]+=", line))
        (line,) = (line for line in lines if line and line[0].isdigit())
        assert "%" not in line, "cron makes newlines of them"
        assert settings["RAY_AUTH_MODE"] == "token" and settings["RAY_ADDRESS"] == "auto"
        *when, command = line.split(maxsplit=5)
        assert len(when) == 5
        self.script(
            tmp_path, "dkge/bin/dkge",
            '#!/bin/sh\necho "$@"\ncase $3 in *bad*) exit 1 ;; esac\n',
        )  # fmt: skip
        env = {**settings, "DKGE": str(tmp_path), "HOME": str(tmp_path), "PATH": os.environ["PATH"]}
        run = [settings["SHELL"], "-c", command]

        subprocess.run(run, env=env, check=True)
        self.bring(tmp_path, "2", "1", "3-bad", "4")
        assert subprocess.run(run, env=env, check=False).returncode == 1
        assert self.left(tmp_path) == ["3-bad", "4"]
        assert [line.split() for line in (tmp_path / "nightly.log").read_text().splitlines()] == [
            ["nightly", f"{tmp_path}/store", f"{tmp_path}/incoming/{name}", "--shards", "8", "--json"]
            for name in ("1", "2", "3-bad")
        ]
        (tmp_path / "incoming" / "3-bad").rename(tmp_path / "incoming" / "3")
        with subprocess.Popen(
            ["flock", tmp_path / "nightly.lock", "sh", "-c", "echo; cat"], stdin=-1, stdout=-1
        ) as held:
            assert held.stdout is not None and held.stdin is not None
            held.stdout.read(1)
            assert subprocess.run(run, env=env, check=False).returncode == 1
            assert self.left(tmp_path) == ["3", "4"], "the one before is still running"
            held.stdin.close()
        subprocess.run(run, env=env, check=True)
        assert self.left(tmp_path) == []
