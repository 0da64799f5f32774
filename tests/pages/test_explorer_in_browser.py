"""The explorer in a real browser over a real server: by keyboard, at any night, and with labels that mean harm."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest

from dkge_dist.surfaces import api
from tests.browser import Page
from tests.jobs.building import SMALL, base_triples, write_lines, write_night
from tests.pages.conftest import HOSTILE
from tests.serving.running import Server

pytestmark = [pytest.mark.browser, pytest.mark.slow, pytest.mark.usefixtures("one_thread")]

FITS = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
ANSWERED = "document.querySelectorAll('ol.answers > li').length"
SIDES = "document.querySelectorAll('.side').length"
NEIGHBOURS = "document.querySelectorAll('#map a').length"
HEADING = "document.querySelector('h1')?.textContent"


@pytest.fixture(scope="module")
def server(hostile_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(hostile_store, env={"DKGE_CACHE": str(tmp_path_factory.mktemp("cache"))}) as running:
        yield running.ready()


def address(server: Server, **state: str | int) -> str:
    return f"http://127.0.0.1:{server.port}/" + (f"#{urlencode(state)}" if state else "")


def state_of(page: Page) -> dict[str, str]:
    found = parse_qs(page.run("location.hash").removeprefix("#"))
    return {key: value for key, (value,) in found.items()}


def assert_harmless(page: Page, server: Server, may_fail: bool = False) -> None:
    """Nothing ran that came with a label, nothing came from elsewhere, nothing went wrong."""
    assert page.run("document.querySelectorAll('img').length") == 0
    assert page.run("document.querySelectorAll('script').length") == 1
    assert "hacked" not in page.run("document.title").replace(HOSTILE, "")
    assert {urlsplit(asked).netloc for asked in page.requests()} <= {f"127.0.0.1:{server.port}", ""}
    assert page.problems(lambda asked: may_fail and "/api/" in asked) == []


def test_search_slider_and_comparison_by_keyboard(server: Server, page: Page) -> None:
    page.open(address(server))
    page.wait_for("document.querySelectorAll('.chip').length > 3")
    page.press("/")
    page.type("entity 1")
    page.wait_for("document.querySelectorAll('#options [role=option]').length > 2")
    first = page.run("document.getElementById('option-1').textContent")
    page.press("ArrowDown")
    assert page.run("document.getElementById('search').getAttribute('aria-activedescendant')") == "option-1"
    page.press("Enter")
    page.wait_for(f"{ANSWERED} > 3 && {NEIGHBOURS} > 0")
    assert first.startswith(page.run(HEADING))
    chosen = state_of(page)["e"]
    page.press("[")
    page.wait_for(f"document.getElementById('when').textContent.includes('version 4') && {ANSWERED} > 3")
    page.run("document.getElementById('slider').focus()")
    page.press("ArrowLeft")
    page.wait_for("document.getElementById('when').textContent.includes('version 2 ')")
    page.wait_for(f"location.hash.includes('v=2') && {ANSWERED} > 3")
    page.press("]")
    page.press("]")
    page.press("c")
    page.wait_for(f"{SIDES} === 2 && {ANSWERED} > 6")
    assert state_of(page) == {"e": chosen, "c": "4"}
    page.wait_for("document.querySelector('#changes')?.textContent.startsWith('What changed it')")
    page.press("c")
    page.wait_for(f"{SIDES} === 1 && {ANSWERED} > 3")
    assert_harmless(page, server)


def test_the_address_keeps_the_state_and_back_goes_back(server: Server, page: Page) -> None:
    page.open(address(server, e="e1", v=4, c=2, r="r0", d="head"))
    page.wait_for(f"{SIDES} === 2 && {ANSWERED} > 6")
    assert page.run("document.querySelector('.chip[aria-pressed=true]').textContent").startswith("← r0")
    assert page.run("[...document.querySelectorAll('.side h3')].map(one => one.textContent)") == [
        "As of base (version 2)",
        f"As of night1 {HOSTILE} (version 4)",
    ]
    page.run("document.querySelector('#similar a').click()")
    page.wait_for("!location.hash.includes('e=e1&')")
    page.wait_for(f"{SIDES} === 2 && {ANSWERED} > 6")
    page.run("history.back()")
    page.wait_for("document.querySelector('.chip[aria-pressed=true]')?.textContent.startsWith('← r0')")
    assert state_of(page) == {"e": "e1", "v": "4", "c": "2", "r": "r0", "d": "head"}
    assert_harmless(page, server)


def test_what_changed_an_answer_is_told_with_its_night(server: Server, page: Page) -> None:
    """(e0, r0, ?) got an answer in the first night."""
    page.open(address(server, e="e0", v=4, c=2, r="r0"))
    page.wait_for("document.querySelector('#changes li .plus') !== null")
    told = page.run("document.querySelector('#changes li').textContent")
    assert told.startswith(f"+ Entity 0 {HOSTILE} — r0 — Entity 1 {HOSTILE}")
    assert told.endswith(f"night1 {HOSTILE}")
    page.run("document.querySelector('#history button').click()")
    page.wait_for("document.querySelectorAll('#history tbody tr').length === 2")
    assert page.run("document.querySelectorAll('#history tr.changed').length") == 1
    assert page.run("document.querySelector('ol.answers details summary').textContent") == "why"
    assert_harmless(page, server)


def test_a_night_that_came_while_a_model_was_learnt_is_not_lost(page: Page, tmp_path: Path) -> None:
    """The first model is of `base`, though `night` was the current snapshot when it was published."""
    store, base = tmp_path / "store", ["\t".join(triple) for triple in base_triples()]
    api.ingest(store, write_lines(tmp_path / "base.tsv", base), valid=20, test=20)
    api.ingest(store, write_night(tmp_path / "night.changes", [f"e0\tr0\tnew{n}" for n in range(70)], []))
    api.train(store, snapshot="base", settings=SMALL)
    api.update(store)
    with Server(store, env={"DKGE_CACHE": str(tmp_path / "cache")}) as server:
        page.open(address(server.ready()))
        page.wait_for("document.getElementById('main').textContent.includes('70 triples came, 0 went')")
        page.open(address(server, e="e0", c=3, r="r0"))
        page.wait_for("document.querySelector('#changes li .plus') !== null")
        told = page.run("document.querySelector('#changes li').textContent")
        assert told.startswith("+ e0 — r0 — new") and told.endswith("night")
        # Not all facts are on the page: there are more of the relation than those.
        assert page.run("document.querySelector('.chip[aria-pressed=true] small').textContent").endswith("+")
        asked = [parse_qs(urlsplit(one).query) for one in page.requests() if "/api/diff" in one]
        assert "e0" in asked[-1]["about"], "of a night of thousands of triples those that matter"


@pytest.mark.parametrize("dark", [False, True])
def test_hostile_labels_are_text_on_a_phone_too(server: Server, page: Page, dark: bool) -> None:
    page.open(address(server, e=HOSTILE), width=390, height=800, dark=dark)
    page.wait_for(f"{ANSWERED} > 3 && {NEIGHBOURS} > 3")
    assert page.run(HEADING) == HOSTILE
    assert page.run(FITS), "a page that has to be pushed sideways"
    page.run("document.getElementById('search').focus()")
    page.type("<img")
    page.wait_for("document.querySelectorAll('#options [role=option]').length > 0")
    assert page.run("document.getElementById('option-0').textContent") == HOSTILE
    page.press("Escape")
    assert page.run("document.getElementById('options').hidden")
    assert_harmless(page, server)


def test_an_entity_that_was_not_there_yet_is_said(server: Server, page: Page) -> None:
    page.open(address(server, e=HOSTILE, v=2))
    page.wait_for("document.querySelector('[role=alert]') !== null")
    assert page.run(HEADING) == HOSTILE
    page.press("]")
    page.wait_for(f"{ANSWERED} > 3")
    assert_harmless(page, server, may_fail=True)


def test_little_is_asked(server: Server, page: Page) -> None:
    """Typing asks once it rests, and the slider too; what was asked of a fixed version is not asked again."""
    page.open(address(server, e="e1"))
    page.wait_for(f"{ANSWERED} > 3")
    page.wait_for("document.querySelectorAll('#similar a').length > 3")
    asked = page.requests()
    assert len([one for one in asked if "/api/" in one]) <= 6, asked
    page.press("/")
    for letter in "entity":
        page.type(letter)
    page.wait_for("document.querySelectorAll('#options [role=option]').length > 3")
    searched = [one for one in page.requests() if "/api/search" in one and "q=e" in one]
    assert 1 <= len(searched) <= 3, searched
    page.press("Escape")
    page.press("Escape")
    before = len(page.requests())
    page.press("[")
    page.wait_for("location.hash.includes('v=4')")
    page.wait_for(f"{ANSWERED} > 3 && document.querySelectorAll('#similar a').length > 3")
    page.press("]")
    page.wait_for(
        f"!location.hash.includes('v=4') && {ANSWERED} > 3 && document.querySelectorAll('#similar a').length > 3"
    )
    assert len(page.requests()) - before <= 5, "coming back asks nothing again"
    assert all("limit=" in one for one in page.requests() if "/api/entity" in one or "/api/search" in one)
