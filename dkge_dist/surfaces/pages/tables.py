"""The tables of the page: every night, and what gc would free."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dkge_dist.records import Fidelity, VersionRecord
from dkge_dist.surfaces.pages.figures import ModelSummary, NightlySummary, NightSummary, StorageSummary
from dkge_dist.surfaces.pages.formats import format_bytes, format_count, format_date, format_share
from dkge_dist.surfaces.pages.markup import Child, Markup, element, joined

ROWS = 30
"""Nights in the table that is open; the others are behind a click."""
PRINTED = 13
"""Columns of a table that fit on paper, as the style sheet has it."""


def every_night(figures: NightlySummary) -> Markup:
    """A line for every model, the newest first."""
    rows = [row for night in reversed(figures.nights) for row in _night_rows(night)]
    left = figures.versions_left_out
    older = f" {format_count(left)} older versions are left out." if left else ""
    body: list[Child] = [
        element("h2", "Every night"),
        element("p", f"The newest first. MRR of held-out, added and deleted triples.{older}"),
        table(COLUMNS, rows[:ROWS], text=(1, 12)),
    ]
    if len(rows) > ROWS:
        summary = element("summary", f"{format_count(len(rows) - ROWS)} more")
        body.append(element("details", summary, table(COLUMNS, rows[ROWS:], text=(1, 12))))
    others = [_other(line) for line in figures.others[-ROWS:]]
    if others:
        body.append(element("p", "Also: ", "; ".join(others), ".", class_="soft"))
    return joined(*body)


COLUMNS = (
    "night", "when", "came", "went", "new", "affected", "seconds", "shards", "written", "MRR", "added", "deleted",
    "how", "triples learnt", "epochs", "pulled", "pushed",
)  # fmt: skip


def _night_rows(night: NightSummary) -> list[list[Child]]:
    """A line for every model of a night, or one without."""
    state = " (rolled back)" if night.rolled_back else ""
    change: list[Child] = [
        element("span", f"+{format_count(night.added)}", class_="add"),
        "" if night.is_first else element("span", f"−{format_count(night.deleted)}", class_="del"),
        format_count(night.emerging_entities),
    ]
    if not night.models:
        return [[night.snapshot + state, format_date(night.created), *change, *["–"] * 7, "not learnt", *["–"] * 4]]
    return [
        [night.snapshot + state, format_date(model.created), *change, *_model_cells(model)]
        if number == 0
        else ["", format_date(model.created), "", "", "", *_model_cells(model)]
        for number, model in enumerate(night.models)
    ]


def _model_cells(model: ModelSummary) -> list[Child]:
    update = model.night
    added, deleted = (model.fidelity.mrr(*groups) for groups in (Fidelity.ADDED, Fidelity.DELETED))
    return [
        format_count(update.affected_entities if update else None),
        f"{model.seconds:,.1f}",
        f"{update.shards_touched} of {update.shards_total}" if update else "–",
        format_bytes(model.bytes_written),
        format_share(model.record.valid.mrr),
        format_share(added.mean if added else None),
        format_share(deleted.mean if deleted else None),
        _how(model),
        format_count(update.trained_triples if update else None),
        format_count(model.record.epochs),
        format_bytes(update.bytes_pulled if update else None),
        format_bytes(update.bytes_pushed if update else None),
    ]


def _how(model: ModelSummary) -> str:
    how = {"online": "online", "refresh": "refreshed"}.get(model.record.origin, "from scratch")
    if not model.promoted:
        return f"{how}, set aside"
    return f"{how}, current" if model.is_current else how


def _other(line: VersionRecord) -> str:
    what = {
        "rollback": f"went back to version {line.parent}",
        "gc": "cleared old versions",
        "names": f"brought {format_count(sum(line.get('named', {}).values()))} display names",
    }.get(line.kind, line.kind)
    return f"version {line.version} {what}"


def storage(found: StorageSummary) -> Markup:
    """What is stored, and what gc would free."""
    body: list[Child] = [
        element("h2", "Storage"),
        element("p", f"{format_bytes(found.bytes)} in {format_count(found.parts)} parts."),
    ]
    if found.gc:
        largest = max(1, found.bytes)
        rows = [
            [
                f"the newest {line.keep} versions",
                format_count(line.versions),
                format_bytes(line.bytes),
                element("span", class_="share", style=f"width:{100 * line.bytes / largest:.1f}%"),
            ]
            for line in found.gc
        ]
        body.append(table(["if gc kept", "versions cleared", "freed", "of all that is stored"], rows, text=(3,)))
        body.append(element("p", "What is younger than a day stays until it is older.", class_="soft"))
    if found.notice is not None:
        body.append(element("p", found.notice, class_="notice"))
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
