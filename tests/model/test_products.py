"""Products in bfloat16: near those in 64 bits, and only where a training asks for them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dkge_dist.model.attentive_gcn import AttentiveGcn
from dkge_dist.model.products import bfloat16_product, by_bfloat16
from tests.model.vectors import gradients, vectors

ROUNDING = 2.0**-8
"""Of a number in bfloat16, relative to itself."""


@pytest.mark.parametrize(("rows", "dim"), [(1, 1), (7, 20), (300, 100)])
def test_bfloat16_product_and_its_gradients(rows: int, dim: int) -> None:
    """Each off by a few roundings of the terms it is summed of."""
    leaves = [vectors(rows, dim).requires_grad_(), vectors(dim, dim, seed=1).requires_grad_()]
    exact = [leaf.detach().double().requires_grad_() for leaf in leaves]
    weight = vectors(rows, dim, seed=2)
    whole, truth = bfloat16_product(*leaves), exact[0] @ exact[1]
    assert whole.dtype == torch.bfloat16
    assert not whole[rows:].any(), "filled up with rows of zeros"
    found = whole[:rows].float()
    terms = exact[0].detach().abs() @ exact[1].detach().abs()
    assert ((found - truth).abs() <= 4 * ROUNDING * terms).all()
    mine, theirs = gradients((found * weight).sum(), leaves), gradients((truth * weight.double()).sum(), exact)
    sizes = [weight.double().abs() @ exact[1].detach().abs().T, exact[0].detach().abs().T @ weight.double().abs()]
    for one, other, size in zip(mine, theirs, sizes, strict=True):
        assert (np.abs(np.asarray(one) - np.asarray(other)) <= 4 * ROUNDING * size.numpy()).all()


def test_only_steps_that_record_gradients_are_rounded() -> None:
    """What is ranked and published is computed in float32."""
    gcn = AttentiveGcn(16, 1, torch.Generator().manual_seed(0))
    rows, weight = vectors(9, 16), gcn.weights[0]
    exact = rows @ weight
    assert torch.equal(gcn._product(rows, weight), exact)
    gcn.learns_by_bfloat16 = True
    assert gcn._product(rows, weight).dtype == torch.bfloat16
    with torch.no_grad():
        assert torch.equal(gcn._product(rows, weight), exact)


def test_auto_asks_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    for has in (False, True):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda has=has: {"avx512_bf16": has})
        assert by_bfloat16("auto", cpu) == has
    assert not by_bfloat16("auto", gpu)
    assert by_bfloat16("bfloat16", gpu) and not by_bfloat16("float32", cpu)
