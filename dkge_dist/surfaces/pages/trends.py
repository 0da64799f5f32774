"""The charts of the page, night by night: changes, quality, fidelity, drift, costs."""

from __future__ import annotations

from collections.abc import Sequence

from dkge_dist.surfaces.pages.charts import Chart, Marked, Series, lines, stacked_bars
from dkge_dist.surfaces.pages.figures import Figures, learnt_model, model_of, night_names
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
    "added_emerging": ("Added, with a newcomer", "should be near 1"),
    "deleted": ("Deleted", "should fall towards 0"),
    "replaced": ("Replaced by a new answer", "should be near 1"),
    "kept_near": ("Kept, near the change", "should stay"),
    "kept_far": ("Kept, far from it", "should stay"),
}
HALF, THIRD = 0.5, 0.33
"""Of the page, for charts beside each other."""


def changes(nights: Sequence[Figures]) -> Markup | None:
    """What came and went."""
    if not nights:
        return None
    names = night_names(nights)
    models = [learnt_model(night) or {} for night in nights]
    came = stacked_bars(
        Chart("Triples", "that came, and below the line those that went.", names, format_short, HALF),
        [
            Series("came", 1, [night["added"] for night in nights]),
            Series("went", 2, [-night["deleted"] for night in nights]),
        ],
    )
    who = stacked_bars(
        Chart("Entities", "new and affected, and below the line those that went.", names, format_short, HALF),
        [
            Series("new", 3, [night["emerging_entities"] for night in nights]),
            Series("affected", 4, [model.get("affected_entities") for model in models]),
            Series("gone", 2, [-night["removed_entities"] for night in nights]),
        ],
    )
    return joined(
        element("h2", "What came and went"),
        element("p", "Each night is a place from left to right; point at it for its numbers."),
        element("div", came, who, class_="pair"),
    )


def quality(every: Sequence[Figures]) -> Markup:
    """MRR of held-out triples."""
    online = [model_of(night, "online") for night in every]
    scratch = [model_of(night, "scratch") for night in every]
    title = element("h2", "Quality")
    if not any(model and model["valid"] for model in (*online, *scratch)):
        said = "No held-out triples were ranked: quality cannot be told."
        return joined(title, element("p", said, class_="notice"))
    series = [
        _interval_series(name, color, [(model or {}).get("valid") for model in models])._replace(is_line=color == 1)
        for name, color, models in (("learnt online", 1, online), ("trained on all of it", 2, scratch))
        if any(model and model["valid"] for model in models)
    ]
    summary = "of held-out triples: 1 if the right end comes first, 1/2 if second. Shaded: 99% intervals."
    return joined(
        title,
        element("p", "How well the model guesses triples that were kept from it, night by night."),
        lines(Chart("MRR", summary, night_names(every), format_share), series),
    )


def fidelity(nights: Sequence[Figures]) -> Markup | None:
    """MRR of what each night added, deleted and kept."""
    models = [model_of(night, "online") for night in nights]
    found = [(model or {}).get("fidelity") or {} for model in models]
    shown = [name for name in GROUPS if any(name in groups for groups in found)]
    if not shown:
        return None
    names = night_names(nights)
    charts = [
        lines(
            Chart(GROUPS[name][0], GROUPS[name][1], names, format_share, THIRD),
            [_interval_series("MRR", 2 if name == "deleted" else 1, [groups.get(name) for groups in found])],
            (0.0, 1.0),
            small=True,
        )
        for name in shown
    ]
    return joined(
        element("h2", "Was the night learnt?"),
        element(
            "p",
            "MRR of a sample of the triples that each night added, deleted and kept. Deleted ones should be believed "
            "less than they were, everything else as much.",
        ),
        element("div", charts, class_="three"),
    )


def drift(nights: Sequence[Figures]) -> Markup | None:
    """How far MRR fell, and what was decided."""
    models = [model_of(night, "online") for night in nights]
    decided = [
        (night, model) for night in nights for model in night["models"] if model["due"] or model["origin"] == "scratch"
    ]
    drops = [((model or {}).get("drift") or {}).get("mrr_drop") for model in models]
    if not any(models):
        return None
    policies = [model["policy"] for model in models if model and model.get("policy")]
    said = f"Training from scratch is due when `{policies[-1]}`, on two nights in succession." if policies else ""
    parts: list[Child] = [element("h2", "Drift"), element("p", _code_in(said))]
    if any(drops):
        series = Series(
            "MRR since the last training",
            1,
            [-drop["percent"] if drop else None for drop in drops],
            [-drop["high"] if drop else None for drop in drops],
            [-drop["low"] if drop else None for drop in drops],
        )
        chart = Chart(
            "Change of MRR",
            "since the last training, in percent, of the same held-out triples.",
            night_names(nights),
            format_percent,
        )
        parts.append(lines(chart, [series], limits=_limit(policies)))
    else:
        parts.append(element("p", "Too few held-out triples to tell any drift.", class_="notice"))
    if decided:
        rows = [
            [night["snapshot"], format_date(model["created"]), _decided(model)]
            for night, model in decided[: -DECISIONS - 1 : -1]
        ]
        parts.append(table(["night", "when", "decided"], rows, text=(1, 2)))
    else:
        parts.append(element("p", "Every night was learnt online; no training was due.", class_="soft"))
    return joined(*parts)


def _decided(model: Figures) -> str:
    if model["origin"] == "online":
        return str(model["decision"])
    reason = f": {model['decision']}" if model["decision"] else ", by hand"
    how = "refreshed over the whole graph" if model["is_refresh"] else "trained from scratch"
    return f"version {model['version']} was {how}{reason}"


def _limit(policies: Sequence[str]) -> list[Marked]:
    """How far MRR may fall, if the newest policy says."""
    for condition in policies[-1].split(" or ") if policies else ():
        name, _, value = condition.partition(">")
        if name.strip() == "mrr_drop":
            return [Marked(f"limit: {value.strip()} lower", -float(value.strip().removesuffix("%")))]
    return []


def costs(nights: Sequence[Figures]) -> Markup | None:
    """Seconds and bytes."""
    if not any(model_of(night, "online") for night in nights):
        return None
    names = night_names(nights)
    models = [model_of(night, "online") for night in nights]
    spent: dict[str, list[float | None]] = {"ingest": [night["ingest_seconds"] for night in nights]}
    for phase in list(PHASES)[1:]:
        spent[phase] = [((model or {}).get("phases") or {}).get(phase) for model in models]
    untold = [model["seconds"] if model and not model["phases"] else None for model in models]
    series = [Series(phase, PHASES[phase], spent[phase]) for phase in PHASES if any(spent[phase])]
    if any(untold):
        series.append(Series("update, phases not kept", 1, untold))
    seconds = stacked_bars(Chart("Seconds", "by what they were spent on.", names, format_seconds, HALF), series)
    moved = [night["bytes_written"] for night in nights], [(model or {}).get("bytes_written") for model in models]
    written = stacked_bars(
        Chart("Bytes written", "to the store.", names, format_bytes, HALF),
        [Series("snapshot", 6, moved[0]), Series("model", 1, moved[1])],
    )
    return joined(
        element("h2", "What it cost"),
        element("p", "Of the nights alone; trainings from scratch are in the table below."),
        element("div", seconds, written, class_="pair"),
    )


def _interval_series(name: str, color: int, found: Sequence[Figures | None]) -> Series:
    def column(key: str) -> list[float | None]:
        return [some.get(key) if some else None for some in found]

    return Series(name, color, column("mrr"), column("low"), column("high"))


def _code_in(text: str) -> list[Child]:
    """Words between backticks as code."""
    return [element("code", part) if number % 2 else part for number, part in enumerate(text.split("`"))]
