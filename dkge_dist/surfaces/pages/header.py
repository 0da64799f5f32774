"""The top of the page: the last night in a sentence, whether there is anything to do, and the totals."""

from __future__ import annotations

from collections.abc import Sequence

from dkge_dist.surfaces.pages.figures import ModelSummary, NightlySummary, NightSummary
from dkge_dist.surfaces.pages.formats import (
    format_bytes,
    format_count,
    format_date,
    format_duration,
    format_share,
    format_signed,
)
from dkge_dist.surfaces.pages.markup import Markup, element


def header(figures: NightlySummary, nights: Sequence[NightSummary]) -> Markup:
    """From the title to the tiles."""
    last = next((night for night in reversed(nights) if not night.rolled_back), None)
    return element(
        "header",
        element("h1", "What the nights did"),
        element("div", f"{figures.store} · {format_date(figures.made)} UTC", class_="where"),
        element("p", _headline(last) if last else _beginning(figures), class_="said"),
        _state(figures),
        _tiles(figures, last),
    )


def _beginning(figures: NightlySummary) -> str:
    learnt = "learnt from scratch" if figures.model else "not learnt yet"
    return f"{figures.snapshot}: {format_count(figures.train)} triples, {learnt}. No night has come yet."


def _headline(night: NightSummary) -> str:
    said = f"{night.snapshot}: {format_count(night.added)} triples came, {format_count(night.deleted)} went"
    model = night.learnt
    if model is None:
        return f"{said}. It is not learnt yet."
    how = {"online": "learnt", "refresh": "refreshed"}.get(model.record.origin, "learnt from scratch")
    return f"{said}; {how} in {format_duration(model.phases.get('learn', model.seconds))}."


def _state(figures: NightlySummary) -> Markup:
    """One line: is there anything to do?"""
    newest = figures.nights[-1] if figures.nights else None
    current = figures.current
    if figures.model is None:
        return _verdict("Nothing is learnt yet: ", f"dkge train {figures.store}")
    if current is not None and current.due and not _trained_since(figures, current):
        return _verdict("Training is due. ", current.due, is_code=False)
    if newest is not None and not newest.rolled_back and not newest.models:
        return _verdict(f"{newest.snapshot} is not learnt yet: ", f"dkge update {figures.store}")
    return element("div", element("b", "Nothing to do. "), "No training from scratch is due.", class_="state")


def _trained_since(figures: NightlySummary, model: ModelSummary) -> bool:
    """Was the night of a model trained from scratch afterwards? If that was set aside, another one is not due."""
    of_night = next(night.models for night in figures.nights if model in night.models)
    return any(other.night is None and other.version > model.version for other in of_night)


def _verdict(words: str, more: str, is_code: bool = True) -> Markup:
    return element("div", element("b", words), element("code", more) if is_code else more, class_="state bad")


def _tiles(figures: NightlySummary, last: NightSummary | None) -> Markup:
    held_out, current = figures.valid + figures.test, figures.current
    tiles: list[tuple[str, str, str]] = [
        ("Entities", format_count(figures.entities), f"{format_count(figures.relations)} relations"),
        ("Triples", format_count(figures.train), f"{format_count(held_out)} held out"),
    ]
    if last is not None:
        tiles.append(("Last night", f"+{format_count(last.added)} −{format_count(last.deleted)}", _affected(last)))
    if current is not None and current.record.valid.mrr is not None:
        mrr = current.record.valid.mrr
        tiles.append(("MRR of held-out triples", format_share(mrr), _since_before(figures, current, mrr)))
    tiles.append(("Stored", format_bytes(figures.storage.bytes), f"{format_count(figures.version)} versions"))
    inside = [
        element("div", element("dt", name), element("dd", value, element("small", more))) for name, value, more in tiles
    ]
    return element("dl", inside, class_="tiles")


def _since_before(figures: NightlySummary, current: ModelSummary, mrr: float) -> str:
    """How the MRR changed from the model before."""
    every = (model for night in figures.nights for model in night.models)
    before = next((model.record.valid.mrr for model in every if model.version == current.parent), None)
    return f"version {current.version}" if before is None else f"{format_signed(mrr - before)} since before"


def _affected(night: NightSummary) -> str:
    update = night.update.night if night.update is not None else None
    if update is None:
        return f"{format_count(night.emerging_entities)} new"
    return f"{format_count(update.affected_entities)} entities affected"
