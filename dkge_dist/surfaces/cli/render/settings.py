"""Settings as text: each with its default and what it means."""

from __future__ import annotations

import shutil
import textwrap
from typing import Any

from dkge_dist.surfaces.requests.settings import in_yaml


def render_settings(report: dict[str, Any]) -> None:
    """Key and default on a line, the explanation below; those of experts after the others."""
    if "yaml" in report:
        print(report["yaml"], end="")
        return
    width = min(shutil.get_terminal_size().columns, 120)
    for one in sorted(report["settings"], key=lambda one: one["expert"]):
        print(f"{one['key']} = {in_yaml(one['default'])}{'  (expert)' if one['expert'] else ''}")
        for line in one["explanation"].split("\n"):
            shown = [line] if line.startswith(" ") else textwrap.wrap(line, width - 4, break_on_hyphens=False)
            print(*(f"    {part}" for part in shown), sep="\n")
