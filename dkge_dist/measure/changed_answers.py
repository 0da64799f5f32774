"""Whose answers changed between two snapshots: the questions of changed triples, asked of the model of either."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from dkge_dist.ask.answers import AnswerOptions, answer
from dkge_dist.ask.batches import Line
from dkge_dist.ask.model import open_model_on
from dkge_dist.graph.diff import Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.kernels.triples import pack
from dkge_dist.records import ChangedAnswers
from dkge_dist.runtime import Runtime
from dkge_dist.store.manifest import ModelManifest, SnapshotManifest
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.types import Array, Triples

QUESTIONS = 200
"""Asked at most, unless told otherwise: a sample where more triples changed."""
TOP = 3
"""Answers that are compared and shown."""
STREAM = 17
"""Of random numbers, for the sample."""


class End(NamedTuple):
    """One of the two snapshots that are compared, and how the user called it."""

    word: str
    manifest: SnapshotManifest


def changed_answers(
    store: Store,
    runtime: Runtime,
    ends: tuple[End, End],
    change: Diff,
    examples: int,
    questions: int | None = None,
) -> ChangedAnswers:
    """Ask (h, r, ?) and (?, r, t) of changed triples; `examples` of those whose best answers by score differ.

    Only of entities and relations that both snapshots have: before it came, nobody could be asked about.
    """
    models = [model_of(store, end) for end in ends]
    snapshots = [store.snapshot(end.manifest) for end in ends]
    names = store.dictionaries(max((end.manifest for end in ends), key=lambda manifest: manifest.version))
    entity, relation, asks_tail = _questions(change, snapshots)
    sample = np.random.default_rng(STREAM).permutation(entity.shape[0])[: questions or QUESTIONS]
    labels = names[0].labels(entity[sample]), names[1].labels(relation[sample]), asks_tail[sample].tolist()
    lines = [
        Line(number, (label, kind, None) if is_head else (None, kind, label))
        for number, (label, kind, is_head) in enumerate(zip(*labels, strict=True), 1)
    ]
    before, after = (_asked(store, runtime, lines, model) for model in models)
    differing = []
    for old, new in zip(before, after, strict=True):
        best = _best(old), _best(new)
        if [line["entity"] for line in best[0]] != [line["entity"] for line in best[1]]:
            given = {key: value for key, value in new.items() if key != "answers"}
            differing.append({**given, "before": best[0], "after": best[1]})
    return ChangedAnswers(
        from_snapshot=ends[0].manifest.snapshot.name,
        to_snapshot=ends[1].manifest.snapshot.name,
        models=[model.version for model in models],
        questions=int(entity.shape[0]),
        asked=len(lines),
        differ=len(differing),
        examples=differing[:examples],
    )


def model_of(store: Store, end: End) -> ModelManifest:
    """The model that was learnt from a snapshot: the one that the user named, if it was, or else the newest."""
    with suppress(StoreError):
        named = store.find_model(end.word)
        if named.model.snapshot == end.manifest.version:
            return named
    number, name = store.learnt_from(end.manifest.version), end.manifest.snapshot.name
    if number is None:
        raise StoreError(
            f"{store}: no model was learnt from snapshot {name!r}; `dkge train {store}` or `update` learns one"
        )
    return store.model_manifest(number)


def _questions(change: Diff, snapshots: list[Snapshot]) -> tuple[Array, Array, Array]:
    """(entity, relation, whether a tail is asked for) of all changed train triples, each once."""
    changed, sides = Triples.concat([change.added, change.deleted]), []
    for asks_tail, entity in ((True, changed.head), (False, changed.tail)):
        there = np.ones(changed.count, bool)
        for snapshot in snapshots:
            there &= _is_alive(snapshot.entities_alive, entity) & _is_alive(snapshot.relations_alive, changed.relation)
        _, first = np.unique(pack(entity[there], changed.relation[there]), return_index=True)
        sides.append((entity[there][first], changed.relation[there][first], np.full(first.shape[0], asks_tail)))
    entities, relations, asks = (np.concatenate(column) for column in zip(*sides, strict=True))
    return entities, relations, asks


def _is_alive(alive: Array, rows: Array) -> Array:
    """Rows that a snapshot does not know yet are not."""
    known = rows < alive.shape[0]
    found: Array = known & alive[np.where(known, rows, 0)] if alive.shape[0] else known
    return found


def _asked(store: Store, runtime: Runtime, questions: list[Line], model: ModelManifest) -> list[dict[str, Any]]:
    if not questions:
        return []
    with open_model_on(runtime, store, str(model.version)) as opened:
        return [found.to_dict() for found in answer(opened, questions, AnswerOptions(top=TOP))]


def _best(question: dict[str, Any]) -> list[dict[str, Any]]:
    """By score alone: `answer` has known facts first, which would be no news of the model."""
    return sorted(question["answers"], key=lambda line: -line["score"])[:TOP]
