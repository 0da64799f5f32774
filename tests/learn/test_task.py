"""The worker function of a training: in one process, and in two that share every batch on padded contexts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.learn.contexts import EntityContexts, Form
from dkge_dist.learn.task import Candidate, LearnTask, learn
from dkge_dist.runtime import LocalCommunicator, Monitor
from dkge_dist.tables.table import LocalTable, Tables
from dkge_dist.types import Array, Field
from tests.graphs import movies
from tests.learn.trainings import PAPER, tables_of, task_of, training_of

pytestmark = pytest.mark.usefixtures("one_thread")

ROOT = Path(__file__).parents[2]
EXACT = "train.products=float32"
"""Padded and ragged contexts multiply other rows at once; rounded to bfloat16 their products differ visibly."""
PRESETS = {"default": ["train.eval_every=2", EXACT], "paper": [*PAPER, "train.schedule=linear", EXACT]}


def worked(job: LearnTask) -> tuple[Candidate, Tables]:
    tables = tables_of(job)
    assert isinstance(job.folder, Path)
    job.folder.mkdir(exist_ok=True)
    return learn(LocalCommunicator(Monitor(), 1, "cpu"), tables, job), tables


def learnt(job: LearnTask) -> tuple[dict[str, Array], list[dict[str, Any]]]:
    """All vectors and dense parameters, and the metrics of every epoch."""
    result, tables = worked(job)
    arrays = {}
    for kind, table in zip("er", tables, strict=True):
        assert isinstance(table, LocalTable)
        arrays |= {f"{kind}/{field}": table.shard.values[field] for field in Field}
    return {**arrays, **result.dense}, result.progress.history


def test_joint_vectors_of_all_alive_are_materialised(tmp_path: Path) -> None:
    """Rows of labels that are in no triple keep zeros."""
    job = task_of(tmp_path, train=movies(60), valid=[("title1", "unheard", "newcomer")])
    digests = [np.append(some, some[:1] + np.uint64(1)) for some in job.graph.digests]
    job = replace(job, graph=replace(job.graph, digests=(digests[0], digests[1])))
    _, tables = worked(job)
    made = training_of(job, tables=tables)
    for table, alive, objects in (
        (tables.entities, job.graph.entities, made.step.entities),
        (tables.relations, job.graph.relations, made.step.relations),
    ):
        made.load(next(tmp_path.glob("best-*")))
        joint = table.pull({Field.JOINT: np.arange(table.rows, dtype=np.int32)})[Field.JOINT]
        assert alive.shape[0] == table.rows - 1
        assert not joint[-1].any()
        np.testing.assert_allclose(joint[alive], objects.joint(alive), rtol=1e-6)


@pytest.mark.parametrize(("form", "expected"), [(None, "ragged"), ("ragged", "ragged"), ("padded", "padded")])
def test_contexts_are_ragged_on_a_cpu_unless_padded_ones_are_asked_for(
    tmp_path: Path, form: Form | None, expected: Form
) -> None:
    job = replace(task_of(tmp_path), form=form)
    made = training_of(job)
    assert isinstance(made.maker.entities, EntityContexts)
    assert made.maker.entities.form == expected


def test_contexts_are_padded_on_any_other_device(tmp_path: Path) -> None:
    """On `meta`, a device that holds no values."""
    job = task_of(tmp_path)
    made = training_of(job, device="meta")
    assert isinstance(made.maker.entities, EntityContexts)
    assert made.maker.entities.form == "padded"


def assert_close(one: dict[str, Array], other: dict[str, Array]) -> None:
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_allclose(other[name], values, rtol=1e-4, atol=1e-4, err_msg=name)


@pytest.mark.parametrize("preset", list(PRESETS))
def test_padded_contexts_learn_what_ragged_ones_do(tmp_path: Path, preset: str) -> None:
    ragged, history = learnt(task_of(tmp_path / "ragged", PRESETS[preset]))
    padded, other = learnt(replace(task_of(tmp_path / "padded", PRESETS[preset]), form="padded"))
    assert_close(ragged, padded)
    assert [line["loss"] for line in other] == pytest.approx([line["loss"] for line in history], rel=1e-4)


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where two processes left what they learnt together, for each preset."""
    folder = tmp_path_factory.mktemp("gloo")
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": str(ROOT)}
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.learn.gloo_worker", str(rank), str(folder), json.dumps(PRESETS)],
            cwd=ROOT,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        for worker in workers:
            _, errors = worker.communicate(timeout=240)
            assert worker.returncode == 0, errors
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()
    return folder


@pytest.mark.parametrize("preset", list(PRESETS))
def test_two_workers_on_padded_contexts_learn_what_one_does_on_ragged_ones(
    two_workers: Path, tmp_path: Path, preset: str
) -> None:
    """Each has half of every batch and materialises half of the entities."""
    job = task_of(tmp_path, PRESETS[preset])
    expected, history = learnt(job)
    found = [dict(np.load(two_workers / f"{preset}-{rank}.npz")) for rank in range(2)]
    joints = [arrays.pop("e/joint") for arrays in found]
    for name, values in found[0].items():
        assert np.array_equal(values, found[1][name]), name
    for rank, joint in enumerate(joints):
        others = np.setdiff1d(np.arange(joint.shape[0]), job.graph.entities[rank::2])
        assert not joint[others].any()
    assert_close(expected, {**found[0], "e/joint": joints[0] + joints[1]})
    for rank in range(2):
        lines = json.loads((two_workers / f"{preset}-{rank}.json").read_text())
        for metric in ("loss", "mrr"):
            expected_metrics = [line[metric] for line in history if metric in line]
            assert [line[metric] for line in lines if metric in line] == pytest.approx(expected_metrics, rel=1e-4)
