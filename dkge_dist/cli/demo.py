"""`dkge demo`: synthesise an evolving graph, learn it, ask it, learn night after night online, ask again.

One question is about a fact that changed: its answers before and after its night.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
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
SHOWN = 3
"""Predictions that are shown to a question."""


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
        # The graph of the demo is always the same, and its nights replace some answers.
        replaced = next(self._replaced(nights))
        again = [self._ask(question["head"], question["relation"]) for question in asked]
        if not self.quiet:
            self._show_nights(nights)
            self._show_replaced(replaced)
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
            "replaced": replaced,
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
        return {"head": head, "relation": relation, **api.answer(self.store, head, relation, top=SHOWN)}

    def _replaced(self, nights: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Questions with one answer before a night and another one after it, asked of the models before and after."""
        for update in (night["update"] for night in nights):
            diff = api.diff(self.store, update["from"], update["snapshot"], examples=sys.maxsize)
            for head, relation, old, new in swapped_answers(diff["deleted_examples"], diff["added_examples"]):
                before, after = (self._places(head, relation, update[model]) for model in ("parent", "version"))
                known = [[found["entity"] for found in asked if found["known"]] for asked in (before, after)]
                if known == [[old], [new]]:
                    yield {
                        "snapshot": update["snapshot"],
                        "head": head,
                        "relation": relation,
                        "old": old,
                        "new": new,
                        "before": {"version": update["parent"], "answers": first_and(before, (old, new))},
                        "after": {"version": update["version"], "answers": first_and(after, (old, new))},
                    }

    def _places(self, head: str, relation: str, version: int) -> list[dict[str, Any]]:
        """All entities by score alone: `dkge answer` has known facts first, which would be no news of the model."""
        found = api.answer(self.store, head, relation, top=sys.maxsize, version=str(version))["answers"]
        ranked = sorted(found, key=lambda answer: -answer["score"])
        return [{"place": place, **answer} for place, answer in enumerate(ranked, 1)]

    def _show_answers(self, title: str, questions: list[dict[str, Any]]) -> None:
        self._say(title)
        for question in questions:
            render_answers(question)

    def _show_nights(self, nights: list[dict[str, Any]]) -> None:
        names = [column.replace("_", " ") for column in NIGHT_COLUMNS]
        print_table(names, [[night["update"][column] for column in NIGHT_COLUMNS] for night in nights])
        for night in nights:
            if "train" in night:
                self._say(f"{night['update']['snapshot']} was then learnt from scratch: {night['decision']}")
        self._say("")
        render_evaluation(nights[-1]["evaluate"]["test"])

    def _show_replaced(self, replaced: dict[str, Any]) -> None:
        night, old, new = (replaced[key] for key in ("snapshot", "old", "new"))
        self._say(f"\nAn answer that {night} replaced, asked before and after it; by score alone:")
        self._say(f"{replaced['head']}\t{replaced['relation']}\t?")
        self._show_places("before", replaced["before"], replaced)
        self._say(f"  {night}\n     - {old}\n     + {new}")
        self._show_places("after", replaced["after"], replaced)

    def _show_places(self, when: str, asked: dict[str, Any], replaced: dict[str, Any]) -> None:
        self._say(f"  {when} (version {asked['version']})")
        notes = {replaced["old"]: "  old answer", replaced["new"]: "  new answer"}
        for found in asked["answers"]:
            entity = found["entity"]
            self._say(f"{found['place']:6}  {entity}  {found['score']:.3f}{notes.get(entity, '')}")

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


def swapped_answers(deleted: Sequence[Sequence[str]], added: Sequence[Sequence[str]]) -> list[tuple[str, ...]]:
    """(head, relation, old tail, new tail) of the questions that lost one answer and got one."""
    tails: dict[tuple[str, str], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, triples in enumerate((deleted, added)):
        for head, relation, tail in triples:
            tails[head, relation][side].append(tail)
    found = [(*asked, old[0], new[0]) for asked, (old, new) in tails.items() if len(old) == len(new) == 1]
    # Everybody knows what a director is.
    return sorted(found, key=lambda question: question[1] != "director")


def first_and(ranked: list[dict[str, Any]], entities: Sequence[str]) -> list[dict[str, Any]]:
    """The first answers, and those of `entities` wherever they are."""
    return [answer for answer in ranked if answer["place"] <= SHOWN or answer["entity"] in entities]
