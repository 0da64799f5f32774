"""The systems: how each is made from its setting, what is chosen on validation, and how a model is measured.

Others are asked through `benchmarks.peers`; ours through its store, by the package's own evaluation. A test says that
the two rank alike.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.nights import fidelity
from benchmarks.peers.gake import Gake
from benchmarks.peers.protocol import FitReport, Graph, OnlinePeer, Peer, graph_of
from benchmarks.peers.putranse import PuTransE, Ranges
from benchmarks.peers.pykeen_models import GRIDS, PykeenPeer
from benchmarks.peers.ranking import measure_fidelity, measure_held_out, validation_hits
from benchmarks.study.graphs import DataSet
from dkge_dist.ask.model import open_model
from dkge_dist.graph.topology import Topology
from dkge_dist.measure.fidelity import NightTriples, night_triples
from dkge_dist.measure.link_prediction import EvaluateOptions, evaluate_triples
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import Split

Found = dict[str, Any]
PROTOCOLS = ("paper", "filtered")
NIGHT_TRIPLES = 500
"""Of a group of a night that others are asked about, a sample: they score every candidate. Ours is asked about all."""


def _pykeen(model: str, setting: str) -> Callable[[int, bool], Peer]:
    return lambda seed, quick: PykeenPeer(GRIDS[model][setting], seed)


def _putranse(spaces: int) -> Callable[[int, bool], Peer]:
    return lambda seed, quick: PuTransE(
        10 if quick else spaces, seed=seed, ranges=Ranges((60, 120), (2, 4)) if quick else None
    )


def _gake(path: float, edge: float) -> Callable[[int, bool], Peer]:
    return lambda seed, quick: Gake(path=path, edge=edge, dim=16 if quick else 100, seed=seed)


PEERS: dict[str, dict[str, Callable[[int, bool], Peer]]] = {
    "GAKE": {f"path {path}, edge {edge}": _gake(path, edge) for path in (0.1, 0.2) for edge in (0.1, 0.2)},
    "puTransE": {f"{spaces} spaces": _putranse(spaces) for spaces in (500, 800, 1000, 1200)},
    **{model: {setting: _pykeen(model, setting) for setting in grid} for model, grid in GRIDS.items()},
}
"""By system: its grid, four settings each, and what makes the system of one (seed, quick)."""


def night_of(data: DataSet, snapshot: str, seed: int) -> NightTriples | None:
    """The triples that tell whether the night before a snapshot is learnt."""
    before = data.before(snapshot)
    if before is None:
        return None
    store = Store.open(data.store)
    found = store.find_snapshot(snapshot)
    now = store.snapshot(found)
    train = now.triples(Split.TRAIN)
    diff = store.diff(store.find_snapshot(before), found)
    return night_triples(diff, train, Topology.of(train, now.entity_rows), now, seed)


def measure_peer(peer: Peer, graph: Graph, report: FitReport, night: NightTriples | None) -> Found:
    """Test triples under both protocols, and the night before; what the training took."""
    held_out = graph.test if graph.test.count else graph.valid
    found: Found = {"fit": report.to_dict(), "vectors": measure_held_out(peer, graph, held_out)}
    if night is not None:
        some = night.sampled(NIGHT_TRIPLES, np.random.default_rng(0))
        found["night"] = {"vectors": measure_fidelity(peer, graph, some)}
    return found


def fit_peer(peer: Peer, data: DataSet, snapshot: str, seed: int, budget: float) -> Found:
    """A snapshot learnt from scratch by another system."""
    graph = graph_of(Store.open(data.store), snapshot)
    return measure_peer(peer, graph, peer.fit(graph, budget), night_of(data, snapshot, seed))


def update_peer(peer: OnlinePeer, data: DataSet, snapshot: str, seed: int, budget: float) -> Found:
    """A night learnt online by another system, from what it learnt before."""
    store, before = Store.open(data.store), data.before(snapshot)
    assert before is not None, "an update has a snapshot before it"
    old, new = graph_of(store, before), graph_of(store, snapshot)
    return measure_peer(peer, new, peer.update(old, new, budget), night_of(data, snapshot, seed))


def choose_peer(peer: Peer, data: DataSet, seed: int, budget: float) -> Found:
    """One setting of the grid on the first snapshot: Hits@10 on validation."""
    graph = graph_of(Store.open(data.store), data.snapshots[0])
    report = peer.fit(graph, budget)
    return {"fit": report.to_dict(), "valid_hits@10": validation_hits(peer, graph, seed)}


def measure_ours(store: Path, version: int, before: str | None) -> Found:
    """As `measure_peer`, of a version of ours: by vectors alone, and with evidence where the version has some."""
    opened = open_model(Store.open(store), str(version))
    evidence = opened.evidence
    held_out = opened.snapshot.triples(Split.TEST)
    if not held_out.count:
        held_out = opened.snapshot.triples(Split.VALID)
    report = evaluate_triples(opened, held_out, EvaluateOptions())
    counts = {name: report[name] for name in ("triples", "leaked")}
    found: Found = {
        "version": version,
        "vectors": counts | {name: report["vectors"][name] for name in PROTOCOLS},
    }
    if evidence is not None:
        found["with_evidence"] = counts | {name: report[name] for name in PROTOCOLS}
    if before is not None:
        groups = fidelity(store, version, before)
        ways = ("vectors", "with_evidence") if evidence is not None else ("vectors",)
        found["night"] = {
            way: {group: values[way] for group, values in groups.items() if way in values} for way in ways
        }
    return found


def ours_online(data: DataSet, snapshot: str, since: int) -> tuple[Found, int]:
    """A night learnt by ours from a version: what the update reports, and the version."""
    updated = api.update(data.store, to=snapshot, since_version=str(since))
    names = ("seconds", "open_seconds", "plan_seconds", "learn_seconds", "measure_seconds", "publish_seconds")
    names += ("epochs", "trained_triples", "emerging_entities", "affected_entities", "added", "deleted", "fidelity")
    return {name: updated[name] for name in names if name in updated}, updated["version"]
