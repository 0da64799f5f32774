"""Nights, ranks and answers over shards: the same as without any, and nobody is written to whom it does not concern."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dkge_dist.cluster.ranking import ShardedJoint

from dkge_dist import api
from dkge_dist.cli.main import main
from dkge_dist.evaluation.link_prediction import Joint, rank
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store
from dkge_dist.store.tables import BlockIndex, load_delta, load_table
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.types import ROW, DkgeError, Field, Split, UsageError
from tests.graphs import Labelled, assert_same_vectors, assert_sound, listing, vectors, write_changes, write_tsv
from tests.weights import load_weights

pytestmark = [pytest.mark.usefixtures("one_thread", "ray_here"), pytest.mark.timeout(600)]

LEARN = [
    "model.dim=6", "context.cap=4", "train.max_epochs=1", "train.batch_size=500", "train.negatives=16",
    "online.max_epochs=2", "online.batch_size=8", "online.retrain_when=never", "threads=1",
]  # fmt: skip
ENTITIES, BLOCK, SHARDS = 1100, 64, 16
GROUP = 20
"""Triples stay within groups of entities, so that a change in one concerns nobody in another."""


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
    """A night that concerns everybody a little: new entities, a new relation, and some that nobody has any more."""
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


TIMED = {"open_seconds", "plan_seconds", "learn_seconds", "publish_seconds", "seconds"}
MOVED = {"shards_touched", "shards_total", "bytes_pulled", "bytes_pushed", "bytes_written", "shards"}


@pytest.mark.parametrize("shards", [1, 8])
def test_any_number_of_shards_learns_the_same(
    updated: dict[int | None, tuple[Path, Any]], trained: Path, shards: int
) -> None:
    (here, alone), (there, report) = updated[None], updated[shards]
    assert report["version"] == alone["version"] == 4
    assert_same_vectors(vectors(there, 4), vectors(here, 4))
    for name in alone.keys() - TIMED - MOVED:
        assert report[name] == alone[name], name
    assert report["emerging_entities"] == 4 and report["affected_entities"] > 10
    assert any(not np.array_equal(v[: w.shape[0]], w) for v, w in both(there, trained)), "something was learnt"
    assert_sound(there)


def both(one: Path, other: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    mine, theirs = vectors(one, 4), vectors(other, 2)
    return [(mine[name], theirs[name]) for name in theirs]


@pytest.mark.parametrize("shards", [None, 1, 8])
def test_a_written_shard_writes_one_part_a_field(
    updated: dict[int | None, tuple[Path, Any]], shards: int | None
) -> None:
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


def test_a_change_within_one_block_reaches_one_shard_of_sixteen(trained: Path, tmp_path: Path) -> None:
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
    """Would a night with this triple concern entities of one block alone?"""
    trial = Path(shutil.copytree(store, folder / "trial"))
    try:
        api.ingest(trial, write_changes(folder / "trial.changes", [edge]))
        plan = api.update(trial, plan=True, shards=1 << 20)
        return bool(plan["shards"] == [block])
    finally:
        shutil.rmtree(trial)


def untimed(report: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name != "seconds"}


def test_ranks_over_shards_are_those_of_one_piece(updated: dict[int | None, tuple[Path, Any]]) -> None:
    store, _ = updated[8]
    wanted: dict[str, Any] = {"split": "test", "protocol": "filtered", "relations": True, "categories": True}
    alone = api.evaluate(store, **wanted)
    assert untimed(api.evaluate(store, **wanted, shards=2)) == untimed(alone)


def test_answers_over_shards_are_those_of_one_piece(
    updated: dict[int | None, tuple[Path, Any]], tmp_path: Path
) -> None:
    store, _ = updated[8]
    batch = tmp_path / "questions"
    batch.write_text(
        "".join(f"e{row}\tr{row % 3}\t?\n?\tr9\te{row}\n" for row in range(0, 700, 50)) + "new0\tr0\t?\n",
        encoding="utf-8",
    )
    alone = api.answer(store, batch=batch, top=30)
    assert len(alone["questions"]) == 29
    assert untimed(api.answer(store, batch=batch, top=30, shards=2)) == untimed(alone)


@pytest.fixture(scope="module")
def with_ties(trained: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model whose entities have few different places, so that many are just as far."""
    from dkge_dist.store.models import ModelMetadata, publish_model, save_model, save_small
    from dkge_dist.store.tables import save_table

    store = Path(shutil.copytree(trained, tmp_path_factory.mktemp("ties") / "store"))
    opened = Store.open(store)
    entry = opened.find_model().model
    learnt = load_weights(opened, entry)
    rng = np.random.default_rng(0)
    for tables in (learnt.entities, learnt.relations):
        tables["joint"] = rng.integers(0, 2, tables["joint"].shape).astype(np.float32)
    with opened.storage.staging() as staging:
        entities = {field: save_table(staging, values, BLOCK) for field, values in learnt.entities.items()}
        saved = (entities, save_small(staging, learnt.relations))
        about = ModelMetadata(entry.settings, {}, {"origin": "scratch"}, [])
        publish_model(opened, save_model(staging, entry.snapshot, saved, learnt.dense, about), 0.0)
    return store


def test_ties_are_broken_the_same_wherever_rows_lie(with_ties: Path) -> None:
    alone = api.answer(with_ties, "e5", "r0", top=40)
    scores = [found["score"] for found in alone["answers"]]
    assert len(set(scores)) < 5, "the test is about ties"
    assert untimed(api.answer(with_ties, "e5", "r0", top=40, shards=3)) == untimed(alone)


def test_single_ranks_agree_and_rows_come_in_the_order_they_were_asked_for(with_ties: Path) -> None:
    """Not only their means."""
    from dkge_dist.api.tables import sharded

    from dkge_dist.cluster.session import Place
    from dkge_dist.tables.shard import Field

    opened = Store.open(with_ties)
    manifest = opened.find_model()
    snapshot = opened.snapshot(opened.snapshot_manifest(manifest.model.snapshot))
    entities, relations = (
        load_table(opened.storage, t["joint"]) for t in (manifest.model.entities, manifest.model.relations)
    )
    candidates = np.flatnonzero(snapshot.entities_alive)[::2].astype(ROW)
    triples, train = snapshot.triples(Split.TEST), snapshot.triples(Split.TRAIN)
    alone = rank(Joint(entities, relations, candidates), triples, train)
    with sharded(Place(3), opened, manifest, entities.shape[0], (Field.JOINT,)) as table:
        joint = ShardedJoint(table, relations, candidates)
        assert table.plan == ShardPlan(entities.shape[0], BLOCK, 3)
        found = rank(joint, triples, train)
        asked = np.array([700, 3, 3, 64, 700, 1099], ROW)
        assert np.array_equal(joint.vectors(asked), entities[asked])
    assert np.array_equal(found.tail, alone.tail)
    assert np.array_equal(found.head, alone.head)
    assert (found.tail % 1 == 0.5).any(), "ties get the mean of the best and the worst rank"


def test_a_night_in_one_step_on_shards(trained: Path, tmp_path: Path) -> None:
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


@pytest.mark.parametrize(
    ("call", "where"),
    [
        (lambda store, **where: api.train(store, **where), {"workers": 2}),
        (lambda store, **where: api.train(store, **where), {"address": "auto"}),
        (lambda store, **where: api.update(store, **where), {"address": "auto"}),
        (lambda store, **where: api.evaluate(store, **where), {"address": "auto"}),
        (lambda store, **where: api.answer(store, "e1", "r0", **where), {"address": "auto"}),
        (lambda store, **where: api.nightly(store, "nowhere", **where), {"workers": 2}),
    ],
)
def test_workers_and_addresses_go_with_shards(trained: Path, call: Callable[..., Any], where: dict[str, Any]) -> None:
    before = listing(trained)
    with pytest.raises(UsageError, match=r"--workers and --address go with --shards N"):
        call(trained, **where)
    assert listing(trained) == before


@pytest.mark.parametrize("where", [{"shards": 0}, {"shards": -1}, {"shards": 2, "workers": 0}])
def test_at_least_one_shard_and_one_worker(trained: Path, where: dict[str, int]) -> None:
    with pytest.raises(UsageError, match="at least one of each"):
        api.train(trained, **where)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "words",
    [
        ["train", "--workers", "2"],
        ["train", "--address", "auto"],
        ["update", "--address", "auto"],
        ["evaluate", "--address", "auto"],
        ["train", "--shards", "0"],
        ["train", "--shards", "2", "--workers", "0"],
    ],
    ids=" ".join,
)
def test_a_command_that_makes_no_sense_ends_with_two(
    trained: Path, words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["dkge", words[0], str(trained), *words[1:]])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert "--shards" in told.err or "--workers" in told.err
    assert told.out == ""
