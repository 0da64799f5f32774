"""The gate that mixes an object's knowledge embedding with its context: one vector for all objects of a kind."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Gate(nn.Module):
    """o* = g ⊙ o^k + (1 − g) ⊙ sg(o) with g = sigmoid(g̃); g̃ starts at 0, so g at one half."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(dim))

    @property
    def share(self) -> Tensor:
        """g."""
        return torch.sigmoid(self.logits)

    def forward(self, knowledge_BD: Tensor, context_BD: Tensor) -> Tensor:
        """The joint embedding."""
        return torch.lerp(context_BD, knowledge_BD, self.share)
