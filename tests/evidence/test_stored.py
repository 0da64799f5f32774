"""Evidence as arrays: read back over the same graph it says the same, and other shapes are refused."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dkge_dist.evidence.stored import counts_of, evidence_of, paths_of, to_arrays, weights_of
from dkge_dist.types import DkgeError
from tests.evidence.building import every_pair, scored
from tests.strategies import RandomGraph

TRIPLES = [(h, r, (h * 3 + r) % 9) for h in range(9) for r in range(3)]


def test_evidence_reads_back() -> None:
    made = scored(TRIPLES, 9, 3)
    made = replace(made, weights=replace(made.weights, scale=0.5, near=2.25))
    arrays = {name: np.array(array) for name, array in to_arrays(made).items()}
    back = evidence_of(arrays, made.graph.graph, made.graph.digest, made.graph.limits)
    pairs = every_pair(RandomGraph(9, 3, []))
    assert back.of(*pairs).tobytes() == made.of(*pairs).tobytes()
    assert made.of(*pairs).any()
    assert (back.weights.scale, back.weights.near) == (0.5, 2.25)


@pytest.mark.parametrize("name", ["weights.relation", "weights.common", "weights.scale"])
def test_weights_of_another_program_are_refused(name: str) -> None:
    arrays = to_arrays(scored(TRIPLES, 9, 3))
    arrays[name] = arrays[name][..., 2:]
    with pytest.raises(DkgeError, match="not of this program"):
        weights_of(arrays)


@pytest.mark.parametrize("name", ["counts.joint", "counts.loops", "paths.total", "paths.codes"])
def test_counts_that_do_not_fit_are_refused(name: str) -> None:
    """Kernels look them up without a check."""
    arrays = to_arrays(scored(TRIPLES, 9, 3))
    read = counts_of if name.startswith("counts") else paths_of
    read(arrays)
    for wrong in (arrays[name][:-1], arrays[name].astype(float), arrays[name][:, None]):
        with pytest.raises(DkgeError, match=r"evidence whose \w+ .* not of this program"):
            read({**arrays, name: wrong})
    with pytest.raises(DkgeError, match=f"evidence without {name}"):
        read({key: array for key, array in arrays.items() if key != name})
