"""Labels and display names to rows, and what is wrong with those that have none. In: labels. Out: rows, or an error.

Where no label matches, a display name is looked for: exactly, or else but for case. Several namesakes are told apart by
their facts; a label that is unknown is told with what looks most alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.labels import Labels
from dkge_dist.types import Array, DkgeError, Report

if TYPE_CHECKING:
    from dkge_dist.ask.model import Model

SUGGESTED_FOR = 3
"""Unknown labels of a batch that near ones are looked for: every time all labels are compared."""
SUGGESTIONS = 5
SHOWN = 8
"""Namesakes that an error lists."""
FACTS = 1000
"""Of a namesake that are looked at for one that no other has."""

Kind = Literal["entities", "relations"]


class LookedUp(NamedTuple):
    """The rows of labels, and by their number what is wrong with those that have none."""

    rows: Array
    problems: dict[int, str]


def look_up(names: Dictionary, labels: list[str], model: Model | None = None) -> LookedUp:
    """The rows of labels, or of display names where no label matches; -1 for what is neither.

    The first of these are told with the nearest that there are. With a model, namesakes that its snapshot does not have
    are left out, and the others are told apart by their facts.
    """
    rows = names.lookup(Labels.from_strings(label.encode("utf-8", "replace").decode() for label in labels))
    # What is no text is no label; else another label might be found in its place.
    odd = [number for number, label in enumerate(labels) if not _is_text(label)]
    rows[odd] = -1
    problems: dict[int, str] = {}
    suggests = model is None or model.suggests
    for missing in np.flatnonzero(rows < 0).tolist():
        try:
            rows[missing] = _row_named(names, labels[missing], model, suggests and len(problems) < SUGGESTED_FOR)
        except DkgeError as error:
            problems[missing] = str(error)
    return LookedUp(rows, problems)


def row_of(names: Dictionary, label: str, model: Model | None = None) -> int:
    """The row of one label; that it has none is an error."""
    found = look_up(names, [label], model)
    for problem in found.problems.values():
        raise DkgeError(problem)
    return int(found.rows[0])


def find_alive(model: Model, kind: Kind, labels: list[str]) -> LookedUp:
    """The rows of labels of objects that the model's snapshot has."""
    names, alive = model.of_kind(kind)
    rows, problems = look_up(names, labels, model)
    for number in np.flatnonzero((rows >= 0) & ~alive[rows]).tolist():
        problems[number] = f"{labels[number]!r} is not in snapshot {model.snapshot_name!r} (it was in another one)"
    return LookedUp(rows, problems)


def labelled(names: Dictionary, rows: Array, key: str, name_key: str) -> list[Report]:
    """The label of each row under `key`, and beside it its display name under `name_key` where it has one."""
    return [
        {key: label} if name is None else {key: label, name_key: name}
        for label, name in zip(names.labels(rows), names.names(rows), strict=True)
    ]


def _is_text(label: str) -> bool:
    try:
        label.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _row_named(names: Dictionary, name: str, model: Model | None, suggests: bool = True) -> int:
    """The row with a display name: exactly, or else but for case. Several or none are an error.

    If it `suggests`, none is told with what looks most alike; for that all labels and names are compared.
    """
    is_text = name.encode("utf-8", "replace").decode() == name
    found = names.display_names.find(name) if names.display_names is not None and is_text else []
    found = [one for one in found if one.row < len(names)]
    rows = [one.row for one in found if one.name == name] or [one.row for one in found]
    if model is not None and rows:
        alive = model.snapshot.entities_alive if names is model.names[0] else model.snapshot.relations_alive
        rows = [row for row in rows if alive[row]] or rows
    if len(rows) == 1:
        return rows[0]
    if rows:
        raise DkgeError(_ambiguous(names, name, sorted(rows), model))
    if model is not None and is_text:
        other = model.names[1 if names is model.names[0] else 0]
        if other.lookup(Labels.from_strings([name]))[0] >= 0:
            raise DkgeError(f"no {names.noun} {name!r}: it is {_a(other.noun)} (the order is HEAD RELATION TAIL)")
    near = _nearest(names, name) if suggests else []
    hint = f"; nearest: {', '.join(near)}" if near else ""
    raise DkgeError(f"no {names.noun} {name!r}{hint}")


def _a(noun: str) -> str:
    return f"an {noun}" if noun == "entity" else f"a {noun}"


def _ambiguous(names: Dictionary, name: str, rows: list[int], model: Model | None) -> str:
    shown = rows[:SHOWN]
    facts = _telling_facts(model, shown) if model is not None and names is model.names[0] else [None] * len(shown)
    told = [
        f"{names.label(row)} ({fact})" if fact else names.label(row) for row, fact in zip(shown, facts, strict=True)
    ]
    more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
    plural = "entities" if names.noun == "entity" else "relations"
    return f"{len(rows)} {plural} are named {name!r}: {', '.join(told)}{more}; ask by label"


def _telling_facts(model: Model, rows: list[int]) -> list[str | None]:
    """For each entity one of its facts, if there is one that none of the others has."""
    facts = [list(_facts(model, row)) for row in rows]
    entities, relations = model.names
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


def _facts(model: Model, row: int) -> Iterator[tuple[int, int, bool]]:
    """(Relation, other entity, does the entity come first?) of its first facts."""
    columns = (column.tolist() for column in model.known.facts(row).take(slice(FACTS)))
    for head, relation, tail in zip(*columns, strict=True):
        yield (relation, tail, True) if head == row else (relation, head, False)


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
