"""The ragged operations as torch functions: gradients by finite differences, other devices refused, memory reused."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch import Tensor

from dkge_dist.kernels.contexts import Sampling
from dkge_dist.model import ragged_ops
from dkge_dist.model.ragged_ops import aggregate, aggregate_and_attend, attend
from tests.model.encoding import Forms, forms_of
from tests.strategies import RandomGraph

GRAPH = RandomGraph(6, 1, [(0, 0, 1), (0, 0, 2), (1, 0, 2), (3, 0, 4), (5, 0, 5)])


@pytest.fixture
def forms() -> Forms:
    return forms_of(GRAPH, Sampling(1, 5, 1))


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_slope(function, leaves: list[Tensor]) -> None:  # type: ignore[no-untyped-def]
    """The gradient along random directions equals the difference of values, in 32 bits."""
    out = function(*leaves)
    weight = random(*out.shape, seed=9)
    slopes = torch.autograd.grad((out * weight).sum(), leaves)
    for number, (leaf, slope) in enumerate(zip(leaves, slopes, strict=True)):
        direction = 1e-3 * random(*leaf.shape, seed=number + 20)
        with torch.no_grad():
            moved = [[x + step if x is leaf else x for x in leaves] for step in (direction, -direction)]
            ahead, behind = (function(*some) for some in moved)
        difference = float(((ahead - behind) * weight).sum() / 2)
        assert difference == pytest.approx(float((slope * direction).sum()), rel=5e-2, abs=2e-5)


def test_gradients_are_the_slopes_of_the_values(forms: Forms) -> None:
    rows, query = random(forms.rows, 4).requires_grad_(), random(forms.count, 4, seed=1).requires_grad_()
    assert_slope(lambda x: aggregate(x, forms.ragged), [rows])
    assert_slope(lambda x, q: aggregate_and_attend(x, q, forms.ragged), [rows, query])
    hidden = aggregate(rows, forms.ragged).detach()
    assert_slope(lambda q: attend(q, hidden, forms.ragged.indptr[:-1], forms.ragged.indptr[1:]), [query])


def test_strided_inputs_and_gradients_give_the_same(forms: Forms) -> None:
    rows, query = random(forms.rows, 4), random(forms.count, 4, seed=1)
    strided = [tensor.T.contiguous().T.requires_grad_() for tensor in (rows, query)]
    plain = [tensor.clone().requires_grad_() for tensor in (rows, query)]
    outs = [aggregate_and_attend(x, q, forms.ragged) for x, q in (strided, plain)]
    assert torch.equal(*outs)
    wanted = random(4, forms.count, seed=2).T
    mine, theirs = (torch.autograd.grad((out * wanted).sum(), x) for out, x in zip(outs, (strided, plain), strict=True))
    assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))


def test_hidden_features_get_no_gradient(forms: Forms) -> None:
    query, hidden = random(forms.count, 4).requires_grad_(), random(forms.ragged.slot_row.shape[0], 4)
    out = attend(query, hidden, forms.ragged.indptr[:-1], forms.ragged.indptr[1:])
    out.sum().backward()
    assert query.grad is not None
    assert hidden.grad is None


@pytest.mark.parametrize("name", ["aggregate", "aggregate_and_attend", "attend"])
def test_other_devices_are_refused(forms: Forms, name: str) -> None:
    rows, query = random(forms.rows, 4).to("meta"), random(forms.count, 4).to("meta")
    begin, end = forms.ragged.indptr[:-1], forms.ragged.indptr[1:]
    calls = {
        "aggregate": lambda: aggregate(rows, forms.ragged),
        "aggregate_and_attend": lambda: aggregate_and_attend(rows, query, forms.ragged),
        "attend": lambda: attend(query, rows, begin, end),
    }
    with pytest.raises(ValueError, match="ragged contexts run on the CPU, these vectors are on meta"):
        calls[name]()


def test_scratch_memory_grows_and_belongs_to_one_thread() -> None:
    scratch = ragged_ops._Scratch()
    first = scratch.rows(3, 4)
    assert first.shape == (3, 4)
    assert np.shares_memory(first, scratch.rows(2, 5))
    assert scratch.rows(100, 7).shape == (100, 7)
    seen: list[bool] = []
    mine = scratch.rows(100, 7)
    thread = threading.Thread(target=lambda: seen.append(np.shares_memory(mine, scratch.rows(100, 7))))
    thread.start()
    thread.join()
    assert seen == [False]
