"""Requests to a model: metrics, answers, scores, its evidence, its vectors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from dkge_dist.surfaces.requests.fields import (
    OfModel,
    OnShards,
    OnStore,
    Option,
    PythonOnly,
    Quietly,
    Request,
    VersionName,
    WithEvidence,
    argument,
    as_path,
    version_name,
)
from dkge_dist.types import DkgeError, Field, PathLike, Report, UsageError, seconds_since

if TYPE_CHECKING:
    from dkge_dist.ask.model import Model
    from dkge_dist.ask.results import Batch, Evaluation
    from dkge_dist.records import FidelityRecord

Triplets = PathLike | Iterable[Sequence[Any]]
"""A file of triples, or a list of them."""


@dataclass(frozen=True, kw_only=True)
class Evaluate(OnShards, OfModel, OnStore, Request["Evaluation"]):
    """Link prediction: how high do the true entities of held-out (or given) triples rank?

    The metrics at the top are those of `protocol`, with the evidence of the graph unless `evidence` is False; `paper`,
    `filtered` and `vectors` (without evidence) hold the rest. `without_train` leaves out triples that stand in train
    too.
    """

    split: Annotated[Literal["valid", "test"], Option("Held-out triples to rank.")] = "test"
    triples: Annotated[
        PathLike | None, Option("Rank the triples of a file instead: head<TAB>relation<TAB>tail lines.")
    ] = None
    protocol: Annotated[
        Literal["paper", "filtered"], Option("paper: train triples do not compete; filtered: no known one.")
    ] = "filtered"
    evidence: WithEvidence = True
    ranks: Annotated[bool, Option("Also the ranks of every triple.")] = False
    relations: Annotated[bool, Option("Also a table by relation.")] = False
    categories: Annotated[bool, Option("Also by 1-1, 1-N, N-1, N-N.")] = False
    threads: Annotated[int, Option("Threads; 0 means all cores.", at_least=0)] = 0
    progress: Quietly = None

    def run(self) -> Evaluation:
        """Rank them."""
        from dkge_dist.ask.model import open_model_on
        from dkge_dist.measure import link_prediction as job
        from dkge_dist.surfaces.progress import shown

        began, runtime = time.monotonic(), self.runtime()
        tables = tuple(name for name in ("relations", "categories") if getattr(self, name))
        triples = as_path(self.triples)
        options = job.EvaluateOptions(self.split, triples, self.protocol, self.evidence, tables, self.ranks)
        with (
            open_model_on(runtime, self.open_store(), self.version_name) as model,
            shown(self.progress, "evaluate") as callback,
        ):
            report = job.evaluate(model, options, self.threads, callback)
        report["seconds"] = seconds_since(began)
        return report


@dataclass(frozen=True, kw_only=True)
class Fidelity(OnShards, OfModel, OnStore, Request["FidelityRecord"]):
    """What a night learnt: are its added triples believed, its deleted ones not, and the rest as before?"""

    since: Annotated[
        VersionName,
        Option("The snapshot (or date) that the night began with; by default the last.", ("--from",), "V"),
    ] = None
    evidence: WithEvidence = True

    def run(self) -> FidelityRecord:
        """Rank all of its triples, exactly."""
        from dkge_dist.measure import fidelity as job

        options = job.FidelityOptions(version_name(self.since), self.evidence)
        return job.fidelity(self.open_store(), self.runtime(), self.version_name, options)


@dataclass(frozen=True)
class Questions(OnShards, OfModel, OnStore):
    """One question, or a batch of them."""

    def ask(self, ask: Callable[[Model], Batch], is_single: bool) -> Report:
        """Open the store for these alone. A single question that cannot be answered is an error."""
        from dkge_dist.ask.model import open_model_on
        from dkge_dist.ask.results import Failure

        began, runtime = time.monotonic(), self.runtime()
        with open_model_on(runtime, self.open_store(), self.version_name) as model:
            found = ask(model)
        if is_single and isinstance(found[0], Failure):
            raise DkgeError(found[0].error)
        return {**(found.one() if is_single else found.to_dict()), "seconds": seconds_since(began)}


@dataclass(frozen=True)
class Answer(Questions, Request[Report]):
    """The best answers to (HEAD, RELATION, ?): known facts first, then predictions; higher scores are better. Also
    (?, RELATION, TAIL) for heads, and (HEAD, ?, TAIL) for relations.

    What is asked is left out, None or `?`. `dkge_dist.open` answers many questions faster.
    """

    positional: ClassVar = argument("HEAD RELATION [TAIL]", "`?` for what is asked; with --tail only RELATION.")

    head: Annotated[str | None, PythonOnly("The head.")] = None
    relation: Annotated[str | None, PythonOnly("The relation.")] = None
    _: KW_ONLY
    tail: Annotated[str | None, Option("Ask for the head of this tail.")] = None
    top: Annotated[int, Option("How many predictions.", at_least=1)] = 10
    new_only: Annotated[bool, Option("Leave out what the graph says already.")] = False
    why: Annotated[bool, Option("Tell the evidence of each answer.")] = False
    evidence: WithEvidence = True
    batch: Annotated[
        Triplets | None,
        Option("File of questions: head<TAB>relation<TAB>tail, `?` for what is asked.", words=Path | None),
    ] = None

    @staticmethod
    def from_words(words: list[str], fields: dict[str, Any]) -> dict[str, Any]:
        """HEAD RELATION, RELATION with --tail, or all three with a `?`."""
        tail = fields.get("tail")
        if "batch" in fields:
            is_question = not words and tail is None
        else:
            is_question = len(words) == 1 if tail is not None else len(words) == 2 or (len(words) == 3 and "?" in words)
        if not is_question:
            scored = "; `dkge score` tells how plausible a triple is" if len(words) == 3 else ""
            raise UsageError(f"ask with HEAD RELATION, RELATION --tail T, HEAD '?' TAIL, or --batch FILE{scored}")
        asked = [None, *words, tail] if tail is not None else [*words, None, None, None][:3]
        return fields | dict(zip(("head", "relation", "tail"), asked, strict=True))

    def run(self) -> Report:
        """Ask."""
        from dkge_dist.ask import answers as job

        lines = job.questions_of(self.head, self.relation, self.tail, self.batch)
        options = job.AnswerOptions(self.top, self.new_only, self.why, self.evidence)
        return self.ask(lambda model: job.answer(model, lines, options), self.batch is None)


@dataclass(frozen=True)
class Score(Questions, Request[Report]):
    """How plausible triples are: score, ranks among all alternatives, and a calibrated probability.

    `score` is higher for better triples; `tail_rank` and `head_rank` say how many alternatives score higher, known
    triples left out; `probability` is that of being true rather than a true triple with another end of the same
    relation, as calibrated on validation triples, and one half at `threshold`.
    """

    positional: ClassVar = argument("HEAD RELATION TAIL", "A triple.")

    head: Annotated[str | None, PythonOnly("The head.")] = None
    relation: Annotated[str | None, PythonOnly("The relation.")] = None
    tail: Annotated[str | None, PythonOnly("The tail.")] = None
    _: KW_ONLY
    ranks: Annotated[
        bool,
        Option(
            "Ranks of both ends, for which all entities are compared.",
            off=("--no-ranks", "Save a pass over all entities."),
        ),
    ] = True
    evidence: WithEvidence = True
    batch: Annotated[
        Triplets | None, Option("File of triples: head<TAB>relation<TAB>tail lines.", words=Path | None)
    ] = None

    @staticmethod
    def from_words(words: list[str], fields: dict[str, Any]) -> dict[str, Any]:
        """A triple, unless there is a batch."""
        if len(words) != (0 if "batch" in fields else 3):
            raise UsageError("name HEAD RELATION TAIL, or --batch FILE")
        return fields | dict(zip(("head", "relation", "tail"), words, strict=False))

    def run(self) -> Report:
        """Score them."""
        from dkge_dist.ask import scores as job

        lines = job.triples_of(self.head, self.relation, self.tail, self.batch)
        options = job.ScoreOptions(self.evidence, self.ranks)
        return self.ask(lambda model: job.score(model, lines, options), self.batch is None)


@dataclass(frozen=True)
class Similar(Questions, Request[Report]):
    """The entities whose vectors are nearest to that of ENTITY; higher scores are nearer.

    Exact; the score is minus the distance.
    """

    entity: Annotated[str | None, argument("ENTITY")] = None
    _: KW_ONLY
    top: Annotated[int, Option("How many entities.", at_least=1)] = 10
    batch: Annotated[PathLike | Iterable[str] | None, Option("File of entities, one a line.", words=Path | None)] = None

    def run(self) -> Report:
        """Look for them."""
        from dkge_dist.ask import similar as job

        lines = job.entities_of(self.entity, self.batch)
        return self.ask(lambda model: job.similar(model, lines, self.top), self.batch is None)


@dataclass(frozen=True, kw_only=True)
class EvidenceTable(OfModel, OnStore, Request[Report]):
    """What the graph says for answers: what supports each relation, and how strongly each kind of evidence counts.

    `links` are the `top` relations that join the same pairs, `paths` the two-step paths that do; `weights` are those of
    every feature by side. Read from what the version keeps, without the graph.
    """

    relation: Annotated[str | None, Option("Only this relation.")] = None
    top: Annotated[int, Option("How many relations and paths that support one.", at_least=1)] = 5

    def run(self) -> Report:
        """Read it."""
        from dkge_dist.ask import evidence_table as job

        if self.top < 1:
            raise UsageError(f"--top {self.top}: at least one of each kind")
        return job.evidence_table(self.open_store(), self.version_name, self.relation, self.top)


@dataclass(frozen=True)
class Export(OfModel, OnStore, Request[Report]):
    """Write the vectors of a model, with their labels, for other programs.

    With `since` only what changed from that model to this one: vectors to upsert, and labels and rows to delete.
    """

    out: Annotated[PathLike, argument("OUT", "New folder to write to.")]
    _: KW_ONLY
    format: Annotated[Literal["parquet", "npy", "safetensors", "zarr"], Option("Kind of files.")] = "parquet"
    since: Annotated[
        VersionName,
        Option("Only what changed since the model of this version: to upsert, to delete.", metavar="V"),
    ] = None
    what: Annotated[Literal["joint", "knowledge", "context"], Option("Which vectors.")] = "joint"

    def run(self) -> Report:
        """Write them."""
        from dkge_dist.jobs import export as job

        store, out, what = self.open_store(), Path(self.out), Field(self.what)
        if self.since is not None:
            return job.export_changes(store, out, self.format, self.version_name, str(self.since), what)
        return job.export(store, out, self.format, self.version_name, what)
