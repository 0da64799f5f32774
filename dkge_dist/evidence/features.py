"""Features: what a walk found, as the few numbers that evidence weighs. In: columns of `Found`. Out: φ by candidate.

Each is zero where a candidate has nothing of its kind, and grows like a logarithm: the tenth of a kind says less than
the first. What else speaks for a linked candidate weighs apart, because the link already says most of it.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.evidence.walks import COMPANY, LINK, PATH, SHARE, SIMILAR
from dkge_dist.types import Array

FEATURES = (
    "evidence",
    "link",
    "confidence",
    "company",
    "company_linked",
    "similar",
    "similar_linked",
    "path",
    "unused",
)
"""Any evidence at all; a link, and the log odds of its confidence; company; similar known answers; the same two if
there is a link; a path; and that no other pair of the asked relation has the candidate."""

LEAST_CONFIDENCE = 1e-3
"""Confidences are kept so far from 0 and from 1."""
SHARES = 5.0
"""How much of a candidate's share of the asked relation is added to its company: before any is seen, what is common
is likelier."""
COMPANY_UNIT, SIMILAR_UNIT, PATH_UNIT = 0.01, 0.05, 0.01


def features(values: Array) -> Array:
    """φ of candidates, one row each; all zero for a candidate without evidence."""
    link, company, similar, path, share = (values[:, column] for column in (LINK, COMPANY, SIMILAR, PATH, SHARE))
    found = (link > 0) | (company > 0) | (similar > 0) | (path > 0)
    linked = link > 0
    by_company = np.where(found, np.log1p((company + SHARES * share) / COMPANY_UNIT), 0)
    by_similar = np.log1p(similar / SIMILAR_UNIT)
    confidence = np.clip(link, LEAST_CONFIDENCE, 1 - LEAST_CONFIDENCE)
    columns = (
        found,
        linked,
        np.where(linked, np.log(confidence / (1 - confidence)), 0),
        by_company,
        linked * by_company,
        by_similar,
        linked * by_similar,
        np.log1p(path / PATH_UNIT),
        found & (share == 0),
    )
    return np.stack(columns, axis=1).astype(np.float32)
