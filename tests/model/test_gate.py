"""The gate: its formula, its start, and its gradients."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.model.gate import Gate


@given(st.integers(1, 12), st.integers(1, 9), st.integers(0, 99))
def test_gate_mixes_by_the_sigmoid_of_its_logits(objects: int, dim: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    gate = Gate(dim)
    with torch.no_grad():
        gate.logits.normal_(std=3, generator=generator)
    own, context = (torch.randn(objects, dim, generator=generator) for _ in range(2))
    share = 1 / (1 + torch.exp(-gate.logits.double()))
    torch.testing.assert_close(gate(own, context).double(), share * own + (1 - share) * context, rtol=1e-5, atol=1e-5)


def test_gate_starts_half_and_half() -> None:
    own, context = torch.tensor([[1.0, 5.0]]), torch.tensor([[3.0, -5.0]])
    assert Gate(2)(own, context).tolist() == [[2.0, 0.0]]


def test_gradients_reach_both_sides_and_the_logits() -> None:
    gate = Gate(3)
    own, context = torch.ones(2, 3, requires_grad=True), torch.zeros(2, 3, requires_grad=True)
    gate(own, context).sum().backward()
    assert own.grad is not None and own.grad.tolist() == [[0.5] * 3] * 2
    assert context.grad is not None and context.grad.tolist() == [[0.5] * 3] * 2
    assert gate.logits.grad is not None and gate.logits.grad.tolist() == [0.5] * 3
