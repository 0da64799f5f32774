"""Malformed inputs end in a message; some here, more in `make check-all`, ten thousand by `python -m tests.fuzzing`."""

from __future__ import annotations

import pytest

from tests.fuzzing.running import KINDS, WRONG, Outcome, run


def wrong(seed: int, count: int) -> list[Outcome]:
    outcomes = list(run(seed, range(count)))
    assert len(outcomes) == count
    assert {outcome.kind for outcome in outcomes} == set(KINDS)
    return [outcome for outcome in outcomes if outcome.ending in WRONG]


def test_some_malformed_inputs() -> None:
    assert wrong(2, 68) == []


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_many_malformed_inputs() -> None:
    assert wrong(3, 3000) == []
