"""What requests hold and what answers say. Every answer names the version and the snapshot that it comes from."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dkge_dist.records import Fidelity, VersionRecord

MAX_LABEL = 4096
"""Characters of a label or a name in a request."""
DEFAULT_KNOWN = 50
"""Known facts that are listed before the predictions."""

MAX_ABOUT = 64
"""Entities that a change may be asked about at once."""
Label = Annotated[str, Field(max_length=MAX_LABEL)]
VersionText = Annotated[str, Field(min_length=1, max_length=200)]
SearchKind = Literal["entity", "relation"]


class Answered(BaseModel):
    """The model version and the snapshot that an answer comes from."""

    version: int
    snapshot: str


class ErrorMessage(BaseModel):
    """Why a request was not answered."""

    error: str


class SearchHit(BaseModel):
    """An entity or a relation."""

    label: str
    name: str | None = None


class SearchResults(Answered):
    """What begins with a text: exact matches first, then those with most facts."""

    results: list[SearchHit]


class Fact(BaseModel):
    """A triple of the graph, with display names where there are some."""

    head: str
    relation: str
    tail: str
    head_name: str | None = None
    relation_name: str | None = None
    tail_name: str | None = None


class EntityFacts(Answered):
    """An entity and its facts: those that it begins, then those that it ends. `total` counts all of them."""

    label: str
    name: str | None = None
    facts: list[Fact]
    total: int


class Question(BaseModel):
    """The triple that was asked, None for what was asked for."""

    head: str | None = None
    relation: str | None = None
    tail: str | None = None
    head_name: str | None = None
    relation_name: str | None = None
    tail_name: str | None = None


class Reason(BaseModel):
    """One kind of evidence for an answer, in words, and how much it adds to the score."""

    model_config = ConfigDict(extra="allow")

    weight: float
    text: str


class AnswerItem(BaseModel):
    """An answer. `known`: the graph says so. `deleted`: it did once. `rank` is its place in this list, from 1."""

    label: str
    name: str | None = None
    score: float
    known: bool
    rank: int
    probability: float | None = None
    why: list[Reason] | None = None
    deleted: bool | None = None
    deleted_in: str | None = None


class AnswerResult(BaseModel):
    """The answers to one question: known facts first, then predictions."""

    question: Question
    answers: list[AnswerItem]
    known_total: int
    """How many facts are known; the best of them are listed."""


class AnswerResponse(Answered, AnswerResult):
    """The answers to a question. `evidence`: that of the graph counts. `notice`: a newer snapshot is not learnt yet."""

    evidence: bool
    notice: str | None = None


class Failed(BaseModel):
    """A question of a batch that could not be answered, in its place: its number from 1, and why."""

    line: int
    error: str


class AnswerBatch(Answered):
    """The answers to each question of a batch, in its order."""

    evidence: bool
    notice: str | None = None
    results: list[AnswerResult | Failed]
    failed: int


class ScoreResult(BaseModel):
    """How plausible a triple is. `probability` is one half at `threshold`; ranks only where they were asked for."""

    head: str
    relation: str
    tail: str
    head_name: str | None = None
    relation_name: str | None = None
    tail_name: str | None = None
    score: float
    known: bool
    probability: float | None = None
    threshold: float | None = None
    tail_rank: float | None = None
    head_rank: float | None = None
    deleted: bool | None = None
    deleted_in: str | None = None


class ScoreResponse(Answered, ScoreResult):
    """How plausible a triple is; ranks are those among so many `candidates`."""

    evidence: bool
    notice: str | None = None
    candidates: int


class ScoreBatch(Answered):
    """How plausible each triple of a batch is, in its order."""

    evidence: bool
    notice: str | None = None
    candidates: int
    results: list[ScoreResult | Failed]
    failed: int


class SimilarItem(BaseModel):
    """An entity near another one; the score is minus the distance of their vectors."""

    label: str
    name: str | None = None
    score: float


class SimilarResult(BaseModel):
    """The nearest entities, best first."""

    label: str
    name: str | None = None
    similar: list[SimilarItem]


class SimilarResponse(Answered, SimilarResult):
    """The nearest entities of one."""

    notice: str | None = None


class SimilarBatch(Answered):
    """The nearest entities of each of a batch, in its order."""

    notice: str | None = None
    results: list[SimilarResult | Failed]
    failed: int


class VectorResponse(Answered):
    """The joint vector of an entity or a relation."""

    label: str
    name: str | None = None
    kind: SearchKind
    vector: list[float]


class VersionList(BaseModel):
    """The newest versions, oldest first; `current` is the one that is asked by default."""

    versions: list[VersionRecord]
    total: int
    current: int
    aliases: dict[str, int]


class DiffResponse(Answered):
    """What changed between two snapshots, as many triples as were asked for; totals count all that are asked about.

    `counts` are of the whole change. `version` is the one whose labels and names are shown.
    """

    model_config = ConfigDict(populate_by_name=True)

    from_: str = Field(alias="from", serialization_alias="from")
    to: str
    added: list[Fact]
    deleted: list[Fact]
    added_total: int
    deleted_total: int
    counts: dict[str, Any]


class FidelityResponse(Fidelity):
    """What a version learnt of its night, as it was measured then, on a sample."""

    version: int
    snapshot: str


class Health(BaseModel):
    """Is the process alive?"""

    status: Literal["ok"]


class Readiness(BaseModel):
    """Are questions answered at full speed? Before, they are answered too."""

    status: Literal["ready", "starting"]
    version: int | None = None
    snapshot: str | None = None
    problem: str | None = None


class TripleQuestion(BaseModel):
    """A triple; in a question what is asked for is left out, null or `?`."""

    model_config = ConfigDict(extra="forbid")

    head: Label | None = None
    relation: Label | None = None
    tail: Label | None = None


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: VersionText | None = None
    as_of: VersionText | None = None


class AnswerRequest(_Asked):
    """Many questions at once."""

    batch: Annotated[list[TripleQuestion], Field(min_length=1)]
    k: Annotated[int, Field(ge=1)] = 10
    known: Annotated[int, Field(ge=0)] = DEFAULT_KNOWN
    new_only: bool = False
    why: bool = False
    evidence: bool = True
    probability: bool = False


class ScoreRequest(_Asked):
    """Many triples at once. `ranks` costs a pass over all entities."""

    batch: Annotated[list[TripleQuestion], Field(min_length=1)]
    ranks: bool = False
    evidence: bool = True


class SimilarRequest(_Asked):
    """Many entities at once."""

    batch: Annotated[list[Label], Field(min_length=1)]
    k: Annotated[int, Field(ge=1)] = 10


class AnswerQuery(_Asked):
    """One question: exactly one of head, relation and tail is left out, empty or `?`."""

    head: Label | None = None
    relation: Label | None = None
    tail: Label | None = None
    k: Annotated[int, Field(ge=1, description="predictions after the known facts")] = 10
    known: Annotated[int, Field(ge=0, description="known facts to list at most")] = DEFAULT_KNOWN
    new_only: Annotated[bool, Field(description="leave known facts out")] = False
    why: Annotated[bool, Field(description="the evidence of each answer, in words")] = False
    evidence: Annotated[bool, Field(description="count what the graph says; else vectors alone decide")] = True
    probability: Annotated[bool, Field(description="the probability of each answer")] = False

    def request(self) -> AnswerRequest:
        """As a batch of one."""
        options = self.model_dump(exclude={"head", "relation", "tail"})
        one = TripleQuestion(head=self.head, relation=self.relation, tail=self.tail)
        return AnswerRequest(batch=[one], **options)


class ScoreQuery(_Asked):
    """One triple."""

    head: Label
    relation: Label
    tail: Label
    ranks: Annotated[bool, Field(description="ranks of both ends, for which all entities are compared")] = False
    evidence: bool = True

    def request(self) -> ScoreRequest:
        """As a batch of one."""
        one = TripleQuestion(head=self.head, relation=self.relation, tail=self.tail)
        return ScoreRequest(batch=[one], **self.model_dump(exclude={"head", "relation", "tail"}))


class SimilarQuery(_Asked):
    """One entity."""

    entity: Label
    k: Annotated[int, Field(ge=1)] = 10

    def request(self) -> SimilarRequest:
        """As a batch of one."""
        return SimilarRequest(batch=[self.entity], **self.model_dump(exclude={"entity"}))


class VectorQuery(_Asked):
    """A label, or a display name."""

    label: Label
    kind: SearchKind = "entity"


class SearchQuery(_Asked):
    """The beginning of a label or a display name."""

    q: Label = ""
    kind: SearchKind = "entity"
    limit: Annotated[int, Field(ge=1)] = 10


class EntityQuery(_Asked):
    """A label, or a display name, and which of its facts."""

    label: Label
    limit: Annotated[int, Field(ge=1)] = 50
    offset: Annotated[int, Field(ge=0, le=2**31)] = 0


class VersionsQuery(BaseModel):
    """How many of the newest versions."""

    model_config = ConfigDict(extra="forbid")

    limit: Annotated[int, Field(ge=1)] = 200


class DiffQuery(BaseModel):
    """Two snapshots: names, versions, aliases or dates."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    from_: Annotated[VersionText, Field(alias="from")]
    to: VersionText
    limit: Annotated[int, Field(ge=1, description="triples of each kind at most")] = 100
    about: Annotated[
        list[Label], Field(max_length=MAX_ABOUT, description="labels of entities: triples with one of them at an end")
    ] = []


class FidelityQuery(_Asked):
    """A version."""
