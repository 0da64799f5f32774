"""Small trained stores and nights for the tests of jobs, and o* recomputed from nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

import dkge_dist
from dkge_dist.graph.training_graph import training_graph
from dkge_dist.learn.contexts import EntityContexts, RelationContexts
from dkge_dist.learn.encode import TrainedObjects
from dkge_dist.model.dkge import Dkge
from dkge_dist.settings import settings_of_model
from dkge_dist.store.store import Store
from dkge_dist.tables.shard import Shard
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import Field, Split
from tests.models import vectors_of

SMALL = ["model.dim=12", "train.max_epochs=2", "train.batch_size=200", "train.negatives=32", "online.max_epochs=2"]
PAPER = ["model.dim=12", "train.max_epochs=2", "online.max_epochs=2"]
ADDED = ["e1\tr0\tnew1", "new1\tr1\te7", "new2\tr3\tnew1", "e5\tr2\te9", "e5\tr9\te9", "e8\tr9\te3"]
"""A night: two entities and a relation emerge."""


def base_triples(seed: int = 1) -> list[tuple[str, str, str]]:
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, [[60], [4], [60]], (3, 400))
    return sorted({(f"e{h}", f"r{r}", f"e{t}") for h, r, t in columns.T})


def ring(entities: int = 80) -> list[str]:
    """A graph that is easily learnt: every relation leads a fixed number of steps on."""
    return [f"e{i}\tr{k}\te{(i + k + 1) % entities}" for i in range(entities) for k in range(4)]


RING = ["model.dim=16", "train.max_epochs=40", "train.batch_size=200", "train.negatives=32", "evidence=false"]
SPOILT = ["online.learning_rate=3", "online.max_epochs=5", "online.proximal_weight=0", "online.replay=4",
          "online.narrow_after=0", "online.optimizer=adagrad"]  # fmt: skip
"""An update that forgets what was learnt before."""
GENTLE = ["online.learning_rate=0.001", "online.max_epochs=1"]
"""An update that leaves everything in its place."""


def ring_store(folder: Path) -> Path:
    """A store with a well-learnt ring, enough of it held out for drift to be told: versions 1 and 2."""
    path = folder / "ring"
    dkge_dist.ingest(path, write_lines(folder / "ring.tsv", ring()), valid=60, test=5)
    dkge_dist.train(path, settings=RING)
    return path


def ring_night(folder: Path, number: int) -> Path:
    """Forty random triples that the ring does not have."""
    drawn = np.random.default_rng(number).integers(0, [[80], [4], [80]], (3, 40)).T
    return write_night(
        folder / f"n{number}.changes", sorted({f"e{h}\tr{k}\te{t}" for h, k, t in drawn} - set(ring())), []
    )


def write_lines(path: Path, lines: list[str]) -> Path:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def trained_store(folder: Path, preset: str = "default", valid: int = 20, test: int = 20, seed: int = 1) -> Path:
    """A store with one snapshot `base` and a model of it, versions 1 and 2."""
    path = folder / "store"
    source = write_lines(folder / "base.tsv", ["\t".join(triple) for triple in base_triples(seed)])
    dkge_dist.ingest(path, source, valid=valid, test=test)
    dkge_dist.train(path, preset=preset, settings=PAPER if preset == "paper" else SMALL)
    return path


def write_night(path: Path, added: list[str], deleted: list[str]) -> Path:
    return write_lines(path, [f"+\t{line}" for line in added] + [f"-\t{line}" for line in deleted])


def ingest_night(path: Path, store: Path, added: list[str], deleted: list[str]) -> None:
    dkge_dist.ingest(store, write_night(path, added, deleted))


def some_train(store: Path, count: int) -> list[str]:
    """Train triples whose ends are in many others, so that no entity is removed with them."""
    opened = Store.open(store)
    manifest = opened.current_snapshot()
    assert manifest is not None
    names = opened.dictionaries(opened.head())
    train = opened.snapshot(manifest).triples(Split.TRAIN)
    some = train.take(np.random.default_rng(3).permutation(train.count)[:count])
    columns = names[0].labels(some.head), names[1].labels(some.relation), names[0].labels(some.tail)
    return ["\t".join(row) for row in zip(*columns, strict=True)]


def assert_joint_is_fresh(path: Path) -> None:
    """o* of all objects alive by the current model, from nothing but its vectors and the snapshot."""
    store = Store.open(path)
    model = store.find_model()
    settings = settings_of_model(model.model.settings)
    head = store.head()
    names = store.dictionaries(head)
    snapshot = store.snapshot(store.snapshot_manifest(model.model.snapshot), head)
    graph = training_graph(snapshot, (names[0].digests, names[1].digests), settings)
    vectors = vectors_of(path)
    dense = Dkge(settings.model.dim, settings.model.entity_layers, settings.model.relation_layers)
    dense.load_state_dict({name: torch.from_numpy(values) for name, values in vectors.dense.items()})
    for encoder, values, rows, contexts in (
        (
            dense.entity,
            vectors.entities,
            graph.entities,
            EntityContexts(graph.topology, graph.digests[0], graph.sampling),
        ),
        (
            dense.relation,
            vectors.relations,
            graph.relations,
            RelationContexts(graph.paths, graph.digests[1], graph.sampling),
        ),
    ):
        fresh = TrainedObjects(encoder, LocalTable(Shard(values)), contexts).joint(rows)
        np.testing.assert_allclose(values[Field.JOINT][rows], fresh, rtol=1e-4, atol=1e-5)
