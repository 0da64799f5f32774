"""Attention over frozen contexts: the kernels against sums in 64 bits, and their gradient against torch's."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.kernels.frozen_contexts import attend_frozen, attend_frozen_backward
from dkge_dist.kernels.jit import as_readonly
from dkge_dist.types import OFFSET
from tests import reference


def attended(begin: np.ndarray, end: np.ndarray, hidden: np.ndarray, query: np.ndarray) -> np.ndarray:
    out = np.full_like(query, np.nan)
    attend_frozen(as_readonly(begin), as_readonly(end), hidden, query, out)
    return out


def by_query(begin: np.ndarray, end: np.ndarray, hidden: np.ndarray, query: np.ndarray, grad: np.ndarray) -> np.ndarray:
    out = np.full_like(query, np.nan)
    attend_frozen_backward(as_readonly(begin), as_readonly(end), hidden, query, grad, out)
    return out


def slowly(
    begin: np.ndarray, end: np.ndarray, hidden: np.ndarray, query: np.ndarray, grad: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """(out, gradient by the query) by torch, one object at a time, in 64 bits."""
    outs, grads = [], []
    for b, e, q, g in zip(begin, end, query, grad, strict=True):
        seen = torch.from_numpy(hidden[b:e]).double()
        leaf = torch.from_numpy(q).double().requires_grad_()
        out = torch.softmax(seen @ leaf, 0) @ seen
        out.backward(torch.from_numpy(g).double())
        outs.append(out.detach().numpy())
        grads.append(leaf.grad.numpy())
    return np.stack(outs), np.stack(grads)


@settings(max_examples=60)
@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=12),
    st.integers(1, 20),
    st.integers(0, 10**6),
    st.sampled_from([0.1, 1.0, 20.0]),
)
def test_attention_and_its_gradient_equal_sums_in_64_bits(sizes: list[int], dim: int, seed: int, scale: float) -> None:
    """Contexts in any order, seen by several objects or by none, with scores that would overflow unscaled."""
    rng = np.random.default_rng(seed)
    bounds = np.concatenate([[0], np.cumsum(sizes)]).astype(OFFSET)
    seen = rng.integers(0, len(sizes), rng.integers(1, 20))
    begin, end = bounds[seen], bounds[seen + 1]
    hidden = np.maximum(rng.normal(size=(int(bounds[-1]), dim)), 0).astype(np.float32) * np.float32(scale)
    query, grad = (rng.normal(size=(seen.shape[0], dim)).astype(np.float32) for _ in range(2))
    query *= np.float32(scale)
    out, slope = slowly(begin, end, hidden, query, grad)
    twin = np.stack([reference.attend(hidden[b:e], q) for b, e, q in zip(begin, end, query, strict=True)])
    np.testing.assert_allclose(out, twin, rtol=1e-9, atol=1e-9)
    # Scores are sums in 32 bits: the larger they are, the less exact is their exponential.
    tolerance = {"rtol": 1e-4, "atol": 1e-5 * max(scale, 1.0) ** 2}
    np.testing.assert_allclose(attended(begin, end, hidden, query), out, **tolerance)
    np.testing.assert_allclose(
        by_query(begin, end, hidden, query, grad), slope, rtol=1e-3, atol=1e-5 * max(scale, 1.0) ** 3
    )


def test_context_of_one_vertex_is_that_vertex_and_has_no_gradient() -> None:
    hidden = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)
    begin, end = np.array([1, 0], OFFSET), np.array([2, 1], OFFSET)
    query = np.array([[1e30, -5.0], [0.0, 0.0]], np.float32)
    assert attended(begin, end, hidden, query).tolist() == [[3.0, 4.0], [1.0, 2.0]]
    assert by_query(begin, end, hidden, query, np.ones_like(query)).tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.parametrize("objects", [0, 1, 300])
def test_inputs_are_not_written(objects: int) -> None:
    rng = np.random.default_rng(objects)
    hidden = rng.normal(size=(50, 6)).astype(np.float32)
    begin = rng.integers(0, 25, objects)
    end = begin + rng.integers(1, 25, objects)
    query = rng.normal(size=(objects, 6)).astype(np.float32)
    before = hidden.copy(), query.copy()
    once = attended(begin, end, hidden, query)
    assert np.array_equal(once, attended(begin, end, hidden, query))
    assert np.isfinite(once).all()
    assert np.array_equal(hidden, before[0]) and np.array_equal(query, before[1])
