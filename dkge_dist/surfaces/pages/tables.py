"""The tables of the page: every night, and what gc would free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dkge_dist.surfaces.pages.figures import Figures
from dkge_dist.surfaces.pages.formats import format_bytes, format_count, format_date, format_share
from dkge_dist.surfaces.pages.markup import Child, Markup, element, joined

ROWS = 30
"""Nights in the table that is open; the others are behind a click."""
PRINTED = 13
"""Columns of a table that fit on paper, as the style sheet has it."""


def every_night(figures: Figures) -> Markup:
    """A line for every model, the newest first."""
    columns = [
        "night", "when", "came", "went", "new", "affected", "seconds", "shards", "written", "MRR", "added", "deleted",
        "how", "triples learnt", "epochs", "pulled", "pushed",
    ]  # fmt: skip
    rows = [row for night in reversed(figures["nights"]) for row in _night_rows(night)]
    left = figures["versions_left_out"]
    older = f" {format_count(left)} older versions are left out." if left else ""
    body: list[Child] = [
        element("h2", "Every night"),
        element("p", f"The newest first. MRR of held-out, added and deleted triples.{older}"),
        table(columns, rows[:ROWS], text=(1, 12)),
    ]
    if len(rows) > ROWS:
        summary = element("summary", f"{format_count(len(rows) - ROWS)} more")
        body.append(element("details", summary, table(columns, rows[ROWS:], text=(1, 12))))
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
                format_date(model.get("created") or night["created"]),
                element("span", f"+{format_count(night['added'])}", class_="add") if is_first else "",
                element("span", f"−{format_count(night['deleted'])}", class_="del")
                if is_first and not night["is_first"]
                else "",
                format_count(night["emerging_entities"]) if is_first else "",
                format_count(model.get("affected_entities")),
                f"{model['seconds']:,.1f}" if model else "–",
                _shards(model),
                format_bytes(model.get("bytes_written")),
                format_share(valid.get("mrr")),
                format_share(_added(fidelity)),
                format_share((fidelity.get("deleted") or {}).get("mrr")),
                _how(model),
                format_count(model.get("trained_triples")),
                format_count(model.get("epochs")),
                format_bytes(model.get("bytes_pulled")),
                format_bytes(model.get("bytes_pushed")),
            ]
        )
    return rows


def _how(model: Figures) -> str:
    if not model:
        return "not learnt"
    how = "online" if model["origin"] == "online" else "refreshed" if model["is_refresh"] else "from scratch"
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
        "names": f"brought {format_count(sum((line.get('named') or {}).values()))} display names",
    }.get(line["kind"], line["kind"])
    return f"version {line['version']} {what}"


def storage(figures: Figures) -> Markup:
    """What is stored, and what gc would free."""
    storage = figures["storage"]
    body: list[Child] = [
        element("h2", "Storage"),
        element("p", f"{format_bytes(storage['bytes'])} in {format_count(storage['parts'])} parts."),
    ]
    if storage["gc"]:
        largest = max(1, storage["bytes"])
        rows = [
            [
                f"the newest {line['keep']} versions",
                format_count(line["versions"]),
                format_bytes(line["bytes"]),
                element("span", class_="share", style=f"width:{100 * line['bytes'] / largest:.1f}%"),
            ]
            for line in storage["gc"]
        ]
        body.append(table(["if gc kept", "versions cleared", "freed", "of all that is stored"], rows, text=(3,)))
        body.append(element("p", "What is younger than a day stays until it is older.", class_="soft"))
    if "notice" in storage:
        body.append(element("p", storage["notice"], class_="notice"))
    return joined(*body)


def table(columns: Sequence[str], rows: Sequence[Sequence[Child]], text: Iterable[int] = ()) -> Markup:
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
