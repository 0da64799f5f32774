"""Tables and plots as HTML and Markdown. Plots are plain SVG whose colours follow the page, light, dark or printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

Value = str | float | int | None
SERIES = ("var(--one)", "var(--two)", "var(--three)", "var(--four)", "var(--five)")


@dataclass(frozen=True)
class Table:
    """Rows of values; `best` names columns whose best value is set in bold, with max or min."""

    title: str
    columns: tuple[str, ...]
    rows: list[tuple[Value, ...]]
    note: str = ""
    best: dict[str, str] = field(default_factory=dict)

    def html(self) -> str:
        """As it stands on the page."""
        bold = self._bold()
        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        lines = []
        for number, row in enumerate(self.rows):
            cells = []
            for column, value in enumerate(row):
                text = escape(shown(value, self.columns[column]))
                text = f"<b>{text}</b>" if (number, column) in bold else text
                kind = ' class="text"' if isinstance(value, str) and column == 0 else ""
                cells.append(f"<td{kind}>{text}</td>")
            lines.append(f"<tr>{''.join(cells)}</tr>")
        note = f"<figcaption>{escape(self.note)}</figcaption>" if self.note else ""
        return (
            f"<figure><h3>{escape(self.title)}</h3><div class=scroll><table><thead><tr>{head}</tr></thead>"
            f"<tbody>{''.join(lines)}</tbody></table></div>{note}</figure>"
        )

    def markdown(self) -> str:
        """For README and docs."""
        bold = self._bold()
        lines = [f"**{self.title}**", "", _line(self.columns), _line(["---"] * len(self.columns))]
        for number, row in enumerate(self.rows):
            texts = [shown(value, self.columns[column]).replace("|", "\\|") for column, value in enumerate(row)]
            lines.append(
                _line([f"**{text}**" if (number, column) in bold else text for column, text in enumerate(texts)])
            )
        return "\n".join([*lines, "", *([self.note, ""] if self.note else [])])

    def _bold(self) -> set[tuple[int, int]]:
        found = set()
        for name, kind in self.best.items():
            column = self.columns.index(name)
            values = {
                number: row[column]
                for number, row in enumerate(self.rows)
                if isinstance(row[column], int | float) and not math.isnan(row[column])  # type: ignore[arg-type]
            }
            if values:
                pick = (max if kind == "max" else min)(values, key=lambda number: values[number])  # type: ignore[arg-type, return-value]
                found |= {(number, column) for number, value in values.items() if value == values[pick]}
        return found


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def shown(value: Value, column: str = "") -> str:
    """A number as it is read: shares with three digits and no zero before the point, others by their size."""
    if value is None:
        return "–"
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if abs(value) < 1 and not column.endswith(" s") and "seconds" not in column:
        # What rounds to nothing has no sign.
        return f"{value:z.3f}".replace("0.", ".", 1).replace("-", "−")
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


MARK = "published"


def bars(
    title: str,
    values: dict[str, float],
    unit: str = "",
    log: bool = False,
    marks: dict[str, float] | None = None,
) -> str:
    """Horizontal bars, one a line; on a logarithmic scale where values span decades. A diamond marks what is published
    of a line.
    """
    marks = {name: value for name, value in (marks or {}).items() if name in values}
    if not values:
        return ""
    left, width, line = 210, 460, 22
    height = 34 + line * len(values)
    top = max(*values.values(), *marks.values(), 0.0)
    least = min(value for value in values.values() if value > 0) / 2 if log else 0.0

    def share_of(value: float) -> float:
        return math.log(max(value, least) / least) / math.log(top / least) if log else value / top if top else 0

    parts = [_open(title, left + width + 90, height)]
    for number, (name, value) in enumerate(values.items()):
        share, y = share_of(value), 28 + number * line
        colour = SERIES[1] if name.startswith("ours") else SERIES[0]
        parts.append(f'<text x="{left - 8}" y="{y + 12}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<rect x="{left}" y="{y}" width="{max(1, share * width):.1f}" height="15" fill="{colour}"/>')
        text, end = f"{shown(value)}{unit}", left + share * width
        where = f'x="{end + 6:.1f}"'
        if name in marks:
            at = left + share_of(marks[name]) * width
            parts.append(f'<path d="M{at - 5:.1f} {y + 7.5}l5 -6l5 6l-5 6z" class="mark"/>')
            # Outside of the bar, also where the diamond stands in it: there its number is easy to read.
            beyond = max(at, end)
            parts.append(f'<text x="{beyond + 10:.1f}" y="{y + 12}" class="faint">{shown(marks[name])}</text>')
            # The measured number goes into the bar, or where the published one does not stand.
            if share * width > 50:
                where = f'x="{end - 6:.1f}" text-anchor="end" class="inside"'
            elif at - end < 50:
                where = f'x="{beyond + 50:.1f}"'
        parts.append(f'<text {where} y="{y + 12}">{text}</text>')
    if marks:
        at = left + width - 60
        label = f'<text x="{at + 16}" y="16" class="faint">{MARK}</text>'
        parts.append(f'<path d="M{at} 11l5 -6l5 6l-5 6z" class="mark"/>{label}')
    return "".join([*parts, "</svg>"])


Points = list[tuple[float, float]]


def lines(
    title: str, series: dict[str, Points], x_label: str, y_label: str, ticks: dict[float, str] | None = None
) -> str:
    """Lines with a dot at each point; the y axis begins at zero. `ticks` are the names of places on the x axis."""
    series = {name: points for name, points in series.items() if points}
    if not series:
        return ""
    left, top, width, height = 60, 54, 520, 240
    every = [point for points in series.values() for point in points]
    x_low, x_high = min(x for x, _ in every), max(x for x, _ in every)
    y_high = max(y for _, y in every) * 1.08 or 1.0

    def place(x: float, y: float) -> tuple[float, float]:
        share = (x - x_low) / (x_high - x_low) if x_high > x_low else 0.5
        return left + share * width, top + height * (1 - y / y_high)

    parts = [_open(title, left + width + 200, top + height + 44)]
    for step in range(5):
        y = y_high * step / 4
        _, at = place(x_low, y)
        parts.append(f'<line x1="{left}" y1="{at:.1f}" x2="{left + width}" y2="{at:.1f}" class="grid"/>')
        parts.append(f'<text x="{left - 6}" y="{at + 4:.1f}" text-anchor="end">{shown(y)}</text>')
    for x, name in (ticks or {x: f"{x:g}" for x in sorted({x_low, (x_low + x_high) / 2, x_high})}).items():
        at = f'x="{place(x, 0)[0]:.1f}" y="{top + height + 18}"'
        parts.append(f'<text {at} text-anchor="middle">{escape(name)}</text>')
    parts.append(f'<text x="{left + width / 2}" y="{top + height + 38}" text-anchor="middle">{escape(x_label)}</text>')
    parts.append(f'<text x="{left}" y="{top - 10}" text-anchor="start">{escape(y_label)}</text>')
    for number, (name, points) in enumerate(series.items()):
        colour = SERIES[number % len(SERIES)]
        dash = ' stroke-dasharray="5 3"' if number >= len(SERIES) else ""
        drawn = [place(*point) for point in sorted(points)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"{dash}/>')
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in drawn]
        y = top + 14 + number * 18
        parts.append(f'<rect x="{left + width + 14}" y="{y - 9}" width="12" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{left + width + 32}" y="{y}">{escape(name)}</text>')
    return "".join([*parts, "</svg>"])


def _open(title: str, width: float, height: float) -> str:
    return (
        f'<svg role="img" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
        f'<text x="8" y="16" class="title">{escape(title)}</text>'
    )


COLOURS = {
    "light": "--ink: #1c2024; --paper: #ffffff; --faint: #d6dade; --head: #f2f4f6; --one: #5b7fa6; --two: #c9602b; "
    "--three: #4f8f5b; --four: #8a63a8; --five: #a58a2e;",
    "dark": "--ink: #e4e7ea; --paper: #16191c; --faint: #3a4046; --head: #22272c; --one: #86aad2; --two: #ec8f5c; "
    "--three: #7fc08c; --four: #b894d6; --five: #d4b95c;",
}
PLOT_STYLE = """
svg { font: 12px system-ui, sans-serif; fill: var(--ink); }
svg .title { font-weight: 600; } svg .grid { stroke: var(--faint); }
svg .mark { fill: var(--paper); stroke: var(--ink); stroke-width: 1.5; } svg .inside { fill: var(--paper); }
svg .faint { opacity: .7; }
"""


def standalone(plot: str) -> str:
    """A plot as a file of its own, with the colours of the page, on its paper."""
    colours = f":root {{ {COLOURS['light']} }} @media (prefers-color-scheme: dark) {{ :root {{ {COLOURS['dark']} }} }}"
    style = f'<style>{colours}{PLOT_STYLE}</style><rect width="100%" height="100%" fill="var(--paper)"/>'
    begin = plot.index(">") + 1
    return f"{plot[:begin]}{style}{plot[begin:]}\n"
