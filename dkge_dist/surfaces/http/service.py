"""Requests to answers: what is asked of a store, by one whole version each. Knows nothing of HTTP."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from dkge_dist.ask.answers import AnswerOptions, answer
from dkge_dist.ask.batches import ANY, Line, lines_in
from dkge_dist.ask.lookup import Kind, find_alive
from dkge_dist.ask.model import Model
from dkge_dist.ask.results import Answers, Batch, Failure, Neighbours, Result, ScoredTriple
from dkge_dist.ask.scores import ScoreOptions, score, score_triples
from dkge_dist.ask.similar import similar
from dkge_dist.graph.dictionary import Dictionary, Named
from dkge_dist.graph.labels import Labels
from dkge_dist.store.history import describe_version
from dkge_dist.store.storage import StoreError
from dkge_dist.surfaces.http import schemas
from dkge_dist.surfaces.http.versions import Served, Versions
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

    def _at(self, name: str | None) -> Served:
        """The version of that name."""
        try:
            return self.versions.at(name)
        except StoreError as error:
            if name is None:
                raise
            raise NotFoundError(str(error)) from None

    def answer(self, asked: schemas.AnswerRequest) -> schemas.AnswerBatch:
        """The best answers to each question."""
        found, shown = self._answer(asked)
        results = [_failed(one) or shown(one) for one in found]
        return schemas.AnswerBatch(**found.origin.to_dict(), results=results, failed=len(found.failures))

    def answer_one(self, asked: schemas.AnswerRequest) -> schemas.AnswerResponse:
        """The best answers to one question; that there is no such label is an error."""
        one = asked.batch[0]
        if [part in (None, ANY) for part in (one.head, one.relation, one.tail)].count(True) != 1:
            raise UsageError("give two of head, relation and tail; what is asked for is left out, or `?`")
        found, shown = self._answer(asked)
        return schemas.AnswerResponse(**found.origin.to_dict(), **dict(shown(_only(found))))

    def _answer(self, asked: schemas.AnswerRequest) -> tuple[Batch, Callable[[Result], schemas.AnswerResult]]:
        """The answers, and how each is shown."""
        known = 0 if asked.new_only else asked.known
        self.limits.check(asked.k, len(asked.batch), max(known, 1), known, asked.why)
        model = self._at(chosen_version(asked.version, asked.as_of)).model
        has_evidence = asked.evidence and model.entry.evidence is not None
        if asked.why and not has_evidence:
            raise UsageError("why tells evidence: this model was learnt without, or evidence=false was given")
        options = AnswerOptions(asked.k, asked.new_only, asked.why, asked.evidence, asked.known)
        chances = partial(_chances, model, has_evidence) if asked.probability else None
        return answer(model, _lines(asked.batch), options), partial(_answered, chances=chances)

    def score(self, asked: schemas.ScoreRequest) -> schemas.ScoreBatch:
        """How plausible each triple is."""
        found = self._score(asked)
        results = [_failed(one) or _scored(one) for one in found]
        more = {"candidates": found.more["candidates"], "failed": len(found.failures)}
        return schemas.ScoreBatch(**found.origin.to_dict(), results=results, **more)

    def score_one(self, asked: schemas.ScoreRequest) -> schemas.ScoreResponse:
        """How plausible a triple is."""
        one = asked.batch[0]
        if ANY in (one.head, one.relation, one.tail):
            raise UsageError(f"a whole triple is scored: /api/answer asks for what is `{ANY}`")
        found = self._score(asked)
        shown = dict(_scored(_only(found)))
        return schemas.ScoreResponse(**found.origin.to_dict(), **shown, candidates=found.more["candidates"])

    def _score(self, asked: schemas.ScoreRequest) -> Batch:
        self.limits.check(batch=len(asked.batch))
        model = self._at(chosen_version(asked.version, asked.as_of)).model
        return score(model, _lines(asked.batch), ScoreOptions(asked.evidence, asked.ranks))

    def similar(self, asked: schemas.SimilarRequest) -> schemas.SimilarBatch:
        """The nearest entities of each."""
        found = self._similar(asked)
        results = [_failed(one) or _neighbours(one) for one in found]
        return schemas.SimilarBatch(**found.origin.to_dict(), results=results, failed=len(found.failures))

    def similar_one(self, asked: schemas.SimilarRequest) -> schemas.SimilarResponse:
        """The nearest entities of one."""
        found = self._similar(asked)
        return schemas.SimilarResponse(**found.origin.to_dict(), **dict(_neighbours(_only(found))))

    def _similar(self, asked: schemas.SimilarRequest) -> Batch:
        self.limits.check(k=asked.k, batch=len(asked.batch))
        model = self._at(chosen_version(asked.version, asked.as_of)).model
        return similar(model, lines_in(asked.batch, "entity"), asked.k)

    def vector(self, label: str, kind: schemas.SearchKind, version: str | None) -> schemas.VectorResponse:
        """The joint vector of an entity or a relation."""
        model = self._at(version).model
        row, named = _found(model, kind, label)
        embedding = model.embedding
        vectors = embedding.vectors(np.array([row])) if kind == "entity" else embedding.relations[row : row + 1]
        told = {**_of(model), "label": named.label, "name": named.name}
        return schemas.VectorResponse(**told, kind=kind, vector=vectors[0].tolist())

    def search(self, text: str, kind: schemas.SearchKind, limit: int, version: str | None) -> schemas.SearchResults:
        """What has a label or display name that begins with a text."""
        self.limits.check(page=limit)
        served = self._at(version)
        completion = served.completion(KINDS[kind])
        named = [completion.names.named(row) for row in completion.search(text, limit)]
        hits = [schemas.Named(label=one.label, name=one.name) for one in named]
        return schemas.SearchResults(**_of(served.model), results=hits)

    def entity(self, label: str, limit: int, offset: int, version: str | None) -> schemas.EntityFacts:
        """An entity and its facts."""
        self.limits.check(page=limit)
        model = self._at(version).model
        row, named = _found(model, "entity", label)
        facts = model.known.facts(row)
        shown = _facts(facts.take(slice(offset, offset + limit)), model.names)
        return schemas.EntityFacts(**_of(model), label=named.label, name=named.name, facts=shown, total=facts.count)

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
            versions=shown, total=last, current=self.versions.current.model.version, aliases=store.aliases()
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
        model = self.versions.current.model
        is_open = model.entry.snapshot >= newest.version
        names = model.names if is_open else store.dictionaries(newest)
        added, deleted = (_touching(side, names[0], about) for side in (change.added, change.deleted))
        told = {
            **_of(model),
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
        model = self._at(version).model
        found = model.entry.record.fidelity
        if found is None:
            raise NotFoundError(f"version {model.version} was not learnt online: there was no night to measure")
        return schemas.FidelityResponse(**{**found, **_of(model)})


def _of(model: Model) -> dict[str, Any]:
    return {"version": model.version, "snapshot": model.snapshot_name}


def _lines(batch: Sequence[schemas.TripleQuestion]) -> list[Line]:
    return [Line(number, (one.head, one.relation, one.tail)) for number, one in enumerate(batch, 1)]


def _only(found: Batch) -> Result:
    (result,) = found
    if isinstance(result, Failure):
        raise NotFoundError(result.error)
    return result


def _failed(result: Result) -> schemas.Failed | None:
    return schemas.Failed(line=result.line, error=result.error) if isinstance(result, Failure) else None


def _chances(model: Model, with_evidence: bool, triples: Sequence[tuple[str, str, str]]) -> list[float | None]:
    """Probabilities of the triples that answers make: by the scores of whole triples, which they are calibrated on."""
    calibration = model.calibration(with_evidence)
    if calibration is None or not triples:
        return [None] * len(triples)
    kinds: tuple[Kind, Kind, Kind] = ("entities", "relations", "entities")
    labels = [list(column) for column in zip(*triples, strict=True)]
    rows = Triples(*(find_alive(model, kind, some).rows for kind, some in zip(kinds, labels, strict=True)))
    scores = score_triples(model.embedding, rows, model.evidence if with_evidence else None)
    return [round(float(chance), 6) for chance in calibration.probability(rows.relation, scores)]


def _answered(
    result: Result, chances: Callable[[Sequence[tuple[str, str, str]]], list[float | None]] | None
) -> schemas.AnswerResult:
    assert isinstance(result, Answers)
    triples = [(row["head"], row["relation"], row["tail"]) for row in result.rows()]
    probabilities = chances(triples) if chances is not None else [None] * len(triples)
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


def _neighbours(result: Result) -> schemas.SimilarResult:
    assert isinstance(result, Neighbours)
    near = [schemas.SimilarItem(label=one.entity, name=one.name, score=one.score) for one in result]
    return schemas.SimilarResult(label=result.entity, name=result.name, similar=near)


def _found(model: Model, kind: schemas.SearchKind, label: str) -> tuple[int, Named]:
    """The row of a label or display name, and what it is called."""
    found = find_alive(model, KINDS[kind], [label])
    for problem in found.problems.values():
        raise NotFoundError(problem)
    row = int(found.rows[0])
    return row, model.of_kind(KINDS[kind])[0].named(row)


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
