"""What the page shows, as values: the records of versions, by night, with what became of them."""

from __future__ import annotations

from pydantic import SerializeAsAny

from dkge_dist.records import ChangedAnswers, Fidelity, ModelRecord, NightRecord, Record, VersionRecord


class ModelSummary(Record):
    """A model version. `parent` is the version that it was updated from; `promoted`: it became the current one.

    `due`: why training from scratch was due after it, by the `policy` that it was learnt under.
    """

    version: int
    created: str
    seconds: float
    record: SerializeAsAny[ModelRecord]
    parent: int | None
    is_current: bool
    promoted: bool
    cleared: bool
    bytes_written: int
    policy: str | None = None
    due: str | None = None

    @property
    def night(self) -> NightRecord | None:
        """The record of an update; None of a training."""
        return self.record if isinstance(self.record, NightRecord) else None

    @property
    def fidelity(self) -> Fidelity:
        """What was measured of its night, if anything was."""
        return self.record.fidelity or Fidelity()

    @property
    def phases(self) -> dict[str, float]:
        """Seconds by phase; what is left of them is writing. Empty for a training."""
        spent = self.night.phases if self.night is not None else {}
        return {**spent, "write": round(max(0.0, self.seconds - sum(spent.values())), 3)} if spent else {}


class NightSummary(Record):
    """A snapshot with the models that were learnt from it. `is_first`: nothing was there before, so it is no night."""

    snapshot: str
    version: int
    created: str
    is_first: bool
    rolled_back: bool
    cleared: bool
    entities: int
    relations: int
    train: int
    added: int
    deleted: int
    emerging_entities: int
    removed_entities: int
    ingest_seconds: float
    bytes_written: int
    models: list[ModelSummary]

    @property
    def update(self) -> ModelSummary | None:
        """The newest update."""
        return next((model for model in reversed(self.models) if model.night is not None), None)

    @property
    def training(self) -> ModelSummary | None:
        """The newest training, from scratch or as a refresh."""
        return next((model for model in reversed(self.models) if model.night is None), None)

    @property
    def learnt(self) -> ModelSummary | None:
        """The update, or else the newest model."""
        return self.update or self.training


class GcEstimate(Record):
    """What gc would free."""

    keep: int
    versions: int
    parts: int
    bytes: int


class StorageSummary(Record):
    """What is stored. `notice`: why it is not known what gc would free."""

    parts: int
    bytes: int
    gc: list[GcEstimate]
    notice: str | None = None


class NightlySummary(Record):
    """All figures of the page."""

    store: str
    made: str
    version: int
    snapshot: str
    model: int | None
    entities: int
    relations: int
    train: int
    valid: int
    test: int
    nights: list[NightSummary]
    others: list[VersionRecord]
    versions_left_out: int
    answers: ChangedAnswers | None
    storage: StorageSummary
    seconds: float
    out: str | None = None
    page_bytes: int | None = None

    @property
    def current(self) -> ModelSummary | None:
        """The model that is current, if a night that is shown has it."""
        return next((model for night in self.nights for model in night.models if model.is_current), None)
