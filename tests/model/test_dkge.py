"""The whole model: its parameters by seed and size, and features of relation paths."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.model.dkge import Dkge, path_features


def test_parameters_are_those_of_two_encoders() -> None:
    model = Dkge(5, entity_layers=2, relation_layers=3)
    assert {name: tuple(value.shape) for name, value in model.named_parameters()} == {
        **{f"entity.gcn.weights.{i}": (5, 5) for i in range(2)},
        **{f"relation.gcn.weights.{i}": (5, 5) for i in range(3)},
        **{f"{kind}.gcn.attention": (5,) for kind in ("entity", "relation")},
        **{f"{kind}.gate.logits": (5,) for kind in ("entity", "relation")},
    }


def test_seed_decides_all_parameters() -> None:
    one, same, other = (dict(Dkge(4, 1, 1, seed).named_parameters()) for seed in (7, 7, 8))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["entity.gcn.weights.0"], other["entity.gcn.weights.0"])
    assert not torch.equal(one["entity.gcn.weights.0"], one["relation.gcn.weights.0"])


@given(st.lists(st.lists(st.integers(0, 5), min_size=1, max_size=4), min_size=1, max_size=10), st.integers(0, 99))
def test_features_of_paths_are_sums_over_their_relations(paths: list[list[int]], seed: int) -> None:
    table = torch.randn(6, 3, generator=torch.Generator().manual_seed(seed)).requires_grad_()
    bag = torch.tensor([relation for path in paths for relation in path])
    offsets = torch.tensor(np.cumsum([0, *map(len, paths[:-1])]))
    found = path_features(table, bag, offsets)
    expected = torch.stack([table[path].sum(0) for path in paths])
    torch.testing.assert_close(found, expected)
    slopes = [torch.autograd.grad((x * x).sum(), table, retain_graph=True)[0] for x in (found, expected)]
    torch.testing.assert_close(*slopes)


def test_paths_on_another_device_stay_there() -> None:
    table = torch.randn(6, 3).to("meta").requires_grad_()
    numbers = torch.tensor([0, 1, 2]).to("meta")
    found = path_features(table, numbers, numbers[:2])
    assert found.device.type == "meta"
    assert torch.autograd.grad(found.sum(), table)[0].device.type == "meta"
