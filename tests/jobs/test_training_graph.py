"""The training graph of a snapshot under some settings."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dkge_dist.graph.training_graph import training_graph
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.settings import load_settings
from dkge_dist.store.store import Store
from dkge_dist.types import Split


def test_contexts_are_sampled_as_the_settings_say(store: Path) -> None:
    opened = Store.open(store)
    manifest = opened.find_snapshot("base")
    names = opened.dictionaries(manifest)
    words = ["seed=3", "context.cap=9", "context.hops=2", "context.path_length=3"]
    snapshot = opened.snapshot(manifest)
    graph = training_graph(snapshot, (names[0].digests, names[1].digests), load_settings(None, words))
    assert graph.sampling == Sampling(3, 9, 2)
    assert graph.paths.length == 3
    assert graph.train.count == manifest.snapshot.train
    assert np.array_equal(graph.valid.head, snapshot.triples(Split.VALID).head)
    assert (graph.entity_rows, graph.relation_rows) == (len(names[0]), len(names[1]))
