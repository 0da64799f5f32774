"""An update on real stores: what is frozen stays bit-identical, o* is fresh, every added triple is learnt."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import dkge_dist
from dkge_dist.config import load_settings
from dkge_dist.evaluation.validation import Validation
from dkge_dist.graph.relation_paths import PathCounts
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.learning.contexts import EntityContexts, RelationContexts
from dkge_dist.learning.encode import joint_of
from dkge_dist.model.dkge import Dkge
from dkge_dist.store.models import load_dense
from dkge_dist.store.store import Store
from dkge_dist.tables.shard import Shard
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import ROW, DkgeError, Field, Split
from tests.weights import load_weights

pytestmark = pytest.mark.usefixtures("one_thread")

SMALL = ["model.dim=12", "train.max_epochs=2", "train.batch_size=200", "train.negatives=32", "online.max_epochs=2"]
PAPER = ["model.dim=12", "train.max_epochs=2", "online.max_epochs=2"]


def base_triples(seed: int) -> list[tuple[str, str, str]]:
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, [[60], [4], [60]], (3, 400))
    return sorted({(f"e{h}", f"r{r}", f"e{t}") for h, r, t in columns.T})


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(params=["default", "paper"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A trained store, and the change of a night on top of it."""
    triples = base_triples(1)
    path = tmp_path / "store"
    source = write(tmp_path / "base.tsv", ["\t".join(t) for t in triples])
    dkge_dist.ingest(path, source, valid=20, test=20)
    dkge_dist.train(path, preset=request.param, settings=PAPER if request.param == "paper" else SMALL)
    return path


def night(path: Path, store: Path, added: list[str], deleted: list[str]) -> None:
    lines = [f"+\t{line}" for line in added] + [f"-\t{line}" for line in deleted]
    dkge_dist.ingest(store, write(path, lines))


def some_train(store: Path, count: int) -> list[str]:
    """Train triples whose ends stand in many others, so that nobody dies with them."""
    opened = Store.open(store)
    manifest = opened.current_snapshot()
    names = opened.dictionaries(opened.head())
    train = opened.snapshot(manifest).triples(Split.TRAIN)
    places = np.random.default_rng(3).permutation(train.count)[:count]
    some = train.take(places)
    columns = names[0].labels(some.head), names[1].labels(some.relation), names[0].labels(some.tail)
    return ["\t".join(row) for row in zip(*columns, strict=True)]


def learnt(store: Path, version: int):
    opened = Store.open(store)
    return load_weights(opened, opened.model_manifest(version).model)


def recomputed(store: Path) -> tuple[np.ndarray, np.ndarray]:
    """o* of everybody alive by the model in force, from nothing but its vectors and the snapshot."""
    opened = Store.open(store)
    model = opened.find_model()
    settings = load_settings(None, [f"model.dim={model.model.settings['model']['dim']}"])
    manifest = opened.snapshot_manifest(model.model.snapshot)
    names = opened.dictionaries(opened.head())
    snapshot = opened.snapshot(manifest, opened.head())
    train = snapshot.triples(Split.TRAIN)
    topology = Topology.of(train, len(names[0]))
    sampling = Sampling(model.model.settings["seed"], 35, 1)
    dense = Dkge(settings.model.dim, 1, 1)
    dense.load_state_dict({k: torch.from_numpy(v) for k, v in load_dense(opened, model.model.dense).items()})
    values = load_weights(opened, model.model)
    out = []
    for encoder, kind, alive, contexts in (
        (dense.entity, values.entities, snapshot.entities_alive, EntityContexts(topology, names[0].digests, sampling)),
        (
            dense.relation,
            values.relations,
            snapshot.relations_alive,
            RelationContexts(PathCounts.of(topology, train, len(names[1])), names[1].digests, sampling),
        ),
    ):
        rows = np.flatnonzero(alive).astype(ROW)
        table = LocalTable(Shard({field: kind[field.value] for field in Field}))
        fresh = joint_of(encoder, table, contexts, rows)
        np.testing.assert_allclose(kind["joint"][rows], fresh, rtol=1e-4, atol=1e-5)
        out.append(fresh)
    return out[0], out[1]


ADDED = ["e1\tr0\tnew1", "new1\tr1\te7", "new2\tr3\tnew1", "e5\tr2\te9", "e5\tr9\te9", "e8\tr9\te3"]


def test_only_the_write_set_is_written_and_o_star_is_fresh(store: Path, tmp_path: Path) -> None:
    before = learnt(store, 2)
    night(tmp_path / "n1.changes", store, ADDED, some_train(store, 6))
    plan = dkge_dist.update(store, plan=True, shards=4)
    report = dkge_dist.update(store)
    for key in ("emerging_entities", "affected_entities", "emerging_relations", "affected_relations"):
        assert report[key] == plan[key]
    assert (report["emerging_entities"], report["emerging_relations"]) == (2, 1)
    after = learnt(store, report["version"])
    assert all(np.array_equal(before.dense[name], after.dense[name]) for name in before.dense)
    moved = {}
    for kind in ("entities", "relations"):
        old, new = getattr(before, kind), getattr(after, kind)
        for field in old:
            grown = np.zeros_like(new[field])
            grown[: old[field].shape[0]] = old[field]
            moved[kind, field] = int((new[field] != grown).any(1).sum())
    assert moved["entities", "context"] <= report["emerging_entities"]
    assert moved["relations", "context"] <= report["emerging_relations"]
    for field in ("knowledge", "joint"):
        assert moved["entities", field] <= report["emerging_entities"] + report["affected_entities"]
        assert moved["relations", field] <= report["emerging_relations"] + report["affected_relations"]
    recomputed(store)
    assert dkge_dist.check(store)["ok"]


def test_nights_of_every_kind(store: Path, tmp_path: Path) -> None:
    gone = [line for line in some_train(store, 400) if line.startswith("e11\t") or line.endswith("\te11")]
    nights = [(ADDED, []), ([], some_train(store, 5)), ([], gone), (["e11\tr1\te2", "new3\tr0\tnew4"], ADDED[:3])]
    for number, (added, deleted) in enumerate(nights):
        night(tmp_path / f"n{number}.changes", store, added, deleted)
        report = dkge_dist.update(store)
        assert np.isfinite(learnt(store, report["version"]).entities["joint"]).all()
        recomputed(store)
        again = dkge_dist.update(store)
        assert again["unchanged"], "a night that was learnt is learnt"
        assert again["version"] == report["version"]
    kinds = [line["kind"] for line in dkge_dist.log(store)["versions"]]
    assert kinds == ["snapshot", "model", *["snapshot", "model"] * len(nights)]


def test_nights_in_which_nothing_is_to_be_learnt(store: Path, tmp_path: Path) -> None:
    """A night that changes nothing is no version; one that only gets another name is learnt at once."""
    versions = len(dkge_dist.log(store)["versions"])
    known = some_train(store, 2)
    source = write(tmp_path / "n0.changes", [f"+\t{known[0]}", f"-\t{known[1]}", f"+\t{known[1]}"])
    assert dkge_dist.nightly(store, source)["unchanged"]
    assert len(dkge_dist.log(store)["versions"]) == versions
    before = learnt(store, 2)
    dkge_dist.ingest(store, source, name="another name for the same")
    report = dkge_dist.update(store)
    assert (report["added"], report["deleted"], report["trained_triples"]) == (0, 0, 0)
    after = learnt(store, report["version"])
    for kind in ("entities", "relations"):
        assert all(np.array_equal(getattr(before, kind)[f], getattr(after, kind)[f]) for f in getattr(before, kind))
    assert dkge_dist.update(store)["unchanged"]
    assert dkge_dist.check(store)["ok"]


def test_several_nights_at_once_and_from_an_earlier_model(store: Path, tmp_path: Path) -> None:
    night(tmp_path / "n1.changes", store, ADDED[:2], [])
    dkge_dist.update(store)
    night(tmp_path / "n2.changes", store, ADDED[2:], some_train(store, 3))
    both = dkge_dist.update(store, since_version="2")
    assert both["from"] == "base"
    assert both["added"] >= len(ADDED)
    assert both["parent"] == 2
    recomputed(store)


def test_an_update_that_was_overtaken_does_not_bring_an_older_model_back(store: Path, tmp_path: Path) -> None:
    night(tmp_path / "n1.changes", store, ADDED[:2], [])
    newer = []

    def overtaken(done: float, words: str) -> None:
        if not newer:
            newer.append(0)
            newer[0] = dkge_dist.update(store)["version"]
            night(tmp_path / "n2.changes", store, ADDED[2:], [])
            newer[0] = dkge_dist.update(store)["version"]

    with pytest.raises(DkgeError, match="became current while version 2 was being updated; nothing was changed"):
        dkge_dist.update(store, progress=overtaken)
    assert dkge_dist.log(store)["versions"][-1]["version"] == newer[0]


def test_every_added_triple_is_learnt_by_default(tmp_path: Path) -> None:
    """A second relation between neighbours changes no context; it is learnt all the same, unless the paper is meant."""
    triples = base_triples(2)
    path = tmp_path / "store"
    dkge_dist.ingest(path, write(tmp_path / "base.tsv", ["\t".join(t) for t in triples]), valid=10)
    dkge_dist.train(path, settings=SMALL)
    known = {(h, t) for h, _, t in triples}
    parallel = next(f"{h}\tr{k}\t{t}" for h, t in sorted(known) for k in range(4) if (h, f"r{k}", t) not in triples)
    night(tmp_path / "n.changes", path, [parallel], [])
    plan = dkge_dist.update(path, plan=True)
    literal = dkge_dist.update(path, plan=True, settings=["online.affected_by=context"])
    assert plan["affected_entities"] >= 2
    assert literal["affected_entities"] == 0
    assert dkge_dist.update(path)["trained_triples"] >= 1


def test_no_validation_undoes_the_first_epoch(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation may know nothing of tonight's triples: the best epoch is kept, and the first at least."""
    before = learnt(store, 2).entities["knowledge"]
    falling = iter([0.5, 0.4, 0.3, 0.2])
    monkeypatch.setattr(Validation, "measure", lambda *_: {"mrr": next(falling)})
    night(tmp_path / "n.changes", store, ADDED, [])
    report = dkge_dist.update(store, settings=["online.max_epochs=5", "online.patience=2"])
    assert report["epochs"] == 3
    after = learnt(store, report["version"]).entities["knowledge"]
    assert (after[: before.shape[0]] != before).any()
    recomputed(store)


def test_what_belongs_to_the_model_may_not_change(store: Path, tmp_path: Path) -> None:
    night(tmp_path / "n.changes", store, ADDED, [])
    for word in ("context.cap=9", "model.dim=13", "seed=8"):
        with pytest.raises(dkge_dist.types.UsageError, match="the model was learnt with"):  # type: ignore[attr-defined]
            dkge_dist.update(store, settings=[word])
    assert len(dkge_dist.log(store)["versions"]) == 3


def test_validation_of_an_update_is_that_of_training(store: Path, tmp_path: Path) -> None:
    night(tmp_path / "n.changes", store, ADDED, [])
    report = dkge_dist.update(store)
    found = dkge_dist.evaluate(store, split="valid")
    assert report["valid"]["mrr"] == pytest.approx(found["mrr"])


def test_many_deltas_are_folded_into_a_version_of_the_same_content(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    night(tmp_path / "n1.changes", store, ADDED, [])
    monkeypatch.setattr("dkge_dist.store.models.COMPACT_FROM_ROWS", 0)
    report = dkge_dist.update(store)
    compact, before = report["version"], report["version"] - 1
    opened = Store.open(store)
    assert opened.model_manifest(compact).model.facts == {"origin": "compact"}
    assert opened.model_manifest(before).model.entities["joint"].deltas
    assert not opened.model_manifest(compact).model.entities["joint"].deltas
    one, other = learnt(store, before), learnt(store, compact)
    for kind in ("entities", "relations"):
        for field in ("knowledge", "context", "joint"):
            assert np.array_equal(getattr(one, kind)[field], getattr(other, kind)[field])
    assert dkge_dist.check(store)["ok"]
    night(tmp_path / "n2.changes", store, ["e2\tr0\tnew7"], [])
    assert dkge_dist.update(store)["emerging_entities"] == 1
    recomputed(store)
