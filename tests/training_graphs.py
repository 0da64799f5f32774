"""Training graphs of small graphs, given by rows or by labels."""

from __future__ import annotations

from collections.abc import Sequence

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.triples import canonical
from dkge_dist.types import Split, Triples
from tests.graphs import Chain, Labelled
from tests.reference import Triple
from tests.strategies import digests, to_triples


def snapshot_of(train: Sequence[Triple], rows: int, relations: int, valid: Sequence[Triple] = ()) -> Snapshot:
    """A snapshot without test triples, given by rows."""
    splits = (canonical(to_triples(list(train))), canonical(to_triples(list(valid))), Triples.empty())
    return Snapshot.full(splits, rows, relations)


def graph_of_rows(
    train: Sequence[Triple],
    rows: int,
    relations: int,
    sampling: Sampling,
    path_length: int = 2,
    valid: Sequence[Triple] = (),
) -> TrainingGraph:
    """With digests of all rows that follow from their number alone."""
    snapshot = snapshot_of(train, rows, relations, valid)
    return TrainingGraph.of(snapshot, (digests(rows), digests(relations, 1)), sampling, path_length)


def graph_of_labels(
    train: list[Labelled], valid: list[Labelled], sampling: Sampling, path_length: int = 2
) -> TrainingGraph:
    """As an ingest and a training make it."""
    chain = Chain()
    chain.splits({Split.TRAIN: train, Split.VALID: valid})
    entities, relations = (Dictionary(names.grown, names.noun) for names in chain.names)
    return TrainingGraph.of(chain.snapshot, (entities.digests, relations.digests), sampling, path_length)
