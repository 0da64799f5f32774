"""What questions give in Python: small values that print well, become JSON as the commands print it, or a DataFrame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

from dkge_dist.graph.dictionary import Named
from dkge_dist.types import Array, Report, UsageError

if TYPE_CHECKING:
    import pandas as pd

SHOWN = 20
"""Lines of a result that are printed at most."""
ROLES = ("head", "relation", "tail")
T = TypeVar("T")


def _pandas() -> Any:
    try:
        import pandas as pd
    except ImportError:
        raise UsageError("to_pandas() needs pandas: pip install 'dkge_dist[pandas]'") from None
    return pd


def _without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


class Tabular(ABC):
    """A result that is a table: `rows` are its lines, `COLUMNS` those that it has even without lines."""

    COLUMNS: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def rows(self) -> Iterable[dict[str, Any]]:
        """Lines of a table."""

    def to_pandas(self) -> pd.DataFrame:
        """The table."""
        rows = list(self.rows())
        return _pandas().DataFrame(rows, columns=None if rows else list(self.COLUMNS))


class Listed(list[T], Tabular):
    """A table whose lines are values; it prints a title and the first of them."""

    @abstractmethod
    def lines(self) -> tuple[str, list[str]]:
        """Its title, and the first values in words."""

    def __repr__(self) -> str:
        title, lines = self.lines()
        more = [f"  ... and {len(self) - SHOWN} more"] if len(self) > SHOWN else []
        return "\n".join([*([title] if title else []), *lines, *more])


@dataclass(frozen=True)
class Value:
    """A value of some fields; JSON has those that say something."""

    def to_dict(self) -> Report:
        """As commands print it."""
        return _without_none(asdict(self))

    def rows(self) -> Iterable[dict[str, Any]]:
        """As a table of one line."""
        yield asdict(self)


@dataclass(frozen=True)
class Origin(Value):
    """Where answers come from. `notice`: a newer snapshot that the model has not learnt yet.

    `evidence` says whether that of the graph counts; None where it never does.
    """

    version: int
    snapshot: str
    evidence: bool | None = None
    notice: str | None = None


@dataclass(frozen=True)
class Failure(Value):
    """A question of a batch that could not be answered, in its place: the number of its line, and why."""

    line: int
    error: str


@dataclass(frozen=True, kw_only=True)
class Answer(Value):
    """An entity (or a relation, where that was asked for) with its score: higher is better.

    `known`: the graph says so. `deleted`: it did once; `deleted_in` names the snapshot that does no more, if recent.
    """

    entity: str | None = None
    name: str | None = None
    score: float
    known: bool
    relation: str | None = None
    deleted: bool = False
    deleted_in: str | None = None
    why: list[dict[str, Any]] | None = None

    @property
    def named(self) -> Named:
        """The label with its display name."""
        return Named(self.entity or self.relation or "", self.name)

    @property
    def remark(self) -> str:
        """Is it known, or was it?"""
        if self.known or not self.deleted:
            return "  (known)" if self.known else ""
        return f"  (deleted in {self.deleted_in})" if self.deleted_in else "  (deleted)"

    def to_dict(self) -> Report:
        """As commands print it: `name`, `deleted`, `deleted_in` and `why` only where there is something to say."""
        return _without_none({**asdict(self), "deleted": self.deleted or None})


class Answers(Listed[Answer]):
    """The answers to one question, known facts first; `head`, `relation` or `tail` is None: what was asked for.

    `known` counts the known facts, also those that are not listed.
    """

    COLUMNS = (*ROLES, "score", "known", "deleted")

    def __init__(
        self,
        answers: Sequence[Answer],
        triple: tuple[Named | None, Named | None, Named | None],
        origin: Origin,
        known: int,
    ) -> None:
        super().__init__(answers)
        self.asked, self.known, self.origin = triple, known, origin
        self.head, self.relation, self.tail = (part.label if part is not None else None for part in triple)

    @property
    def given(self) -> dict[str, str]:
        """What was given, by its role, with display names where there are some."""
        given = [(role, part) for role, part in zip(ROLES, self.asked, strict=True) if part is not None]
        return _without_none({key: text for role, part in given for key, text in _of_role(role, part)})

    def to_dict(self) -> Report:
        """The question and its answers, as commands print them."""
        return {**self.given, "answers": [answer.to_dict() for answer in self]}

    def rows(self) -> Iterable[dict[str, Any]]:
        """The triples that the answers make, with display names if there are any."""
        triples = [[part or answer.named for part in self.asked] for answer in self]
        is_named = any(part.name is not None for triple in triples for part in triple)
        for answer, triple in zip(self, triples, strict=True):
            labels = {role: part.label for role, part in zip(ROLES, triple, strict=True)}
            names = {f"{role}_name": part.name for role, part in zip(ROLES, triple, strict=True) if is_named}
            yield {**labels, "score": answer.score, "known": answer.known, "deleted": answer.deleted, **names}

    def lines(self) -> tuple[str, list[str]]:
        """The question, then its answers."""
        asked = ", ".join(str(part) if part is not None else "?" for part in self.asked)
        answers = [f"  {answer.score:9.3f}  {answer.named}{answer.remark}" for answer in self[:SHOWN]]
        return f"({asked}) by version {self.origin.version}", answers


def _of_role(role: str, part: Named) -> tuple[tuple[str, str], tuple[str, str | None]]:
    return (role, part.label), (f"{role}_name", part.name)


@dataclass(frozen=True)
class ScoredTriple(Value, Tabular):
    """How plausible a triple is: its score, the ranks of its ends, and the probability that it is true.

    Ranks and probability are None where they were not asked for, or where the model has no calibration.
    """

    head: str
    relation: str
    tail: str
    score: float
    known: bool
    probability: float | None = None
    threshold: float | None = None
    tail_rank: float | None = None
    head_rank: float | None = None
    deleted: bool = False
    deleted_in: str | None = None
    head_name: str | None = None
    relation_name: str | None = None
    tail_name: str | None = None

    def to_dict(self) -> Report:
        """As commands print it: names and deletions only where there is something to say."""
        told = asdict(self)
        for key in ("deleted", "deleted_in", "head_name", "relation_name", "tail_name"):
            if not told[key]:
                del told[key]
        return told


@dataclass(frozen=True, kw_only=True)
class Neighbour(Value):
    """An entity near another one; the score is minus the distance of their vectors."""

    entity: str
    name: str | None = None
    score: float


class Neighbours(Listed[Neighbour]):
    """The entities nearest to one, best first."""

    COLUMNS = ("entity", "similar", "score")

    def __init__(self, found: Sequence[Neighbour], entity: Named, origin: Origin) -> None:
        super().__init__(found)
        self.entity, self.name, self.origin = entity.label, entity.name, origin

    def to_dict(self) -> Report:
        """As commands print it."""
        told = _without_none({"entity": self.entity, "name": self.name})
        return {**told, "similar": [near.to_dict() for near in self]}

    def rows(self) -> Iterable[dict[str, Any]]:
        """A line for each of them."""
        is_named = self.name is not None or any(near.name is not None for near in self)
        for near in self:
            names = {"entity_name": self.name, "similar_name": near.name} if is_named else {}
            yield {"entity": self.entity, "similar": near.entity, "score": near.score, **names}

    def lines(self) -> tuple[str, list[str]]:
        """The entity, then those near it."""
        near = [f"  {one.score:9.3f}  {Named(one.entity, one.name)}" for one in self[:SHOWN]]
        return f"nearest to {Named(self.entity, self.name)} by version {self.origin.version}", near


Result = Answers | ScoredTriple | Neighbours | Failure


class Batch(Listed[Result]):
    """The results of many questions, in their order; a question that could not be answered is a `Failure`.

    `key` is their name in JSON, `more` what is said of all of them.
    """

    def __init__(self, results: Sequence[Result], key: str, origin: Origin, more: Report) -> None:
        super().__init__(results)
        self.key, self.origin, self.more = key, origin, more

    @property
    def failures(self) -> list[Failure]:
        """The questions that could not be answered."""
        return [result for result in self if isinstance(result, Failure)]

    def to_dict(self) -> Report:
        """As commands print it."""
        items = [result.to_dict() for result in self]
        return {**self.origin.to_dict(), self.key: items, "failed": len(self.failures), **self.more}

    def one(self) -> Report:
        """The only result, as commands print it when one question is asked."""
        (result,) = self
        return {**result.to_dict(), **self.origin.to_dict(), **self.more}

    def rows(self) -> Iterable[dict[str, Any]]:
        """The lines of all results below each other; `error` tells what could not be answered."""
        return (row for result in self for row in result.rows())

    def lines(self) -> tuple[str, list[str]]:
        """The results."""
        return "", [repr(result) for result in self[:SHOWN]]


class Vectors(NamedTuple):
    """Labels and their vectors, row by row. The vectors are read-only, and where they can be, those of the store."""

    labels: list[str]
    values: Array

    def to_pandas(self) -> pd.DataFrame:
        """A line for each label."""
        return _pandas().DataFrame(self.values, index=self.labels)

    def __repr__(self) -> str:
        return f"Vectors of {len(self.labels):,} labels, dimension {self.values.shape[1]}"


class Evaluation(dict[str, Any], Tabular):
    """Metrics of link prediction, as `dkge evaluate` prints them."""

    METRICS = ("mrr", "hits@1", "hits@3", "hits@10", "mr")

    def rows(self) -> list[dict[str, Any]]:
        """Metrics by protocol, as asked and by vectors alone."""
        ways = [(self["evidence"], self)] + ([(False, self["vectors"])] if self["evidence"] else [])
        return [
            {"protocol": protocol, "evidence": evidence, **{name: report[protocol][name] for name in self.METRICS}}
            for evidence, report in ways
            for protocol in ("filtered", "paper")
        ]

    def __repr__(self) -> str:
        lines = [
            f"  {row['protocol']:9} {'with evidence' if row['evidence'] else 'by vectors':14} "
            + ", ".join(f"{name} {row[name]:.4g}" for name in self.METRICS)
            for row in self.rows()
        ]
        asked = f"version {self['version']} on {self['triples']:,} {self['split']} triples"
        return "\n".join([asked, *lines])


class Log(dict[str, Any], Tabular):
    """The versions of a store, as `dkge log` prints them."""

    def rows(self) -> list[dict[str, Any]]:
        """A line for each version: what is common to all kinds, then what some have."""
        versions: list[dict[str, Any]] = self["versions"]
        return [{key: value for key, value in row.items() if not isinstance(value, Mapping | list)} for row in versions]

    def __repr__(self) -> str:
        lines = [f"  {row['version']:5}  {row['kind']:9} {row['name']}" for row in self["versions"][-SHOWN:]]
        return "\n".join([f"{len(self['versions'])} versions, the newest last", *lines])
