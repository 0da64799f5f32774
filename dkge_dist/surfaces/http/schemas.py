"""What requests hold and what answers say. Every answer names the version and the snapshot that it comes from."""

from __future__ import annotations

from dataclasses import MISSING
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dkge_dist.records import Fidelity, VersionRecord
from dkge_dist.surfaces.requests.fields import Request, options_of
from dkge_dist.surfaces.requests.questions import Answer, Score, Similar

MAX_LABEL = 4096
"""Characters of a label or a name in a request."""

MAX_ABOUT = 64
"""Entities that a change may be asked about at once."""
Label = Annotated[str, Field(max_length=MAX_LABEL)]
VersionText = Annotated[str, Field(min_length=1, max_length=200)]
SearchKind = Literal["entity", "relation"]


class Answered(BaseModel):
    """The model version and the snapshot that an answer comes from."""

    version: int
    snapshot: str


class Reply(Answered):
    """`notice`: a newer snapshot is not learnt yet."""

    notice: str | None = None


class EvidenceReply(Reply):
    """`evidence`: that of the graph counts."""

    evidence: bool


class ErrorMessage(BaseModel):
    """Why a request was not answered."""

    error: str


class Named(BaseModel):
    """The label and the display name of an entity or a relation."""

    label: str
    name: str | None = None


class SearchResults(Answered):
    """What begins with a text: exact matches first, then those with most facts."""

    results: list[Named]


class TripleNames(BaseModel):
    """Display names of the parts of a triple, where there are some."""

    head_name: str | None = None
    relation_name: str | None = None
    tail_name: str | None = None


class Fact(TripleNames):
    """A triple of the graph, with display names where there are some."""

    head: str
    relation: str
    tail: str


class EntityFacts(Answered, Named):
    """An entity and its facts: those that it begins, then those that it ends. `total` counts all of them."""

    facts: list[Fact]
    total: int


class Question(TripleNames):
    """The triple that was asked, None for what was asked for."""

    head: str | None = None
    relation: str | None = None
    tail: str | None = None


class Reason(BaseModel):
    """One kind of evidence for an answer, in words, and how much it adds to the score."""

    model_config = ConfigDict(extra="allow")

    weight: float
    text: str


class AnswerItem(Named):
    """An answer. `known`: the graph says so. `deleted`: it did once. `rank` is its place in this list, from 1."""

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


class AnswerResponse(EvidenceReply, AnswerResult):
    """The answers to a question."""


class Failed(BaseModel):
    """A question of a batch that could not be answered, in its place: its number from 1, and why."""

    line: int
    error: str


class AnswerBatch(EvidenceReply):
    """The answers to each question of a batch, in its order."""

    results: list[AnswerResult | Failed]
    failed: int


class ScoreResult(Fact):
    """How plausible a triple is. `probability` is one half at `threshold`; ranks only where they were asked for."""

    score: float
    known: bool
    probability: float | None = None
    threshold: float | None = None
    tail_rank: float | None = None
    head_rank: float | None = None
    deleted: bool | None = None
    deleted_in: str | None = None


class ScoreResponse(EvidenceReply, ScoreResult):
    """How plausible a triple is; ranks are those among so many `candidates`."""

    candidates: int


class ScoreBatch(EvidenceReply):
    """How plausible each triple of a batch is, in its order."""

    candidates: int
    results: list[ScoreResult | Failed]
    failed: int


class SimilarItem(Named):
    """An entity near another one; the score is minus the distance of their vectors."""

    score: float


class SimilarResult(Named):
    """The nearest entities, best first."""

    similar: list[SimilarItem]


class SimilarResponse(Reply, SimilarResult):
    """The nearest entities of one."""


class SimilarBatch(Reply):
    """The nearest entities of each of a batch, in its order."""

    results: list[SimilarResult | Failed]
    failed: int


class VectorResponse(Answered, Named):
    """The joint vector of an entity or a relation."""

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


def _as_in(request: type[Request[Any]], name: str, default: Any = MISSING) -> Any:
    """A parameter that a request has too: what it means, its limits, and its default unless HTTP has another one."""
    option, field = options_of(request)[name], request.__dataclass_fields__[name]
    chosen = field.default if default is MISSING else default
    return Field(chosen, description=option.help, ge=option.at_least, le=option.at_most)


class TripleQuestion(BaseModel):
    """A triple; in a question what is asked for is left out, null or `?`."""

    model_config = ConfigDict(extra="forbid")

    head: Label | None = None
    relation: Label | None = None
    tail: Label | None = None


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid")

    version: VersionText | None = _as_in(Answer, "version")
    as_of: Annotated[VersionText | None, Field(description="The same as `version`.")] = None

    def options(self, *others: str) -> dict[str, Any]:
        """All but the parts of a question."""
        return self.model_dump(exclude=set(others))


class _AnswerOptions(_Asked):
    k: int = _as_in(Answer, "top")
    known: Annotated[int, Field(ge=0, description="Known facts to list at most, before the predictions.")] = 50
    new_only: bool = _as_in(Answer, "new_only")
    why: bool = _as_in(Answer, "why")
    evidence: bool = _as_in(Answer, "evidence")
    probability: Annotated[bool, Field(description="The probability of each answer.")] = False


class _ScoreOptions(_Asked):
    ranks: bool = _as_in(Score, "ranks", default=False)
    evidence: bool = _as_in(Score, "evidence")


class _SimilarOptions(_Asked):
    k: int = _as_in(Similar, "top")


class AnswerRequest(_AnswerOptions):
    """Many questions at once."""

    batch: Annotated[list[TripleQuestion], Field(min_length=1)]


class ScoreRequest(_ScoreOptions):
    """Many triples at once. `ranks` costs a pass over all entities."""

    batch: Annotated[list[TripleQuestion], Field(min_length=1)]


class SimilarRequest(_SimilarOptions):
    """Many entities at once."""

    batch: Annotated[list[Label], Field(min_length=1)]


class AnswerQuery(_AnswerOptions):
    """One question: exactly one of head, relation and tail is left out, empty or `?`."""

    head: Label | None = None
    relation: Label | None = None
    tail: Label | None = None

    def request(self) -> AnswerRequest:
        """As a batch of one."""
        one = TripleQuestion(head=self.head, relation=self.relation, tail=self.tail)
        return AnswerRequest(batch=[one], **self.options("head", "relation", "tail"))


class ScoreQuery(_ScoreOptions):
    """One triple."""

    head: Label
    relation: Label
    tail: Label

    def request(self) -> ScoreRequest:
        """As a batch of one."""
        one = TripleQuestion(head=self.head, relation=self.relation, tail=self.tail)
        return ScoreRequest(batch=[one], **self.options("head", "relation", "tail"))


class SimilarQuery(_SimilarOptions):
    """One entity."""

    entity: Label

    def request(self) -> SimilarRequest:
        """As a batch of one."""
        return SimilarRequest(batch=[self.entity], **self.options("entity"))


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
