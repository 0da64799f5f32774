"""A store that stays open for many questions: `dkge_dist.open(store)`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Literal, TypeVar

import numpy as np

from dkge_dist.ask.answer import AnswerOptions, answer, questions_of
from dkge_dist.ask.batches import Line, Triplets
from dkge_dist.ask.model import Kind
from dkge_dist.ask.results import Answers, Batch, Evaluation, Failure, Log, Neighbours, ScoredTriple, Vectors
from dkge_dist.ask.score import ScoreOptions, score, triples_of
from dkge_dist.ask.session import Session, newer_snapshot, open_session
from dkge_dist.ask.similar import entities_of, similar
from dkge_dist.jobs.evaluate import EvaluateOptions, evaluate
from dkge_dist.jobs.maintenance import log
from dkge_dist.jobs.night_report import NIGHTS, night_report
from dkge_dist.jobs.report import PathLike, Report
from dkge_dist.runtime import LocalRuntime
from dkge_dist.store.store import Store
from dkge_dist.store.tables import load_table
from dkge_dist.tables.index import ExactIndex
from dkge_dist.types import DkgeError, Field

T = TypeVar("T")


class OpenStore:
    """One model version with its labels, vectors and graph, kept open. Many threads may ask at once.

    Answers are those of that version until `refresh` follows a newer one. The first question makes what all others
    need: neighbour lists of the graph, in a time that follows its size.
    """

    def __init__(self, store: Store, version: str | None) -> None:
        self._store, self._version = store, version
        self._changing = Lock()
        self._contexts = ExitStack()
        opening = open_session(store, LocalRuntime(), version, keep=True)
        self._session: Session | None = self._contexts.enter_context(opening)

    def answer(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        *,
        batch: Triplets | None = None,
        top: int = 10,
        new_only: bool = False,
        why: bool = False,
        evidence: bool = True,
    ) -> Answers | Batch:
        """The best answers to (head, relation, ?), (?, relation, tail) or (head, ?, tail): known facts, predictions.

        What is asked is left out, None or `?`. `batch` is a file of questions or a list of tuples; it gives a `Batch`,
        in which a question that cannot be answered is a `Failure`.
        """
        lines = questions_of(head, relation, tail, batch)
        found = answer(self.session, lines, AnswerOptions(top, new_only, why, evidence))
        return found if batch is not None else _only(found, Answers)

    def score(
        self,
        head: str | None = None,
        relation: str | None = None,
        tail: str | None = None,
        *,
        batch: Triplets | None = None,
        ranks: bool = True,
        evidence: bool = True,
    ) -> ScoredTriple | Batch:
        """How plausible a triple is, or each of a `batch`. Ranks cost a pass over all entities."""
        found = score(self.session, triples_of(head, relation, tail, batch), ScoreOptions(evidence, ranks))
        return found if batch is not None else _only(found, ScoredTriple)

    def similar(
        self, entity: str | None = None, *, batch: PathLike | Iterable[str] | None = None, top: int = 10
    ) -> Neighbours | Batch:
        """The entities nearest to one, or to each of a `batch` (a list of labels, or a file with one a line)."""
        lines: list[Line] = entities_of(entity, batch)
        found = similar(self.session, lines, top)
        return found if batch is not None else _only(found, Neighbours)

    def vectors(self, kind: Kind = "entities", what: Literal["joint", "knowledge", "context"] = "joint") -> Vectors:
        """The labels of all entities (or relations) alive, and their vectors: a read-only array, a row each.

        Joint vectors of entities are not copied if all that the store ever had are alive.
        """
        opened, field = self.session.opened, Field(what)
        names, alive = opened.of_kind(kind)
        rows = np.flatnonzero(alive)
        table = self.session.embedding.entities
        if kind == "entities" and field is Field.JOINT and isinstance(table, ExactIndex):
            values = table.values
        else:
            tables = opened.model.model.entities if kind == "entities" else opened.model.model.relations
            values = load_table(self._store.storage, tables[field])
        # A slice is a view; chosen rows are a copy.
        values = values[: rows.shape[0]] if rows.shape[0] == alive.shape[0] else values[rows]
        values.flags.writeable = False
        return Vectors(names.labels(rows), values)

    def evaluate(
        self,
        split: Literal["valid", "test"] = "test",
        *,
        triples: PathLike | None = None,
        protocol: Literal["paper", "filtered"] = "filtered",
        evidence: bool = True,
        relations: bool = False,
        categories: bool = False,
        ranks: bool = False,
    ) -> Evaluation:
        """Link prediction on held-out triples, or on those of a file."""
        tables = tuple(name for name, wanted in (("relations", relations), ("categories", categories)) if wanted)
        path = Path(triples) if triples is not None else None
        return evaluate(self.session, EvaluateOptions(split, path, protocol, evidence, tables, ranks))

    def log(self) -> Log:
        """Every version of the store, those published since it was opened too."""
        return log(self._store)

    def report(self, nights: int = NIGHTS, answers: bool = True) -> Report:
        """The figures of the page about the newest nights: `dkge_dist.report` writes it."""
        return night_report(self._store, LocalRuntime(), nights, answers)

    def refresh(self) -> bool:
        """Follow the store to the model that is current now (or that of `version`). Was there another one?

        Questions under way are answered by the version that they were asked.
        """
        with self._changing:
            session = self.session
            if self._store.find_model(self._version).version == session.opened.model.version:
                # What was made for questions stays; only what is newer than the model may be something else.
                session.notice = newer_snapshot(session.opened, self._version)
                return False
            with ExitStack() as opening:
                self._session = opening.enter_context(
                    open_session(self._store, LocalRuntime(), self._version, keep=True)
                )
                contexts, self._contexts = self._contexts, opening.pop_all()
            contexts.close()
            return True

    @property
    def version(self) -> int:
        """The version that is asked."""
        return self.session.opened.model.version

    @property
    def snapshot(self) -> str:
        """The name of the snapshot that it was learnt from."""
        return self.session.opened.snapshot_name

    @property
    def notice(self) -> str | None:
        """A newer snapshot that is not learnt yet, as of when the store was opened or refreshed."""
        return self.session.notice

    @property
    def session(self) -> Session:
        """What is open now."""
        if self._session is None:
            raise DkgeError(f"{self._store}: is closed")
        return self._session

    def close(self) -> None:
        """Release what is open. No question can be asked afterwards."""
        with self._changing:
            self._session = None
            self._contexts.close()

    def __enter__(self) -> OpenStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._session is None:
            return f"<store {self._store}, closed>"
        opened = self._session.opened
        sizes = f"{opened.snapshot.alive_entities.shape[0]:,} entities, {opened.snapshot.alive_relations.shape[0]:,}"
        return f"<store {self._store}, version {self.version} of {self.snapshot!r}: {sizes} relations>"


def _only(found: Batch, kind: type[T]) -> T:
    """The result of a single question; that it failed is an error."""
    (result,) = found
    if isinstance(result, Failure):
        raise DkgeError(result.error)
    assert isinstance(result, kind)
    return result
