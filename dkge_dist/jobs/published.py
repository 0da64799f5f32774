"""A model version that was just published, with its tables still open."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from dkge_dist.evidence.scores import Evidence
from dkge_dist.records import ModelRecord
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.tables.table import Tables

Made = TypeVar("Made", bound=ModelRecord)


class PublishedModel(NamedTuple, Generic[Made]):
    """What the next step of the same job needs, so that it reads nothing from the store again."""

    record: Made
    manifest: ModelManifest
    tables: Tables
    evidence: Evidence | None
