"""The Kubernetes objects of launch/: valid by published schemas, and with no right that they do not need.

What Kubernetes itself defines is validated by its own published schemas, strictly: no unknown field. KubeRay publishes
its schema in its repository and in no package, so its own fields are named here, by its API reference (1.6); pods in
them are Kubernetes' again.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml

from dkge_dist.store.storage.bucket import BucketStorage
from dkge_dist.surfaces import api
from tests.graphs import dense, fresh_labels, write_changes, write_tsv

LAUNCH = Path(__file__).parents[2] / "launch"
GUIDE = LAUNCH.parent / "docs" / "cluster.md"
FILES = ["rayjob.yaml", "rayjob-bucket.yaml", "nightly-cronjob.yaml", "nightly-bucket-cronjob.yaml", "store-claim.yaml",
         "network-policy.yaml"]  # fmt: skip
JOBS = ["rayjob.yaml", "rayjob-bucket.yaml"]
CRONS = ["nightly-cronjob.yaml", "nightly-bucket-cronjob.yaml"]


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((LAUNCH / name).read_text(encoding="utf-8")))


def of_kind(name: str, kind: str) -> dict[str, Any]:
    return next(document for document in documents(name) if document["kind"] == kind)


def fields(required: list[str], **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


TEXT, FLAG, COUNT, OBJECT = (
    {"type": "string"},
    {"type": "boolean"},
    {"type": "integer", "minimum": 0},
    {"type": "object"},
)
TEXTS = {"type": "object", "additionalProperties": TEXT}
GROUP = {"rayStartParams": TEXTS, "template": OBJECT, "resources": TEXTS, "labels": TEXTS}
CLUSTER = fields(
    ["headGroupSpec"],
    rayVersion=TEXT,
    authOptions=fields([], mode={"enum": ["disabled", "token"]}, secretName=TEXT, enableK8sTokenAuth=FLAG),
    headGroupSpec=fields(
        ["template"],
        **GROUP,
        serviceType={"enum": ["ClusterIP", "NodePort", "LoadBalancer"]},
        headService=OBJECT,
        enableIngress=FLAG,
    ),
    workerGroupSpecs={
        "type": "array",
        "items": fields(
            ["groupName", "minReplicas", "maxReplicas", "template"],
            **GROUP,
            groupName=TEXT,
            replicas=COUNT,
            minReplicas=COUNT,
            maxReplicas=COUNT,
            numOfHosts=COUNT,
            idleTimeoutSeconds=COUNT,
            scaleStrategy=OBJECT,
            suspend=FLAG,
        ),
    },
    enableInTreeAutoscaling=FLAG,
    autoscalerOptions=OBJECT,
    headServiceAnnotations=TEXTS,
    gcsFaultToleranceOptions=OBJECT,
    suspend=FLAG,
    managedBy=TEXT,
)
RAY_JOB = fields(
    ["apiVersion", "kind", "metadata", "spec"],
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=OBJECT,
    spec=fields(
        [],
        entrypoint=TEXT,
        runtimeEnvYAML=TEXT,
        jobId=TEXT,
        metadata=TEXTS,
        submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]},
        submitterPodTemplate=OBJECT,
        submitterConfig=fields([], backoffLimit=COUNT),
        entrypointNumCpus={"type": "number"},
        entrypointNumGpus={"type": "number"},
        entrypointResources=TEXT,
        rayClusterSpec=CLUSTER,
        clusterSelector=TEXTS,
        backoffLimit=COUNT,
        activeDeadlineSeconds=COUNT,
        shutdownAfterJobFinishes=FLAG,
        ttlSecondsAfterFinished=COUNT,
        deletionStrategy=OBJECT,
        suspend=FLAG,
        managedBy=TEXT,
    ),
)


def templates(name: str) -> Iterator[dict[str, Any]]:
    """All pods that a file makes."""
    for document in documents(name):
        if document["kind"] == "RayJob":
            spec = document["spec"]
            yield spec["submitterPodTemplate"]
            yield spec["rayClusterSpec"]["headGroupSpec"]["template"]
            yield from (group["template"] for group in spec["rayClusterSpec"]["workerGroupSpecs"])
        elif document["kind"] == "CronJob":
            yield document["spec"]["jobTemplate"]["spec"]["template"]


@pytest.mark.parametrize("name", FILES)
def test_objects_are_valid(name: str) -> None:
    for document in documents(name):
        if document["kind"] == "RayJob":
            jsonschema.validate(document, RAY_JOB)
        else:
            kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
    for number, template in enumerate(templates(name)):
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": f"pod-{number}"}, "template": template}
        kubernetes_validate.validate(pod, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("wrong", ["replica", "serviceaccount", "resource"])
def test_misspelt_fields_are_found(wrong: str) -> None:
    job = of_kind("rayjob.yaml", "RayJob")
    pod = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]
    if wrong == "replica":
        job["spec"]["rayClusterSpec"]["workerGroupSpecs"][0]["replica"] = 2
        with pytest.raises(jsonschema.ValidationError, match="replica"):
            jsonschema.validate(job, RAY_JOB)
        return
    (pod["spec"] if wrong == "serviceaccount" else pod["spec"]["containers"][0])[wrong] = {}
    made = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "pod"}, "template": pod}
    with pytest.raises(kubernetes_validate.ValidationError, match=wrong):
        kubernetes_validate.validate(made, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", [*JOBS, *CRONS])
def test_pods_have_no_right_they_do_not_need(name: str) -> None:
    found = list(templates(name))
    assert len(found) == (3 if name in JOBS else 1)
    for template in found:
        pod = template["spec"]
        context = pod["securityContext"]
        assert context["runAsNonRoot"] is True and context["runAsUser"] == 1000
        assert context["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod.keys() & {"hostNetwork", "hostPID", "hostIPC"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "capabilities": {"drop": ["ALL"]},
            }
            assert (
                container["resources"]["limits"].keys()
                == container["resources"]["requests"].keys()
                == {"cpu", "memory"}
            )
        if name in JOBS:
            assert pod["automountServiceAccountToken"] is False
            assert template["metadata"]["labels"] == {"app": "dkge"}
        else:
            assert pod["serviceAccountName"] == "dkge-nightly", "the one that has to talk to Kubernetes"
            assert template["metadata"]["labels"] == {"app": "dkge-cron"}


def test_network_policy_lets_in_the_operator_alone() -> None:
    policies = {document["metadata"]["name"]: document["spec"] for document in documents("network-policy.yaml")}
    pods, cron = policies["dkge"], policies["dkge-cron"]
    for policy, label in ((pods, "dkge"), (cron, "dkge-cron")):
        assert policy["podSelector"] == {"matchLabels": {"app": label}}
        assert policy["policyTypes"] == ["Ingress", "Egress"]
    among, operator = pods["ingress"]
    assert among == {"from": [{"podSelector": {"matchLabels": {"app": "dkge"}}}]}
    assert operator["ports"] == [{"protocol": "TCP", "port": 8265}]
    assert cron["ingress"] == []
    blocks = [to["ipBlock"] for rule in pods["egress"] for to in rule["to"] if "ipBlock" in to]
    assert blocks == [{"cidr": "0.0.0.0/0", "except": ["169.254.169.254/32"]}]


def test_bucket_variant_is_the_other_one_without_a_shared_volume() -> None:
    shared, bucket = (of_kind(name, "RayJob") for name in JOBS)
    text = (LAUNCH / "rayjob-bucket.yaml").read_text(encoding="utf-8")
    assert "persistentVolumeClaim" not in text and "claimName" not in text
    for job in (shared, bucket):
        del job["spec"]["entrypoint"]
        cluster = job["spec"]["rayClusterSpec"]
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            pod = group["template"]["spec"]
            del pod["volumes"]
            container = pod["containers"][0]
            environment = {item["name"]: item["value"] for item in container.pop("env")}
            assert environment.pop("DKGE_SHARD_PORTS") == "20000-20099"
            (mount,) = container.pop("volumeMounts")
            if job is bucket:
                assert environment["DKGE_CACHE"].startswith(f"{mount['mountPath']}/")
                assert container.pop("envFrom") == [{"secretRef": {"name": "dkge-bucket"}}]
            else:
                assert environment == {}
    assert shared == bucket


def test_ports_are_the_same_everywhere_and_in_the_guide() -> None:
    text = (LAUNCH / "cluster.yaml").read_text(encoding="utf-8")
    starts = [command for command in re.split(r"\n  - ", text) if "ray start" in command and "RAY_AUTH_MODE" in command]
    given = [dict(re.findall(r"--([a-z-]*port)=([0-9]+)", command)) for command in starts]
    head, worker = given
    assert head.items() >= worker.items()
    for name in JOBS:
        cluster = of_kind(name, "RayJob")["spec"]["rayClusterSpec"]
        for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
            assert {key: value for key, value in group["rayStartParams"].items() if key.endswith("port")} == worker
    table = GUIDE.read_text(encoding="utf-8")
    for port in {*head.values(), "20000", "20099"} - {worker["min-worker-port"], worker["max-worker-port"]}:
        assert re.search(rf"^\| .*\b{port}\b", table, re.MULTILINE), f"port {port} is not in the guide"
    assert f"{worker['min-worker-port']}–{worker['max-worker-port']}" in table
    assert text.count("DKGE_SHARD_PORTS=20000-20099") == 2


def test_ray_start_knows_the_options() -> None:
    from ray.scripts.scripts import start

    known = {name for parameter in start.params for name in parameter.opts}
    used = {
        f"--{name}"
        for name in of_kind("rayjob.yaml", "RayJob")["spec"]["rayClusterSpec"]["headGroupSpec"]["rayStartParams"]
    }
    used |= set(
        re.findall(r"--[a-z-]+(?==|\s|$)", (LAUNCH / "cluster.yaml").read_text().split("head_start_ray_commands:")[1])
    )
    assert used <= known


def test_cluster_yaml_is_right_about_torch() -> None:
    """The constraints name a version that fits every build of it, so that the index decides."""
    from packaging.requirements import Requirement

    pinned = re.search(r"^torch==(.*)$", (LAUNCH.parent / "constraints.txt").read_text(), re.MULTILINE)
    assert pinned is not None and "+" not in pinned[1]
    text = (LAUNCH / "cluster.yaml").read_text(encoding="utf-8")
    assert f"They name torch {pinned[1]} and no build of it" in text
    assert f"pip takes {pinned[1]}+cpu" in text
    named = Requirement(f"torch=={pinned[1]}").specifier
    assert named.contains(f"{pinned[1]}+cpu") and named.contains(f"{pinned[1]}+cu130")
    assert not any("index-url" in command for command in documents("cluster.yaml")[0]["setup_commands"])


KUBECTL = """#!/bin/sh
case $1 in
  create) echo rayjob.ray.io/one; cp "$3" "$FAKE/created" ;;
  get) [ -e "$FAKE/seen" ] || { touch "$FAKE/seen"; printf Running/RUNNING; exit 0; }; printf "$ENDS" ;;
  delete) echo "$2" > "$FAKE/deleted" ;;
esac
"""


@pytest.mark.parametrize(("ends", "code"), [("Complete/SUCCEEDED", 0), ("Failed/FAILED", 1), ("Complete/FAILED", 1)])
def test_bucket_cron_job_waits_for_its_job(tmp_path: Path, ends: str, code: int) -> None:
    container = next(templates("nightly-bucket-cronjob.yaml"))["spec"]["containers"][0]
    (tmp_path / "kubectl").write_text(KUBECTL)
    (tmp_path / "kubectl").chmod(0o755)
    given = {"TEMPLATE": str(LAUNCH / "rayjob-bucket.yaml"), "POLL_SECONDS": "0"}
    assert {item["name"] for item in container["env"]} == given.keys()
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "FAKE": str(tmp_path), "ENDS": ends, **given}
    ended = subprocess.run([*container["command"], *container["args"]], env=env, check=False, capture_output=True)
    assert ended.returncode == code
    assert (tmp_path / "created").read_bytes() == (LAUNCH / "rayjob-bucket.yaml").read_bytes()
    assert (tmp_path / "deleted").exists() == (code == 0), "a failed one stays, to be looked at"


class TestIncoming:
    """The script that the bucket variant runs."""

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(LAUNCH / "incoming.py"), *arguments]
        return subprocess.run(command, check=False, capture_output=True, text=True, cwd=LAUNCH.parent, timeout=300)

    def test_entrypoint_is_it(self) -> None:
        python, script, *words = shlex.split(of_kind("rayjob-bucket.yaml", "RayJob")["spec"]["entrypoint"])
        assert (python, script) == ("python", "/opt/dkge/launch/incoming.py")
        assert words == ["s3://BUCKET/store", "s3://BUCKET/incoming", "--shards", "8", "--json"]

    @pytest.mark.parametrize("words", [[], ["s3://bucket/store"], ["--json", "s3://bucket/store"]])
    def test_usage(self, words: list[str]) -> None:
        ended = self.run(*words)
        assert ended.returncode == 1 and ended.stderr.startswith("usage: incoming.py STORE")

    @pytest.mark.slow
    @pytest.mark.skipif(shutil.which("dkge", path=str(Path(sys.executable).parent)) is None, reason="not installed")
    def test_nights_in_order_until_one_fails(self, bucket: str, tmp_path: Path) -> None:
        store, incoming, objects = f"{bucket}/store", f"{bucket}/incoming", BucketStorage(bucket).objects
        base = dense(150, entities=20)
        api.ingest(store, write_tsv(tmp_path / "base.tsv", base), valid=8, test=8)
        for number in (2, 1):
            night = write_changes(tmp_path / f"{number}.changes", fresh_labels(number), base[number : number + 1])
            objects.put(f"incoming/{number}.changes", night)
        objects.put("incoming/3-bad.changes", b"not a change\n")
        settings = ["--json", "model.dim=4", "train.max_epochs=1", "threads=1"]
        ended = self.run(store, incoming, *settings)
        assert ended.returncode == 1
        assert "3-bad.changes: ended with exit code 1" in ended.stderr
        reports = [json.loads(line) for line in ended.stdout.splitlines()]
        assert [report["ingest"]["name"] for report in reports if "ingest" in report] == ["1", "2"]
        assert objects.names("incoming")[0] == ["3-bad.changes"]
        assert objects.names("done")[0] == ["1.changes", "2.changes"]
        objects.delete("incoming/3-bad.changes")
        assert self.run(store, incoming).returncode == 0, "nothing waits"
