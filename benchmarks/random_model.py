"""A model of a snapshot with random vectors and the evidence of the graph: a large store without a long training."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from dkge_dist.evidence.fit import fit_weights
from dkge_dist.evidence.fitting import EvidenceFitting
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.stored import current_lists, to_arrays
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.training_graph import training_graph
from dkge_dist.model.dkge import Dkge
from dkge_dist.records import TrainingRecord
from dkge_dist.settings import load_settings
from dkge_dist.store.models import ModelMetadata, publish_model, save_model
from dkge_dist.store.store import Store
from dkge_dist.store.tables import block_rows, save_table
from dkge_dist.types import Field


def publish_random_model(store: Store, snapshot: int, words: list[str]) -> int:
    """The version of the model. Its weights of evidence are fitted without vectors, which say nothing."""
    began = time.perf_counter()
    settings = load_settings(None, words)
    manifest = store.snapshot_manifest(snapshot)
    names = store.dictionaries(manifest)
    graph = training_graph(store.snapshot(manifest), (names[0].digests, names[1].digests), settings)
    fitting = EvidenceFitting.of(graph, WalkLimits.of(settings))
    evidence = Evidence(fitting.graph, fit_weights(fitting.problem, fitting.relations, None))
    rng, dim = np.random.default_rng(settings.seed), settings.model.dim
    dense = Dkge(dim, settings.model.entity_layers, settings.model.relation_layers).state_dict()
    metadata = ModelMetadata(
        settings.model_dump(mode="json"),
        TrainingRecord(epochs=0, evidence_fitted_on=fitting.fitted_on),
        [],
        to_arrays(evidence),
    )
    with store.storage.staging() as staging:
        lists = current_lists(
            store, staging, manifest, store.snapshot(manifest), names[0].digests, fitting.graph.limits
        )
        tables = []
        for rows, block in ((graph.entity_rows, manifest.block_rows), (graph.relation_rows, None)):
            values = rng.standard_normal((rows, dim), np.float32)
            # One table serves as all three: equal parts are kept once.
            entry = save_table(staging, values, block or block_rows(rows), coded=True)
            plain = entry.model_copy(update={"codes": None})
            tables.append({field: entry if field is Field.JOINT else plain for field in Field})
        arrays = {name: value.numpy() for name, value in dense.items()}
        entry = save_model(staging, manifest.version, (tables[0], tables[1]), arrays, replace(metadata, lists=lists))
        return publish_model(store, entry, time.perf_counter() - began).version
