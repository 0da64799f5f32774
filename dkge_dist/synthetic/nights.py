"""The change of one night. In: the `World` and the sorted keys of the graph. Out: keys to delete and keys to add.

Deletions are drawn first: no triple is deleted and added in one night, and removed people get no new credits. Some
deletions are replacements: the only answer to (title, role, ?) goes, and the additions bring another one. Additions add
new entities to the world; the caller updates `World.alive`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.sets import among, distinct
from dkge_dist.synthetic.casting import (
    KNOWN_SHARE,
    collect,
    count_before,
    draw_credits,
    draw_famous,
    draw_work,
    known_for,
    pack,
    parents,
    questions,
    unpack,
)
from dkge_dist.synthetic.world import (
    EPISODE,
    KNOWN_FOR,
    MOVIE,
    PARENT,
    PERSON,
    PROFESSION_SHARES,
    SERIES,
    World,
    draw_fame,
    draw_weighted,
)
from dkge_dist.types import Array

REMOVAL_SHARE = 0.2  # of the deletions go with removed entities; the others correct scattered credits
REMOVABLE_DEGREE = 6  # only entities of small degree are removed: the triples of a hub would be the whole night
RETURN_SHARE = 0.2  # of the removed entities come back
REPLACED_SHARE = 0.1  # of the deletions are replacements
REPLACEMENT_DRAWS = 200  # each: in a scene with few people nearly all draws give the person who just lost the credit
OPENING_SHARE = 0.6  # of the additions come with new titles
TRIPLES_PER_OPENING = 5
NEWCOMERS_PER_OPENING = 0.6
SEQUEL_SHARE = 0.3  # of the new films belong to a franchise that exists
NEWCOMER_WORK_SHARE = 0.25  # of the new credits on old titles go to people of recent nights


def degrees(keys: Array, entities: int) -> Array:
    """The number of triples of each entity."""
    head, _, tail = unpack(keys)
    return np.asarray(np.bincount(head, minlength=entities) + np.bincount(tail, minlength=entities))


class Deletions(NamedTuple):
    """What a night deletes, sorted; of it what returns some nights later, and what is replaced the same night."""

    keys: Array
    returning: Array
    replaced: Array


def draw_deletions(rng: np.random.Generator, world: World, state: Array, count: int) -> Deletions:
    """Exactly `count` keys of `state`."""
    entities = world.kind.size
    degree = degrees(state, entities)
    obscure = np.flatnonzero((degree > 0) & (degree <= REMOVABLE_DEGREE))
    obscure = rng.choice(obscure, min(count, obscure.size), replace=False)
    removed = obscure[np.cumsum(degree[obscure]) <= int(count * REMOVAL_SHARE)]
    returning = removed[: int(np.ceil(removed.size * RETURN_SHARE))]
    leaving = _touching(state, removed, entities)
    corrections = count - int(np.count_nonzero(leaving))
    safe, others = _draw_corrections(rng, state[~leaving], corrections, entities)
    # Only of the safe ones, because a replaced person stays in the graph.
    replaced = np.flatnonzero(_only_credits(state, safe, entities))[: round(count * REPLACED_SHARE)]
    corrected = np.concatenate([safe[replaced], np.delete(safe, replaced), others])[:corrections]
    return Deletions(distinct(state[leaving], corrected), state[_touching(state, returning, entities)], safe[replaced])


def _touching(keys: Array, entities: Array, total: int) -> Array:
    """Which of `keys` have an end among `entities`."""
    wanted = np.zeros(total, np.bool_)
    wanted[entities] = True
    head, _, tail = unpack(keys)
    return np.asarray(wanted[head] | wanted[tail])


def _credits(keys: Array) -> Array:
    """The keys of credits, which are the relations before knownFor and parent."""
    return np.asarray(keys[unpack(keys).relation < KNOWN_FOR])


def _only_credits(state: Array, keys: Array, entities: int) -> Array:
    """Which of `keys` are credits that no one else has in the same role of the same title."""
    title, role, _ = unpack(keys)
    answered = np.sort(questions(state[_touching(state, title, entities)]))
    asked = questions(keys)
    answers = np.searchsorted(answered, asked, side="right") - np.searchsorted(answered, asked)
    return np.asarray((answers == 1) & (role < KNOWN_FOR))


def _draw_corrections(rng: np.random.Generator, keys: Array, count: int, entities: int) -> tuple[Array, Array]:
    """Candidates among `keys`: those that leave every entity a triple, and others in case these are under `count`."""
    sample = rng.choice(keys, min(4 * count, keys.size), replace=False)
    head, relation, tail = unpack(sample)
    ends = np.column_stack([head, tail])
    # An entity of degree d keeps a triple if only its first d - 1 occurrences in the sample are deleted.
    removable = count_before(ends.ravel()).reshape(ends.shape) < degrees(keys, entities)[ends] - 1
    # An episode is hardly ever moved to another series.
    safe = removable.all(axis=1) & (relation != PARENT)
    return sample[safe], sample[~safe]


def draw_additions(
    rng: np.random.Generator, world: World, state: Array, deleted: Deletions, count: int, returning: Array
) -> Array:
    """Exactly `count` sorted keys that are not in `state`, the graph before the deletions."""
    titles = np.flatnonzero((world.kind != PERSON) & world.alive)
    settled = np.sort(questions(deleted.replaced))

    def unsettled(keys: Array) -> Array:
        """Without further answers to the questions whose only answer is replaced."""
        return np.asarray(keys[~among(settled, questions(keys))])

    replacements = _draw_replacements(rng, world, state, deleted.replaced)[:count]
    rest = count - replacements.size
    returned = _revive(world, unsettled(returning)[: rest // 10])
    openings = _draw_openings(rng, world, titles, round(rest * OPENING_SHARE))
    added = distinct(replacements, returned, openings)
    # People with a new credit may become known for another title.
    cast = _credits(openings)
    earlier = _credits(state[_touching(state, unpack(cast).tail, world.kind.size)])
    earlier = earlier[~among(deleted.keys, earlier)]
    known_count = min(round(rest * KNOWN_SHARE), count - added.size)
    added = distinct(added, known_for(rng, world, np.concatenate([earlier, cast]), known_count, state))
    newcomers = world.newcomers()

    def draw(total: int) -> Array:
        to_newcomers = int(total * NEWCOMER_WORK_SHARE) if newcomers.size else 0
        work = draw_work(rng, world, newcomers[rng.integers(0, newcomers.size, to_newcomers)])
        credits = draw_credits(rng, world, draw_famous(rng, world, titles, total - to_newcomers))
        return unsettled(np.concatenate([work, credits]))

    return distinct(added, collect(rng, count - added.size, draw, distinct(state, added)))


def _draw_replacements(rng: np.random.Generator, world: World, state: Array, replaced: Array) -> Array:
    """Another credit for the title and role of each of `replaced`, drawn as every credit is."""
    title, role, _ = unpack(np.tile(replaced, REPLACEMENT_DRAWS))
    drawn = draw_credits(rng, world, title, role)
    drawn = drawn[~among(state, drawn)]
    return np.asarray(drawn[count_before(questions(drawn)) == 0])


def _revive(world: World, keys: Array) -> Array:
    """The triples by which removed entities return: those whose other end is alive."""
    head, _, tail = unpack(keys)
    meets = world.alive[head] != world.alive[tail]
    world.alive[head[meets]] = True
    world.alive[tail[meets]] = True
    return np.asarray(keys[meets])


def _draw_openings(rng: np.random.Generator, world: World, titles: Array, count: int) -> Array:
    """About `count` keys: new titles with their casts, and the newcomers among these."""
    if count < TRIPLES_PER_OPENING:
        return np.empty(0, np.int64)
    new = _add_titles(rng, world, rng.choice(titles, count // TRIPLES_PER_OPENING))
    debut = rng.choice(new, int(new.size * NEWCOMERS_PER_OPENING))
    profession = draw_weighted(rng, np.array(PROFESSION_SHARES), debut.size)
    pool = profession * world.scenes + world.franchise_scene[world.group[debut]]
    newcomers = world.add_entities(np.full(debut.size, PERSON), pool, np.zeros(debut.size))
    needed = distinct(
        parents(world, new),
        draw_credits(rng, world, new[world.kind[new] != EPISODE]),
        pack(debut, profession, newcomers),
    )

    def draw(total: int) -> Array:
        return draw_credits(rng, world, draw_famous(rng, world, new, total))

    return distinct(needed, collect(rng, count - needed.size, draw, needed))


def _add_titles(rng: np.random.Generator, world: World, models: Array) -> Array:
    """New titles, each modelled on an old one, so that big series grow most: an episode brings the next episode."""
    kind, group = world.kind[models].copy(), world.group[models].copy()
    series = world.series_of(models)
    cancelled = (kind == EPISODE) & ~world.alive[series]
    sequel = (kind == MOVIE) & (rng.random(kind.size) < SEQUEL_SHARE)
    kind[cancelled] = MOVIE
    own = cancelled | (kind != EPISODE) & ~sequel
    group[own] = world.add_franchises(world.franchise_scene[group[own]])
    new = world.add_entities(kind, group, draw_fame(rng, kind))
    world.franchise_series[group[kind == SERIES]] = new[kind == SERIES]
    return new
