"""Random vectors, distances in plain torch, and gradients as arrays."""

from __future__ import annotations

import numpy as np
import torch

SHAPES = [(1, 1, 1), (7, 5, 3), (40, 33, 100), (9, 200, 17)]
"""(queries, candidates, dimension)"""


def vectors(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def exact_distances(query: torch.Tensor, candidate: torch.Tensor) -> torch.Tensor:
    return (query[:, None] - candidate[None]).abs().sum(-1)


def gradients(value: torch.Tensor, leaves: list[torch.Tensor]) -> list[np.ndarray]:
    return [g.cpu().numpy() for g in torch.autograd.grad(value, leaves)]
