"""The top of the page: the last night in a sentence, whether there is anything to do, and the totals."""

from __future__ import annotations

from collections.abc import Sequence

from dkge_dist.surfaces.pages.figures import Figures, current_model, learnt_model
from dkge_dist.surfaces.pages.formats import (
    format_bytes,
    format_count,
    format_date,
    format_duration,
    format_share,
    format_signed,
)
from dkge_dist.surfaces.pages.markup import Markup, element


def header(figures: Figures, nights: Sequence[Figures]) -> Markup:
    """From the title to the tiles."""
    last = next((night for night in reversed(nights) if not night["rolled_back"]), None)
    return element(
        "header",
        element("h1", "What the nights did"),
        element("div", f"{figures['store']} · {format_date(figures['made'])} UTC", class_="where"),
        element("p", _headline(last) if last else _beginning(figures), class_="said"),
        _state(figures),
        _tiles(figures, last),
    )


def _beginning(figures: Figures) -> str:
    learnt = "learnt from scratch" if figures["model"] else "not learnt yet"
    return f"{figures['snapshot']}: {format_count(figures['train'])} triples, {learnt}. No night has come yet."


def _headline(night: Figures) -> str:
    said = f"{night['snapshot']}: {format_count(night['added'])} triples came, {format_count(night['deleted'])} went"
    model = learnt_model(night)
    if model is None:
        return f"{said}. It is not learnt yet."
    how = "learnt" if model["origin"] == "online" else "refreshed" if model["is_refresh"] else "learnt from scratch"
    return f"{said}; {how} in {format_duration(_learning(model))}."


def _state(figures: Figures) -> Markup:
    """One line: is there anything to do?"""
    newest = figures["nights"][-1] if figures["nights"] else None
    current = current_model(figures)
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
        ("Entities", format_count(figures["entities"]), f"{format_count(figures['relations'])} relations"),
        ("Triples", format_count(figures["train"]), f"{format_count(figures['valid'] + figures['test'])} held out"),
    ]
    if last is not None:
        tiles.append(("Last night", f"+{format_count(last['added'])} −{format_count(last['deleted'])}", _who(last)))
    current = current_model(figures)
    if current is not None and current["valid"]:
        tiles.append(
            ("MRR of held-out triples", format_share(current["valid"]["mrr"]), _since_before(figures, current))
        )
    storage = figures["storage"]
    tiles.append(("Stored", format_bytes(storage["bytes"]), f"{format_count(figures['version'])} versions"))
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
    return f"{format_signed(current['valid']['mrr'] - before['valid']['mrr'])} since before"


def _who(night: Figures) -> str:
    model = learnt_model(night)
    affected = model.get("affected_entities") if model else None
    return (
        f"{format_count(affected)} entities affected"
        if affected is not None
        else f"{format_count(night['emerging_entities'])} new"
    )


def _learning(model: Figures) -> float:
    return float(model["phases"]["learn"] if model["phases"] else model["seconds"])
