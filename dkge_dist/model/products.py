"""Matrix products in bfloat16: twice as fast where the processor multiplies it, with 8 significant bits.

For steps of a training alone: what is ranked, published and asked is computed in float32.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from torch import Tensor

Products = Literal["auto", "float32", "bfloat16"]

STEPS = 32
LEAST_STEP = 64
"""Rows are rounded up to a multiple of a 32nd of the next power of two, and of 64: a few in a hundred more."""


def by_bfloat16(products: Products, device: torch.device) -> bool:
    """Whether a training on `device` multiplies in bfloat16; `auto`: where a processor has instructions for it."""
    if products != "auto":
        return products == "bfloat16"
    has = torch.cpu.get_capabilities() if device.type == "cpu" else {}
    return bool(has.get("avx512_bf16") or has.get("amx_bf16"))


def bfloat16_product(rows_UD: Tensor, weight_DD: Tensor) -> Tensor:
    """rows · weight, rounded to bfloat16 before and after, in bfloat16; gradients likewise.

    There are some rows of zeros more than there were: whoever reads rows by their numbers needs no copy without them.
    """
    out: Tensor = _Product.apply(rows_UD, weight_DD)
    return out


class _Product(torch.autograd.Function):
    """Keeps the rounded factors for the way back: half of the memory, and nothing is rounded twice."""

    @staticmethod
    def forward(ctx: Any, rows_UD: Tensor, weight_DD: Tensor) -> Tensor:
        rows, weight = _rounded(rows_UD), weight_DD.bfloat16()
        ctx.save_for_backward(rows, weight)
        ctx.count = rows_UD.shape[0]
        # A factor whose columns lie in a row each is multiplied in half the time.
        return rows @ weight.T.contiguous().T

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor]:
        (rows, weight), grad = ctx.saved_tensors, grads[0]
        return (grad @ weight.T)[: ctx.count].float(), (rows.T @ grad).float()


def _rounded(values_UD: Tensor) -> Tensor:
    """As bfloat16, with rows of zeros up to a round number of them.

    Hardly two batches have as many rows, and oneDNN compiles a product anew for every shape: that takes as long as the
    product of a small batch itself.
    """
    count, dim = values_UD.shape
    step = max(LEAST_STEP, (1 << count.bit_length()) // STEPS)
    out = values_UD.new_empty(-(-count // step) * step, dim, dtype=torch.bfloat16)
    out[:count] = values_UD
    out[count:] = 0
    return out
