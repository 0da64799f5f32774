"""Requests to answers: what is asked of a store, by one whole version each. Knows nothing of HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from dkge_dist.ask.answer import AnswerOptions, answer
from dkge_dist.ask.batches import ANY, Line
from dkge_dist.ask.model import Kind, find_alive
from dkge_dist.ask.results import Answers, Batch, Failure, Neighbours, Result, ScoredTriple
from dkge_dist.ask.score import ScoreOptions, score
from dkge_dist.ask.scores import score_triples
from dkge_dist.ask.session import Session
from dkge_dist.ask.similar import entities_of, similar
from dkge_dist.evidence.questions import Questions
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.labels import Labels
from dkge_dist.jobs.maintenance import describe_version
from dkge_dist.store.storage import StoreError
from dkge_dist.surfaces.http import schemas
from dkge_dist.surfaces.http.versions import ServedVersion, Versions
from dkge_dist.types import Array, DkgeError, Triples, UsageError

KINDS: dict[schemas.SearchKind, Kind] = {"entity": "entities", "relation": "relations"}


WHY_COSTS = 100
"""Answers that cost as much as one with its reasons."""


class NotFoundError(DkgeError):
    """There is no such version, entity or relation."""


@dataclass(frozen=True)
class Limits:
    """What a request may ask for: answers a question, questions a batch, facts or triples or versions a page.

    `work` bounds answers times questions, of which those with reasons count a hundredfold: they decide what a batch
    costs.
    """

    k: int = 1000
    batch: int = 256
    page: int = 1000
    work: int = 50_000

    def check(self, k: int = 1, batch: int = 1, page: int = 1, known: int = 0, why: bool = False) -> None:
        """UsageError if a request asks for more. `known` facts are answers too."""
        for name, asked, limit in (("k", k, self.k), ("batch", batch, self.batch), ("limit", page, self.page)):
            if asked > limit:
                raise UsageError(f"{name}: {asked:,} is more than the {limit:,} that this server allows")
        if (work := (k + known) * batch * (WHY_COSTS if why else 1)) > self.work:
            more = " a hundredfold with why," if why else ""
            raise UsageError(f"answers times questions,{more} are {work:,}: this server allows {self.work:,}")


def chosen_version(version: str | None, as_of: str | None) -> str | None:
    """The version that is asked; both words mean the same."""
    if version is not None and as_of is not None:
        raise UsageError("give version or as_of, not both")
    return version if version is not None else as_of


class Service:
    """All that can be asked of a store. Many threads may ask at once."""

    def __init__(self, versions: Versions, limits: Limits) -> None:
        self.versions, self.limits = versions, limits

    @contextmanager
    def _at(self, name: str | None) -> Iterator[ServedVersion]:
        """The version of that name, leased."""
        try:
            lease = self.versions.lease(name)
            served = lease.__enter__()
        except StoreError as error:
            if name is None:
                raise
            raise NotFoundError(str(error)) from None
        try:
            yield served
        finally:
            lease.__exit__(None, None, None)

    def _check(self, asked: schemas.AnswerRequest) -> None:
        known = 0 if asked.new_only else asked.known
        self.limits.check(asked.k, len(asked.batch), max(known, 1), known, asked.why)

    def answer(self, asked: schemas.AnswerRequest) -> schemas.AnswerBatch:
        """The best answers to each question."""
        self._check(asked)
        lines = _lines(asked.batch)
        with self._at(chosen_version(asked.version, asked.as_of)) as served:
            found = _answers(served.session, lines, asked)
            chances = _Chances(served.session, asked.evidence) if asked.probability else None
            results = [_failed(one) or _answered(one, chances) for one in found]
            return schemas.AnswerBatch(**_origin(found), results=results, failed=len(found.failures))

    def answer_one(self, asked: schemas.AnswerRequest) -> schemas.AnswerResponse:
        """The best answers to one question; that there is no such label is an error."""
        self._check(asked)
        one = asked.batch[0]
        if [part in (None, ANY) for part in (one.head, one.relation, one.tail)].count(True) != 1:
            raise UsageError("give two of head, relation and tail; what is asked for is left out, or `?`")
        lines = _lines(asked.batch)
        with self._at(chosen_version(asked.version, asked.as_of)) as served:
            found = _answers(served.session, lines, asked)
            chances = _Chances(served.session, asked.evidence) if asked.probability else None
            result = _answered(_only(found), chances)
            return schemas.AnswerResponse(**_origin(found), **dict(result))

    def score(self, asked: schemas.ScoreRequest) -> schemas.ScoreBatch:
        """How plausible each triple is."""
        self.limits.check(batch=len(asked.batch))
        with self._at(chosen_version(asked.version, asked.as_of)) as served:
            found = score(served.session, _lines(asked.batch), ScoreOptions(asked.evidence, asked.ranks))
            results = [_failed(one) or _scored(one) for one in found]
            more = {"candidates": found.more["candidates"], "failed": len(found.failures)}
            return schemas.ScoreBatch(**_origin(found), results=results, **more)

    def score_one(self, asked: schemas.ScoreRequest) -> schemas.ScoreResponse:
        """How plausible a triple is."""
        one = asked.batch[0]
        if ANY in (one.head, one.relation, one.tail):
            raise UsageError(f"a whole triple is scored: /api/answer asks for what is `{ANY}`")
        lines = _lines(asked.batch)
        with self._at(chosen_version(asked.version, asked.as_of)) as served:
            found = score(served.session, lines, ScoreOptions(asked.evidence, asked.ranks))
            result = _scored(_only(found))
            return schemas.ScoreResponse(**_origin(found), **dict(result), candidates=found.more["candidates"])

    def similar(self, asked: schemas.SimilarRequest) -> schemas.SimilarBatch:
        """The nearest entities of each."""
        self.limits.check(k=asked.k, batch=len(asked.batch))
        with self._at(chosen_version(asked.version, asked.as_of)) as served:
            found = similar(served.session, [Line(n, (label,)) for n, label in enumerate(asked.batch, 1)], asked.k)
            results = [_failed(one) or _similar(one) for one in found]
            return schemas.SimilarBatch(**_origin(found), results=results, failed=len(found.failures))

    def similar_one(self, asked: schemas.SimilarRequest) -> schemas.SimilarResponse:
        """The nearest entities of one."""
        self.limits.check(k=asked.k)
        with self._at(chosen_version(asked.version, asked.as_of)) as served:
            found = similar(served.session, entities_of(asked.batch[0], None), asked.k)
            return schemas.SimilarResponse(**_origin(found), **dict(_similar(_only(found))))

    def vector(self, label: str, kind: schemas.SearchKind, version: str | None) -> schemas.VectorResponse:
        """The joint vector of an entity or a relation."""
        with self._at(version) as served:
            row, names = _row(served, kind, label)
            embedding = served.session.embedding
            vectors = embedding.vectors(np.array([row])) if kind == "entity" else embedding.relations[row : row + 1]
            named = names.named(row)
            return schemas.VectorResponse(
                **_of(served), label=named.label, name=named.name, kind=kind, vector=vectors[0].tolist()
            )

    def search(self, text: str, kind: schemas.SearchKind, limit: int, version: str | None) -> schemas.SearchResults:
        """What has a label or display name that begins with a text."""
        self.limits.check(page=limit)
        with self._at(version) as served:
            completion = served.completion(KINDS[kind])
            named = [completion.names.named(row) for row in completion.search(text, limit)]
            hits = [schemas.SearchHit(label=one.label, name=one.name) for one in named]
            return schemas.SearchResults(**_of(served), results=hits)

    def entity(self, label: str, limit: int, offset: int, version: str | None) -> schemas.EntityFacts:
        """An entity and its facts."""
        self.limits.check(page=limit)
        with self._at(version) as served:
            row, names = _row(served, "entity", label)
            facts = served.session.facts(row)
            named, shown = names.named(row), facts.take(slice(offset, offset + limit))
            return schemas.EntityFacts(
                **_of(served),
                label=named.label,
                name=named.name,
                facts=_facts(shown, served.session.opened.names),
                total=facts.count,
            )

    def versions_list(self, limit: int) -> schemas.VersionList:
        """The newest versions."""
        self.limits.check(page=limit)
        store = self.versions.store
        head = store.head()
        last = head.version if head is not None else 0
        shown = []
        for number in range(max(1, last - limit + 1), last + 1):
            told = describe_version(store, store.manifest(number))
            shown.append(told.with_(snapshot=told.name, date=told.created, parent=told.parent))
        return schemas.VersionList(
            versions=shown, total=last, current=self.versions.current.number, aliases=store.aliases()
        )

    def diff(self, old: str, new: str, limit: int, about: Sequence[str] = ()) -> schemas.DiffResponse:
        """What changed between two snapshots; if entities are named, the triples of these alone."""
        self.limits.check(page=limit)
        store = self.versions.store
        try:
            ends = [store.find_snapshot(name) for name in (old, new)]
            change = store.diff(*ends)
        except StoreError as error:
            raise NotFoundError(str(error)) from None
        # Rows are permanent: the newer end has the labels of both. Where the server has it open, nothing is read.
        newest = max(ends, key=lambda manifest: manifest.version)
        with self.versions.lease() as served:
            opened = served.session.opened
            is_open = opened.model.model.snapshot >= newest.version
            names = opened.names if is_open else store.dictionaries(newest)
            added, deleted = (_touching(side, names[0], about) for side in (change.added, change.deleted))
            told = {
                **_of(served),
                "from": ends[0].snapshot.name,
                "to": ends[1].snapshot.name,
                "added": _facts(added.take(slice(limit)), names),
                "deleted": _facts(deleted.take(slice(limit)), names),
                "added_total": added.count,
                "deleted_total": deleted.count,
                "counts": change.counts(),
            }
            return schemas.DiffResponse(**told)

    def fidelity(self, version: str | None) -> schemas.FidelityResponse:
        """What a version learnt of its night, as its update measured it."""
        with self._at(version) as served:
            found = served.session.opened.model.model.record.fidelity
            if found is None:
                raise NotFoundError(f"version {served.number} was not learnt online: there was no night to measure")
            return schemas.FidelityResponse(**{**found, **_of(served)})


def _of(served: ServedVersion) -> dict[str, Any]:
    return {"version": served.number, "snapshot": served.snapshot}


def _origin(found: Batch) -> dict[str, Any]:
    told = found.origin
    return {key: value for key, value in told.to_dict().items() if value is not None}


def _lines(batch: Sequence[schemas.TripleQuestion]) -> list[Line]:
    return [Line(number, (one.head, one.relation, one.tail)) for number, one in enumerate(batch, 1)]


def _only(found: Batch) -> Result:
    (result,) = found
    if isinstance(result, Failure):
        raise NotFoundError(result.error)
    return result


def _failed(result: Result) -> schemas.Failed | None:
    return schemas.Failed(line=result.line, error=result.error) if isinstance(result, Failure) else None


def _answers(session: Session, lines: Sequence[Line], asked: schemas.AnswerRequest) -> Batch:
    if asked.why and not (asked.evidence and session.opened.model.model.evidence is not None):
        raise UsageError("why tells evidence: this model was learnt without, or evidence=false was given")
    return answer(session, lines, AnswerOptions(asked.k, asked.new_only, asked.why, asked.evidence, asked.known))


class _Chances:
    """Probabilities of the triples that answers make: by the scores of whole triples, which they are calibrated on."""

    def __init__(self, session: Session, evidence: bool) -> None:
        self._session = session
        self._with_evidence = evidence and session.opened.model.model.evidence is not None
        self._calibration = session.calibration(self._with_evidence)

    def of(self, triples: Sequence[tuple[str, str, str]]) -> list[float | None]:
        if self._calibration is None or not triples:
            return [None] * len(triples)
        kinds: tuple[Kind, Kind, Kind] = ("entities", "relations", "entities")
        labels = [list(column) for column in zip(*triples, strict=True)]
        opened = self._session.opened
        rows = Triples(*(find_alive(opened, kind, some).rows for kind, some in zip(kinds, labels, strict=True)))
        evidence = self._session.evidence(Questions.both_sides(rows)[0]) if self._with_evidence else None
        scores = score_triples(self._session.embedding, rows, evidence)
        return [round(float(chance), 6) for chance in self._calibration.probability(rows.relation, scores)]


def _answered(result: Result, chances: _Chances | None) -> schemas.AnswerResult:
    assert isinstance(result, Answers)
    triples = [(row["head"], row["relation"], row["tail"]) for row in result.rows()]
    probabilities = chances.of(triples) if chances is not None else [None] * len(triples)
    items = [
        schemas.AnswerItem(
            label=one.entity if one.entity is not None else str(one.relation),
            name=one.name,
            score=one.score,
            known=one.known,
            rank=rank,
            probability=probability,
            why=None if one.why is None else [schemas.Reason(**reason) for reason in one.why],
            deleted=one.deleted or None,
            deleted_in=one.deleted_in,
        )
        for rank, (one, probability) in enumerate(zip(result, probabilities, strict=True), 1)
    ]
    given: dict[str, Any] = dict(result.given)
    return schemas.AnswerResult(question=schemas.Question(**given), answers=items, known_total=result.known)


def _scored(result: Result) -> schemas.ScoreResult:
    assert isinstance(result, ScoredTriple)
    return schemas.ScoreResult(**result.to_dict())


def _similar(result: Result) -> schemas.SimilarResult:
    assert isinstance(result, Neighbours)
    near = [schemas.SimilarItem(label=one.entity, name=one.name, score=one.score) for one in result]
    return schemas.SimilarResult(label=result.entity, name=result.name, similar=near)


def _row(served: ServedVersion, kind: schemas.SearchKind, label: str) -> tuple[int, Dictionary]:
    """The row of a label or display name."""
    opened = served.session.opened
    found = find_alive(opened, KINDS[kind], [label])
    for problem in found.problems.values():
        raise NotFoundError(problem)
    return int(found.rows[0]), opened.of_kind(KINDS[kind])[0]


def _touching(triples: Triples, names: Dictionary, labels: Sequence[str]) -> Triples:
    """The triples with an end among some labels; all of them if there are none."""
    if not labels:
        return triples
    rows = names.lookup(Labels.from_strings(label.encode("utf-8", "replace").decode() for label in labels))
    # Entities of later nights have no row there: no triple is theirs (-1 is no end of any).
    return triples.take(np.isin(triples.head, rows) | np.isin(triples.tail, rows))


def _facts(triples: Triples, names: tuple[Dictionary, Dictionary]) -> list[schemas.Fact]:
    entities, relations = names
    columns: list[Array] = [triples.head, triples.relation, triples.tail]
    told = []
    for head, relation, tail in zip(*(column.tolist() for column in columns), strict=True):
        ends = (entities.named(head), relations.named(relation), entities.named(tail))
        told.append(
            schemas.Fact(
                head=ends[0].label,
                relation=ends[1].label,
                tail=ends[2].label,
                head_name=ends[0].name,
                relation_name=ends[1].name,
                tail_name=ends[2].name,
            )
        )
    return told
