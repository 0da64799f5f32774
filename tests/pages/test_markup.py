"""Text cannot become markup."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.surfaces.pages.markup import Markup, element, joined


@given(st.text())
def test_text_is_escaped_wherever_it_stands(text: str) -> None:
    made = element("p", text, [text, (text,)], title=text)
    inside = made.removeprefix("<p").removesuffix("</p>")
    assert "<" not in inside
    assert inside.count(">") == 1
    assert inside.partition(">")[0].count('"') == 2


def test_markup_is_not_escaped_again() -> None:
    assert element("p", element("b", "a & b"), None, "<") == "<p><b>a &amp; b</b>&lt;</p>"
    assert isinstance(joined("a"), Markup)


def test_attributes_that_say_nothing_are_left_out() -> None:
    assert element("td", class_="text", title=None, hidden=False, open=True, aria_label="x") == (
        '<td class="text" open aria-label="x"></td>'
    )
    assert element("meta", charset="utf-8") == '<meta charset="utf-8">'
