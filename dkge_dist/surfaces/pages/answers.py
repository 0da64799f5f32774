"""Questions whose best answers the last night changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dkge_dist.records import ChangedAnswers
from dkge_dist.surfaces.pages.formats import format_count
from dkge_dist.surfaces.pages.markup import Child, Markup, element, joined


def answers(found: ChangedAnswers | None) -> Markup | None:
    """The questions, before and after."""
    if found is None:
        return None
    title = element("h2", "Answers that changed")
    if found.notice is not None:
        return joined(title, element("p", found.notice, class_="notice"))
    asked, (before, after) = format_count(found.asked), found.models
    if found.asked < found.questions:
        asked = f"{asked} of {format_count(found.questions)}"
    said = (
        f"{asked} questions of triples that changed from {found.from_snapshot} to {found.to_snapshot} were asked of "
        f"the models before and after (versions {before} and {after}): {format_count(found.differ)} have other best "
        "answers now."
    )
    cards = [_question(question) for question in found.examples]
    return joined(title, element("p", said), element("div", cards, class_="answers") if cards else None)


def _question(question: Mapping[str, Any]) -> Markup:
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


def _side(when: str, answers: Sequence[Mapping[str, Any]], before: Sequence[str] | None) -> Markup:
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


def _named(question: Mapping[str, Any], role: str) -> Child:
    name = question.get(f"{role}_name")
    return element("span", name, title=question[role]) if name else question[role]
