"""Row-sparse optimizer steps: only the rows that got a gradient are read or written."""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import parallel_kernel, prange
from dkge_dist.kernels.vectors import dot


@parallel_kernel
def adagrad_rows(table_RD, state_R, rows_U, grad_UD, rate, damping, epsilon):  # type: ignore[no-untyped-def]
    """Row-wise Adagrad: one accumulated mean square per row instead of one per component. Rows are distinct.

    `damping` is added to it: without, the first step is as long as the rate, however small the gradient.
    """
    dim = grad_UD.shape[1]
    for u in prange(rows_U.shape[0]):
        row = rows_U[u]
        state_R[row] += dot(grad_UD[u], grad_UD[u]) / dim
        step = rate / (np.sqrt(state_R[row] + damping) + epsilon)
        for d in range(dim):
            table_RD[row, d] -= step * grad_UD[u, d]


@parallel_kernel
def sgd_rows(table_RD, rows_U, grad_UD, rate):  # type: ignore[no-untyped-def]
    """Stochastic gradient descent on distinct rows."""
    for u in prange(rows_U.shape[0]):
        for d in range(grad_UD.shape[1]):
            table_RD[rows_U[u], d] -= rate * grad_UD[u, d]
