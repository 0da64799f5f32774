"""Sums over a vector in a fixed order: several partial sums side by side, as vector units need them, then their sum.

`fastmath` would be shorter, but each compilation might reorder sums differently: numba optimises a kernel once when it
is compiled and once more when it is read from the cache.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import subkernel

LANES = 8


@subkernel
def dot(x_D, y_D):  # type: ignore[no-untyped-def]
    """Σ x y."""
    a = b = c = d = e = f = g = h = np.float32(0)
    whole = x_D.shape[0] - x_D.shape[0] % LANES
    for i in range(0, whole, LANES):
        a += x_D[i] * y_D[i]
        b += x_D[i + 1] * y_D[i + 1]
        c += x_D[i + 2] * y_D[i + 2]
        d += x_D[i + 3] * y_D[i + 3]
        e += x_D[i + 4] * y_D[i + 4]
        f += x_D[i + 5] * y_D[i + 5]
        g += x_D[i + 6] * y_D[i + 6]
        h += x_D[i + 7] * y_D[i + 7]
    for i in range(whole, x_D.shape[0]):
        a += x_D[i] * y_D[i]
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@subkernel
def translated_distance(head_D, relation_D, tail_D):  # type: ignore[no-untyped-def]
    """‖head + relation − tail‖₁."""
    a = b = c = d = e = f = g = h = np.float32(0)
    whole = head_D.shape[0] - head_D.shape[0] % LANES
    for i in range(0, whole, LANES):
        a += abs(head_D[i] + relation_D[i] - tail_D[i])
        b += abs(head_D[i + 1] + relation_D[i + 1] - tail_D[i + 1])
        c += abs(head_D[i + 2] + relation_D[i + 2] - tail_D[i + 2])
        d += abs(head_D[i + 3] + relation_D[i + 3] - tail_D[i + 3])
        e += abs(head_D[i + 4] + relation_D[i + 4] - tail_D[i + 4])
        f += abs(head_D[i + 5] + relation_D[i + 5] - tail_D[i + 5])
        g += abs(head_D[i + 6] + relation_D[i + 6] - tail_D[i + 6])
        h += abs(head_D[i + 7] + relation_D[i + 7] - tail_D[i + 7])
    for i in range(whole, head_D.shape[0]):
        a += abs(head_D[i] + relation_D[i] - tail_D[i])
    return ((a + b) + (c + d)) + ((e + f) + (g + h))


@subkernel
def total(x_D):  # type: ignore[no-untyped-def]
    """Σ x."""
    a = b = c = d = np.float32(0)
    whole = x_D.shape[0] - x_D.shape[0] % 4
    for i in range(0, whole, 4):
        a += x_D[i]
        b += x_D[i + 1]
        c += x_D[i + 2]
        d += x_D[i + 3]
    for i in range(whole, x_D.shape[0]):
        a += x_D[i]
    return (a + b) + (c + d)


@subkernel
def largest(x_D):  # type: ignore[no-untyped-def]
    """The maximum; −∞ of an empty vector."""
    a = b = c = d = np.float32(-np.inf)
    whole = x_D.shape[0] - x_D.shape[0] % 4
    for i in range(0, whole, 4):
        a, b = max(a, x_D[i]), max(b, x_D[i + 1])
        c, d = max(c, x_D[i + 2]), max(d, x_D[i + 3])
    for i in range(whole, x_D.shape[0]):
        a = max(a, x_D[i])
    return max(max(a, b), max(c, d))
