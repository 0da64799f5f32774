"""A model version that was just published, with its tables still open."""

from __future__ import annotations

from typing import NamedTuple

from dkge_dist.evidence.scores import Evidence
from dkge_dist.jobs.report import Report
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.tables.table import Tables


class PublishedModel(NamedTuple):
    """What the next step of the same job needs, so that it reads nothing from the store again."""

    report: Report
    manifest: ModelManifest
    tables: Tables
    evidence: Evidence | None
