"""Real data that changes: the packages of two Debian releases, from scratch, the night between them, and questions.

`--debian OLD NEW` names two `Packages` files, plain or compressed, as any mirror has them under
`dists/RELEASE/main/binary-amd64/`. About a million triples each.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.study.cells import Cell, Result
from benchmarks.study.graphs import HELD_OUT, QUICK_HELD_OUT, DataSet, Study, snapshots_of
from benchmarks.study.questions import ask_about
from dkge_dist.surfaces import api

PART = "debian"
HOW = (
    "--debian OLD NEW: two Packages files, such as dists/bookworm/main/binary-amd64/Packages.xz of a Debian mirror "
    "and the same of trixie"
)


def run(study: Study) -> None:
    """Ingest both releases, then ask about the night between them; the answers tell what learning took, too."""
    old, new = sources(study)
    store = study.work / "debian-store"
    held_out = QUICK_HELD_OUT if study.quick else HELD_OUT
    cell = Cell(PART, "ingest", "Debian", "both", 1)
    if study.ledger.run(cell, lambda: _ingest(store, old, new, held_out)) is None:
        return
    # A cell may come from another machine, and its store with it does not.
    _ingest(store, old, new, held_out)
    ask_about(study, DataSet("Debian", store, snapshots_of(store)), PART)


def sources(study: Study) -> tuple[Path, Path]:
    """The files of both releases."""
    given = study.option("debian")
    if isinstance(given, list):
        return given[0], given[1]
    if not study.quick:
        raise SystemExit(f"debian: {HOW}")
    folder = study.work / "packages"
    return write_packages(folder / "old", range(150)), write_packages(folder / "new", range(10, 160))


def write_packages(folder: Path, numbers: range) -> Path:
    """A small `Packages` file: every package has a section, a maintainer, and depends on earlier ones."""
    folder.mkdir(parents=True, exist_ok=True)
    stanzas = [
        f"Package: p{number}\nVersion: 1\nArchitecture: all\nSection: s{number % 7}\nPriority: optional\n"
        f"Maintainer: Team {number % 11} <t{number % 11}@example.org>\n"
        f"Depends: p{number // 2}, p{number // 3 + numbers.start}\nFilename: p{number}.deb\n"
        for number in numbers
    ]
    (folder / "Packages").write_text("\n".join(stanzas))
    return folder / "Packages"


def _ingest(store: Path, old: Path, new: Path, held_out: int) -> Result:
    known = snapshots_of(store) if store.exists() else ()
    reports = {}
    for name, source, count in (("old", old, held_out), ("new", new, None)):
        if name not in known:
            # A release drops more than a night does, which an ingest would take for a truncated file.
            options = {"valid": count, "test": count, "force": name == "new"}
            reports[name] = dict(api.ingest(store, source, format="debian", name=name, **options))
    return {"reports": reports}
