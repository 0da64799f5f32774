"""Credits of people in titles, and the changes of a night. In: a `World`. Out: triples, drawn from its traits.

The base graph and every night draw by the same rules, so that a night looks like the graph it changes. Sets of triples
are ascending arrays of *keys*, one int64 a triple.

A night draws deletions first: no triple is deleted and added in one night, and removed people get no new credits. Some
deletions are replacements: the only answer to (title, role, ?) goes, and the additions bring another one. Additions add
new entities to the world; the caller updates `World.alive`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dkge_dist.kernels.sets import among, distinct
from dkge_dist.synthetic.world import (
    EPISODE,
    KNOWN_FOR,
    MOVIE,
    PARENT,
    PERSON,
    PROFESSION_SHARES,
    PROFESSIONS,
    RELATIONS,
    ROLES,
    SERIES,
    World,
    draw_fame,
    draw_weighted,
)
from dkge_dist.types import ROW, Array, Triples

_RELATION_BITS = 4
_ENTITY_BITS = 28
_ENTITY_MASK = (1 << _ENTITY_BITS) - 1
_BATCH = 1 << 21  # draws at a time, so that memory follows the graph and not the number of draws
_MAX_ROUNDS = 200

STARDOM = 5  # how unequal the people of a pool are; 1 would be equal chances
REGULAR = 0.7  # of all credits go to the regular holder of a seat
VISITING = 0.2  # of the other credits go to people of a neighbouring scene
UNDERSTUDY = 0.2  # of all credits go to the understudy of the role
KNOWN_SHARE = 0.13  # of all triples
KNOWN_LIMIT = 4  # IMDB lists at most four titles that a person is known for

_SHARES = np.array([role.share for role in ROLES])
_SEATS = np.array([role.seats for role in ROLES])
_PROFESSION = np.array([PROFESSIONS.index(role.profession) for role in ROLES])
_UNDERSTUDY = np.array([PROFESSIONS.index(role.understudy) for role in ROLES])
_ARCHIVE = np.array([RELATIONS.index("archive_footage"), RELATIONS.index("archive_sound")])


def pack(head: Array, relation: Array | int, tail: Array) -> Array:
    """One int64 a triple, which sorts by (head, tail, relation)."""
    ends = head.astype(np.int64) << _ENTITY_BITS | tail.astype(np.int64)
    return np.asarray(ends << _RELATION_BITS | relation)


def unpack(keys: Array) -> Triples:
    """The triples of packed keys."""
    head = keys >> (_ENTITY_BITS + _RELATION_BITS)
    tail = keys >> _RELATION_BITS & _ENTITY_MASK
    relation = keys & ((1 << _RELATION_BITS) - 1)
    return Triples(head.astype(ROW), relation.astype(ROW), tail.astype(ROW))


def questions(keys: Array) -> Array:
    """The question (head, relation, ?) that each key answers: the key without its tail."""
    return np.asarray(keys & ~np.int64(_ENTITY_MASK << _RELATION_BITS))


def count_before(groups: Array) -> Array:
    """For each element, the number of equal ones before it."""
    order = np.argsort(groups, kind="stable")
    ordered = groups[order]
    is_first = np.ones(groups.size, np.bool_)
    is_first[1:] = ordered[1:] != ordered[:-1]
    position = np.arange(groups.size)
    before = np.empty(groups.size, np.int64)
    before[order] = position - np.maximum.accumulate(np.where(is_first, position, 0))
    return before


def collect(rng: np.random.Generator, count: int, draw: Callable[[int], Array], taken: Array) -> Array:
    """Exactly `count` distinct keys from `draw`, none of them among the sorted `taken`; sorted.

    `draw(n)` makes about n keys, duplicates among them. A surplus is thinned at random, so that no key is favoured.
    """
    found = np.empty(0, np.int64)
    for _ in range(_MAX_ROUNDS):
        missing = count - found.size
        if missing <= 0:
            break
        fresh = distinct(draw(min(missing + missing // 4 + 16, _BATCH)))
        found = distinct(found, fresh[~among(taken, fresh)])
    if found.size < count:
        raise ValueError(f"only {found.size} of {count} distinct triples could be drawn: the graph is too small")
    return np.sort(rng.choice(found, count, replace=False))


def _hash01(values: Array, salt: int) -> Array:
    """A fixed number in [0, 1) for each integer (the finaliser of splitmix64)."""
    bits = values.astype(np.uint64) + np.uint64(salt)
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53)


def _neighbour_scene(rng: np.random.Generator, scene: Array, side: int) -> Array:
    """The scenes with one coordinate drawn anew: another country, genre or decade."""
    step = side ** rng.integers(0, 3, scene.size)
    return np.asarray(scene + (rng.integers(0, side, scene.size) - scene // step % side) * step)


def draw_credits(rng: np.random.Generator, world: World, titles: Array, role: Array | None = None) -> Array:
    """One credit for each of `titles` (repeat a title for more), roles by their shares unless given.

    A seat is (franchise, profession, place), and its regular holder is a hash of these: nothing is stored, and a
    director who also writes takes the same seat twice. Credits of removed people are left out.
    """
    count = titles.size
    if role is None:
        role = draw_weighted(rng, _SHARES, count)
    profession = np.where(rng.random(count) < UNDERSTUDY, _UNDERSTUDY[role], _PROFESSION[role])
    place = (rng.random(count) * _SEATS[role]).astype(np.int64)
    franchise = world.group[titles].astype(np.int64)
    scene = world.franchise_scene[franchise]
    seat = (franchise * len(PROFESSIONS) + profession) * _SEATS.max() + place
    regular = rng.random(count) < REGULAR
    luck = np.where(regular, _hash01(seat, world.salt), rng.random(count))
    visiting = ~regular & (rng.random(count) < VISITING)
    scene = np.where(visiting, _neighbour_scene(rng, scene, world.side), scene)
    pool = profession * world.scenes + scene
    first, stop = world.pool_people[pool], world.pool_people[pool + 1]
    # A scene without people of a profession hires from all scenes.
    vacant = first == stop
    first = np.where(vacant, world.pool_people[profession * world.scenes], first)
    stop = np.where(vacant, world.pool_people[(profession + 1) * world.scenes], stop)
    # The power makes the first people of a pool its stars: a tenth of the people get more than half of the work.
    person = first + ((stop - first) * luck**STARDOM).astype(np.int64)
    keys = pack(titles, role, person)
    return np.asarray(keys[world.alive[person] & world.alive[titles]])


def draw_famous(rng: np.random.Generator, world: World, titles: Array, count: int) -> Array:
    """`count` of `titles`, the famous ones more often."""
    return np.asarray(titles[draw_weighted(rng, world.fame[titles], count)])


def draw_work(rng: np.random.Generator, world: World, people: Array) -> Array:
    """One credit in their own profession for each of `people`, on a title of their scene."""
    scene = world.group[people] % world.scenes
    first, stop = world.scene_titles[scene], world.scene_titles[scene + 1]
    nothing = first == stop
    first, stop = np.where(nothing, 0, first), np.where(nothing, world.scene_titles[-1], stop)
    title = rng.integers(first, stop)
    keys = pack(title, world.profession_of(people), people)
    return np.asarray(keys[world.alive[title]])


def parents(world: World, titles: Array) -> Array:
    """The parent triples of the episodes among `titles`."""
    episodes = titles[world.kind[titles] == EPISODE]
    return pack(episodes, PARENT, world.series_of(episodes))


def known_for(rng: np.random.Generator, world: World, credits: Array, count: int, taken: Array) -> Array:
    """At most `count` new knownFor triples: the most famous works of the people in `credits`, not in `taken`.

    An episode counts as its series, as IMDB mostly has it.
    """
    title, _, person = unpack(credits)
    work = np.where(world.kind[title] == EPISODE, world.series_of(title), title)
    by_fame = np.argsort(-world.fame, kind="stable")
    standing = np.empty_like(by_fame)
    standing[by_fame] = np.arange(by_fame.size)
    # Distinct pairs, sorted by (person, standing): the works of each person, the most famous first.
    pairs = distinct((person.astype(np.int64) << 32 | standing[work])[world.alive[work]])
    place = count_before(pairs >> 32)
    pairs, place = pairs[place < KNOWN_LIMIT], place[place < KNOWN_LIMIT]
    person, work = pairs >> 32, by_fame[pairs & 0xFFFFFFFF]
    # People with many works come first, and of the works of a person the most famous ones.
    reluctance = rng.random(pairs.size) * (1 + place) / np.bincount(person)[person]
    keys = pack(person, KNOWN_FOR, work)
    fresh = ~among(taken, keys)
    return np.sort(keys[fresh][np.argsort(reluctance[fresh], kind="stable")[:count]])


def draw_base(rng: np.random.Generator, world: World, triples: int) -> Array:
    """Exactly `triples` sorted keys that touch every entity and every relation."""
    titles = np.flatnonzero(world.kind != PERSON)
    people = np.flatnonzero(world.kind == PERSON)
    known_count = min(round(KNOWN_SHARE * triples), people.size)
    links = parents(world, titles)
    needed = distinct(
        draw_credits(rng, world, titles[world.kind[titles] != EPISODE]),
        draw_work(rng, world, people),
        draw_credits(rng, world, rng.choice(titles, _ARCHIVE.size), _ARCHIVE),
    )

    def draw(count: int) -> Array:
        return draw_credits(rng, world, draw_famous(rng, world, titles, count))

    missing = triples - known_count - links.size - needed.size
    credits = distinct(needed, collect(rng, missing, draw, needed))
    return distinct(links, credits, known_for(rng, world, credits, known_count, np.empty(0, np.int64)))


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
