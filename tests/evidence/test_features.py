"""Features: nothing for those without evidence, and each of what it is named after."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.evidence.features import (
    COMPANY_UNIT,
    FEATURES,
    LEAST_CONFIDENCE,
    PATH_UNIT,
    SHARES,
    SIMILAR_UNIT,
    features,
)
from dkge_dist.kernels.evidence.walks import COLUMNS, COMPANY, LINK, PATH, SHARE, SIMILAR


def of(**columns: float) -> dict[str, float]:
    values = np.zeros((1, COLUMNS), np.float32)
    for name, value in columns.items():
        values[0, {"link": LINK, "company": COMPANY, "similar": SIMILAR, "path": PATH, "share": SHARE}[name]] = value
    return dict(zip(FEATURES, features(values)[0].tolist(), strict=True))


def test_without_evidence_all_are_zero() -> None:
    """A candidate's share of the relation alone is no evidence."""
    assert not any(of().values())
    assert not any(of(share=0.5).values())
    assert features(np.empty((0, COLUMNS), np.float32)).shape == (0, len(FEATURES))


@pytest.mark.parametrize("kind", ["link", "company", "similar", "path"])
def test_any_kind_is_evidence(kind: str) -> None:
    found = of(**{kind: 0.5})
    assert found["evidence"] == found["unused"] == 1
    assert of(**{kind: 0.5}, share=0.1)["unused"] == 0
    assert {name for name in ("link", "company", "similar", "path") if found[name]} == {kind}
    assert of(**{kind: 0.6})["confidence" if kind == "link" else kind] > found["confidence" if kind == "link" else kind]


def test_what_else_speaks_for_a_linked_candidate_weighs_apart() -> None:
    alone, linked = of(company=0.2, similar=0.3), of(company=0.2, similar=0.3, link=0.5)
    assert alone["company_linked"] == alone["similar_linked"] == 0
    assert linked["company_linked"] == linked["company"] == alone["company"]
    assert linked["similar_linked"] == linked["similar"] == alone["similar"]


def test_the_values() -> None:
    found = of(link=0.75, company=0.2, similar=0.3, path=0.4, share=0.1)
    assert found["confidence"] == pytest.approx(np.log(3))
    assert found["company"] == pytest.approx(np.log1p((0.2 + SHARES * 0.1) / COMPANY_UNIT))
    assert found["similar"] == pytest.approx(np.log1p(0.3 / SIMILAR_UNIT))
    assert found["path"] == pytest.approx(np.log1p(0.4 / PATH_UNIT))


def test_confidences_of_nothing_and_everything_are_finite() -> None:
    assert of(link=1.0)["confidence"] == pytest.approx(-of(link=1e-9)["confidence"], rel=1e-4)
    assert of(link=1.0)["confidence"] == pytest.approx(np.log((1 - LEAST_CONFIDENCE) / LEAST_CONFIDENCE), rel=1e-3)
