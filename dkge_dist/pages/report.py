"""The page about the nights of a store. In: the figures of `jobs.night_report`. Out: one HTML page that loads nothing.

No script is in it and its policy allows none, so that a label can say what it likes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from dkge_dist.pages.charts import Chart, Marked, Series, lines, stacked_bars
from dkge_dist.pages.markup import Child, Markup, element, joined

Figures = dict[str, Any]

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
ROWS = 30
"""Nights in the table that is open; the others are behind a click."""
PRINTED = 13
"""Columns of a table that fit on paper, as the style sheet has it."""
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
UNITS = ("B", "kB", "MB", "GB", "TB")


def render_page(figures: Figures) -> str:
    """The whole page."""
    nights = [night for night in figures["nights"] if not night["is_first"]]
    title = f"Nights of {figures['store']}"
    body = [
        _header(figures, nights),
        _changes(nights),
        _quality(figures["nights"]),
        _fidelity(nights),
        _drift(nights),
        _answers(figures["answers"]),
        _costs(nights),
        _all_nights(figures),
        _storage(figures),
        _footer(figures),
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Markup(files("dkge_dist.pages").joinpath("report.css").read_text(encoding="utf-8"))),
    )
    return "<!doctype html>\n" + element("html", head, element("body", body), lang="en")


def _header(figures: Figures, nights: Sequence[Figures]) -> Markup:
    last = next((night for night in reversed(nights) if not night["rolled_back"]), None)
    return element(
        "header",
        element("h1", "What the nights did"),
        element("div", f"{figures['store']} · {_date(figures['made'])} UTC", class_="where"),
        element("p", _headline(last) if last else _beginning(figures), class_="said"),
        _state(figures),
        _tiles(figures, last),
    )


def _beginning(figures: Figures) -> str:
    learnt = "learnt from scratch" if figures["model"] else "not learnt yet"
    return f"{figures['snapshot']}: {_count(figures['train'])} triples, {learnt}. No night has come yet."


def _headline(night: Figures) -> str:
    said = f"{night['snapshot']}: {_count(night['added'])} triples came, {_count(night['deleted'])} went"
    model = _learnt(night)
    if model is None:
        return f"{said}. It is not learnt yet."
    how = "learnt" if model["origin"] == "online" else "learnt from scratch"
    return f"{said}; {how} in {_duration(_learning(model))}."


def _state(figures: Figures) -> Markup:
    """One line: is there anything to do?"""
    newest = figures["nights"][-1] if figures["nights"] else None
    current = _current(figures)
    if figures["model"] is None:
        return _verdict("Nothing is learnt yet: ", f"dkge train {figures['store']}")
    if current is not None and current["due"] and not _trained_since(figures, current):
        return _verdict("Training is due. ", current["decision"].partition(": ")[2], is_code=False)
    if newest is not None and not newest["rolled_back"] and not newest["models"]:
        return _verdict(f"{newest['snapshot']} is not learnt yet: ", f"dkge update {figures['store']}")
    return element("div", element("b", "Nothing to do. "), "No training from scratch is due.", class_="state")


def _trained_since(figures: Figures, model: Figures) -> bool:
    """Was the night of a model trained from scratch afterwards? If that was set aside, another one is not due."""
    of_night = next(night["models"] for night in figures["nights"] if model in night["models"])
    return any(other["origin"] == "scratch" and other["version"] > model["version"] for other in of_night)


def _verdict(words: str, more: str, is_code: bool = True) -> Markup:
    return element("div", element("b", words), element("code", more) if is_code else more, class_="state bad")


def _tiles(figures: Figures, last: Figures | None) -> Markup:
    tiles: list[tuple[str, str, str]] = [
        ("Entities", _count(figures["entities"]), f"{_count(figures['relations'])} relations"),
        ("Triples", _count(figures["train"]), f"{_count(figures['valid'] + figures['test'])} held out"),
    ]
    if last is not None:
        tiles.append(("Last night", f"+{_count(last['added'])} −{_count(last['deleted'])}", _who(last)))
    current = _current(figures)
    if current is not None and current["valid"]:
        tiles.append(("MRR of held-out triples", _share(current["valid"]["mrr"]), _since_before(figures, current)))
    storage = figures["storage"]
    tiles.append(("Stored", _bytes(storage["bytes"]), f"{_count(figures['version'])} versions"))
    inside = [
        element("div", element("dt", name), element("dd", value, element("small", more))) for name, value, more in tiles
    ]
    return element("dl", inside, class_="tiles")


def _since_before(figures: Figures, current: Figures) -> str:
    """How the MRR changed from the model before."""
    before = next(
        (model for night in figures["nights"] for model in night["models"] if model["version"] == current["parent"]),
        None,
    )
    if before is None or not before["valid"]:
        return f"version {current['version']}"
    return f"{_signed(current['valid']['mrr'] - before['valid']['mrr'])} since before"


def _who(night: Figures) -> str:
    model = _learnt(night)
    affected = model.get("affected_entities") if model else None
    return (
        f"{_count(affected)} entities affected" if affected is not None else f"{_count(night['emerging_entities'])} new"
    )


def _changes(nights: Sequence[Figures]) -> Markup | None:
    if not nights:
        return None
    names = _names(nights)
    models = [_learnt(night) or {} for night in nights]
    came = stacked_bars(
        Chart("Triples", "that came, and below the line those that went.", names, _short, HALF),
        [
            Series("came", 1, [night["added"] for night in nights]),
            Series("went", 2, [-night["deleted"] for night in nights]),
        ],
    )
    who = stacked_bars(
        Chart("Entities", "new and affected, and below the line those that went.", names, _short, HALF),
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


def _quality(every: Sequence[Figures]) -> Markup:
    online = [_model(night, "online") for night in every]
    scratch = [_model(night, "scratch") for night in every]
    title = element("h2", "Quality")
    if not any(model and model["valid"] for model in (*online, *scratch)):
        said = "No held-out triples were ranked: quality cannot be told."
        return joined(title, element("p", said, class_="notice"))
    series = [
        _interval_series(name, color, [(model or {}).get("valid") for model in models])._replace(is_line=color == 1)
        for name, color, models in (("learnt online", 1, online), ("trained from scratch", 2, scratch))
        if any(model and model["valid"] for model in models)
    ]
    summary = "of held-out triples: 1 if the right end comes first, 1/2 if second. Shaded: 99% intervals."
    return joined(
        title,
        element("p", "How well the model guesses triples that were kept from it, night by night."),
        lines(Chart("MRR", summary, _names(every), _share), series),
    )


def _fidelity(nights: Sequence[Figures]) -> Markup | None:
    models = [_model(night, "online") for night in nights]
    found = [(model or {}).get("fidelity") or {} for model in models]
    shown = [name for name in GROUPS if any(name in groups for groups in found)]
    if not shown:
        return None
    names = _names(nights)
    charts = [
        lines(
            Chart(GROUPS[name][0], GROUPS[name][1], names, _share, THIRD),
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


def _drift(nights: Sequence[Figures]) -> Markup | None:
    models = [_model(night, "online") for night in nights]
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
            _names(nights),
            _percent,
        )
        parts.append(lines(chart, [series], limits=_limit(policies)))
    else:
        parts.append(element("p", "Too few held-out triples to tell any drift.", class_="notice"))
    if decided:
        rows = [
            [night["snapshot"], _date(model["created"]), _decided(model)]
            for night, model in decided[: -DECISIONS - 1 : -1]
        ]
        parts.append(_table(["night", "when", "decided"], rows, text=(1, 2)))
    else:
        parts.append(element("p", "Every night was learnt online; no training was due.", class_="soft"))
    return joined(*parts)


def _decided(model: Figures) -> str:
    if model["origin"] == "online":
        return str(model["decision"])
    reason = f": {model['decision']}" if model["decision"] else ", by hand"
    return f"version {model['version']} was trained from scratch{reason}"


def _limit(policies: Sequence[str]) -> list[Marked]:
    """How far MRR may fall, if the newest policy says."""
    for condition in policies[-1].split(" or ") if policies else ():
        name, _, value = condition.partition(">")
        if name.strip() == "mrr_drop":
            return [Marked(f"limit: {value.strip()} lower", -float(value.strip().removesuffix("%")))]
    return []


def _answers(found: Figures | None) -> Markup | None:
    if found is None:
        return None
    title = element("h2", "Answers that changed")
    if "notice" in found:
        return joined(title, element("p", found["notice"], class_="notice"))
    asked = (
        f"{_count(found['asked'])} of {_count(found['questions'])}"
        if found["asked"] < found["questions"]
        else _count(found["asked"])
    )
    said = (
        f"{asked} questions of triples that changed from {found['from']} to {found['to']} were asked of the models "
        f"before and after (versions {found['models'][0]} and {found['models'][1]}): {_count(found['differ'])} have "
        "other best answers now."
    )
    cards = [_question(question) for question in found["examples"]]
    return joined(title, element("p", said), element("div", cards, class_="answers") if cards else None)


def _question(question: Figures) -> Markup:
    parts: list[Child] = []
    for role in ("head", "relation", "tail"):
        label = question.get(role)
        parts += [" · " if parts else None, element("em", "?") if label is None else _named(question, role)]
    before = [line["entity"] for line in question["before"]]
    return element(
        "article",
        element("h3", parts),
        element(
            "div", _side("before", question["before"], None), _side("after", question["after"], before), class_="sides"
        ),
    )


def _side(when: str, answers: Sequence[Figures], before: Sequence[str] | None) -> Markup:
    items = [
        element(
            "li",
            line.get("name") or line["entity"],
            element("small", " known")
            if line["known"]
            else element("small", " deleted")
            if line.get("deleted")
            else None,
            class_="new" if before is not None and line["entity"] not in before else None,
            title=line["entity"] if "name" in line else None,
        )
        for line in answers
    ]
    return element("div", element("h4", when), element("ol", items))


def _named(question: Figures, role: str) -> Child:
    name = question.get(f"{role}_name")
    return element("span", name, title=question[role]) if name else question[role]


def _costs(nights: Sequence[Figures]) -> Markup | None:
    if not any(_model(night, "online") for night in nights):
        return None
    names = _names(nights)
    models = [_model(night, "online") for night in nights]
    spent: dict[str, list[float | None]] = {"ingest": [night["ingest_seconds"] for night in nights]}
    for phase in list(PHASES)[1:]:
        spent[phase] = [((model or {}).get("phases") or {}).get(phase) for model in models]
    untold = [model["seconds"] if model and not model["phases"] else None for model in models]
    series = [Series(phase, PHASES[phase], spent[phase]) for phase in PHASES if any(spent[phase])]
    if any(untold):
        series.append(Series("update, phases not kept", 1, untold))
    seconds = stacked_bars(Chart("Seconds", "by what they were spent on.", names, _seconds, HALF), series)
    moved = [night["bytes_written"] for night in nights], [(model or {}).get("bytes_written") for model in models]
    written = stacked_bars(
        Chart("Bytes written", "to the store.", names, _bytes, HALF),
        [Series("snapshot", 6, moved[0]), Series("model", 1, moved[1])],
    )
    return joined(
        element("h2", "What it cost"),
        element("p", "Of the nights alone; trainings from scratch are in the table below."),
        element("div", seconds, written, class_="pair"),
    )


def _all_nights(figures: Figures) -> Markup:
    columns = [
        "night", "when", "came", "went", "new", "affected", "seconds", "shards", "written", "MRR", "added", "deleted",
        "how", "triples learnt", "epochs", "pulled", "pushed",
    ]  # fmt: skip
    rows = [row for night in reversed(figures["nights"]) for row in _night_rows(night)]
    left = figures["versions_left_out"]
    older = f" {_count(left)} older versions are left out." if left else ""
    body: list[Child] = [
        element("h2", "Every night"),
        element("p", f"The newest first. MRR of held-out, added and deleted triples.{older}"),
        _table(columns, rows[:ROWS], text=(1, 12)),
    ]
    if len(rows) > ROWS:
        summary = element("summary", f"{_count(len(rows) - ROWS)} more")
        body.append(element("details", summary, _table(columns, rows[ROWS:], text=(1, 12))))
    others = [_other(line) for line in figures["others"][-ROWS:]]
    if others:
        body.append(element("p", "Also: ", "; ".join(others), ".", class_="soft"))
    return joined(*body)


def _night_rows(night: Figures) -> list[list[Child]]:
    """A line for every model of a night, or one without."""
    state = " (rolled back)" if night["rolled_back"] else ""
    rows: list[list[Child]] = []
    for number, model in enumerate(night["models"] or [{}]):
        is_first = number == 0
        fidelity, valid = model.get("fidelity") or {}, model.get("valid") or {}
        rows.append(
            [
                night["snapshot"] + state if is_first else "",
                _date(model.get("created") or night["created"]),
                element("span", f"+{_count(night['added'])}", class_="add") if is_first else "",
                element("span", f"−{_count(night['deleted'])}", class_="del")
                if is_first and not night["is_first"]
                else "",
                _count(night["emerging_entities"]) if is_first else "",
                _count(model.get("affected_entities")),
                f"{model['seconds']:,.1f}" if model else "–",
                _shards(model),
                _bytes(model.get("bytes_written")),
                _share(valid.get("mrr")),
                _share(_added(fidelity)),
                _share((fidelity.get("deleted") or {}).get("mrr")),
                _how(model),
                _count(model.get("trained_triples")),
                _count(model.get("epochs")),
                _bytes(model.get("bytes_pulled")),
                _bytes(model.get("bytes_pushed")),
            ]
        )
    return rows


def _how(model: Figures) -> str:
    if not model:
        return "not learnt"
    how = "online" if model["origin"] == "online" else "from scratch"
    if not model["took_over"]:
        return f"{how}, set aside"
    return f"{how}, current" if model["is_current"] else how


def _added(fidelity: Figures) -> float | None:
    """Of both groups of added triples, each by as many as the night has."""
    groups = [fidelity[name] for name in ("added_existing", "added_emerging") if name in fidelity]
    total = sum(group["of"] for group in groups)
    return sum(group["mrr"] * group["of"] for group in groups) / total if total else None


def _shards(model: Figures) -> str:
    touched, total = model.get("shards_touched"), model.get("shards_total")
    if touched is None:
        return "–"
    return f"{touched} of {total}" if total is not None else str(touched)


def _other(line: Figures) -> str:
    what = {
        "rollback": f"went back to version {line.get('to')}",
        "gc": "cleared old versions",
        "names": f"brought {_count(sum((line.get('named') or {}).values()))} display names",
    }.get(line["kind"], line["kind"])
    return f"version {line['version']} {what}"


def _storage(figures: Figures) -> Markup:
    storage = figures["storage"]
    body: list[Child] = [
        element("h2", "Storage"),
        element("p", f"{_bytes(storage['bytes'])} in {_count(storage['parts'])} parts."),
    ]
    if storage["gc"]:
        largest = max(1, storage["bytes"])
        rows = [
            [
                f"the newest {line['keep']} versions",
                _count(line["versions"]),
                _bytes(line["bytes"]),
                element("span", class_="share", style=f"width:{100 * line['bytes'] / largest:.1f}%"),
            ]
            for line in storage["gc"]
        ]
        body.append(_table(["if gc kept", "versions cleared", "freed", "of all that is stored"], rows, text=(3,)))
        body.append(element("p", "What is younger than a day stays until it is older.", class_="soft"))
    if "notice" in storage:
        body.append(element("p", storage["notice"], class_="notice"))
    return joined(*body)


def _footer(figures: Figures) -> Markup:
    said = f"Made in {figures['seconds']:.1f} s from version {figures['version']}. "
    return element("footer", said, element("code", f"dkge report {figures['store']} OUT.html"))


def _table(columns: Sequence[str], rows: Sequence[Sequence[Child]], text: Iterable[int] = ()) -> Markup:
    """`text`: columns of words; the last of them may wrap."""
    words = tuple(text)
    head = element(
        "tr",
        (element("th", name, scope="col", class_="text" if n in words else None) for n, name in enumerate(columns)),
    )

    def cell(number: int, value: Child) -> Markup:
        if number == 0:
            return element("th", value, scope="row", title=value if isinstance(value, str) and value else None)
        wide = " wide" if words and number == max(words) and len(columns) < 8 else ""
        return element("td", value, class_=f"text{wide}" if number in words else None)

    body = [element("tr", (cell(number, value) for number, value in enumerate(row))) for row in rows]
    # Who prints a table of many columns gets the first of them.
    name = "many" if len(columns) > PRINTED else None
    table = element("table", element("thead", head), element("tbody", body), class_=name)
    return element("div", table, class_="scroll whole", tabindex="0", role="region", aria_label=", ".join(columns[:3]))


def _interval_series(name: str, color: int, found: Sequence[Figures | None]) -> Series:
    def column(key: str) -> list[float | None]:
        return [some.get(key) if some else None for some in found]

    return Series(name, color, column("mrr"), column("low"), column("high"))


def _code_in(text: str) -> list[Child]:
    """Words between backticks as code."""
    return [element("code", part) if number % 2 else part for number, part in enumerate(text.split("`"))]


def _names(nights: Sequence[Figures]) -> list[str]:
    return [night["snapshot"] for night in nights]


def _model(night: Figures, origin: str) -> Figures | None:
    """The newest model of a night that was learnt this way."""
    found: list[Figures] = [model for model in night["models"] if model["origin"] == origin]
    return found[-1] if found else None


def _learnt(night: Figures) -> Figures | None:
    """The update of a night, or else the newest model of it."""
    return _model(night, "online") or (night["models"][-1] if night["models"] else None)


def _current(figures: Figures) -> Figures | None:
    models = (model for night in figures["nights"] for model in night["models"])
    return next((model for model in models if model["is_current"]), None)


def _learning(model: Figures) -> float:
    return float(model["phases"]["learn"] if model["phases"] else model["seconds"])


def _date(created: str) -> str:
    try:
        return f"{datetime.fromisoformat(created).astimezone(UTC):%Y-%m-%d %H:%M}"
    except ValueError:
        return created


def _count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _short(value: float) -> str:
    """A count beside an axis. What hangs below the line is no less than nothing."""
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{abs(value) / (1e3 if unit == 'k' else limit):,.4g} {unit}"
    return f"{abs(value):,.4g}"


def _share(value: float | None) -> str:
    """A number from 0 to 1 without the 0 before its point."""
    if value is None:
        return "–"
    return f"{value:.3f}".replace("0.", ".", 1) if 0 < value < 1 else f"{value:.3g}"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("0.", ".", 1).replace("-", "−")


def _percent(value: float) -> str:
    return f"{value:+.3g}%".replace("-", "−") if value else "0%"


def _seconds(value: float) -> str:
    return f"{value:,.3g} s" if value else "0"


def _duration(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 100 else f"{seconds / 60:.0f} min"


def _bytes(value: float | None) -> str:
    if value is None:
        return "–"
    size, unit = float(value), 0
    while size >= 1000 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.3g} {UNITS[unit]}" if unit else f"{size:.0f} B"
