"""`dkge demo`: synthesise an evolving graph, learn it, ask it, learn night after night online, ask again."""

from __future__ import annotations

import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dkge_dist import api
from dkge_dist.cli.output import progress_bar, table
from dkge_dist.cli.render import render_answers, render_evaluation


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
        say("Learning it from scratch ...")
        with progress_bar("train", quiet) as progress:
            trained = api.train(store, progress=progress)
        speed = f"{trained['triples_per_second']:,.0f} triples/s"
        say(f"{trained['epochs']} epochs in {trained['seconds']:.0f} s, {speed}.\n")
        predicted = api.evaluate(store)
        asked = [_ask(store, *question) for question in _questions(movies / "snapshot-000.tsv")]
        if not quiet:
            render_evaluation(predicted)
            say("\nA few questions:")
            for question in asked:
                render_answers(question)
            say("\nNow the nights, each learnt online:")
        nights = [api.nightly(store, night) for night in sorted(movies.glob("night-*.changes"))]
        again = [_ask(store, question["head"], question["relation"]) for question in asked]
        if not quiet:
            columns = ["snapshot", "added", "deleted", "emerging_entities", "removed_entities", "affected_entities"]
            columns += ["trained_triples", "epochs", "bytes_written", "seconds"]
            table([c.replace("_", " ") for c in columns], [[night["update"][c] for c in columns] for night in nights])
            say("")
            render_evaluation(nights[-1]["evaluate"]["test"])
            say("\nThe same questions after the last night:")
            for question in again:
                render_answers(question)
        checked = api.check(store)
        state = "sound" if checked["ok"] else "DAMAGED"
        say(f"\nThe store is {state}: {checked['bytes']:,} bytes in {checked['parts']} parts.")
        return {
            "base": first,
            "train": trained,
            "evaluate": predicted,
            "answers": asked,
            "nights": nights,
            "answers_after": again,
            "check": checked,
            "seconds": round(time.monotonic() - began, 3),
        }


def _ask(store: Path, head: str, relation: str) -> dict[str, Any]:
    return {"head": head, "relation": relation, **api.answer(store, head, relation, top=3)}


def _questions(source: Path) -> list[tuple[str, str]]:
    """Who directed the first title, wrote the second, acted in the third that the source names."""
    wanted = ("director", "writer", "actor")
    found: dict[str, str] = {}
    for line in source.read_text(encoding="utf-8").splitlines():
        head, relation, _ = line.split("\t")
        if relation in wanted and relation not in found and head not in found.values():
            found[relation] = head
    return [(head, relation) for relation, head in found.items()]
