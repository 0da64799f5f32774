"""The hidden world behind the synthetic movie graph. In: a size and a generator. Out: entities with hidden traits.

Three traits make triples predictable. A *scene* is a country, a genre and a decade; titles and people belong to one.
A *franchise* is a series with its episodes, or a run of films; it has its own regular cast. A *profession* decides
the relations of a person's credits. No triple is made here: see `casting`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dkge_dist.types import Array

MOVIE, SERIES, EPISODE, PERSON = range(4)


@dataclass(frozen=True)
class Role:
    """A credit relation: its share of all credits, its seats in a franchise, and the professions that take them."""

    name: str
    share: float
    seats: int
    profession: str
    understudy: str  # the profession that now and then takes the seat, as directors write and actors produce


# Shares and seats are plausible guesses, not counts from a dump. The archive relations show people of other
# professions: they come last, and are no professions.
ROLES = (
    Role("actor", 0.235, 5, "actor", "actor"),
    Role("actress", 0.175, 4, "actress", "actress"),
    Role("self", 0.13, 3, "self", "actor"),
    Role("director", 0.10, 2, "director", "writer"),
    Role("writer", 0.12, 3, "writer", "director"),
    Role("producer", 0.085, 2, "producer", "actor"),
    Role("composer", 0.04, 1, "composer", "composer"),
    Role("cinematographer", 0.045, 1, "cinematographer", "director"),
    Role("editor", 0.04, 1, "editor", "director"),
    Role("production_designer", 0.015, 1, "production_designer", "production_designer"),
    Role("archive_footage", 0.012, 2, "actor", "self"),
    Role("archive_sound", 0.003, 1, "self", "actor"),
)
PROFESSIONS = tuple(role.name for role in ROLES if role.profession == role.name)
PROFESSION_SHARES = (0.27, 0.20, 0.13, 0.09, 0.11, 0.09, 0.03, 0.035, 0.035, 0.01)
RELATIONS = (*(role.name for role in ROLES), "knownFor", "parent")
KNOWN_FOR, PARENT = RELATIONS.index("knownFor"), RELATIONS.index("parent")

TITLE_SHARE = 0.45  # of all entities; the others are people
SERIES_SHARE = 0.75  # of all titles are series or their episodes
SHORTEST_SERIES, LONGEST_SERIES = 5, 10_000
SERIES_TAIL, FILMS_TAIL = 1.1, 2.2  # Pareto exponents of the number of titles
PEOPLE_PER_SCENE = 100
MAX_SIDE = 16  # scenes along each axis; beyond it scenes grow instead of multiplying


@dataclass
class World:
    """All entities, removed ones included, with their traits. New ones are appended; ids never change.

    The pools hold the people of the base graph only: they never change, so that a franchise keeps its regular cast.
    """

    side: int  # scenes form a grid of side x side x side: country, genre, decade
    salt: int  # makes the regular casts of this world differ from those of another seed
    kind: Array
    group: Array  # the franchise of a title; the pool (profession, scene) of a person
    fame: Array  # of a title: how likely it is to get a credit, and to be what people are known for
    number: Array  # the digits of the label
    alive: Array
    franchise_scene: Array
    franchise_series: Array  # the series of each franchise, -1 for films
    scene_titles: Array  # the base titles of scene s are the ids scene_titles[s] : scene_titles[s + 1]
    pool_people: Array  # the people of pool p are the ids pool_people[p] : pool_people[p + 1]

    @property
    def scenes(self) -> int:
        """How many scenes there are."""
        return self.side**3

    @property
    def base_entities(self) -> int:
        """How many entities the base graph has; later ones have higher ids."""
        return int(self.pool_people[-1])

    def newcomers(self) -> Array:
        """The people who came after the base graph and are alive."""
        later = slice(self.base_entities, None)
        return self.base_entities + np.flatnonzero((self.kind[later] == PERSON) & self.alive[later])

    def profession_of(self, people: Array) -> Array:
        """The profession of each person, which is also the relation of most of their credits."""
        return np.asarray(self.group[people] // self.scenes)

    def series_of(self, titles: Array) -> Array:
        """The series that each title belongs to (itself, for a series), -1 for films."""
        return np.asarray(self.franchise_series[self.group[titles]])

    def add_franchises(self, scene: Array) -> Array:
        """New franchises of films, one in each of `scene`; returns their numbers."""
        first = self.franchise_scene.size
        self.franchise_scene = np.concatenate([self.franchise_scene, scene])
        self.franchise_series = np.concatenate([self.franchise_series, np.full(scene.size, -1)])
        return np.arange(first, self.franchise_scene.size)

    def add_entities(self, kind: Array, group: Array, fame: Array) -> Array:
        """New entities at the end, with the next free numbers of their sort; returns their ids."""
        first = self.kind.size
        number = np.empty(kind.size, self.number.dtype)
        for mine, theirs in ((kind == PERSON, self.kind == PERSON), (kind != PERSON, self.kind != PERSON)):
            number[mine] = self.number[theirs].max() + 1 + np.arange(np.count_nonzero(mine))
        self.kind = np.concatenate([self.kind, kind.astype(self.kind.dtype)])
        self.group = np.concatenate([self.group, group.astype(self.group.dtype)])
        self.fame = np.concatenate([self.fame, fame])
        self.number = np.concatenate([self.number, number])
        self.alive = np.concatenate([self.alive, np.ones(kind.size, np.bool_)])
        return np.arange(first, self.kind.size)


def draw_fame(rng: np.random.Generator, kind: Array) -> Array:
    """Fame for titles of these kinds: a series outshines a film, a film an episode."""
    scale = np.empty(3)
    scale[[MOVIE, SERIES, EPISODE]] = 1.6, 6.0, 1.0
    return np.asarray(scale[kind] * np.minimum(rng.lognormal(0.0, 0.5, kind.size), 5.0))


def _heavy_tailed_sizes(rng: np.random.Generator, total: int, least: int, most: int, tail: float) -> Array:
    """Whole numbers of at least `least` that sum to `total`, as many as it takes, with a Pareto tail."""
    size = np.minimum(least * (1 + rng.pareto(tail, total // least + 1)), most).astype(np.int64)
    last = int(np.searchsorted(np.cumsum(size), total))
    size = size[: last + 1]
    size[last] -= size.sum() - total
    return size


def _draw_franchises(rng: np.random.Generator, titles: int) -> tuple[Array, Array]:
    """How many titles each franchise has, `titles` in all, and which franchises are series."""
    in_series = round(titles * SERIES_SHARE)
    longest = max(SHORTEST_SERIES, min(LONGEST_SERIES, in_series // 8))
    series = _heavy_tailed_sizes(rng, in_series, SHORTEST_SERIES, longest, SERIES_TAIL)
    films = _heavy_tailed_sizes(rng, titles - in_series, 1, 25, FILMS_TAIL)
    order = rng.permutation(series.size + films.size)
    size = np.concatenate([series, films])[order]
    # The last series may have a single title left: then it is a film.
    return size, (order < series.size) & (size > 1)


def _apportion(total: int, shares: tuple[float, ...]) -> Array:
    """Whole numbers near `total * shares`, each at least 1; what is left goes to the first."""
    counts = np.maximum(1, (total * np.array(shares)).astype(np.int64))
    counts[0] += total - counts.sum()
    return counts


def build_world(rng: np.random.Generator, entities: int) -> World:
    """The entities of the base graph: titles first, by scene and franchise, then people, by profession and scene."""
    titles = round(entities * TITLE_SHARE)
    people = entities - titles
    side = int(np.clip(round((people / PEOPLE_PER_SCENE) ** (1 / 3)), 2, MAX_SIDE))
    axis = np.arange(1, side + 1) ** -0.6
    weight = np.einsum("i,j,k->ijk", axis, axis, axis).ravel()

    size, is_series = _draw_franchises(rng, titles)
    franchise_scene = np.sort(draw_weighted(rng, weight, size.size))
    franchise = np.repeat(np.arange(size.size), size)
    first = np.cumsum(size) - size
    title_kind = np.where(is_series[franchise], EPISODE, MOVIE)
    title_kind[first[is_series]] = SERIES

    profession = np.repeat(np.arange(len(PROFESSIONS)), _apportion(people, PROFESSION_SHARES))
    pool = np.sort(profession * side**3 + draw_weighted(rng, weight, people))
    return World(
        side=side,
        salt=int(rng.integers(1 << 62)),
        kind=np.concatenate([title_kind, np.full(people, PERSON)]).astype(np.uint8),
        group=np.concatenate([franchise, pool]).astype(np.int32),
        fame=np.concatenate([draw_fame(rng, title_kind), np.zeros(people)]),
        # In random order, so that a label tells nothing about scene, franchise or profession.
        number=np.concatenate([rng.permutation(titles), rng.permutation(people)]) + 1,
        alive=np.ones(entities, np.bool_),
        franchise_scene=franchise_scene,
        franchise_series=np.where(is_series, first, -1),
        scene_titles=np.searchsorted(franchise_scene[franchise], np.arange(side**3 + 1)),
        pool_people=titles + np.searchsorted(pool, np.arange(len(PROFESSIONS) * side**3 + 1)),
    )


def draw_weighted(rng: np.random.Generator, weight: Array, count: int) -> Array:
    """`count` indices, each with a probability in proportion to its weight."""
    edges = np.cumsum(weight)
    # Rounding may put the largest draw on the last edge itself, one past the end.
    return np.asarray(np.minimum(np.searchsorted(edges, rng.random(count) * edges[-1], side="right"), weight.size - 1))
