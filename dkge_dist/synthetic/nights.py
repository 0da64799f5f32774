"""The change of one night. In: the `World` and the sorted keys of the graph. Out: keys to delete and keys to add.

Deletions are drawn first: no triple is deleted and added in one night, and removed people get no new credits. Additions
add new entities to the world; the caller updates `World.alive`.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.synthetic.casting import KNOWN_SHARE, draw_credits, draw_famous, draw_work, known_for, parents
from dkge_dist.synthetic.keys import collect, count_before, pack, union, unpack
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
OPENING_SHARE = 0.6  # of the additions come with new titles
TRIPLES_PER_OPENING = 5
NEWCOMERS_PER_OPENING = 0.6
SEQUEL_SHARE = 0.3  # of the new films belong to a franchise that exists
NEWCOMER_WORK_SHARE = 0.25  # of the new credits on old titles go to people of recent nights


def degrees(keys: Array, entities: int) -> Array:
    """The number of triples of each entity."""
    head, _, tail = unpack(keys)
    return np.asarray(np.bincount(head, minlength=entities) + np.bincount(tail, minlength=entities))


def draw_deletions(rng: np.random.Generator, world: World, state: Array, count: int) -> tuple[Array, Array]:
    """Exactly `count` keys of `state`, sorted, and those of them that come back with their entity some nights later."""
    degree = degrees(state, world.kind.size)
    obscure = np.flatnonzero((degree > 0) & (degree <= REMOVABLE_DEGREE))
    obscure = rng.choice(obscure, min(count, obscure.size), replace=False)
    removed = obscure[np.cumsum(degree[obscure]) <= int(count * REMOVAL_SHARE)]
    returning = removed[: int(np.ceil(removed.size * RETURN_SHARE))]
    leaving = _touching(state, removed, world.kind.size)
    corrected = _draw_corrections(rng, state[~leaving], count - int(np.count_nonzero(leaving)), world.kind.size)
    return union(state[leaving], corrected), state[_touching(state, returning, world.kind.size)]


def _touching(keys: Array, entities: Array, total: int) -> Array:
    """Which of `keys` have an end among `entities`."""
    wanted = np.zeros(total, np.bool_)
    wanted[entities] = True
    head, _, tail = unpack(keys)
    return np.asarray(wanted[head] | wanted[tail])


def _credits(keys: Array) -> Array:
    """The keys of credits, which are the relations before knownFor and parent."""
    return np.asarray(keys[unpack(keys).relation < KNOWN_FOR])


def _draw_corrections(rng: np.random.Generator, keys: Array, count: int, entities: int) -> Array:
    """`count` of `keys`, chosen so that every entity keeps a triple, as long as there are enough such keys."""
    sample = rng.choice(keys, min(4 * count, keys.size), replace=False)
    head, relation, tail = unpack(sample)
    ends = np.column_stack([head, tail])
    # An entity of degree d keeps a triple if only its first d - 1 occurrences in the sample are deleted.
    removable = count_before(ends.ravel()).reshape(ends.shape) < degrees(keys, entities)[ends] - 1
    # An episode is hardly ever moved to another series.
    safe = removable.all(axis=1) & (relation != PARENT)
    return np.concatenate([sample[safe], sample[~safe]])[:count]


def draw_additions(
    rng: np.random.Generator, world: World, state: Array, remaining: Array, count: int, returning: Array
) -> Array:
    """Exactly `count` sorted keys that are not in `state`; `remaining` is what the deletions left of it."""
    titles = np.flatnonzero((world.kind != PERSON) & world.alive)
    returned = _revive(world, returning[: count // 10])
    openings = _draw_openings(rng, world, titles, round(count * OPENING_SHARE))
    added = union(returned, openings)
    # People with a new credit may become known for another title.
    cast = _credits(openings)
    earlier = _credits(remaining[_touching(remaining, unpack(cast).tail, world.kind.size)])
    known_count = min(round(count * KNOWN_SHARE), count - added.size)
    added = union(added, known_for(rng, world, np.concatenate([earlier, cast]), known_count, state))
    newcomers = world.newcomers()

    def draw(total: int) -> Array:
        to_newcomers = int(total * NEWCOMER_WORK_SHARE) if newcomers.size else 0
        return np.concatenate(
            [
                draw_work(rng, world, newcomers[rng.integers(0, newcomers.size, to_newcomers)]),
                draw_credits(rng, world, draw_famous(rng, world, titles, total - to_newcomers)),
            ]
        )

    return union(added, collect(rng, count - added.size, draw, union(state, added)))


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
    needed = union(
        parents(world, new),
        draw_credits(rng, world, new[world.kind[new] != EPISODE]),
        pack(debut, profession, newcomers),
    )

    def draw(total: int) -> Array:
        return draw_credits(rng, world, draw_famous(rng, world, new, total))

    return union(needed, collect(rng, count - needed.size, draw, needed))


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
