"""Synthetic movie graphs for benchmarks, generated once and kept."""

from __future__ import annotations

import json
from pathlib import Path

from dkge_dist.surfaces import api


def movies(work: Path, preset: str, nights: int = 1, full: bool = False, entities: int | None = None) -> Path:
    """The folder of a generated graph, of another size if `entities` are given; made if it is not there yet."""
    size = f"-{entities}" if entities else ""
    folder = work / f"{preset}{size}-{nights}{'-full' if full else ''}"
    if not (folder / "done.json").exists():
        report = api.synth(folder, preset, nights=nights, full=full, entities=entities)
        (folder / "done.json").write_text(json.dumps(report))
    return folder


def store_of(work: Path, preset: str, nights: int = 1, entities: int | None = None, held_out: int = 0) -> Path:
    """A store holding the graph and its nights, with as many valid and test triples; made if it is not there yet."""
    folder = movies(work, preset, nights, entities=entities)
    store = work / f"{folder.name}{f'-{held_out}' if held_out else ''}-store"
    sources = [folder / "snapshot-000.tsv", *sorted(folder.glob("night-*.changes"))]
    present = len(api.log(store)["versions"]) if store.exists() else 0
    for number, source in enumerate(sources[present:], present):
        wanted = held_out if held_out and not number else None
        api.ingest(store, source, valid=wanted, test=wanted)
    return store
