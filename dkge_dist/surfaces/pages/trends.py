"""The charts of the page, night by night: changes, quality, fidelity, drift, costs."""

from __future__ import annotations

from collections.abc import Sequence

from dkge_dist.records import Estimate, NightRecord, Quality
from dkge_dist.surfaces.pages.charts import Chart, Marked, Series, lines, stacked_bars
from dkge_dist.surfaces.pages.figures import ModelSummary, NightSummary
from dkge_dist.surfaces.pages.formats import (
    format_bytes,
    format_date,
    format_percent,
    format_seconds,
    format_share,
    format_short,
)
from dkge_dist.surfaces.pages.markup import Child, Markup, element, joined
from dkge_dist.surfaces.pages.tables import table

DECISIONS = 8
"""Of the newest nights on which something else was decided than to learn online."""
PHASES = {"ingest": 6, "open": 5, "plan": 4, "learn": 1, "measure": 3, "write": 2}
"""Colours by phase, in the order in which they come."""
GROUPS = {
    "added_existing": ("Added, both ends known", "should be near 1"),
    "added_emerging": ("Added, with an emerging entity", "should be near 1"),
    "deleted": ("Deleted", "should fall towards 0"),
    "replaced": ("Replaced by a new answer", "should be near 1"),
    "kept_near": ("Kept, near the change", "should stay"),
    "kept_far": ("Kept, far from it", "should stay"),
}
HALF, THIRD = 0.5, 0.33
"""Of the page, for charts beside each other."""


def changes(nights: Sequence[NightSummary]) -> Markup | None:
    """What came and went."""
    if not nights:
        return None
    names = _names(nights)
    came = stacked_bars(
        Chart("Triples", "that came, and below the line those that went.", names, format_short, HALF),
        [
            Series("came", 1, [night.added for night in nights]),
            Series("went", 2, [-night.deleted for night in nights]),
        ],
    )
    affected = [update.affected_entities if update else None for update in _updates(nights)]
    entities = stacked_bars(
        Chart("Entities", "new and affected, and below the line those that went.", names, format_short, HALF),
        [
            Series("new", 3, [night.emerging_entities for night in nights]),
            Series("affected", 4, affected),
            Series("gone", 2, [-night.removed_entities for night in nights]),
        ],
    )
    return joined(
        element("h2", "What came and went"),
        element("p", "Each night is a place from left to right; point at it for its numbers."),
        element("div", came, entities, class_="pair"),
    )


def quality(every: Sequence[NightSummary]) -> Markup:
    """MRR of held-out triples."""
    title, series = element("h2", "Quality"), []
    for name, color, models in (
        ("learnt online", 1, [night.update for night in every]),
        ("trained on all of it", 2, [night.training for night in every]),
    ):
        found = [(model.record.valid, model.record.valid.estimate()) if model else None for model in models]
        some = _mrr_series(name, color, found)._replace(is_line=color == 1)
        series += [some] if any(value is not None for value in some.values) else []
    if not series:
        said = "No held-out triples were ranked: the quality is unknown."
        return joined(title, element("p", said, class_="notice"))
    summary = "of held-out triples: 1 if the right end comes first, 1/2 if second. Shaded: 99% intervals."
    return joined(
        title,
        element("p", "How well the model guesses triples that were kept from it, night by night."),
        lines(Chart("MRR", summary, _names(every), format_share), series),
    )


def fidelity(nights: Sequence[NightSummary]) -> Markup | None:
    """MRR of what each night added, deleted and kept."""
    found = [night.update.fidelity.groups if night.update else {} for night in nights]
    charts = []
    for name, (title, summary) in GROUPS.items():
        measured = [(groups[name].answered, groups[name].estimate) if name in groups else None for groups in found]
        series = _mrr_series("MRR", 2 if name == "deleted" else 1, measured)
        if any(value is not None for value in series.values):
            chart = Chart(title, summary, _names(nights), format_share, THIRD)
            charts.append(lines(chart, [series], (0.0, 1.0), small=True))
    if not charts:
        return None
    return joined(
        element("h2", "Was the night learnt?"),
        element(
            "p",
            "MRR of a sample of the triples that each night added, deleted and kept. Deleted ones should be believed "
            "less than they were, everything else as much.",
        ),
        element("div", charts, class_="three"),
    )


def drift(nights: Sequence[NightSummary]) -> Markup | None:
    """How far MRR fell, and what was decided."""
    models = [night.update for night in nights]
    if not any(models):
        return None
    drops = [model.record.drift.mrr_drop if model and model.record.drift else None for model in models]
    policies = [model.policy for model in models if model and model.policy]
    said = f"Training from scratch is due when `{policies[-1]}`, on two nights in succession." if policies else ""
    parts: list[Child] = [element("h2", "Drift"), element("p", _code_in(said))]
    if any(drops):
        series = Series(
            "MRR since the last training",
            1,
            [-drop.percent if drop else None for drop in drops],
            [-drop.high if drop else None for drop in drops],
            [-drop.low if drop else None for drop in drops],
        )
        summary = "since the last training, in percent, of the same held-out triples."
        chart = Chart("Change of MRR", summary, _names(nights), format_percent)
        parts.append(lines(chart, [series], limits=_limit(policies)))
    else:
        parts.append(element("p", "Too few held-out triples to measure any drift.", class_="notice"))
    rows: list[list[Child]] = [
        [night.snapshot, format_date(model.created), _decided(model)]
        for night in nights
        for model in night.models
        if model.due or model.night is None
    ]
    if rows:
        parts.append(table(["night", "when", "decided"], rows[: -DECISIONS - 1 : -1], text=(1, 2)))
    else:
        parts.append(element("p", "Every night was learnt online; no training was due.", class_="soft"))
    return joined(*parts)


def _decided(model: ModelSummary) -> str:
    if model.due is not None:
        return f"training from scratch is due: {model.due}"
    reason = f": {model.record.why}" if model.record.why else ", by hand"
    how = "refreshed over the whole graph" if model.record.origin == "refresh" else "trained from scratch"
    return f"version {model.version} was {how}{reason}"


def _limit(policies: Sequence[str]) -> list[Marked]:
    """How far MRR may fall, if the newest policy says."""
    for condition in policies[-1].split(" or ") if policies else ():
        name, _, value = condition.partition(">")
        if name.strip() == "mrr_drop":
            return [Marked(f"limit: {value.strip()} lower", -float(value.strip().removesuffix("%")))]
    return []


def costs(nights: Sequence[NightSummary]) -> Markup | None:
    """Seconds and bytes."""
    models = [night.update for night in nights]
    if not any(models):
        return None
    spent: dict[str, list[float | None]] = {"ingest": [night.ingest_seconds for night in nights]}
    for phase in list(PHASES)[1:]:
        spent[phase] = [model.phases.get(phase) if model else None for model in models]
    seconds = stacked_bars(
        Chart("Seconds", "by what they were spent on.", _names(nights), format_seconds, HALF),
        [Series(phase, PHASES[phase], spent[phase]) for phase in PHASES if any(spent[phase])],
    )
    written = stacked_bars(
        Chart("Bytes written", "to the store.", _names(nights), format_bytes, HALF),
        [
            Series("snapshot", 6, [night.bytes_written for night in nights]),
            Series("model", 1, [model.bytes_written if model else None for model in models]),
        ],
    )
    return joined(
        element("h2", "What it cost"),
        element("p", "Of the nights alone; trainings from scratch are in the table below."),
        element("div", seconds, written, class_="pair"),
    )


def _names(nights: Sequence[NightSummary]) -> list[str]:
    return [night.snapshot for night in nights]


def _updates(nights: Sequence[NightSummary]) -> list[NightRecord | None]:
    return [night.update.night if night.update is not None else None for night in nights]


def _mrr_series(name: str, color: int, found: Sequence[tuple[Quality, Estimate | None] | None]) -> Series:
    """MRR with its interval, where there are enough triples for one."""
    intervals = [some[1].interval if some and some[1] else None for some in found]
    values = [some[0].mrr if some else None for some in found]
    low, high = ([bounds[end] if bounds else None for bounds in intervals] for end in (0, 1))
    return Series(name, color, values, low, high)


def _code_in(text: str) -> list[Child]:
    """Words between backticks as code."""
    return [element("code", part) if number % 2 else part for number, part in enumerate(text.split("`"))]
