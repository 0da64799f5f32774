"""What all sections share: their form, the systems that are compared, and the snapshots."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.study.figures import Figures
from benchmarks.study.render import Table

NOT_RUN = "Not measured yet."
PEERS = ("GAKE", "puTransE", "TransE", "ComplEx", "ConvE", "RotatE")
GROUPS = ("added_existing", "added_emerging", "deleted", "replaced", "kept_near", "kept_far")
WAYS = {"vectors": "by vectors", "with_evidence": "with evidence"}


@dataclass
class Section:
    """A part on the page."""

    title: str
    part: str
    about: str
    says: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    plots: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Row:
    """A line of the comparison: a system and the way that it ranks."""

    name: str
    system: str
    way: str = "vectors"


def rows_of_comparison() -> list[Row]:
    """Peers, the literal method, ours; then those who learn online."""
    ours = [Row(f"ours, {text}", "ours", way) for way, text in WAYS.items()]
    online = [Row(f"ours, {text}, online", "ours, online", way) for way, text in WAYS.items()]
    return [
        *(Row(name, name) for name in PEERS),
        Row("DKGE, literal", "DKGE, literal"),
        *ours,
        Row("puTransE, online", "puTransE, online"),
        Row("DKGE, literal, online", "DKGE, literal, online"),
        *online,
    ]


def snapshots_of(figures: Figures, data: str) -> list[str]:
    found = {one["cell"]["snapshot"] for one in figures.done if one["cell"]["part"] == "comparison"
             and one["cell"]["data"] == data}  # fmt: skip
    # The first is `snapshot...` in both kinds of graphs; nights follow.
    return sorted(found, key=lambda name: (not name.startswith("snapshot"), name))
