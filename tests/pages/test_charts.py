"""Charts: what is drawn is what the table behind says, at the right place."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.surfaces.pages.charts import (
    FEWEST,
    HEIGHT,
    WIDTH,
    Chart,
    Marked,
    Series,
    _Scale,
    lines,
    shortened,
    stacked_bars,
)

NUMBERS = st.floats(-1e6, 1e6).map(lambda value: round(value, 3))


def chart(count: int) -> Chart:
    return Chart("Triples", "that came.", [f"night-{n:03}" for n in range(count)], lambda value: f"{value:g}")


@given(NUMBERS, NUMBERS)
def test_a_scale_holds_what_it_is_for_with_few_round_lines(one: float, other: float) -> None:
    low, high = sorted((one, other))
    scale = _Scale.within(low, high)
    slack = 1e-6 * max(1.0, scale.step)
    assert scale.low - slack <= low <= high <= scale.high + slack
    assert 2 <= len(scale.ticks) <= 9
    assert scale.y(scale.low) == HEIGHT and scale.y(scale.high) == 0
    assert 0 <= scale.y(high) <= scale.y(low) <= HEIGHT


def rects(page: str, name: str) -> list[tuple[float, float]]:
    """(y, height) of the bars of a class."""
    found = re.findall(rf'<rect x="[^"]+" y="([^"]+)" width="[^"]+" height="([^"]+)" class="{name}">', page)
    return [(float(y), float(height)) for y, height in found]


def test_bars_stand_on_the_line_and_hang_below_it() -> None:
    page = stacked_bars(
        chart(2), [Series("came", 1, [100, 50]), Series("more", 3, [100, None]), Series("went", 2, [-100, 0])]
    )
    (came, fewer), (more,), (went,) = rects(page, "fill1"), rects(page, "fill3"), rects(page, "fill2")
    line = came[0] + came[1]
    assert fewer[0] + fewer[1] == pytest.approx(line, abs=0.05)
    assert more[0] + more[1] == pytest.approx(came[0], abs=0.05)
    assert went[0] == pytest.approx(line, abs=0.05)
    assert came[1] == pytest.approx(2 * fewer[1], abs=0.05)
    assert went[1] == pytest.approx(came[1], abs=0.05)
    assert "night-000: came 100, more 100, went 100" in page


def test_lines_have_their_dots_and_intervals_and_a_gap_has_none() -> None:
    some = Series("MRR", 1, [0.2, None, 0.4], [0.1, None, None], [0.3, None, None])
    page = lines(chart(3), [some], (0.0, 1.0), [Marked("limit", 0.5)])
    assert page.count('class="dot1"') == 2
    assert page.count('class="bar1"') == 1
    assert page.count('class="limit"') == 1
    slot = WIDTH / FEWEST
    assert f'points="{slot / 2:.2f},80 {2.5 * slot:.2f},60"' in page
    assert "<td>0.2 (0.1 to 0.3)</td>" in page and "<td>–</td>" in page and "<td>0.4</td>" in page


def test_many_nights_are_a_band_without_dots_and_few_are_named() -> None:
    values = [0.5] * 365
    page = lines(chart(365), [Series("MRR", 1, values, [0.4] * 365, [0.6] * 365)])
    assert page.count('class="band1"') == 1
    assert 'class="dot1"' not in page and 'class="bar1"' not in page
    named = re.findall(r'<span style="left:[^"]+"[^>]*>(night-\d+)</span>', page)
    assert 2 < len(named) < 9 and named[0] == "night-000" and named[-1] == "night-364"
    assert page.count('<th scope="row">') == 365


def test_separate_measurements_are_not_joined() -> None:
    page = lines(chart(2), [Series("trained", 2, [0.5, 0.6], is_line=False)])
    assert "<polyline" not in page and page.count('class="dot2"') == 2


@pytest.mark.parametrize("count", [0, 1])
def test_nothing_and_a_single_night_can_be_drawn(count: int) -> None:
    for page in (
        stacked_bars(chart(count), [Series("came", 1, [0] * count)]),
        lines(chart(count), [Series("x", 1, [None] * count)]),
    ):
        assert page.startswith("<figure>") and "nan" not in page


def test_charts_say_what_they_show_to_who_cannot_see_them() -> None:
    page = stacked_bars(chart(1), [Series("came", 1, [1])])
    assert '<svg viewBox="0 0 1000 100" preserveAspectRatio="none" role="img" aria-label="Triples. that came.">' in page
    assert "<details><summary>Figures</summary>" in page


def test_long_names_keep_their_ends() -> None:
    assert shortened("snapshot-2026-11-17") == "…ot-2026-11-17"
    assert len(shortened("x" * 99)) == 14


@pytest.mark.parametrize(("nights", "shown"), [(1, [0]), (2, [1]), (3, [2]), (4, [0, 3]), (40, [0, 39])])
def test_on_a_narrow_page_names_do_not_touch(nights: int, shown: list[int]) -> None:
    """Those of class `middle` are left out there."""
    page = str(lines(chart(nights), [Series("MRR", 1, [0.2] * nights)], (0.0, 1.0)))
    names = re.findall(r'<span style="left:[^"]*">(night-\d+)</span>', page)
    assert names == [f"night-{n:03}" for n in shown]
