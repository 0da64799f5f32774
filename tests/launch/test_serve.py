"""launch/serve.py and its manifest: valid, without rights that it does not need, and a version rolls through it."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

import dkge_dist
from tests.jobs.building import some_train, trained_store, write_night
from tests.launch.test_kubernetes import CLUSTER, OBJECT, TEXT, fields

LAUNCH = Path(__file__).parents[2] / "launch"
RAY_SERVICE = fields(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayService"},
    metadata=OBJECT,
    spec=fields(["serveConfigV2", "rayClusterConfig"], serveConfigV2=TEXT, rayClusterConfig=CLUSTER),
)


@pytest.fixture(scope="module")
def service() -> dict[str, Any]:
    (document,) = yaml.safe_load_all((LAUNCH / "rayservice.yaml").read_text(encoding="utf-8"))
    return dict(document)


def groups(service: dict[str, Any]) -> list[dict[str, Any]]:
    cluster = service["spec"]["rayClusterConfig"]
    return [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]


def test_the_manifest_is_valid(service: dict[str, Any]) -> None:
    jsonschema.validate(service, RAY_SERVICE)
    for number, group in enumerate(groups(service)):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": f"pod-{number}"}}
        pod["template"] = group["template"]
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.filterwarnings("ignore:Using extra keyword arguments on `Field`")  # Ray's own schema does.
def test_ray_serve_accepts_its_configuration(service: dict[str, Any]) -> None:
    from ray.serve.schema import ServeDeploySchema

    config = ServeDeploySchema.model_validate(yaml.safe_load(service["spec"]["serveConfigV2"]))
    (application,) = config.applications
    assert application.import_path == "launch.serve:app" and (LAUNCH / "serve.py").is_file()
    assert application.args["store"] == "/dkge/store"
    assert config.http_options.port == 8000


def test_pods_have_no_right_they_do_not_need(service: dict[str, Any]) -> None:
    cluster = service["spec"]["rayClusterConfig"]
    assert cluster["authOptions"] == {"mode": "token", "secretName": "dkge-ray-token"}
    assert cluster["headGroupSpec"]["serviceType"] == "ClusterIP"
    for group in groups(service):
        pod = group["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["securityContext"]["runAsNonRoot"] is True and pod["securityContext"]["runAsUser"] == 1000
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        assert pod["volumes"][0]["persistentVolumeClaim"] == {"claimName": "dkge-store", "readOnly": True}
        (container,) = pod["containers"]
        assert container["securityContext"] == {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        assert container["volumeMounts"] == [{"name": "dkge", "mountPath": "/dkge", "readOnly": True}]
        assert container["resources"]["limits"].keys() == {"cpu", "memory"}
        token = next(item for item in container["env"] if item["name"] == "DKGE_TOKEN")
        assert token["valueFrom"]["secretKeyRef"] == {"name": "dkge-serve-token", "key": "token"}


def test_ports_are_those_of_the_other_manifests(service: dict[str, Any]) -> None:
    (job, *_) = yaml.safe_load_all((LAUNCH / "rayjob.yaml").read_text(encoding="utf-8"))
    expected = job["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]
    for group in groups(service):
        assert group["rayStartParams"].items() >= expected.items()
    assert service["spec"]["rayClusterConfig"]["rayVersion"] == job["spec"]["rayClusterSpec"]["rayVersion"]
    policies = list(yaml.safe_load_all((LAUNCH / "network-policy.yaml").read_text(encoding="utf-8")))
    (policy,) = [one for one in policies if one["metadata"]["name"] == "dkge-serve"]
    assert policy["spec"]["podSelector"] == {"matchLabels": {"app": "dkge", "part": "serve"}}
    assert policy["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": 8000}]


SCRIPT = """
# Serves a store by a Ray of its own until stdin ends.
import logging, sys
import ray
from ray import serve
from ray.serve.config import HTTPOptions
from launch.serve import app
store, port = sys.argv[1], int(sys.argv[2])
ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
serve.start(http_options=HTTPOptions(host="127.0.0.1", port=port))
numbers = {"min_replicas": "2", "max_replicas": "2", "num_cpus": "0.1", "threads": "2"}
serve.run(app({"store": store, **numbers}), name="dkge")
print("ready", flush=True)
sys.stdin.read()
serve.shutdown()
ray.shutdown()
"""


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_version_rolls_through_without_a_failed_request(tmp_path: Path) -> None:
    pytest.importorskip("ray.serve", reason="ray[serve] is not installed")
    store = Path(shutil.copytree(trained_store(tmp_path), tmp_path / "served"))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "PYTHONPATH": str(LAUNCH.parent)}
    environment.pop("DKGE_TOKEN", None)
    running = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(store), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=LAUNCH.parent,
    )
    assert running.stdin is not None and running.stdout is not None
    found: list[tuple[int, int]] = []
    stop = threading.Event()

    def ask() -> tuple[int, dict[str, Any]]:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        connection.request("GET", "/api/answer?head=e4&relation=r2&k=3")
        reply = connection.getresponse()
        told = json.loads(reply.read())
        connection.close()
        return reply.status, told

    def client() -> None:
        while not stop.is_set():
            status, told = ask()
            found.append((status, told.get("version", 0)))

    try:
        assert running.stdout.readline() == "ready\n"
        clients = [threading.Thread(target=client) for _ in range(3)]
        for one in clients:
            one.start()
        night = write_night(tmp_path / "night.changes", ["e4\tr2\tnew", "new\tr1\te3"], some_train(store, 2))
        dkge_dist.ingest(store, night)
        version = dkge_dist.update(store)["version"]
        until = time.monotonic() + 300
        # Both replicas have it when for a while nobody answers by the old one.
        while {told for _, told in found[-50:]} != {version} and time.monotonic() < until:
            time.sleep(0.1)
        stop.set()
        for one in clients:
            one.join()
    finally:
        stop.set()
        running.stdin.close()
        running.wait(120)
        running.stdout.close()
    assert {status for status, _ in found} == {200}
    assert {told for _, told in found} == {2, version}
