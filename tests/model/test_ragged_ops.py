"""The ragged operations as torch functions: gradients by finite differences, other devices refused, memory reused."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch import Tensor

from dkge_dist.kernels.contexts import Sampling
from dkge_dist.model import ragged_ops
from dkge_dist.model.ragged_ops import aggregate, encode, encode_frozen
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


def leaves_of(forms: Forms) -> list[Tensor]:
    """Rows, knowledge, attention and the gate's share."""
    made = [random(forms.rows, 4), random(forms.count, 4, seed=1), random(4, seed=2), random(4, seed=3).sigmoid()]
    return [tensor.requires_grad_() for tensor in made]


def test_gradients_are_the_slopes_of_the_values(forms: Forms) -> None:
    leaves = leaves_of(forms)
    assert_slope(lambda x: aggregate(x, forms.ragged), leaves[:1])
    assert_slope(lambda *given: encode(*given, forms.ragged), leaves)
    hidden = aggregate(leaves[0], forms.ragged).detach()
    fixed = [tensor.detach() for tensor in leaves[2:]]
    begin, end = forms.ragged.indptr[:-1], forms.ragged.indptr[1:]
    assert_slope(lambda k: encode_frozen(k, *fixed, hidden, begin, end), leaves[1:2])


def test_strided_inputs_and_gradients_give_the_same(forms: Forms) -> None:
    plain = leaves_of(forms)
    strided = [tensor.detach().T.contiguous().T.requires_grad_() if tensor.dim() > 1 else tensor for tensor in plain]
    outs = [encode(*some, forms.ragged) for some in (strided, plain)]
    assert torch.equal(*outs)
    wanted = random(4, forms.count, seed=2).T
    mine, theirs = (torch.autograd.grad((out * wanted).sum(), x) for out, x in zip(outs, (strided, plain), strict=True))
    assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))


def test_rows_in_bfloat16_are_widened_and_their_gradients_rounded(forms: Forms) -> None:
    """More of them than contexts show, as a product leaves them: these have no gradient."""
    rows, *others = leaves_of(forms)
    halves = torch.cat([rows.detach(), random(3, 4, seed=5)]).bfloat16().requires_grad_()
    widened = halves.detach().float().requires_grad_()
    for function in (lambda x: aggregate(x, forms.ragged), lambda x: encode(x, *others, forms.ragged)):
        mine, theirs = function(halves), function(widened[: forms.rows])
        assert torch.equal(mine, theirs)
        wanted = random(*mine.shape, seed=6)
        by_halves, *by_others = torch.autograd.grad((mine * wanted).sum(), [halves, *others], allow_unused=True)
        by_widened, *expected = torch.autograd.grad((theirs * wanted).sum(), [widened, *others], allow_unused=True)
        assert by_halves.dtype == torch.bfloat16
        assert torch.equal(by_halves, by_widened.bfloat16())
        assert not by_halves[forms.rows :].any()
        assert all(torch.equal(one, other) for one, other in zip(by_others, expected, strict=True) if other is not None)


def test_only_knowledge_gets_a_gradient_from_frozen_contexts(forms: Forms) -> None:
    _, knowledge, attention, share = leaves_of(forms)
    hidden = random(forms.ragged.slot_row.shape[0], 4)
    encode_frozen(
        knowledge, attention, share, hidden, forms.ragged.indptr[:-1], forms.ragged.indptr[1:]
    ).sum().backward()
    assert knowledge.grad is not None
    assert attention.grad is None and share.grad is None and hidden.grad is None


@pytest.mark.parametrize("name", ["aggregate", "encode", "encode_frozen"])
def test_other_devices_are_refused(forms: Forms, name: str) -> None:
    rows, knowledge, attention, share = (tensor.detach().to("meta") for tensor in leaves_of(forms))
    begin, end = forms.ragged.indptr[:-1], forms.ragged.indptr[1:]
    calls = {
        "aggregate": lambda: aggregate(rows, forms.ragged),
        "encode": lambda: encode(rows, knowledge, attention, share, forms.ragged),
        "encode_frozen": lambda: encode_frozen(knowledge, attention, share, rows, begin, end),
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
