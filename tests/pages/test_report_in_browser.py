"""The report in a real browser: nothing fails, nothing is loaded, nothing runs, and it fits wherever it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from dkge_dist.surfaces import api
from tests.browser import Page

pytestmark = [pytest.mark.browser, pytest.mark.usefixtures("one_thread")]

VISIBLE_CHARTS = """[...document.querySelectorAll('figure')].filter(figure => {
  const drawing = figure.querySelector('svg').getBoundingClientRect();
  const marks = figure.querySelectorAll('svg rect[class^=fill], svg polyline, svg line[class^=dot]');
  return drawing.width > 100 && drawing.height > 50 && marks.length > 0;
}).length"""
FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"


@pytest.mark.parametrize(("width", "dark"), [(1200, False), (1200, True), (390, False)])
def test_report_is_whole_and_harmless(hostile_store: Path, tmp_path: Path, page: Page, width: int, dark: bool) -> None:
    figures = api.report(hostile_store, tmp_path / "nights.html")
    assert figures["answers"]["examples"]
    address = (tmp_path / "nights.html").as_uri()
    page.open(address, width=width, dark=dark)
    assert page.run(VISIBLE_CHARTS) >= 8
    assert page.run(FITS), "a page that has to be pushed sideways"
    assert page.run("document.title") == f"Nights of {hostile_store}"
    assert page.run("document.querySelectorAll('script, img').length") == 0
    assert page.run("getComputedStyle(document.body).backgroundColor") == (
        "rgb(18, 21, 28)" if dark else "rgb(251, 250, 247)"
    )
    page.run("document.querySelectorAll('details').forEach(some => { some.open = true })")
    assert page.run("[...document.querySelectorAll('figure table')].every(table => table.offsetHeight > 20)")
    assert page.requests() == [address]
    assert page.problems() == []


def test_report_can_be_printed(hostile_store: Path, tmp_path: Path, page: Page) -> None:
    api.report(hostile_store, tmp_path / "nights.html", answers=False)
    page.open((tmp_path / "nights.html").as_uri(), dark=True)
    page.print(tmp_path / "nights.pdf")
    assert (tmp_path / "nights.pdf").read_bytes().startswith(b"%PDF")
    assert page.problems() == []
