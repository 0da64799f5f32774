"""What `jobs.night_report` found, as the sections of the page ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Figures = dict[str, Any]


def night_names(nights: Sequence[Figures]) -> list[str]:
    """The names of their snapshots."""
    return [night["snapshot"] for night in nights]


def model_of(night: Figures, origin: str) -> Figures | None:
    """The newest model of a night that was learnt this way."""
    found: list[Figures] = [model for model in night["models"] if model["origin"] == origin]
    return found[-1] if found else None


def learnt_model(night: Figures) -> Figures | None:
    """The update of a night, or else the newest model of it."""
    return model_of(night, "online") or (night["models"][-1] if night["models"] else None)


def current_model(figures: Figures) -> Figures | None:
    """The model that is current, if a night that is shown has it."""
    models = (model for night in figures["nights"] for model in night["models"])
    return next((model for model in models if model["is_current"]), None)
