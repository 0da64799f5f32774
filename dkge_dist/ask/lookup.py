"""What a question calls by a display name, or by no name at all: the row that is meant, or an error that helps on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.labels import Labels
from dkge_dist.kernels.sets import distinct
from dkge_dist.types import ROW, DkgeError, Split, Triples

if TYPE_CHECKING:
    from dkge_dist.ask.model import OpenedModel

SUGGESTIONS = 5
SHOWN = 8
"""Namesakes that an error lists."""
FACTS = 1000
"""Of a namesake that are looked at for one that no other has."""


def row_named(names: Dictionary, name: str, opened: OpenedModel | None, suggests: bool = True) -> int:
    """The row with a display name: exactly, or else but for case. Several or none are an error.

    If it `suggests`, none is told with what looks most alike; for that all labels and names are compared.
    """
    is_text = name.encode("utf-8", "replace").decode() == name
    found = names.display_names.find(name) if names.display_names is not None and is_text else []
    found = [one for one in found if one.row < len(names)]
    rows = [one.row for one in found if one.name == name] or [one.row for one in found]
    if opened is not None and rows:
        alive = opened.snapshot.entities_alive if names is opened.names[0] else opened.snapshot.relations_alive
        rows = [row for row in rows if alive[row]] or rows
    if len(rows) == 1:
        return rows[0]
    if rows:
        raise DkgeError(_ambiguous(names, name, sorted(rows), opened))
    if opened is not None and is_text:
        other = opened.names[1 if names is opened.names[0] else 0]
        if other.lookup(Labels.from_strings([name]))[0] >= 0:
            raise DkgeError(f"no {names.noun} {name!r}: it is {_a(other.noun)} (the order is HEAD RELATION TAIL)")
    near = _nearest(names, name) if suggests else []
    hint = f"; nearest: {', '.join(near)}" if near else ""
    raise DkgeError(f"no {names.noun} {name!r}{hint}")


def _a(noun: str) -> str:
    return f"an {noun}" if noun == "entity" else f"a {noun}"


def _ambiguous(names: Dictionary, name: str, rows: list[int], opened: OpenedModel | None) -> str:
    shown = rows[:SHOWN]
    facts = _telling_facts(opened, shown) if opened is not None and names is opened.names[0] else [None] * len(shown)
    told = [
        f"{names.label(row)} ({fact})" if fact else names.label(row) for row, fact in zip(shown, facts, strict=True)
    ]
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    plural = "entities" if names.noun == "entity" else "relations"
    return f"{len(rows)} {plural} are named {name!r}: {', '.join(told)}{more}; ask by label"


def _telling_facts(opened: OpenedModel, rows: list[int]) -> list[str | None]:
    """For each entity one of its facts, if there is one that none of the others has."""
    train = opened.snapshot.touching(Split.TRAIN, distinct(np.array(rows, ROW)))
    facts = [list(_facts(train, row)) for row in rows]
    entities, relations = opened.names
    told: list[str | None] = []
    for number, mine in enumerate(facts):
        others = {fact for other in facts[:number] + facts[number + 1 :] for fact in other}
        fact = next((fact for fact in mine if fact not in others), None)
        if fact is None:
            told.append(None)
        else:
            relation, other, forward = fact
            said = (relations.called(relation), entities.called(other))
            told.append(" ".join(said if forward else reversed(said)))
    return told


def _facts(train: Triples, row: int) -> Iterator[tuple[int, int, bool]]:
    """(Relation, other entity, does the entity come first?); triples are sorted by their heads."""
    begin, end = (int(place) for place in np.searchsorted(train.head, [row, row + 1]))
    for place in range(begin, min(end, begin + FACTS)):
        yield int(train.relation[place]), int(train.tail[place]), True
    for place in np.flatnonzero(train.tail == row)[:FACTS].tolist():
        yield int(train.relation[place]), int(train.head[place]), False


def _nearest(names: Dictionary, wanted: str) -> list[str]:
    """The labels and display names that look most alike, best first."""
    every: list[tuple[float, str]] = []
    labels = (label for segment in names.segments for label in segment.labels)
    every += [(score, label) for label, score, _ in _alike(wanted, labels)]
    if names.display_names is not None:
        table = names.display_names.table()
        every += [
            (score, f"{name} ({names.label(int(table.rows[place]))})")
            for name, score, place in _alike(wanted, iter(table.names))
            if table.rows[place] < len(names)
        ]
    every.sort(key=lambda found: -found[0])
    return [text for _, text in every[:SUGGESTIONS]]


def _alike(wanted: str, texts: Iterator[str]) -> list[tuple[str, float, int]]:
    from rapidfuzz import fuzz, process, utils

    return process.extract(
        wanted, texts, scorer=fuzz.token_sort_ratio, processor=utils.default_process, limit=SUGGESTIONS, score_cutoff=50
    )
