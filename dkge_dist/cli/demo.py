"""`dkge demo`: synthesise an evolving graph, learn it, ask it, learn night after night online, ask again."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from dkge_dist import api
from dkge_dist.cli.output import print_table, progress_bar
from dkge_dist.cli.render import render_answers, render_evaluation

NIGHT_COLUMNS = (
    "snapshot", "added", "deleted", "emerging_entities", "removed_entities", "affected_entities", "trained_triples",
    "epochs", "bytes_written", "seconds",
)  # fmt: skip


def run_demo(folder: Path | None = None, quiet: bool = False, settings: Sequence[str] = ()) -> dict[str, Any]:
    """Run the demo in `folder`, or in a temporary one that is removed afterwards; the figures as a report.

    `settings` are those of the training, for a shorter demo.
    """
    began = time.monotonic()
    chosen = nullcontext(str(folder)) if folder is not None else tempfile.TemporaryDirectory(prefix="dkge-demo-")
    with chosen as path:
        report = _Demo(Path(path), quiet, settings).run()
    return {**report, "seconds": round(time.monotonic() - began, 3)}


class _Demo:
    """One run of the demo; its steps in the order of `run`."""

    def __init__(self, folder: Path, quiet: bool, settings: Sequence[str]) -> None:
        self.movies = folder / "movies"
        self.store = folder / "store"
        self.quiet = quiet
        self.settings = settings

    def run(self) -> dict[str, Any]:
        base = self._ingest_base()
        trained = self._train()
        evaluated = api.evaluate(self.store)
        asked = [self._ask(*question) for question in first_questions(self.movies / "snapshot-000.tsv")]
        if not self.quiet:
            render_evaluation(evaluated)
            self._show_answers("\nA few questions:", asked)
        self._say("\nNow the nights, each learnt online:")
        nights = [api.nightly(self.store, night) for night in sorted(self.movies.glob("night-*.changes"))]
        again = [self._ask(question["head"], question["relation"]) for question in asked]
        if not self.quiet:
            self._show_nights(nights)
            self._show_answers("\nThe same questions after the last night:", again)
        checked = api.check(self.store)
        state = "sound" if checked["ok"] else "DAMAGED"
        self._say(f"\nThe store is {state}: {checked['bytes']:,} bytes in {checked['parts']} parts.")
        return {
            "base": base,
            "train": trained,
            "evaluate": evaluated,
            "answers": asked,
            "nights": nights,
            "answers_after": again,
            "check": checked,
        }

    def _ingest_base(self) -> dict[str, Any]:
        made = api.synth(self.movies, "demo")
        self._say(f"An evolving movie graph: {made['entities']:,} entities, {made['triples']:,} triples.")
        base = api.ingest(self.store, self.movies / "snapshot-000.tsv", valid=200, test=200)
        self._say(f"Ingested: {base['train']:,} train triples, {base['valid']} + {base['test']} held out.\n")
        return dict(base)

    def _train(self) -> dict[str, Any]:
        self._say("Learning it from scratch ...")
        with progress_bar("train", self.quiet) as progress:
            trained = api.train(self.store, settings=self.settings, progress=progress)
        speed = f"{trained['triples_per_second']:,.0f} triples/s"
        self._say(f"{trained['epochs']} epochs in {trained['seconds']:.0f} s, {speed}.\n")
        return dict(trained)

    def _ask(self, head: str, relation: str) -> dict[str, Any]:
        return {"head": head, "relation": relation, **api.answer(self.store, head, relation, top=3)}

    def _show_answers(self, title: str, questions: list[dict[str, Any]]) -> None:
        self._say(title)
        for question in questions:
            render_answers(question)

    def _show_nights(self, nights: list[dict[str, Any]]) -> None:
        names = [column.replace("_", " ") for column in NIGHT_COLUMNS]
        print_table(names, [[night["update"][column] for column in NIGHT_COLUMNS] for night in nights])
        self._say("")
        render_evaluation(nights[-1]["evaluate"]["test"])

    def _say(self, text: str) -> None:
        if not self.quiet:
            print(text)


def first_questions(source: Path) -> list[tuple[str, str]]:
    """(head, relation) for the first title with a director, another with a writer, and a third with an actor."""
    wanted = ("director", "writer", "actor")
    found: dict[str, str] = {}
    for line in source.read_text(encoding="utf-8").splitlines():
        head, relation, _ = line.split("\t")
        if relation in wanted and relation not in found and head not in found.values():
            found[relation] = head
    return [(head, relation) for relation, head in found.items()]
