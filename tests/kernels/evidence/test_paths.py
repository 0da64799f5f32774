"""Two-step paths as evidence: codes that sort, and confidences that leave the asked pair out."""

from __future__ import annotations

import numpy as np
import pytest

from dkge_dist.evidence.counts import PathShares
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.topology import PathCounts, Topology
from dkge_dist.kernels.evidence.paths import PATH_PRIOR, path_codes
from dkge_dist.kernels.evidence.walks import PATH
from dkge_dist.kernels.triples import canonical
from tests.evidence.building import evidence_of, questions_of
from tests.strategies import to_triples

BOUNDS = WalkLimits(0, 9, 40)


def test_codes_sort_by_relation_then_by_steps() -> None:
    steps = [(r, a, b) for r in (0, 1, 70_000) for a in (0, 1, 2**20) for b in (0, 3, 2**21 - 1)]
    codes = path_codes(*(np.array(column) for column in zip(*steps, strict=True)))
    assert (np.diff(codes) > 0).all()


def uncles(count: int) -> list[tuple[int, int, int]]:
    """x –1→ m –2→ y, and x –0→ y for all but the first; x –3→ y for the second too."""
    triples = []
    for number in range(count):
        x, m, y = 3 * number, 3 * number + 1, 3 * number + 2
        triples += [(x, 1, m), (m, 2, y)] + ([(x, 0, y)] if number else []) + ([(x, 3, y)] if number == 1 else [])
    return triples


@pytest.mark.parametrize("known", [False, True])
def test_a_path_is_as_good_as_the_relation_it_goes_along_with(known: bool) -> None:
    """Of five other pairs all have relation 0, and one has relation 3 too; its own triple changes nothing."""
    triples = [*uncles(6), *([(0, 0, 2)] if known else [])]
    evidence = evidence_of(triples, 18, 4, BOUNDS)
    for asked, other in (((0, 0, True), 2), ((2, 0, False), 0)):
        (found,) = evidence.of_pairs(questions_of([asked]), np.array([other]))
        assert found[PATH] == pytest.approx(5 / (6 + PATH_PRIOR))


def test_steps_have_an_order_and_a_direction() -> None:
    """Neither 2 then 1 nor the way back is the path 1 then 2."""
    extra = [(20, 2, 21), (21, 1, 22), (25, 1, 24), (24, 2, 23)]
    evidence = evidence_of([*uncles(6), *extra], 26, 4, BOUNDS)
    pairs = evidence.of_pairs(questions_of([(20, 0, True), (23, 0, True), (25, 0, True)]), np.array([22, 25, 23]))
    assert (pairs[:, PATH] > 0).tolist() == [False, False, True]


def test_longest_paths_of_one_relation_give_no_evidence_of_paths() -> None:
    train = canonical(to_triples(uncles(6)))
    topology = Topology.of(train, 18)
    assert PathShares.of(PathCounts.of(topology, train, 4, 1)).codes.shape == (0,)
    two, three = (PathShares.of(PathCounts.of(topology, train, 4, length)) for length in (2, 3))
    assert all(np.array_equal(*columns) for columns in zip(two, three, strict=True))
