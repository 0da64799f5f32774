"""The ragged kernels as differentiable torch operations. CPU only: kernels read the memory of the tensors.

Shapes: B objects, M vertex slots, U distinct rows, D dimensions.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dkge_dist.kernels import frozen_contexts, ragged
from dkge_dist.kernels.jit import as_readonly
from dkge_dist.kernels.ragged import RaggedBatch
from dkge_dist.types import Array


def aggregate(rows_UD: Tensor, contexts: RaggedBatch) -> Tensor:
    """ReLU(Â rows) at every vertex slot."""
    _require_cpu(rows_UD)
    out: Tensor = _Aggregate.apply(rows_UD, contexts)
    return out


def aggregate_and_attend(rows_UD: Tensor, query_BD: Tensor, contexts: RaggedBatch) -> Tensor:
    """With H = ReLU(Â rows): the sums of H over each context, weighted by the softmax of H · query."""
    _require_cpu(rows_UD)
    out: Tensor = _AggregateAndAttend.apply(rows_UD, query_BD, contexts)
    return out


def attend(query_BD: Tensor, hidden_MD: Tensor, begin_B: Array, end_B: Array) -> Tensor:
    """The sums of hidden[begin:end], weighted by the softmax of hidden · query; differentiable by the query alone."""
    _require_cpu(hidden_MD)
    out: Tensor = _Attend.apply(query_BD, hidden_MD, as_readonly(begin_B), as_readonly(end_B))
    return out


def _require_cpu(tensor: Tensor) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(f"ragged contexts run on the CPU, these vectors are on {tensor.device}: use padded blocks")


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows_UD: Tensor, contexts: RaggedBatch) -> Tensor:
        out_MD = rows_UD.new_empty(contexts.slot_row.shape[0], rows_UD.shape[1])
        ragged.aggregate(contexts, rows_UD.detach().contiguous().numpy(), out_MD.numpy())
        ctx.contexts, ctx.rows = contexts, rows_UD.shape[0]
        ctx.save_for_backward(out_MD)
        return out_MD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (out_MD,) = ctx.saved_tensors
        grad_UD = out_MD.new_empty(ctx.rows, out_MD.shape[1])
        ragged.aggregate_backward(ctx.contexts, out_MD.numpy(), grads[0].contiguous().numpy(), grad_UD.numpy())
        return grad_UD, None


class _AggregateAndAttend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows_UD: Tensor, query_BD: Tensor, contexts: RaggedBatch) -> Tensor:
        rows, query = rows_UD.detach().contiguous(), query_BD.detach().contiguous()
        attention_M, out_BD = rows.new_empty(contexts.slot_row.shape[0]), torch.empty_like(query)
        ragged.attend(contexts, rows.numpy(), query.numpy(), attention_M.numpy(), out_BD.numpy())
        ctx.contexts = contexts
        ctx.save_for_backward(rows, query, attention_M)
        return out_BD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None]:
        rows, query, attention_M = ctx.saved_tensors
        grad_UD, grad_query_BD = torch.empty_like(rows), torch.empty_like(query)
        ragged.attend_backward(
            ctx.contexts, rows.numpy(), query.numpy(), attention_M.numpy(), grads[0].contiguous().numpy(),
            _scratch.rows(attention_M.shape[0], rows.shape[1]), grad_query_BD.numpy(), grad_UD.numpy(),
        )  # fmt: skip
        return grad_UD, grad_query_BD, None


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query_BD: Tensor, hidden_MD: Tensor, begin_B: Array, end_B: Array) -> Tensor:
        query = query_BD.detach().contiguous()
        out_BD = torch.empty_like(query)
        frozen_contexts.attend_frozen(begin_B, end_B, hidden_MD.numpy(), query.numpy(), out_BD.numpy())
        ctx.query, ctx.contexts = query, (begin_B, end_B, hidden_MD)
        return out_BD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None, None, None]:
        begin_B, end_B, hidden_MD = ctx.contexts
        grad_query = torch.empty_like(ctx.query)
        frozen_contexts.attend_frozen_backward(
            begin_B, end_B, hidden_MD.numpy(), ctx.query.numpy(), grads[0].contiguous().numpy(), grad_query.numpy()
        )
        return grad_query, None, None, None


class _Scratch(threading.local):
    """Memory of one backward pass, kept for the next: new pages from the system cost more time than filling them."""

    def __init__(self) -> None:
        self.values = np.empty(0, np.float32)

    def rows(self, count: int, dim: int) -> Array:
        """`count` rows, with any values in them."""
        if self.values.shape[0] < count * dim:
            self.values = np.empty(count * dim * 5 // 4, np.float32)
        return self.values[: count * dim].reshape(count, dim)


_scratch = _Scratch()
