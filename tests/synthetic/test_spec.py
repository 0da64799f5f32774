"""Sizes of synthetic graphs: presets, limits, and proportions when resized."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dkge_dist.synthetic import PRESETS
from tests.synthetic.movies import DEMO


def test_presets_have_the_published_sizes() -> None:
    assert (PRESETS["imdb-13"].entities, PRESETS["imdb-13"].triples) == (3_244_455, 7_923_773)
    assert (PRESETS["imdb-13"].added, PRESETS["imdb-13"].deleted) == (17_472, 18_405)
    assert (PRESETS["imdb-30"].entities, PRESETS["imdb-30"].triples) == (243_000, 627_000)
    assert (PRESETS["imdb-30"].nights, PRESETS["imdb-30"].added, PRESETS["imdb-30"].deleted) == (30, 9_400, 2_400)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entities": 199}, "entities=199"),
        ({"triples": 499, "entities": 200}, "triples=499"),
        ({"triples": 3_500}, "triples=3500"),
        ({"triples": 24_001}, "triples=24001"),
        ({"nights": -1}, "nights=-1"),
        ({"seed": -1}, "seed=-1"),
        ({"added": 1_876}, "added=1876"),
        ({"deleted": -1}, "deleted=-1"),
        ({"deleted": 1_500, "nights": 3}, "less than half"),
    ],
)
def test_impossible_sizes_are_refused_by_name(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(DEMO, **change)


def test_resizing_keeps_proportions() -> None:
    assert DEMO.resized(entities=6_000) == replace(DEMO, entities=6_000, triples=15_000, added=240, deleted=80)
    assert DEMO.resized(triples=15_000) == DEMO.resized(entities=6_000)
    assert DEMO.resized(nights=2, seed=9) == replace(DEMO, nights=2, seed=9)
    assert DEMO.resized(entities=200).triples == 500
