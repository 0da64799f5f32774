"""From the text to the published figure: what of the authors' code explains it, one difference at a time.

The literal method is trained to its end once, and asked as it is and without the question's own entity, which hardly
ever is the answer and nearly always the nearest. Then every difference between the text and the authors' published code
is switched on alone, and then one after the other, each learnt for the budget on YAGO-3SP snapshot 1 (`variants`).
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.peers.protocol import graph_of
from benchmarks.peers.ranking import measure_held_out
from benchmarks.published import trained
from benchmarks.study.cells import Cell, Result
from benchmarks.study.graphs import DataSet, Study, yago
from benchmarks.study.systems import measure_ours
from benchmarks.study.variants import CAP, DIFFERENCES, VariantDkge
from dkge_dist.ask.model import open_model
from dkge_dist.ask.ranks import metrics, rank
from dkge_dist.graph.training_graph import training_graph
from dkge_dist.kernels.triples import canonical
from dkge_dist.settings import load_settings
from dkge_dist.store.store import Store
from dkge_dist.types import Split, Triples

PART = "from_text"
TO_ITS_END = "literal, to its end"
OWN_OUT = "literal, to its end, own entity no candidate"


def variants() -> dict[str, tuple[str, ...]]:
    """By name: the differences that are on."""
    alone = {f"alone: {difference}": (difference,) for difference in DIFFERENCES}
    every = {f"up to: {DIFFERENCES[count]}": DIFFERENCES[: count + 1] for count in range(1, len(DIFFERENCES))}
    return {"literal": (), **alone, **every}


def run(study: Study) -> None:
    """The end of the literal method, and all variants."""
    data = yago(study, 1)
    for seed in study.all_seeds:
        for name, differences in variants().items():
            cell = Cell(PART, "DKGE", data.name, data.snapshots[0], seed, name, study.budget)
            study.ledger.run(cell, lambda on=differences, seed=seed: _variant(study, data, on, seed))  # type: ignore[misc]
        end = Cell(PART, "DKGE, literal", data.name, data.snapshots[0], seed, TO_ITS_END)
        study.ledger.run(end, lambda seed=seed: _to_its_end(study, data, seed))  # type: ignore[misc]
        study.ledger.run(replace(end, setting=OWN_OUT), lambda seed=seed: _own_out(study, data, seed))  # type: ignore[misc]


def _variant(study: Study, data: DataSet, differences: tuple[str, ...], seed: int) -> Result:
    store = Store.open(data.store)
    manifest = store.find_snapshot(data.snapshots[0])
    words = [f"seed={seed}", *(["context.cap=30"] if CAP in differences else [])]
    words += ["model.dim=16", "train.max_epochs=2", "train.batch_size=100"] if study.quick else []
    settings, names = load_settings(None, words, "paper"), store.dictionaries(manifest)
    training = training_graph(store.snapshot(manifest), (names[0].digests, names[1].digests), settings)
    graph, peer = graph_of(store, data.snapshots[0]), VariantDkge(training, settings, frozenset(differences))
    report = peer.fit(graph, study.budget)
    return {"fit": report.to_dict(), "vectors": measure_held_out(peer, graph, graph.test), "differences": differences}


def _trained_to_its_end(study: Study, data: DataSet, seed: int) -> tuple[int, Result]:
    """800 epochs, or until validation Hits@10 is no better five times: as published. The version, and what it took."""
    words = [f"seed={seed}", *(["model.dim=16", "train.max_epochs=2", "threads=1"] if study.quick else [])]
    done = trained(data.store, data.snapshots[0], "paper", words)
    return done["version"], {"seconds": done["seconds"], "epochs": done["epochs"]}


def _to_its_end(study: Study, data: DataSet, seed: int) -> Result:
    version, fit = _trained_to_its_end(study, data, seed)
    return {**measure_ours(data.store, version, None), "fit": fit}


def _own_out(study: Study, data: DataSet, seed: int) -> Result:
    """The same model, asked without the question's own entity among the candidates, unless it is the answer."""
    version, fit = _trained_to_its_end(study, data, seed)
    opened = open_model(Store.open(data.store), str(version))
    train, test = (opened.snapshot.triples(split) for split in (Split.TRAIN, Split.TEST))
    if not test.count:
        test = opened.snapshot.triples(Split.VALID)
    own = [Triples(entity, test.relation, entity) for entity in (test.head, test.tail)]
    embedding = opened.embedding
    ranks = rank(embedding, test, canonical(Triples.concat([train, *own])))
    return {"vectors": {"paper": metrics(ranks.both)}, "fit": fit}
