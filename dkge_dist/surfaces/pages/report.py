"""The page about the nights of a store. In: its figures. Out: one HTML page that loads nothing.

No script is in it and its policy allows none, so that a label can say what it likes.
"""

from __future__ import annotations

from importlib.resources import files

from dkge_dist.surfaces.pages.answers import answers
from dkge_dist.surfaces.pages.figures import NightlySummary
from dkge_dist.surfaces.pages.header import header
from dkge_dist.surfaces.pages.markup import Markup, element
from dkge_dist.surfaces.pages.tables import every_night, storage
from dkge_dist.surfaces.pages.trends import changes, costs, drift, fidelity, quality

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"


def render_page(figures: NightlySummary) -> str:
    """The whole page."""
    nights = [night for night in figures.nights if not night.is_first]
    title = f"Nights of {figures.store}"
    body = [
        header(figures, nights),
        changes(nights),
        quality(figures.nights),
        fidelity(nights),
        drift(nights),
        answers(figures.answers),
        costs(nights),
        every_night(figures),
        storage(figures.storage),
        _footer(figures),
    ]
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=POLICY),
        element("meta", name_="viewport", content="width=device-width, initial-scale=1"),
        element("link", rel="icon", href="data:,"),
        element("title", title),
        element("style", Markup(files("dkge_dist.surfaces.pages").joinpath("report.css").read_text(encoding="utf-8"))),
    )
    return "<!doctype html>\n" + element("html", head, element("body", body), lang="en")


def _footer(figures: NightlySummary) -> Markup:
    said = f"Made in {figures.seconds:.1f} s from version {figures.version}. "
    return element("footer", said, element("code", f"dkge report {figures.store} OUT.html"))
