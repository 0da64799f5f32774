"""What commands did, as values: a type for each, measured once and stored with the version that it describes.

What a command prints, its JSON, the log, HTTP answers, the page and the metrics are views of a record and measure
nothing themselves. A new figure is a field here and the line that sets it: the JSON of commands and of the log, HTTP
and Prometheus have it then.

A figure that nobody set is left out of the JSON; one that was set to None (it was looked for, and cannot be measured)
is null. A record is also a read-only mapping by its JSON names: in Python `report["hits@1"]` is what `--json` prints.
"""

from __future__ import annotations

import ast
import inspect
import math
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from textwrap import dedent
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, model_serializer

from dkge_dist.types import Array

CONFIDENCE_99 = 2.576
"""Standard errors on either side of a mean that hold 99% of a normal distribution."""
MIN_SAMPLES = 30
"""With fewer triples a mean is not near enough to normal for its interval to mean something."""


class Estimate(NamedTuple):
    """A mean with its standard error, over so many triples."""

    mean: float
    error: float
    triples: int

    @staticmethod
    def of(values: Array) -> Estimate:
        """The mean of values between 0 and 1, or of differences of such."""
        count = values.shape[0]
        # One value says nothing of its variance, but between 0 and 1 no standard deviation is above one half.
        deviation = float(values.std(ddof=1)) if count > 1 else 0.5
        return Estimate(float(values.mean()), deviation / math.sqrt(count), count)

    def minus(self, other: Estimate) -> Estimate:
        """The difference of two means that were measured apart. The fewer triples say how much it is worth."""
        triples = min(self.triples, other.triples)
        return Estimate(self.mean - other.mean, math.hypot(self.error, other.error), triples)

    @property
    def low(self) -> float:
        """The lower end of the 99% interval."""
        return self.mean - CONFIDENCE_99 * self.error

    @property
    def high(self) -> float:
        """The upper end of the 99% interval."""
        return self.mean + CONFIDENCE_99 * self.error

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 99% interval of an MRR, within what one can be; None of too few triples."""
        return (max(0.0, self.low), min(1.0, self.high)) if self.has_enough_samples else None

    @property
    def has_enough_samples(self) -> bool:
        """Are there enough triples for the interval to mean something?"""
        return self.triples >= MIN_SAMPLES


def weighted(estimates: list[Estimate], weights: list[int]) -> Estimate:
    """The mean over several groups, each of which stands for as many triples as its weight says."""
    shares = [weight / sum(weights) for weight in weights]
    mean = sum(share * group.mean for share, group in zip(shares, estimates, strict=True))
    error = math.hypot(*(share * group.error for share, group in zip(shares, estimates, strict=True)))
    return Estimate(mean, error, sum(group.triples for group in estimates))


@cache
def _docstrings(kind: type) -> dict[str, str]:
    """What fields mean, by their names. Read from the source when it is asked for: all commands import this module."""
    try:
        (body,) = ast.parse(dedent(inspect.getsource(kind))).body
    except OSError:
        return {}
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(body.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant) and isinstance(text.value.value, str)
    }


class Record(Mapping[str, Any], BaseModel):
    """A frozen value whose fields are its JSON. Types are strict, because records are read back from a store."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, validate_by_name=True, defer_build=True)

    @classmethod
    def _key(cls, name: str) -> str:
        """The JSON name of a field."""
        field = cls.model_fields.get(name)
        return field.alias if field is not None and field.alias is not None else name

    @property
    def _present(self) -> dict[str, Any]:
        """The values by JSON name: what was set, and defaults that say something."""
        names = [*type(self).model_fields, *(self.model_extra or {})]
        values = ((name, getattr(self, name)) for name in names)
        return {self._key(name): v for name, v in values if v is not None or name in self.model_fields_set}

    def __getitem__(self, key: str) -> Any:
        return self._present[key]

    def __iter__(self) -> Iterator[str]:  # type: ignore[override]  # pydantic's own would give pairs
        return iter(self._present)

    def __len__(self) -> int:
        return len(self._present)

    @classmethod
    def description_of(cls, key: str) -> str | None:
        """What a field means, by its JSON name; None where its name says it."""
        docs = (_docstrings(kind) for kind in cls.__mro__ if issubclass(kind, Record))
        return next((told for some in docs for name, told in some.items() if cls._key(name) == key), None)

    def with_(self, **changes: Any) -> Self:
        """The same record with other values, or with more of them."""
        return self.model_copy(update=changes)

    @model_serializer(mode="wrap")
    def _to_json(self, handler: Any):  # type: ignore[no-untyped-def]  # a return type would replace the fields' schema
        told = handler(self)
        return {self._key(name): told[name] for name in told if told[name] is not None or name in self.model_fields_set}


class Quality(Record):
    """Link prediction over some triples, both sides. Empty where there were none.

    `mrr_error` is the standard error of the MRR over so many `triples`, where it is kept; `new_above_old` is the share
    of replaced answers of which the new one scores higher than the old one.
    """

    METRICS: ClassVar = ("mrr", "hits@1", "hits@3", "hits@10", "mr")

    mr: float | None = None
    mrr: float | None = None
    hits_at_1: float | None = Field(default=None, alias="hits@1")
    hits_at_3: float | None = Field(default=None, alias="hits@3")
    hits_at_10: float | None = Field(default=None, alias="hits@10")
    mrr_error: float | None = None
    triples: int | None = None
    new_above_old: float | None = None

    def estimate(self, triples: int | None = None) -> Estimate | None:
        """The MRR with its error; None where that was not kept. `triples`: where a group says how many there are."""
        count = triples if triples is not None else self.triples
        if self.mrr is None or self.mrr_error is None or count is None:
            return None
        return Estimate(self.mrr, self.mrr_error, count)


class FidelityGroup(Record):
    """How triples of one kind rank. `of`: so many of the kind the night has, where `triples` are a sample of them."""

    triples: int
    vectors: Quality = Quality()
    with_evidence: Quality | None = None
    of: int | None = None

    @property
    def answered(self) -> Quality:
        """As users get answers: with evidence where there is some."""
        return self.with_evidence if self.with_evidence is not None else self.vectors

    @property
    def estimate(self) -> Estimate | None:
        """The MRR of answers with its error."""
        return self.answered.estimate(self.triples)


class Fidelity(Record):
    """Is a night learnt? MRR of what it added, deleted, replaced and kept.

    `sampled`: by at most some hundreds of triples a group, as a night measures itself; else by all of them.
    """

    added_existing: FidelityGroup | None = None
    added_emerging: FidelityGroup | None = None
    deleted: FidelityGroup | None = None
    replaced: FidelityGroup | None = None
    kept_near: FidelityGroup | None = None
    kept_far: FidelityGroup | None = None
    sampled: bool | None = None

    ADDED: ClassVar = ("added_existing", "added_emerging")
    DELETED: ClassVar = ("deleted",)

    @property
    def groups(self) -> dict[str, FidelityGroup]:
        """The groups that were measured, by name."""
        found = {name: getattr(self, name) for name in Fidelity.model_fields}
        return {name: group for name, group in found.items() if isinstance(group, FidelityGroup)}

    def mrr(self, *names: str) -> Estimate | None:
        """MRR of some groups together, each by as many triples as the night has; None if there are none."""
        groups = [group for name, group in self.groups.items() if name in names and group.triples]
        estimates = [found for group in groups if (found := group.estimate) is not None]
        if not groups or len(estimates) < len(groups):
            return None
        return weighted(estimates, [group.of if group.of is not None else group.triples for group in groups])


class FidelityRecord(Fidelity):
    """What `dkge fidelity` measured. `before`: the same of the model that the night began with."""

    version: int
    snapshot: str
    since: str
    added: int
    deleted_triples: int
    before: PreviousFidelity | None = None
    seconds: float


class PreviousFidelity(Fidelity):
    """Fidelity of the model before a night, on the groups that its graph had."""

    version: int


class MrrDrop(Record):
    """How far validation MRR fell, in percent, with the 99% interval."""

    before: float
    now: float
    percent: float
    low: float
    high: float
    triples: int


class AddedMrr(Record):
    """MRR of what a night added, with the 99% interval."""

    mrr: float
    low: float
    high: float
    triples: int


class Drift(Record):
    """What a night found, against the training of version `since`. None: too few triples to measure it.

    `due`: why training from scratch is due, as `dkge nightly` decided.
    """

    since: int
    mrr_drop: MrrDrop | None
    added_mrr: AddedMrr | None
    due: str | None = None


class Difference(Record):
    """MRR of two models on the same kind of triples; `low` and `high` bound the difference (99%)."""

    before: float
    now: float
    low: float
    high: float
    triples: int

    def __str__(self) -> str:
        interval = f"{self.low:+.4f} to {self.high:+.4f}"
        return f"{self.now:.4f} against {self.before:.4f} (99%: {interval}, {self.triples:,} triples)"


class Comparison(Record):
    """A trained model against the incumbent: None is a difference that too few triples were there for.

    `worse` says in words what it is measurably worse in; it is `promoted` unless a night trained it and it is worse.
    """

    incumbent: int
    validation: Difference | None = None
    added: Difference | None = None
    deleted: Difference | None = None
    worse: list[str]
    promoted: bool


class Decision(Record):
    """What `dkge nightly` did about drift, in words; `warning` is what a user may want to run."""

    decision: str
    drift: Drift | None = None
    warning: str | None = None


class HookResult(Record):
    """What came of telling the `on_publish` hook of a version."""

    version: int
    ok: bool
    error: str | None = None
    seconds: float


class CommandRecord(Record):
    """What every command that may publish a model says: a warning to print, its hooks, and the id of its log."""

    warning: str | None = None
    on_publish: list[HookResult] | None = None
    run: str | None = None


class ModelRecord(CommandRecord):
    """What made a model version; `origin` says which kind of record it is. Stored in the version's manifest.

    `version`, `parent` and what is measured while publishing are known afterwards only, to the command that published.
    """

    origin: Literal["scratch", "refresh", "online", "compact"]
    version: int | None = None
    parent: int | None = None
    snapshot: str | None = None
    valid: Quality = Quality()
    """On a sample of validation triples."""
    epochs: int | None = None
    """Passes over what was learnt."""
    seconds: float | None = None
    """Seconds of a training, or of a whole update."""
    bytes_written: int | None = None
    """Bytes that the version wrote to the store."""
    evidence_fitted_on: str | None = None
    fidelity: Fidelity | None = None
    drift: Drift | None = None
    why: str | None = None


class TrainingRecord(ModelRecord):
    """What `dkge train` did, from scratch or as a refresh of version `start`. `why`: a night trained, for this reason.

    `best_valid` is the metric that stopped the training; `shard_stats` counts calls and bytes by shard.
    """

    origin: Literal["scratch", "refresh"] = "scratch"
    preset: str | None = None
    start: int | None = None
    triples_per_second: float = 0.0
    """Positive triples, median over the epochs."""
    threads: int | None = None
    device: str | None = None
    shards: int | None = None
    workers: int | None = None
    shard_stats: list[dict[str, int]] | None = None
    comparison: Comparison | None = None
    best_valid: float | None = None
    resumed: bool = False
    entities: int = 0
    relations: int = 0
    dim: int = 0
    total_seconds: float | None = None
    """Seconds with reading, fitting and measuring."""


class UpdatePlanRecord(ModelRecord):
    """What an update would do. `shards` are those that it would write to."""

    origin: Literal["online"] = "online"
    from_: str | None = Field(default=None, alias="from")
    added: int = 0
    """Train triples that the night added."""
    deleted: int = 0
    """Train triples that the night deleted."""
    emerging_entities: int = 0
    affected_entities: int = 0
    removed_entities: int = 0
    emerging_relations: int = 0
    affected_relations: int = 0
    removed_relations: int = 0
    trained_triples: int = 0
    """Triples to learn."""
    forgotten_triples: int = 0
    """Deleted triples to learn as wrong ones."""
    shards_touched: int = 0
    shards_total: int = 1
    blocks_touched: int | None = None
    blocks_total: int | None = None
    shards: list[int] | list[dict[str, Any]] | None = None
    open_seconds: float | None = None
    plan_seconds: float | None = None
    unchanged: bool | None = None


class NightRecord(UpdatePlanRecord):
    """What `dkge update` did. `unchanged`: there was nothing to do. `shards` counts calls and bytes of each.

    Seconds by phase: what follows the size of the graph is `open`, the others follow the change.
    """

    PHASES: ClassVar = ("open", "plan", "learn", "measure", "publish")

    bytes_pulled: int = 0
    """Bytes that the night read from shards."""
    bytes_pushed: int = 0
    """Bytes that the night wrote to shards."""
    learn_seconds: float | None = None
    measure_seconds: float | None = None
    publish_seconds: float | None = None

    @property
    def phases(self) -> dict[str, float]:
        """Seconds by phase, as far as they are kept."""
        found = {phase: getattr(self, f"{phase}_seconds") for phase in self.PHASES}
        return {phase: seconds for phase, seconds in found.items() if seconds is not None}


class CompactRecord(ModelRecord):
    """A version that only folds the deltas of the one before it: its quality is that one's."""

    origin: Literal["compact"] = "compact"


RECORD_TYPES: dict[str, type[ModelRecord]] = {
    "scratch": TrainingRecord,
    "refresh": TrainingRecord,
    "online": NightRecord,
    "compact": CompactRecord,
}
"""By `origin`."""


def _parse_model_record(value: object) -> object:
    kind = RECORD_TYPES.get(str(value.get("origin"))) if isinstance(value, dict) else None
    return kind.model_validate(value) if kind is not None else value


StoredRecord = Annotated[SerializeAsAny[ModelRecord], BeforeValidator(_parse_model_record)]
"""The record in a manifest, as the type that its origin says."""


class MisspellingRecord(Record):
    """A new label and the known one it looks like."""

    label: str
    nearest: str


class Misspellings(Record):
    """How many new labels look misspelt, with a few of them."""

    total: int
    relations: list[MisspellingRecord]
    entities: list[MisspellingRecord]
    not_compared: int


class IngestRecord(Record):
    """What `dkge ingest` did: the snapshot, and how it differs from its parent."""

    version: int
    name: str
    format: str
    unchanged: bool
    entities: int
    relations: int
    triples: int
    train: int
    valid: int
    test: int
    added: int
    deleted: int
    added_valid: int | None = None
    deleted_valid: int | None = None
    added_test: int | None = None
    deleted_test: int | None = None
    emerging_entities: int
    removed_entities: int
    emerging_relations: int
    removed_relations: int
    held_out_by_default: bool
    misspellings: Misspellings
    counts: dict[str, int]
    named_entities: int
    named_relations: int
    unnamed_entities: int
    unnamed_relations: int
    rejects: str | None
    lines: int
    bytes_written: int
    seconds: float
    triples_per_second: int


class NightlyRecord(CommandRecord):
    """What `dkge nightly` did: ingest, then an update or a training (or both), each with its evaluation.

    `version` is the current model afterwards, `headline` the night in one line. `report` is where the page is, and
    `report_problem` why it is nowhere.
    """

    ingest: IngestRecord
    update: NightRecord | None = None
    train: TrainingRecord | None = None
    evaluate: dict[str, Any] | None = None
    decision: str
    drift: Drift | None = None
    headline: str
    version: int
    unchanged: bool
    seconds: float
    report: str | None = None
    report_problem: str | None = None


class ChangedAnswers(Record):
    """Questions whose best answers differ between two models. `notice`: why none were asked."""

    from_snapshot: str | None = None
    to_snapshot: str | None = None
    models: list[int] = Field(default_factory=list)
    questions: int = 0
    asked: int = 0
    differ: int = 0
    examples: list[dict[str, Any]] = Field(default_factory=list)
    notice: str | None = None


class VersionRecord(Record):
    """A version in `dkge log`: what is common to all kinds, then the figures of its kind."""

    model_config = ConfigDict(extra="allow")

    version: int
    kind: str
    created: str
    name: str | None = None
    parent: int | None = None
    seconds: float


class ProblemRecord(Record):
    """One thing that is wrong with a store, and the version that it was found in."""

    version: int
    problem: str


class CheckRecord(Record):
    """What `dkge check` looked at and found."""

    ok: bool
    versions: int
    parts: int
    bytes: int
    problems: list[ProblemRecord]
    seconds: float


class RollbackRecord(Record):
    """What is current after `dkge rollback`: the state of version `to`."""

    version: int
    to: int
    snapshot: str
    model: int | None


class GcRecord(Record):
    """What `dkge gc` cleared, or would clear; `version` is the one that says so, None where nothing was cleared."""

    version: int | None
    cleared_versions: list[int]
    parts: int
    bytes: int
    folders: int
    dry_run: bool


class AliasRecord(Record):
    """All aliases, with the versions that they pin."""

    aliases: dict[str, int]
