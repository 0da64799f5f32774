"""What an update writes, row by row: on random graphs, just what the published definition says, by hash.

The definition is worked out here from nothing: contexts rebuilt by the slow twins on the graph before and after.
"""

from __future__ import annotations

from collections import Counter
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

import dkge_dist
from dkge_dist.learn.batches import BatchMaker
from dkge_dist.learn.prefetch import PreparedBatch
from dkge_dist.learn.step import Step
from dkge_dist.store.store import Store
from dkge_dist.store.tables import load_delta
from dkge_dist.types import Report, Split
from tests import reference
from tests.graphs import Labelled, write_changes, write_tsv
from tests.models import vectors_of

pytestmark = pytest.mark.usefixtures("one_thread")

CAP = 5
"""So small that most contexts are samples."""
SETTINGS = ["model.dim=4", f"context.cap={CAP}", "train.max_epochs=1", "train.batch_size=200", "online.max_epochs=1"]
ENTITIES, RELATIONS = 40, 5

Night = tuple[list[Labelled], list[Labelled], list[Labelled]]
Known = tuple[tuple[int, int, int], bool]


def random_night(seed: int) -> Night:
    """A graph, what a night adds (newcomers and a new relation among it) and what it deletes (a relation dies)."""
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, [[ENTITIES], [RELATIONS], [ENTITIES]], (3, 220))
    graph = sorted(
        {(f"e{h}", f"r{r}", f"e{t}") for h, r, t in columns.T} | {("e1", "old", "e2"), ("e3", "old", "last")}
    )
    ends = [*(f"e{i}" for i in range(ENTITIES)), "new1", "new2", "new3"]
    kinds = [*(f"r{i}" for i in range(RELATIONS)), "fresh"]
    drawn = zip(rng.integers(0, len(ends), 14), rng.integers(0, len(kinds), 14), rng.integers(0, len(ends), 14))  # noqa: B905
    added = {(ends[h], kinds[r], ends[t]) for h, r, t in drawn} | {("new1", "fresh", "e4"), ("e5", "r0", "new1")}
    # A second relation between neighbours changes no context.
    head, _, tail = graph[3]
    added.add((head, "r1", tail))
    deleted = {graph[i] for i in rng.choice(len(graph), 8, replace=False)} | {t for t in graph if t[1] == "old"}
    return graph, sorted(added - set(graph)), sorted(deleted)


def rows_of(store: Path) -> tuple[dict[str, int], dict[str, int]]:
    opened = Store.open(store)
    return tuple(  # type: ignore[return-value]
        {label: row for row, label in enumerate(names.labels(np.arange(len(names))))}
        for names in opened.dictionaries(opened.head())
    )


def expected(store: Path, night: Night, literal: bool) -> dict[str, tuple[set[int], set[int]]]:
    """By kind of objects: rows that emerge, and those whose `^k` and o* an update may write besides."""
    graph, added, deleted = night
    entities, relations = rows_of(store)
    before = [(entities[h], relations[r], entities[t]) for h, r, t in graph]
    after = [(entities[h], relations[r], entities[t]) for h, r, t in {*graph, *added} - set(deleted)]
    opened = Store.open(store)
    digests = [names.digests for names in opened.dictionaries(opened.head())]
    alive = [
        ({e for h, _, t in graph for e in (h, t)}, {r for _, r, _ in graph}) for graph in (before, after)
    ]  # fmt: skip
    changed = (
        reference.affected_entities(before, after, len(entities), digests[0], 7, CAP, 1),
        reference.affected_relations(before, after, len(relations), digests[1], 7, CAP, 2),
    )
    touched = {*added, *deleted}
    ends = {entities[e] for h, _, t in touched for e in (h, t)}, {relations[r] for _, r, _ in touched}
    out = {}
    for kind, noun in enumerate(("entities", "relations")):
        old, new = alive[0][kind], alive[1][kind]
        affected = changed[kind] if literal else changed[kind] | ends[kind]
        out[noun] = (new - old, affected & old & new)
    return out


def digest(values: np.ndarray) -> str:
    return sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


@pytest.mark.parametrize("preset", ["paper", "default"])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_just_the_rows_of_the_definition_are_written(preset: str, seed: int, tmp_path: Path) -> None:
    night = random_night(seed)
    store = tmp_path / "store"
    dkge_dist.ingest(store, write_tsv(tmp_path / "base.tsv", night[0]))
    dkge_dist.train(store, preset=preset, settings=SETTINGS)
    dkge_dist.ingest(store, write_changes(tmp_path / "night.changes", *night[1:]), force=True)
    report = dkge_dist.update(store)
    assert (report["removed_relations"], report["emerging_relations"], report["removed_entities"]) == (1, 1, 1)
    opened = Store.open(store)
    model = opened.model_manifest(report["version"]).model
    before, after = (vectors_of(store, version) for version in (2, report["version"]))
    assert all(digest(before.dense[name]) == digest(after.dense[name]) for name in before.dense)
    for kind, (emerging, affected) in expected(store, night, literal=preset == "paper").items():
        tables = getattr(model, kind)
        assert report[f"emerging_{kind}"] == len(emerging)
        assert report[f"affected_{kind}"] == len(affected)
        assert affected
        # By default relations that existed are not trained.
        trained = emerging if preset == "default" and kind == "relations" else emerging | affected
        for field, rows in (("knowledge", trained), ("joint", emerging | affected), ("context", emerging)):
            written = [load_delta(opened.storage, tables[field], part)[0] for part in tables[field].deltas]
            assert set(np.concatenate(written).tolist()) == rows
            old, new = getattr(before, kind)[field], getattr(after, kind)[field]
            frozen = np.setdiff1d(np.arange(old.shape[0]), sorted(rows))
            assert digest(old[frozen]) == digest(new[frozen])


def learnt_positions(store: Path, words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[Report, list[Known]]:
    """Of an update: its report, and every (triple, is it denied) that it learnt from."""
    made: dict[int, list[Known]] = {}
    learnt: list[Known] = []
    make, learn = BatchMaker.make, Step.learn

    def heard(self: BatchMaker, positions: np.ndarray, rng: np.random.Generator) -> object:
        batch = make(self, positions, rng)
        columns = self._every.take(positions)
        triples = zip(*(column.tolist() for column in columns), strict=True)
        made[id(batch)] = list(zip(triples, batch.unlearn_mask.tolist(), strict=True))
        return batch

    def learning(self: Step, prepared: PreparedBatch, *given: object) -> float:
        learnt.extend(made.pop(id(prepared.batch)))
        return learn(self, prepared, *given)

    monkeypatch.setattr(BatchMaker, "make", heard)
    monkeypatch.setattr(Step, "learn", learning)
    return dkge_dist.update(store, settings=words), learnt


def changed_store(folder: Path) -> tuple[Path, Night]:
    """Trained, with a night that is not learnt yet."""
    night = random_night(4)
    store = folder / "store"
    dkge_dist.ingest(store, write_tsv(folder / "base.tsv", night[0]))
    dkge_dist.train(store, settings=SETTINGS)
    dkge_dist.ingest(store, write_changes(folder / "night.changes", *night[1:]), force=True)
    return store, night


@pytest.mark.parametrize("limit", [2, 30])
def test_every_added_triple_is_in_a_batch(limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that change no context, and those of objects that bring no more than a few of their triples."""
    store, night = changed_store(tmp_path)
    words = [f"online.max_triples_per_object={limit}", "online.batch_size=20", "online.epochs_over=affected"]
    report, heard = learnt_positions(store, words, monkeypatch)
    learnt = [triple for triple, denied in heard if not denied]
    assert len(learnt) == len(heard) == report["trained_triples"] == len(set(learnt))
    opened = Store.open(store)
    train = opened.snapshot(opened.current_snapshot()).triples(Split.TRAIN)
    assert set(learnt) <= set(zip(*(column.tolist() for column in train), strict=True))
    entities, relations = rows_of(store)
    assert {(entities[h], relations[r], entities[t]) for h, r, t in night[1]} <= set(learnt)


def test_every_epoch_passes_over_all_that_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Added triples are learnt and deleted ones denied, those with an end or a relation that is gone left out."""
    store, night = changed_store(tmp_path)
    words = ["online.max_epochs=3", "online.batch_size=20", "online.replay=0.5", "online.narrow_after=0"]
    words.append("online.global_replay=0")
    report, heard = learnt_positions(store, words, monkeypatch)
    entities, relations = rows_of(store)
    added, deleted = ({(entities[h], relations[r], entities[t]) for h, r, t in some} for some in night[1:])
    opened = Store.open(store)
    snapshot = opened.snapshot(opened.current_snapshot())
    alive = {
        (h, r, t) for h, r, t in deleted
        if snapshot.entities_alive[h] and snapshot.entities_alive[t] and snapshot.relations_alive[r]
    }  # fmt: skip
    assert alive < deleted
    counted = Counter(heard)
    assert all(counted[triple, False] == 3 for triple in added)
    assert {triple for triple, denied in heard if denied} == alive
    assert all(counted[triple, True] == 3 for triple in alive)
    assert report["forgotten_triples"] == len(alive)
    beside = [triple for triple, denied in heard if not denied and triple not in added]
    assert len(beside) == pytest.approx(3 * (len(added) + len(alive)) / 2, abs=6)
    train = snapshot.triples(Split.TRAIN)
    assert set(beside) <= set(zip(*(column.tolist() for column in train), strict=True))
