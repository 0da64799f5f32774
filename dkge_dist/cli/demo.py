"""`dkge demo`: synthesise an evolving graph, ingest it night by night, and tell what changed and who is affected."""

from __future__ import annotations

import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dkge_dist import api
from dkge_dist.cli.output import table


def run_demo(folder: Path | None = None, quiet: bool = False) -> dict[str, Any]:
    """Play the demo in `folder`, or in a temporary one that is gone afterwards; the figures as a report."""
    began = time.monotonic()
    place = nullcontext(str(folder)) if folder is not None else tempfile.TemporaryDirectory(prefix="dkge-demo-")

    def say(text: str) -> None:
        if not quiet:
            print(text)

    with place as path:
        movies, store = Path(path) / "movies", Path(path) / "store"
        made = api.synth(movies, "demo")
        say(f"An evolving movie graph: {made['entities']:,} entities, {made['triples']:,} triples.")
        first = api.ingest(store, movies / "snapshot-000.tsv", valid=200, test=200)
        say(f"Ingested: {first['train']:,} train triples, {first['valid']} + {first['test']} held out.\n")
        nights = []
        for night in sorted(movies.glob("night-*.changes")):
            before = api.log(store)["versions"][-1]["name"]
            name = api.ingest(store, night)["name"]
            nights.append(api.diff(store, before, name, affected=True))
        columns = ["to", "added", "deleted", "emerging_entities", "removed_entities", "affected_entities"]
        columns += ["affected_relations", "affected_seconds"]
        if not quiet:
            table([c.replace("_", " ") for c in columns], [[night[c] for c in columns] for night in nights])
        checked = api.check(store)
        state = "sound" if checked["ok"] else "DAMAGED"
        say(f"\nThe store is {state}: {checked['bytes']:,} bytes in {checked['parts']} parts.")
        return {"base": first, "nights": nights, "check": checked, "seconds": round(time.monotonic() - began, 3)}
