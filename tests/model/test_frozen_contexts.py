"""Frozen contexts give the vectors and the gradients by `^k` of the whole encoder."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.kernels.contexts import Sampling
from dkge_dist.model.frozen_contexts import encode_frozen, encode_partly_frozen, hidden_features, products
from tests.model.encoding import TOLERANCE, forms_of, inputs_for
from tests.strategies import RandomGraph, graphs


@given(graphs(max_rows=14), st.integers(1, 3), st.integers(1, 7), st.sampled_from([3, 8, 20]), st.data())
def test_frozen_encoding_equals_the_whole_encoder(
    graph: RandomGraph, layers: int, cap: int, dim: int, data: st.DataObject
) -> None:
    """Objects in any order, some of them several times, some not at all."""
    forms = forms_of(graph, Sampling(5, cap, 1))
    encoder, features, knowledge, _ = inputs_for(forms, dim, layers, 1)
    encoder.requires_grad_(False)
    made = torch.from_numpy(products(encoder.gcn, features.clone().requires_grad_()))
    hidden = hidden_features(encoder.gcn, made, forms.ragged)
    assert hidden.shape == (forms.ragged.slot_row.shape[0], dim)
    objects = np.array(data.draw(st.lists(st.integers(0, graph.rows - 1), min_size=1, max_size=20)))
    begin, end = forms.ragged.indptr[:-1][objects], forms.ragged.indptr[1:][objects]
    leaves = [knowledge.clone().requires_grad_() for _ in range(2)]
    whole = encoder(features, forms.ragged, leaves[0])[torch.from_numpy(objects)]
    frozen = encode_frozen(encoder, leaves[1][torch.from_numpy(objects)], begin, end, hidden)
    assert torch.equal(whole, frozen), "the same sums in the same order"
    wanted = torch.randn(whole.shape, generator=torch.Generator().manual_seed(2))
    for out in (whole, frozen):
        (out * wanted).sum().backward()
    np.testing.assert_allclose(leaves[0].grad, leaves[1].grad, **TOLERANCE)


@given(graphs(max_rows=14), st.integers(1, 3), st.integers(1, 7), st.sampled_from([3, 8, 20]), st.data())
def test_partly_frozen_encoding_equals_the_whole_encoder(
    graph: RandomGraph, layers: int, cap: int, dim: int, data: st.DataObject
) -> None:
    """None, some or all rows learn: the same vectors, and the gradients of those rows and of `^k`."""
    forms = forms_of(graph, Sampling(5, cap, 1))
    encoder, features, knowledge, _ = inputs_for(forms, dim, layers, 1)
    encoder.requires_grad_(False)
    rows = features.shape[0]
    learning = np.array(sorted(data.draw(st.sets(st.integers(0, rows - 1)))), np.int64)
    kept = torch.from_numpy(products(encoder.gcn, features))
    kept[learning] = torch.nan
    leaves = [[tensor.clone().requires_grad_() for tensor in (features, knowledge)] for _ in range(2)]
    whole = encoder(leaves[0][0], forms.ragged, leaves[0][1])
    learn = leaves[1][0][torch.from_numpy(learning)]
    partly = encode_partly_frozen(encoder, kept, learning, learn, leaves[1][1], forms.ragged)
    np.testing.assert_allclose(partly.detach(), whole.detach(), **TOLERANCE)
    wanted = torch.randn(whole.shape, generator=torch.Generator().manual_seed(2))
    for out in (whole, partly):
        (out * wanted).sum().backward()
    np.testing.assert_allclose(leaves[1][1].grad, leaves[0][1].grad, **TOLERANCE)
    by_whole, by_partly = (torch.zeros(rows, dim) if some[0].grad is None else some[0].grad for some in leaves)
    np.testing.assert_allclose(by_partly[learning], by_whole[learning], **TOLERANCE)
    assert not by_partly[np.setdiff1d(np.arange(rows), learning)].any()
