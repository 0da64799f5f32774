"""Nights, ranks and answers on shards: the same as in one process; only shards with changed rows are written to."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store
from dkge_dist.store.tables import BlockIndex, load_delta, load_table
from dkge_dist.surfaces import api
from dkge_dist.types import DkgeError, Field
from tests.graphs import Labelled, assert_same_vectors, assert_sound, listing, vectors, write_changes, write_tsv

pytestmark = [pytest.mark.usefixtures("one_thread", "ray_here"), pytest.mark.timeout(600)]

LEARN = [
    "model.dim=6", "context.cap=4", "train.max_epochs=1", "train.batch_size=500", "train.negatives=16",
    "online.max_epochs=2", "online.batch_size=8", "online.retrain_when=never", "threads=1",
]  # fmt: skip
ENTITIES, BLOCK, SHARDS = 1100, 64, 16
GROUP = 20
"""Triples stay within groups of entities, so that a change in one affects none of another."""


def triples() -> list[Labelled]:
    """Entities get their rows in the order of their numbers: heads first."""
    rng = np.random.default_rng(1)
    found = []
    for entity in range(ENTITIES):
        group = entity // GROUP * GROUP
        for other in rng.integers(group, min(group + GROUP, ENTITIES), 2):
            found.append((f"e{entity}", f"r{rng.integers(0, 3)}", f"e{other}"))
    return found


def far_away() -> tuple[list[Labelled], list[Labelled]]:
    """A night with changes all over the graph: new entities, a new relation, and an entity that goes."""
    added = [(f"e{row}", f"r{row % 3}", f"new{row // 300}") for row in range(0, ENTITIES, 150)]
    added += [("e5", "r9", "e9"), ("e700", "r9", "e703"), ("e1099", "r1", "new0")]
    gone = [triple for triple in triples() if "e777" in triple]
    return added, gone


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a trained model, on a graph of 18 blocks."""
    folder = tmp_path_factory.mktemp("updating")
    api.ingest(folder / "store", write_tsv(folder / "base.tsv", triples()), name="base", valid=20, test=40)
    api.train(folder / "store", settings=LEARN)
    return folder / "store"


@pytest.fixture(scope="module")
def with_night(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same with a night that is not learnt yet."""
    folder = tmp_path_factory.mktemp("night")
    store = Path(shutil.copytree(trained, folder / "store"))
    added, gone = far_away()
    api.ingest(store, write_changes(folder / "night.changes", added, gone))
    return store


@pytest.fixture(scope="module")
def updated(with_night: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[int | None, tuple[Path, Any]]:
    """The night learnt by any number of shards."""
    made: dict[int | None, tuple[Path, Any]] = {}
    for shards in (None, 1, 8):
        store = Path(shutil.copytree(with_night, tmp_path_factory.mktemp("by") / "store"))
        made[shards] = (store, api.update(store, shards=shards))
    return made


def model(store: Path) -> ModelManifest:
    return Store.open(store).find_model()


TIMED = {"open_seconds", "plan_seconds", "learn_seconds", "measure_seconds", "publish_seconds", "seconds"}
MOVED = {"shards_touched", "shards_total", "bytes_pulled", "bytes_pushed", "bytes_written", "shards"}


@pytest.mark.parametrize("shards", [1, 8])
def test_update_is_the_same_on_any_number_of_shards(
    updated: dict[int | None, tuple[Path, Any]], trained: Path, shards: int
) -> None:
    (here, alone), (there, report) = updated[None], updated[shards]
    assert report["version"] == alone["version"] == 4
    assert_same_vectors(vectors(there, 4), vectors(here, 4))
    mine, theirs = (model(store).model.evidence for store in (there, here))
    assert mine == theirs is not None
    for name in alone.keys() - TIMED - MOVED:
        assert report[name] == alone[name], name
    assert report["emerging_entities"] == 4 and report["affected_entities"] > 10
    assert any(not np.array_equal(v[: w.shape[0]], w) for v, w in both(there, trained)), "something was learnt"
    assert_sound(there)


def both(one: Path, other: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    mine, theirs = vectors(one, 4), vectors(other, 2)
    return [(mine[name], theirs[name]) for name in theirs]


@pytest.mark.parametrize("shards", [None, 1, 8])
def test_shard_writes_one_part_per_field(updated: dict[int | None, tuple[Path, Any]], shards: int | None) -> None:
    store, report = updated[shards]
    opened, entry = Store.open(store), model(store).model
    count = shards or 1
    assert report["shards_total"] == count
    touched = set()
    for field in Field:
        table = entry.entities[field]
        owners = []
        for part in table.deltas:
            rows, _ = load_delta(opened.storage, table, part)
            owner = set((rows // BLOCK % count).tolist())
            assert len(owner) == 1, "a part has rows of one shard"
            owners += owner
        assert len(set(owners)) == len(owners) > 0, "and a shard one part"
        touched |= set(owners)
    assert report["shards_touched"] == len(touched)
    if shards is None:
        assert (report["bytes_pulled"], report["bytes_pushed"]) == (0, 0)
        return
    stats = report["shards"]
    assert {of["shard"] for of in stats if of["touched"]} == touched
    for of in stats:
        written = (of["push_calls"] + of["write_calls"] > 0, of["bytes_pushed"] > 0, of["bytes_written"] > 0)
        assert written == (of["touched"],) * 3
    assert report["bytes_pulled"] == sum(of["bytes_pulled"] for of in stats) > 0
    assert report["bytes_pushed"] == sum(of["bytes_pushed"] for of in stats) > 0
    assert sum(of["rows"] for of in stats) == entry.entities["joint"].rows


def test_change_within_one_block_writes_one_shard_of_sixteen(trained: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(trained, tmp_path / "store"))
    opened = Store.open(store)
    names = opened.dictionaries(opened.head())[0]
    group = range(4 * GROUP, 5 * GROUP)
    rows = {f"e{number}": int(row) for number, row in zip(group, rows_of(names, group), strict=True)}
    block = next(iter(rows.values())) // BLOCK
    inside = [label for label, row in rows.items() if row // BLOCK == block]
    assert len(inside) == GROUP
    known = set(triples())
    edge = next(
        (h, r, t)
        for h in inside
        for t in inside
        for r in ("r0", "r1", "r2")
        if h != t and (h, r, t) not in known and confined(store, (h, r, t), block, tmp_path)
    )
    before, base = listing(store / "parts"), model(store)
    api.ingest(store, write_changes(tmp_path / "night.changes", [edge]))
    parts = listing(store / "parts")
    plan = api.update(store, plan=True, shards=SHARDS)
    assert plan["shards"] == [block % SHARDS]
    alone = Path(shutil.copytree(store, tmp_path / "alone"))
    api.update(alone)
    report = api.update(store, shards=SHARDS)
    assert (report["shards_touched"], report["shards_total"]) == (1, SHARDS)
    for of in report["shards"]:
        moved = [of[name] for name in ("push_calls", "write_calls", "rows_pushed", "bytes_pushed", "bytes_written")]
        if of["shard"] == block % SHARDS:
            assert min(moved) > 0
        else:
            assert moved == [0] * 5, of
    assert_same_vectors(vectors(store, 4), vectors(alone, 4))
    after = model(store)
    assert listing(store / "parts").items() >= parts.items() >= before.items(), "what was there is untouched"
    for field in Field:
        mine, theirs = after.model.entities[field], base.model.entities[field]
        assert mine.base == theirs.base
        assert BlockIndex(opened.storage, mine).parts == BlockIndex(opened.storage, theirs).parts
        old, new = load_table(opened.storage, theirs), load_table(opened.storage, mine)
        changed = np.flatnonzero((old != new).any(1))
        assert set((changed // BLOCK).tolist()) <= {block}
    assert_sound(store)


def rows_of(names: Any, numbers: range) -> np.ndarray:
    from dkge_dist.graph.labels import Labels

    found: np.ndarray = names.lookup(Labels.from_strings([f"e{number}" for number in numbers]))
    return found


def confined(store: Path, edge: Labelled, block: int, folder: Path) -> bool:
    """Would a night with this triple affect entities of one block alone?"""
    trial = Path(shutil.copytree(store, folder / "trial"))
    try:
        api.ingest(trial, write_changes(folder / "trial.changes", [edge]))
        plan = api.update(trial, plan=True, shards=1 << 20)
        return bool(plan["shards"] == [block])
    finally:
        shutil.rmtree(trial)


def untimed(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name != "seconds"}


def test_evaluation_on_shards_is_the_same(updated: dict[int | None, tuple[Path, Any]]) -> None:
    store, _ = updated[8]
    wanted: dict[str, Any] = {"split": "test", "protocol": "filtered", "relations": True, "categories": True}
    wanted["ranks"] = True
    alone = api.evaluate(store, **wanted)
    assert alone["evidence"] and alone["mrr"] != alone["vectors"]["mrr"]
    assert untimed(api.evaluate(store, **wanted, shards=2)) == untimed(alone)


def test_answers_on_shards_are_the_same(updated: dict[int | None, tuple[Path, Any]], tmp_path: Path) -> None:
    store, _ = updated[8]
    batch = tmp_path / "questions"
    batch.write_text(
        "".join(f"e{row}\tr{row % 3}\t?\n?\tr9\te{row}\n" for row in range(0, 700, 50)) + "new0\tr0\t?\n",
        encoding="utf-8",
    )
    alone = api.answer(store, batch=batch, top=30, why=True)
    assert len(alone["questions"]) == 29
    kinds = {reason["kind"] for asked in alone["questions"] for found in asked["answers"] for reason in found["why"]}
    assert kinds >= {"self", "company", "vectors"}
    assert untimed(api.answer(store, batch=batch, top=30, why=True, shards=2)) == untimed(alone)


def test_night_on_shards_is_the_same(trained: Path, tmp_path: Path) -> None:
    added, gone = far_away()
    night = write_changes(tmp_path / "night.changes", added, gone)
    reports, stores = [], []
    for shards in (None, 2):
        stores.append(Path(shutil.copytree(trained, tmp_path / f"store{shards}")))
        reports.append(api.nightly(stores[-1], night, shards=shards))
        assert api.nightly(stores[-1], night, shards=shards)["unchanged"]
    alone, report = reports
    assert report["decision"] == alone["decision"] == "updated online"
    assert {s: untimed(of) for s, of in report["evaluate"].items()} == {
        s: untimed(of) for s, of in alone["evaluate"].items()
    }
    assert_same_vectors(vectors(stores[1], report["version"]), vectors(stores[0], alone["version"]))


@pytest.mark.parametrize(
    "call",
    [
        lambda store, **where: api.update(store, **where),
        lambda store, **where: api.evaluate(store, **where),
        lambda store, **where: api.train(store, settings=LEARN, **where),
    ],
    ids=["update", "evaluate", "train"],
)
def test_no_room_for_the_shards_says_what_is_missing(
    with_night: Path, tmp_path: Path, call: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the time that was given, not for ever; the store is as it was."""
    store = Path(shutil.copytree(with_night, tmp_path / "store"))
    before = listing(store)
    monkeypatch.setattr("dkge_dist.cluster.session.SPARE_BYTES", 1 << 50)
    began = time.monotonic()
    with pytest.raises(
        DkgeError,
        match=r"no room for 3 shards of up to 1125899\.91 GB after 0\.5 s: 1 nodes with [\d.]+ GB for actors, "
        r"[\d.]+ GB of it free\..*ray start --memory",
    ):
        call(store, shards=3, wait_seconds=0.5)
    assert time.monotonic() - began > 0.5
    # A training that did not begin leaves its folder, to be taken up again.
    assert {name: of for name, of in listing(store).items() if not name.startswith("training/")} == before


def test_no_room_for_the_workers_says_what_is_missing(with_night: Path, tmp_path: Path) -> None:
    store = Path(shutil.copytree(with_night, tmp_path / "store"))
    with pytest.raises(DkgeError, match=r"no room for 99 workers of 1 CPUs after 0\.5 s: the cluster's nodes have it"):
        api.train(store, shards=1, workers=99, wait_seconds=0.5)
