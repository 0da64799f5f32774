"""Charts as inline SVG, nights from left to right. In: series of numbers. Out: a figure with its numbers in a table.

The drawing is stretched to the width of the page and only the text around it is HTML, so that letters have their size
on a phone and on paper. Strokes do not scale, and a dot is a stroke of no length with round ends.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from dkge_dist.surfaces.pages.markup import Markup, element, joined

WIDTH, HEIGHT = 1000.0, 100.0
"""Of the drawing, in its own units."""
FEWEST = 7
"""Places for nights at least: a single bar as wide as the page would say nothing."""
NAME_WIDTH = 0.14
"""Share of the page between the names of two nights."""
NARROW_NAME_WIDTH = 0.32
"""The same on a narrow page."""
MANY = 60
"""From so many nights on, dots would touch: a line is drawn without them."""
BAR = 0.72
"""Of the place of a night, unless they are many: then gaps would only flicker."""
STEPS = 5
"""Between the lines across a chart, about."""
SHORT = 14

Format = Callable[[float], str]


class Series(NamedTuple):
    """Numbers by night, None where there is none. `color` counts the colours of the page from 1 on.

    `is_line`: does what stands between two nights mean anything?
    """

    name: str
    color: int
    values: Sequence[float | None]
    low: Sequence[float | None] = ()
    high: Sequence[float | None] = ()
    is_line: bool = True


class Marked(NamedTuple):
    """A limit across the chart."""

    name: str
    value: float


class Chart(NamedTuple):
    """What all kinds of charts share: a title, what it says in one sentence, and the nights from left to right."""

    title: str
    summary: str
    nights: Sequence[str]
    format: Format
    width: float = 1.0
    """Share of the page: fewer nights are named below a narrow chart."""


def stacked_bars(chart: Chart, series: Sequence[Series]) -> Markup:
    """A bar for each night, of several parts. Negative numbers hang below the line."""
    up = [sum(max(0.0, value or 0.0) for value in column) for column in zip(*(s.values for s in series), strict=True)]
    down = [sum(min(0.0, value or 0.0) for value in column) for column in zip(*(s.values for s in series), strict=True)]
    scale = _Scale.around(min(down, default=0.0), max(up, default=0.0))
    slot = WIDTH / max(len(chart.nights), FEWEST)
    share = BAR if len(chart.nights) <= MANY else 1.0
    slots = []
    for night, name in enumerate(chart.nights):
        tops = {True: 0.0, False: 0.0}
        bars = []
        for some in series:
            value = some.values[night]
            if value:
                foot = tops[value > 0]
                tops[value > 0] = foot + value
                upper, lower = scale.y(max(foot, foot + value)), scale.y(min(foot, foot + value))
                bars.append(
                    _rect(slot * (night + (1 - share) / 2), upper, slot * share, lower - upper, f"fill{some.color}")
                )
        told = [f"{some.name} {chart.format(abs(some.values[night] or 0.0))}" for some in series]
        slots.append(_slot(slot, night, f"{name}: {', '.join(told)}", bars))
    return _figure(chart, scale, series, joined(*slots), table_of(chart, series))


def lines(
    chart: Chart,
    series: Sequence[Series],
    bounds: tuple[float, float] | None = None,
    limits: Sequence[Marked] = (),
    small: bool = False,
) -> Markup:
    """A line for each series over its 99% intervals, as far as they are known."""
    every = [value for some in series for part in (some.values, some.low, some.high) for value in part]
    known = [value for value in every if value is not None] + [limit.value for limit in limits]
    scale = (
        _Scale.around(*bounds, steps=2 if small else STEPS)
        if bounds
        else _Scale.within(min(known, default=0.0), max(known, default=1.0))
    )
    slot = WIDTH / max(len(chart.nights), FEWEST)
    drawn: list[Markup] = [_line(0, scale.y(limit.value), WIDTH, scale.y(limit.value), "limit") for limit in limits]
    for some in series:
        drawn += [*_intervals(some, scale, slot), *_strokes(some, scale, slot)]
    slots = []
    for night, name in enumerate(chart.nights):
        told = [f"{some.name} {_value(chart, some, night)}" for some in series if some.values[night] is not None] or [
            "nothing measured"
        ]
        slots.append(_slot(slot, night, f"{name}: {', '.join(told)}", []))
    return _figure(chart, scale, series, joined(*drawn, *slots), table_of(chart, series), limits, small)


def table_of(chart: Chart, series: Sequence[Series]) -> Markup:
    """The numbers of a chart."""
    head = element("tr", element("th", "night", scope="col"), (element("th", s.name, scope="col") for s in series))
    rows = (
        element("tr", element("th", name, scope="row"), (element("td", _value(chart, s, night)) for s in series))
        for night, name in enumerate(chart.nights)
    )
    return element("table", element("thead", head), element("tbody", rows), class_="figures")


def _value(chart: Chart, some: Series, night: int) -> str:
    value = some.values[night]
    if value is None:
        return "–"
    low, high = (part[night] if part else None for part in (some.low, some.high))
    interval = f" ({chart.format(low)} to {chart.format(high)})" if low is not None and high is not None else ""
    return chart.format(value) + interval


class _Scale(NamedTuple):
    """From numbers to heights, with round numbers at the lines."""

    low: float
    high: float
    step: float

    @staticmethod
    def around(low: float, high: float, steps: int = STEPS) -> _Scale:
        """With zero."""
        return _Scale.within(min(low, 0.0), max(high, 0.0), steps)

    @staticmethod
    def within(low: float, high: float, steps: int = STEPS) -> _Scale:
        """A little more than what is shown, in about so many steps of 1, 2 or 5 of some power of ten."""
        if high - low < 1e-9:
            low, high = (low - 0.05, high + 0.05) if low else (0.0, 1.0)
        rough = (high - low) / steps
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * 0.999)
        return _Scale(step * math.floor(low / step + 1e-9), step * math.ceil(high / step - 1e-9), step)

    def y(self, value: float) -> float:
        """From the top of the drawing."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return HEIGHT * (1 - share)

    @property
    def ticks(self) -> list[float]:
        """The numbers that have a line."""
        count = round((self.high - self.low) / self.step)
        return [self.low + number * self.step for number in range(count + 1)]


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _rect(x: float, y: float, width: float, height: float, name: str) -> Markup:
    # A number that is not zero is seen, however small it is beside the others.
    tall = max(height, 0.6)
    return element("rect", x=_number(x), y=_number(y), width=_number(width), height=_number(tall), class_=name)


def _line(x1: float, y1: float, x2: float, y2: float, name: str) -> Markup:
    return element("line", x1=_number(x1), y1=_number(y1), x2=_number(x2), y2=_number(y2), class_=name)


def _slot(slot: float, night: int, told: str, inside: Sequence[Markup]) -> Markup:
    """The strip of a night, which tells its numbers when it is pointed at."""
    strip = element("rect", x=_number(slot * night), y="0", width=_number(slot), height=_number(HEIGHT), class_="strip")
    return element("g", element("title", told), strip, *inside)


def _strokes(some: Series, scale: _Scale, slot: float) -> list[Markup]:
    """The line leads over nights that have no number; dots tell which have one."""
    points = [(slot * (night + 0.5), scale.y(value)) for night, value in enumerate(some.values) if value is not None]
    drawn = []
    if some.is_line:
        path = " ".join(f"{_number(x)},{_number(y)}" for x, y in points)
        drawn.append(element("polyline", points=path, class_=f"stroke{some.color}"))
    if len(points) <= MANY or not some.is_line:
        drawn += [_line(x, y, x, y, f"dot{some.color}") for x, y in points]
    return drawn


def _intervals(some: Series, scale: _Scale, slot: float) -> list[Markup]:
    if not some.low or not some.high:
        return []
    nights = [n for n in range(len(some.values)) if some.low[n] is not None and some.high[n] is not None]
    bars = [(slot * (n + 0.5), scale.y(some.low[n] or 0.0), scale.y(some.high[n] or 0.0)) for n in nights]
    if len(bars) > MANY:
        outline = [(x, high) for x, _, high in bars] + [(x, low) for x, low, _ in reversed(bars)]
        points = " ".join(f"{_number(x)},{_number(y)}" for x, y in outline)
        return [element("polygon", points=points, class_=f"band{some.color}")]
    return [_line(x, low, x, high, f"bar{some.color}") for x, low, high in bars]


def _figure(
    chart: Chart,
    scale: _Scale,
    series: Sequence[Series],
    drawn: Markup,
    table: Markup,
    limits: Sequence[Marked] = (),
    small: bool = False,
) -> Markup:
    grid = [
        _line(0, scale.y(tick), WIDTH, scale.y(tick), "zero" if abs(tick) < scale.step / 1e6 else "grid")
        for tick in scale.ticks
    ]
    drawing = element(
        "svg",
        element("title", chart.title),
        grid,
        drawn,
        viewBox=f"0 0 {WIDTH:g} {HEIGHT:g}",
        preserveAspectRatio="none",
        role="img",
        aria_label=f"{chart.title}. {chart.summary}",
    )
    ticks = [
        element("span", chart.format(tick), style=f"top:{_number(scale.y(tick))}%", class_="y") for tick in scale.ticks
    ]
    plot = element("div", ticks, drawing, class_="plot")
    keys = [element("span", element("i", class_=f"key{some.color}"), some.name) for some in series]
    keys += [element("span", element("i", class_="keylimit"), limit.name) for limit in limits]
    legend = element("div", keys, class_="legend") if len(keys) > 1 else None
    details = element("details", element("summary", "Figures"), element("div", table, class_="scroll"))
    return element(
        "figure",
        element("figcaption", element("b", chart.title), " ", element("span", chart.summary)),
        legend,
        plot,
        element("div", _names(chart.nights, chart.width), class_="x"),
        details,
        class_="small" if small else None,
    )


def _names(nights: Sequence[str], width: float) -> list[Markup]:
    """As many nights by name as there is room for; on a narrow page the last, and the first if it is far from it."""
    if not nights:
        return []
    places, last = max(len(nights), FEWEST), len(nights) - 1
    step = max(1, math.ceil(places * NAME_WIDTH / width))
    shown = (0, last) if last >= places * NARROW_NAME_WIDTH else (last,)
    found = []
    for night in [*(n for n in range(0, last, step) if n == 0 or last - n >= step), last]:
        name = None if night in shown else "middle"
        left = 100 * (night + 0.5) / places
        found.append(element("span", shortened(nights[night]), style=f"left:{left:.1f}%", class_=name))
    return found


def shortened(name: str) -> str:
    """The end of a long name: that is where names of nights differ."""
    return name if len(name) <= SHORT else f"…{name[1 - SHORT :]}"
