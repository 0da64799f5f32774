"""HTML in which nobody can forget to escape: text is escaped, `Markup` is not, and `element` makes one of the other."""

from __future__ import annotations

import html
from collections.abc import Iterable

VOID = {"meta", "link", "br"}


class Markup(str):
    """HTML already."""

    __slots__ = ()


Child = str | Markup | Iterable["Child"] | None
"""What stands in an element; None is nothing."""


def element(name: str, *children: Child, **attributes: str | float | bool | None) -> Markup:
    """An element. `class_` is class, and other `_` in a name become `-`.

    An attribute that is None or False is left out, one that is True has no value.
    """
    told = "".join(_attribute(key, value) for key, value in attributes.items() if value not in (None, False))
    if name in VOID:
        return Markup(f"<{name}{told}>")
    return Markup(f"<{name}{told}>{joined(*children)}</{name}>")


def _attribute(key: str, value: str | float | bool | None) -> str:
    name = key.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'


def joined(*children: Child) -> Markup:
    """Elements and text one after the other."""
    return Markup("".join(_pieces(children)))


def _pieces(children: Iterable[Child]) -> Iterable[str]:
    for child in children:
        if isinstance(child, Markup):
            yield child
        elif isinstance(child, str):
            yield html.escape(child)
        elif child is not None:
            yield from _pieces(child)
