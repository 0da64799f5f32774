"""Encoding over frozen contexts: the kernels against sums in 64 bits, and their gradient against torch's."""

from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.kernels.jit import as_readonly
from dkge_dist.kernels.ragged import encode_frozen, encode_frozen_backward
from dkge_dist.types import OFFSET
from tests import reference


class Frozen(NamedTuple):
    """Contexts, what attends to them, and the gate."""

    begin: np.ndarray
    end: np.ndarray
    hidden: np.ndarray
    knowledge: np.ndarray
    attention: np.ndarray
    share: np.ndarray


def encoded(given: Frozen) -> np.ndarray:
    out = np.full_like(given.knowledge, np.nan)
    encode_frozen(as_readonly(given.begin), as_readonly(given.end), *given[2:], out)
    return out


def by_knowledge(given: Frozen, grad: np.ndarray) -> np.ndarray:
    out = np.full_like(grad, np.nan)
    encode_frozen_backward(as_readonly(given.begin), as_readonly(given.end), *given[2:], grad, out)
    return out


class Exact(NamedTuple):
    """Sums in 64 bits, and how far those in 32 bits may be from them."""

    out: np.ndarray
    slope: np.ndarray
    out_error: np.ndarray
    slope_error: np.ndarray


def exactly(given: Frozen, grad: np.ndarray) -> Exact:
    """By torch, one object at a time.

    Every weight may be off by what its score may be, in shares of itself: large scores have exponentials that are far
    off, which no fixed tolerance allows for without allowing for anything.
    """
    found = []
    attention, share = (torch.from_numpy(x).double() for x in (given.attention, given.share))
    for b, e, k, g in zip(given.begin, given.end, given.knowledge, grad, strict=True):
        seen = torch.from_numpy(given.hidden[b:e]).double()
        leaf = torch.from_numpy(k).double().requires_grad_()
        query = attention * torch.relu(leaf)
        weight = torch.softmax(seen @ query, 0)
        out = share * leaf + (1 - share) * (weight @ seen)
        out.backward(torch.from_numpy(g).double())
        with torch.no_grad():
            by_context = (1 - share) * torch.from_numpy(g).double()
            rounding = 2.0**-23 * (seen.shape[0] + seen.shape[1] + 8)
            of_weight = 2 * rounding * (1 + float((seen @ query.abs()).max()))
            of_sum = of_weight * (weight @ seen)
            of_slope = 4 * attention.abs() * of_sum * float((seen @ by_context.abs()).max())
            out_error = of_sum + rounding * (1 + leaf.abs())
            found.append((out, leaf.grad, out_error, of_slope + rounding * (1 + leaf.grad.abs())))
    return Exact(*(np.stack([one.detach().numpy() for one in some]) for some in zip(*found, strict=True)))


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(1, 20),
    st.integers(0, 10**6),
    st.sampled_from([0.1, 1.0, 20.0]),
)
def test_encoding_and_its_gradient_equal_sums_in_64_bits(sizes: list[int], dim: int, seed: int, scale: float) -> None:
    """Contexts in any order, seen by several objects or by none, with scores that would overflow unscaled."""
    rng = np.random.default_rng(seed)
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(OFFSET)
    seen = rng.integers(0, len(sizes), rng.integers(1, 20))
    hidden = np.maximum(rng.normal(size=(int(bounds[-1]), dim)), 0).astype(np.float32) * np.float32(scale)
    knowledge, grad = (rng.normal(size=(seen.shape[0], dim)).astype(np.float32) for _ in range(2))
    attention = rng.normal(size=dim).astype(np.float32) * np.float32(scale)
    share = rng.uniform(0, 1, dim).astype(np.float32)
    given = Frozen(bounds[seen], bounds[seen + 1], hidden, knowledge, attention, share)
    exact = exactly(given, grad)
    query = attention.astype(np.float64) * np.maximum(knowledge, 0)
    twin = np.stack([reference.attend(hidden[b:e], q) for b, e, q in zip(given.begin, given.end, query, strict=True)])
    mixed = share.astype(np.float64) * knowledge + (1 - share.astype(np.float64)) * twin
    np.testing.assert_allclose(exact.out, mixed, rtol=1e-9, atol=1e-9)
    assert (np.abs(encoded(given) - exact.out) <= exact.out_error).all()
    assert (np.abs(by_knowledge(given, grad) - exact.slope) <= exact.slope_error).all()


def test_context_of_one_vertex_is_that_vertex_and_has_no_gradient() -> None:
    hidden = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    begin, end = np.array([1, 0], OFFSET), np.array([2, 1], OFFSET)
    knowledge = np.array([[1e30, -5.0], [0.0, 0.0]], np.float32)
    given = Frozen(begin, end, hidden, knowledge, np.ones(2, np.float32), np.zeros(2, np.float32))
    assert encoded(given).tolist() == [[3.0, 4.0], [1.0, 2.0]]
    assert by_knowledge(given, np.ones_like(knowledge)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("objects", [0, 1, 300])
def test_inputs_are_not_written(objects: int) -> None:
    rng = np.random.default_rng(objects)
    hidden = rng.normal(size=(50, 6)).astype(np.float32)
    begin = rng.integers(0, 25, objects)
    knowledge = rng.normal(size=(objects, 6)).astype(np.float32)
    parameters = rng.uniform(0, 1, (2, 6)).astype(np.float32)
    given = Frozen(begin, begin + rng.integers(1, 25, objects), hidden, knowledge, *parameters)
    before = Frozen(*(array.copy() for array in given))
    once = encoded(given)
    assert np.array_equal(once, encoded(given))
    assert np.isfinite(once).all()
    assert all(np.array_equal(now, then) for now, then in zip(given, before, strict=True))
