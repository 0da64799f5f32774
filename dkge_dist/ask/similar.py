"""The entities nearest to given ones, by the L1 distance of their joint vectors. Exact."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dkge_dist.ask.batches import AT_ONCE, Line, lines_in
from dkge_dist.ask.lookup import find_alive
from dkge_dist.ask.results import Batch, Failure, Neighbour, Neighbours, Origin, Result
from dkge_dist.types import PathLike, UsageError, seconds_since

if TYPE_CHECKING:
    from dkge_dist.ask.model import Model


def entities_of(entity: str | None, batch: PathLike | Iterable[str] | None) -> list[Line]:
    """The entity that was given, or those of a batch."""
    if (entity is None) == (batch is None):
        raise UsageError("name an ENTITY, or --batch FILE with one a line")
    return [Line(1, (entity,))] if batch is None else lines_in(batch, "entity")


def similar(model: Model, lines: Sequence[Line], top: int) -> Batch:
    """The `top` other entities that are nearest to each."""
    began = time.monotonic()
    if top < 1:
        raise UsageError(f"--top {top}: at least one entity")
    embedding = model.embedding
    origin = Origin(model.version, model.snapshot_name, notice=model.notice)
    labels = [line.fields[0] if len(line.fields) == 1 else None for line in lines]
    found = find_alive(model, "entities", [label if isinstance(label, str) else "" for label in labels])
    results: dict[int, Result] = {}
    for at, problem in found.problems.items():
        error = problem if isinstance(labels[at], str) else "expected one entity"
        results[at] = Failure(lines[at].number, error)
    good = np.array([at for at in range(len(lines)) if at not in results], int)
    names = model.names[0]
    for begin in range(0, good.shape[0], AT_ONCE):
        numbers = good[begin : begin + AT_ONCE]
        rows = found.rows[numbers]
        near = embedding.entities.nearest(
            embedding.vectors(rows), embedding.candidates, min(top + 1, embedding.candidates.shape[0])
        )
        for i, number in enumerate(numbers.tolist()):
            others = near.rows[i] != rows[i]
            pairs = zip(near.rows[i][others][:top].tolist(), near.distances[i][others][:top].tolist(), strict=True)
            neighbours = [
                Neighbour(entity=near_by.label, name=near_by.name, score=round(-distance, 6))
                for near_by, distance in ((names.named(row), distance) for row, distance in pairs)
            ]
            results[number] = Neighbours(neighbours, names.named(int(rows[i])), origin)
    more = {"seconds": seconds_since(began)}
    return Batch([results[number] for number in range(len(lines))], "entities", origin, more)
