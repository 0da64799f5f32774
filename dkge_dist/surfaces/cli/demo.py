"""`dkge demo`: make a movie graph, learn it, learn five nights online, and look at what they changed. Out: a report.

The questions are found in the nights themselves: a title that came, an answer that was replaced, a fact that was
predicted before it was known. All figures are of this run. `story` has the words.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from dkge_dist.graph.labels import Labels
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.surfaces.cli import story
from dkge_dist.surfaces.cli.output import progress_bar
from dkge_dist.types import UsageError

FOLDER = Path(".demo")
REPORT = "demo.json"
"""Also the mark of a folder that a demo may replace."""
PAGE = "nights.html"
SHOWN = 3
"""Answers that are shown to a question."""
FIRST_GUESSES = 10
ROLES = ("director", "writer", "actor", "actress", "composer", "cinematographer", "editor", "producer")
"""Those that everybody knows first."""

EVIDENCE = ("link", "company", "similar", "path")
"""Kinds of reasons that name others in the graph."""

Fact = tuple[str, str, str]


def run_demo(
    folder: Path | None = None, tell: bool = True, quiet: bool = False, settings: Sequence[str] = ()
) -> dict[str, Any]:
    """Run the demo in `folder`, which stays there; the figures as a report, also in its `demo.json`.

    `settings` are those of the training, for a shorter demo.
    """
    began = time.monotonic()
    chosen = _empty_folder(folder or FOLDER)
    report = _Demo(chosen, tell, quiet, settings).run()
    report["seconds"] = round(time.monotonic() - began, 3)
    (chosen / REPORT).write_text(json.dumps(report, indent=1, default=dict), encoding="utf-8")
    return report


def _empty_folder(folder: Path) -> Path:
    """A folder with nothing in it but the mark of a demo. What an earlier demo left there goes, and nothing else."""
    if folder.is_dir() and any(folder.iterdir()):
        if not (folder / REPORT).is_file():
            raise UsageError(f"{folder}: holds something that no demo made; name another with --folder")
        for name in ("movies", "store", "added"):
            shutil.rmtree(folder / name, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / REPORT).write_text("{}", encoding="utf-8")
    return folder


class _Demo:
    """One run; its steps in the order of `run`. `facts` is the graph as of the night that was last learnt."""

    def __init__(self, folder: Path, tell: bool, quiet: bool, settings: Sequence[str]) -> None:
        self.folder, self.movies, self.store = folder, folder / "movies", folder / "store"
        self.labels = self.movies / "names.tsv"
        self.tell, self.quiet, self.settings = tell, quiet, settings
        self.facts: set[Fact] = set()

    def run(self) -> dict[str, Any]:
        made = api.synth(self.movies, "demo")
        self.facts = set(_facts((self.movies / "snapshot-000.tsv").read_text(encoding="utf-8").splitlines()))
        base = api.ingest(self.store, self.movies / "snapshot-000.tsv", labels=self.labels, valid=200, test=200)
        example = min(fact for fact in self.facts if fact[1] == ROLES[0])
        self._say(story.begin(base, example, self._names(example)))
        with progress_bar("demo", self.quiet) as progress:
            trained = api.train(self.store, settings=self.settings, progress=progress)
        evaluated = api.evaluate(self.store)
        self._say(story.learnt(trained, evaluated))
        self._say(story.before_nights(made["nights"]))
        nights = [self._night(path) for path in sorted(self.movies.glob("night-*.changes"))]
        self._say(story.after_nights())
        report = {
            "folder": str(self.folder),
            "base": base,
            "train": trained,
            "evaluate": evaluated,
            "nights": [night["report"] for night in nights],
            "arrived": self._arrived(nights[-1]),
            "replaced": with_evidence(self._replaced(nights[::-1])),
            "predicted": self._predicted(nights),
            "cost": cost(trained, base, [night["report"] for night in nights]),
            "page": self._page(),
            "check": api.check(self.store),
        }
        report["names"] = self._names(mentioned(report))
        for tell in (story.arrived, story.replaced, story.predicted, story.cost, story.next_steps, story.page):
            self._say(tell(report))
        return report

    def _names(self, labels: Iterable[str]) -> dict[str, str]:
        """What the store shows people in the place of labels; a relation is called what it is."""
        store = Store.open(self.store)
        entities, _ = store.dictionaries(store.head())
        wanted = sorted(set(labels))
        rows = entities.lookup(Labels.from_strings(wanted)).tolist()
        return {label: entities.called(row) for label, row in zip(wanted, rows, strict=True) if row >= 0}

    def _page(self) -> str:
        """The nights as a page."""
        return str(api.report(self.store, self.folder / PAGE)["out"])

    def _night(self, path: Path) -> dict[str, Any]:
        """Learn a night; with the facts that it added, those of them that could be asked for before, and newcomers."""
        lines = path.read_text(encoding="utf-8").splitlines()
        added, deleted = (list(_facts(line[2:] for line in lines if line[0] == sign)) for sign in "+-")
        there = {label for head, _, tail in self.facts for label in (head, tail)}
        with progress_bar("demo", self.quiet) as progress:
            report = api.nightly(self.store, path, labels=self.labels, progress=progress)
        self._say(f"    {report['headline']}")
        self.facts = (self.facts - set(deleted)) | set(added)
        known = [fact for fact in added if fact[0] in there and fact[2] in there]
        return {"report": report, "added": added, "deleted": deleted, "there": there, "could_be_asked": known}

    def _arrived(self, night: dict[str, Any]) -> dict[str, Any]:
        """A title that the night brought: whether its first credit is believed, and a guess at one that nobody told."""
        update = night["report"]["update"]
        title, role, person = new_credits(night["added"], night["there"])[0]
        ranked = self._places(title, role, update["version"])
        open_role = next(other for other in ROLES if not any(f[:2] == (title, other) for f in self.facts))
        guesses = api.answer(self.store, title, open_role, top=SHOWN, new_only=True)["answers"]
        return {
            "snapshot": update["snapshot"],
            "title": title,
            "role": role,
            "person": person,
            "place": next(line["place"] for line in ranked if line["entity"] == person),
            "candidates": len(ranked),
            "open_role": open_role,
            "guesses": [line["entity"] for line in guesses],
        }

    def _replaced(self, nights: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Questions with one answer before a night and another one after it, asked of the models before and after.

        Those about directors first, of whatever night.
        """
        found = [(night, swap) for night in nights for swap in swapped_answers(night["deleted"], night["added"])]
        for night, (title, role, old, new) in sorted(found, key=lambda pair: _prominence(pair[1][1])):
            update = night["report"]["update"]
            before, after = (self._places(title, role, update[model]) for model in ("parent", "version"))
            known = [[line["entity"] for line in asked if line["known"]] for asked in (before, after)]
            if known == [[old], [new]]:
                yield {
                    "snapshot": update["snapshot"],
                    "title": title,
                    "role": role,
                    "old": old,
                    "new": new,
                    "before": {"version": update["parent"], "answers": first_and(before, (old, new))},
                    "after": {"version": update["version"], "answers": first_and(after, (old, new))},
                    "why": self._why(title, role, new, update["version"], 1),
                }

    def _predicted(self, nights: list[dict[str, Any]]) -> dict[str, Any]:
        """The facts that nights added, as the model of the evening before ranked their tails, known ones left out."""
        found, first, early, asked = [], 0, 0, 0
        for night in nights:
            update, facts = night["report"]["update"], night["could_be_asked"]
            if not facts:
                continue
            path = self.folder / "added" / f"{update['snapshot']}.tsv"
            path.parent.mkdir(exist_ok=True)
            path.write_text("".join("\t".join(fact) + "\n" for fact in facts), encoding="utf-8")
            ranked = api.evaluate(self.store, version=str(update["parent"]), triples=path, ranks=True)
            ranks = [line["tail_rank"] for line in ranked["ranks"]]
            asked, first = asked + len(ranks), first + sum(rank <= 1 for rank in ranks)
            early += sum(rank <= FIRST_GUESSES for rank in ranks)
            found += [(line, update, ranked["candidates"]) for line in ranked["ranks"]]
        best, update, candidates = min(found, key=lambda line: (line[0]["tail_rank"], _prominence(line[0]["relation"])))
        head, relation, tail = (best[key] for key in ("head", "relation", "tail"))
        return {
            "added": sum(len(night["added"]) for night in nights),
            "could_be_asked": asked,
            "first": first,
            "among_first_ten": early,
            "fact": [head, relation, tail],
            "place": best["tail_rank"],
            "candidates": candidates,
            "snapshot": update["snapshot"],
            "version": update["parent"],
            "why": self._why(head, relation, tail, update["parent"], int(best["tail_rank"])),
        }

    def _places(self, head: str, relation: str, version: int) -> list[dict[str, Any]]:
        """All entities by score alone: `dkge answer` has known facts first, which would be no news of the model."""
        found = api.answer(self.store, head, relation, top=sys.maxsize, version=str(version))["answers"]
        ranked = sorted(found, key=lambda answer: -answer["score"])
        return [{"place": place, **answer} for place, answer in enumerate(ranked, 1)]

    def _why(self, head: str, relation: str, tail: str, version: int, place: int) -> list[dict[str, Any]]:
        """The evidence for an answer that is known, or a prediction at a place."""
        found = api.answer(self.store, head, relation, top=place + 1, why=True, version=str(version))["answers"]
        return next((list(line["why"]) for line in found if line["entity"] == tail), [])

    def _say(self, text: str) -> None:
        if self.tell:
            print(text, flush=True)


def _facts(lines: Iterable[str]) -> Iterator[Fact]:
    for line in lines:
        head, relation, tail = line.split("\t")
        yield head, relation, tail


def _prominence(role: str) -> int:
    return ROLES.index(role) if role in ROLES else len(ROLES)


def new_credits(added: Iterable[Fact], there: set[str]) -> list[Fact]:
    """Credits of titles that were not there before, the most prominent role first."""
    found = [fact for fact in added if fact[0] not in there and fact[1] in ROLES]
    return sorted(found, key=lambda fact: (_prominence(fact[1]), fact))


def swapped_answers(deleted: Iterable[Fact], added: Iterable[Fact]) -> list[tuple[str, str, str, str]]:
    """(head, relation, old tail, new tail) of the questions that lost one answer and got one."""
    tails: dict[tuple[str, str], tuple[list[str], list[str]]] = defaultdict(lambda: ([], []))
    for side, triples in enumerate((deleted, added)):
        for head, relation, tail in triples:
            tails[head, relation][side].append(tail)
    return [(*asked, old[0], new[0]) for asked, (old, new) in tails.items() if len(old) == len(new) == 1]


def with_evidence(replaced: Iterator[dict[str, Any]]) -> dict[str, Any]:
    """The first whose new answer has more to say for it than its vector; if there is none, the first.

    The graph of the demo is always the same, and its nights replace some answers.
    """
    first = next(replaced)
    others = (found for found in (first, *replaced) if any(reason["kind"] in EVIDENCE for reason in found["why"]))
    return next(others, first)


def first_and(ranked: list[dict[str, Any]], entities: Sequence[str]) -> list[dict[str, Any]]:
    """The first answers, and those of `entities` wherever they are."""
    return [answer for answer in ranked if answer["place"] <= SHOWN or answer["entity"] in entities]


def mentioned(report: dict[str, Any]) -> set[str]:
    """The labels of all whom the story tells of."""
    arrived, replaced = report["arrived"], report["replaced"]
    answers = [line["entity"] for when in ("before", "after") for line in replaced[when]["answers"]]
    told = [arrived["title"], arrived["person"], *arrived["guesses"]]
    return {*told, replaced["title"], replaced["old"], replaced["new"], *answers, *report["predicted"]["fact"]}


def cost(trained: Mapping[str, Any], base: Mapping[str, Any], nights: list[dict[str, Any]]) -> dict[str, float]:
    """Seconds of learning alone, and in all with reading, measuring and writing.

    From scratch at the median speed of all epochs, because the first one may have had to compile; of nights the median.
    """
    updates = [night["update"] for night in nights]
    return {
        "scratch_learning": trained["epochs"] * base["train"] / trained["triples_per_second"],
        "scratch_in_all": trained["total_seconds"],
        "night_learning": median(update["learn_seconds"] for update in updates),
        "night_in_all": median(update["seconds"] for update in updates),
    }
