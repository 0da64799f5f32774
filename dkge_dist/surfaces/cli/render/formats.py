"""Labels, counts and metrics as the text of reports has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

METRICS = ("mrr", "hits@1", "hits@3", "hits@10", "mr")


def format_triple(found: Mapping[str, Any]) -> list[str]:
    """Head, relation and tail."""
    return [format_named(found, part, f"{part}_name") for part in ("head", "relation", "tail")]


def format_question(found: Mapping[str, Any]) -> str:
    """What is asked, with `?` in its place."""
    return "\t".join(format_triple(found))


def format_label(label: str, names: dict[str, str]) -> str:
    """A label, behind its display name where there is one."""
    return f"{names[label]} ({label})" if label in names else label


def format_named(found: Mapping[str, Any], key: str, name_key: str = "name") -> str:
    """A label, behind its display name where it has one; `?` for what is asked for."""
    label = str(found.get(key, "?"))
    return f"{found[name_key]} ({label})" if name_key in found else label


def format_share(value: float, digits: int = 2) -> str:
    """A number from 0 to 1, in one letter more than it has digits."""
    return f"{value:.{digits}f}".removeprefix("0")[: digits + 1]


def format_counts(counts: Mapping[str, Any]) -> str:
    """Named numbers in one line, zeros left out."""
    shown = {name: value for name, value in counts.items() if isinstance(value, int | float) and value}
    return ", ".join(f"{name.replace('_', ' ')} {value:,}" for name, value in shown.items())


def format_metrics(found: Mapping[str, float]) -> str:
    """All metrics in one line."""
    return ", ".join(f"{name} {found[name]:.1f}" if name == "mr" else f"{name} {found[name]:.3f}" for name in METRICS)


def format_metric(name: str, value: float) -> str:
    """A metric as a cell of a table."""
    return f"{value:,.1f}" if name == "mr" else f"{value:.4f}"
