"""The ragged kernels as differentiable torch operations. CPU only: kernels read the memory of the tensors.

Rows may be bfloat16, and more than the contexts show; their gradients are then rounded likewise, and zero for the rest.

Shapes: B objects, M vertex slots, U distinct rows, D dimensions.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dkge_dist.kernels import ragged
from dkge_dist.kernels.jit import as_readonly
from dkge_dist.kernels.ragged import RaggedBatch
from dkge_dist.types import Array


def aggregate(rows_UD: Tensor, contexts: RaggedBatch) -> Tensor:
    """ReLU(Â rows) at every vertex slot."""
    _require_cpu(rows_UD)
    out: Tensor = _Aggregate.apply(rows_UD, contexts)
    return out


def encode(
    rows_UD: Tensor,
    knowledge_BD: Tensor,
    attention_D: Tensor,
    share_D: Tensor,
    contexts: RaggedBatch,
    learning: Array | None = None,
) -> Tensor:
    """o* of objects: attention over H = ReLU(Â rows) of their contexts, then the gate. `share_D`: of the knowledge.

    `learning`: the numbers of the rows whose gradients are asked for, where not all are; those of others are anything.
    """
    _require_cpu(rows_UD)
    out: Tensor = _Encode.apply(rows_UD, knowledge_BD, attention_D, share_D, contexts, learning)
    return out


def with_rows(rows_UD: Tensor, numbers: Array, learning_ED: Tensor) -> Tensor:
    """Constant rows, overwritten at some numbers by rows that learn."""
    out: Tensor = _WithRows.apply(rows_UD, torch.from_numpy(numbers), learning_ED)
    return out


def encode_frozen(
    knowledge_BD: Tensor, attention_D: Tensor, share_D: Tensor, hidden_MD: Tensor, begin_B: Array, end_B: Array
) -> Tensor:
    """The same over hidden[begin:end] of each object; differentiable by `^k` alone."""
    _require_cpu(hidden_MD)
    fixed = (attention_D, share_D, hidden_MD, as_readonly(begin_B), as_readonly(end_B))
    out: Tensor = _EncodeFrozen.apply(knowledge_BD, *fixed)
    return out


def _require_cpu(tensor: Tensor) -> None:
    if tensor.device.type != "cpu":
        raise ValueError(f"ragged contexts run on the CPU, these vectors are on {tensor.device}: use padded blocks")


class _Aggregate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows_UD: Tensor, contexts: RaggedBatch) -> Tensor:
        out_MD = rows_UD.new_empty(contexts.slot_row.shape[0], rows_UD.shape[1], dtype=torch.float32)
        ragged.aggregate(contexts, _array(rows_UD.detach().contiguous()), out_MD.numpy())
        ctx.contexts, ctx.rows, ctx.dtype = contexts, rows_UD.shape[0], rows_UD.dtype
        ctx.save_for_backward(out_MD)
        return out_MD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        (out_MD,) = ctx.saved_tensors
        grad_UD, shown_UD = _gradient_of_rows(ctx.contexts, ctx.rows, out_MD.shape[1], ctx.dtype)
        grad_MD = grads[0].contiguous().numpy()
        ragged.aggregate_backward(ctx.contexts, out_MD.numpy(), grad_MD, _scratch.rows(*grad_MD.shape), shown_UD)
        return grad_UD, None


class _Encode(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        rows_UD: Tensor,
        knowledge_BD: Tensor,
        attention_D: Tensor,
        share_D: Tensor,
        contexts: RaggedBatch,
        learning: Array | None,
    ) -> Tensor:
        given = [tensor.detach().contiguous() for tensor in (rows_UD, knowledge_BD, attention_D, share_D)]
        weight_M = given[1].new_empty(contexts.slot_row.shape[0])
        context_BD, out_BD = (given[1].new_empty(given[1].shape) for _ in range(2))
        ragged.encode(contexts, *map(_array, (*given, weight_M, context_BD, out_BD)))
        ctx.contexts, ctx.learning = contexts, learning
        ctx.save_for_backward(*given, weight_M, context_BD)
        return out_BD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        saved = ctx.saved_tensors
        rows_UD, knowledge_BD, attention_D = saved[:3]
        slot_MD = _scratch.rows(ctx.contexts.slot_row.shape[0], rows_UD.shape[1])
        chunks = ragged.chunks_of(knowledge_BD.shape[0])
        by_parameters = [attention_D.new_empty(chunks, attention_D.shape[0]) for _ in range(2)]
        by_rows_UD, shown_UD = _gradient_of_rows(ctx.contexts, rows_UD.shape[0], rows_UD.shape[1], rows_UD.dtype)
        by_knowledge_BD = torch.empty_like(knowledge_BD)
        given = [_array(tensor) for tensor in (*saved, grads[0].contiguous())]
        found = [shown_UD, *(tensor.numpy() for tensor in (by_knowledge_BD, *by_parameters))]
        learns_U = np.full(rows_UD.shape[0], ctx.learning is None)
        if ctx.learning is not None:
            learns_U[ctx.learning] = True
        ragged.encode_backward(*(ctx.contexts, *given, learns_U, slot_MD, *found))
        return by_rows_UD, by_knowledge_BD, by_parameters[0].sum(0), by_parameters[1].sum(0), None, None


class _WithRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows_UD: Tensor, numbers_E: Tensor, learning_ED: Tensor) -> Tensor:
        ctx.mark_dirty(rows_UD)
        ctx.numbers = numbers_E
        rows_UD[numbers_E] = learning_ED
        return rows_UD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[None, None, Tensor]:
        return None, None, grads[0].index_select(0, ctx.numbers)


def _array(tensor: Tensor) -> Array:
    """The memory of a tensor; bfloat16 as uint16."""
    values: Array = (tensor.view(torch.uint16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    return values


def _gradient_of_rows(contexts: RaggedBatch, rows: int, dim: int, dtype: torch.dtype) -> tuple[Tensor, Array]:
    """Room for the gradients of some rows, and the part of it that a kernel fills; the rest is zero."""
    grad_UD, shown = torch.empty(rows, dim, dtype=dtype), contexts.row_ptr.shape[0] - 1
    grad_UD[shown:] = 0
    return grad_UD, _array(grad_UD)[:shown]


class _EncodeFrozen(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        knowledge_BD: Tensor,
        attention_D: Tensor,
        share_D: Tensor,
        hidden_MD: Tensor,
        begin: Array,
        end: Array,
    ) -> Tensor:
        given = [tensor.detach().contiguous() for tensor in (hidden_MD, knowledge_BD, attention_D, share_D)]
        out_BD = given[1].new_empty(given[1].shape)
        ctx.given = (begin, end, *(tensor.numpy() for tensor in given))
        ragged.encode_frozen(*(*ctx.given, out_BD.numpy()))
        return out_BD

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        by_knowledge_BD = grads[0].new_empty(grads[0].shape)
        given = (*ctx.given, grads[0].contiguous().numpy(), by_knowledge_BD.numpy())
        ragged.encode_frozen_backward(*given)
        return by_knowledge_BD, None, None, None, None, None


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
