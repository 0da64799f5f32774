"""The hidden world: every entity has a scene and a franchise or profession, and ids never change."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.synthetic import EPISODE, MOVIE, PERSON, SERIES
from dkge_dist.synthetic.world import (
    LONGEST_SERIES,
    PROFESSION_SHARES,
    PROFESSIONS,
    TITLE_SHARE,
    World,
    _apportion,
    _heavy_tailed_sizes,
    build_world,
    draw_fame,
    draw_weighted,
)


@pytest.fixture(params=[200, 3_000, 30_000])
def world(request: pytest.FixtureRequest) -> World:
    return build_world(np.random.default_rng(request.param), request.param)


def test_titles_come_first_then_people(world: World) -> None:
    people = np.flatnonzero(world.kind == PERSON)
    assert people[0] == round(TITLE_SHARE * world.kind.size)
    assert people[-1] + 1 == people[0] + people.size == world.base_entities == world.kind.size


def test_pools_hold_all_people_by_profession_and_scene(world: World) -> None:
    assert np.diff(world.pool_people).sum() == np.count_nonzero(world.kind == PERSON)
    for pool in np.flatnonzero(np.diff(world.pool_people))[:: max(1, world.scenes // 4)]:
        people = np.arange(world.pool_people[pool], world.pool_people[pool + 1])
        assert (world.group[people] == pool).all()
        assert (world.profession_of(people) == pool // world.scenes).all()
    assert set(world.profession_of(np.flatnonzero(world.kind == PERSON))) == set(range(len(PROFESSIONS)))


def test_scenes_hold_all_titles(world: World) -> None:
    assert world.scene_titles[0] == 0
    assert world.scene_titles[-1] == np.count_nonzero(world.kind != PERSON)
    for scene in range(world.scenes):
        titles = np.arange(world.scene_titles[scene], world.scene_titles[scene + 1])
        assert (world.franchise_scene[world.group[titles]] == scene).all()


def test_every_episode_has_a_series_of_its_franchise(world: World) -> None:
    episodes, movies = (np.flatnonzero(world.kind == kind) for kind in (EPISODE, MOVIE))
    series = world.series_of(episodes)
    assert (world.kind[series] == SERIES).all()
    assert (world.group[series] == world.group[episodes]).all()
    assert (world.series_of(movies) == -1).all()
    own = np.flatnonzero(world.kind == SERIES)
    assert np.array_equal(world.series_of(own), own)


def test_numbers_of_labels_are_a_permutation_by_sort(world: World) -> None:
    for people in (True, False):
        mine = world.number[(world.kind == PERSON) == people]
        assert sorted(mine.tolist()) == list(range(1, mine.size + 1))
        assert (np.diff(mine) < 0).any(), "a label tells nothing about the order of ids"


def test_added_entities_get_the_next_ids_and_numbers(world: World) -> None:
    before = world.kind.size
    numbers = [int(world.number[(world.kind == PERSON) == people].max()) for people in (True, False)]
    kind = np.array([PERSON, MOVIE, PERSON, EPISODE])
    assert world.newcomers().size == 0
    new = world.add_entities(kind, np.zeros(4), np.arange(4.0))
    assert new.tolist() == list(range(before, before + 4))
    assert world.number[new].tolist() == [numbers[0] + 1, numbers[1] + 1, numbers[0] + 2, numbers[1] + 2]
    assert world.alive[new].all()
    assert world.newcomers().tolist() == [before, before + 2]
    world.alive[before] = False
    assert world.newcomers().tolist() == [before + 2]
    assert world.base_entities == before


def test_added_franchises_are_films_without_series(world: World) -> None:
    first = world.franchise_scene.size
    added = world.add_franchises(np.array([1, 0, 1]))
    assert added.tolist() == [first, first + 1, first + 2]
    assert world.franchise_scene[added].tolist() == [1, 0, 1]
    assert world.franchise_series[added].tolist() == [-1, -1, -1]


def test_weighted_draws_follow_the_weights() -> None:
    weight = np.array([1.0, 0.0, 3.0])
    found = np.bincount(draw_weighted(np.random.default_rng(1), weight, 20_000), minlength=3)
    assert found[1] == 0
    assert found[2] / found[0] == pytest.approx(3, rel=0.1)


def test_heavy_tailed_sizes_sum_to_the_total() -> None:
    for total in (5, 6, 1_000, 100_000):
        sizes = _heavy_tailed_sizes(np.random.default_rng(total), total, 5, LONGEST_SERIES, 1.1)
        assert sizes.sum() == total
        assert (sizes[:-1] >= 5).all() and sizes[-1] >= 1 and sizes.max() <= LONGEST_SERIES


def test_apportioned_counts_sum_to_the_total_and_are_never_zero() -> None:
    for total in (20, 110, 16_500):
        counts = _apportion(total, PROFESSION_SHARES)
        assert counts.sum() == total
        assert (counts >= 1).all()


def test_series_are_more_famous_than_films_and_films_than_episodes() -> None:
    kinds = np.repeat([SERIES, MOVIE, EPISODE], 2_000)
    fame = draw_fame(np.random.default_rng(0), kinds).reshape(3, -1)
    assert fame[0].mean() > fame[1].mean() > fame[2].mean() > 0
