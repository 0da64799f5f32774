"""e^x of whole vectors. Numba calls the C library for every number, which took half of the time of a softmax.

The method is the usual one: x = k ln 2 + r with |r| <= ln 2 / 2, a polynomial for e^r (with the coefficients of the
Cephes library), and k added to the exponent's bits. Multiplications and additions alone, so that LLVM vectorises it.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import subkernel

LEAST = np.float32(-87)
"""Below it e^x counts as 0: it is under 2e-38, where float32 loses digits."""

_LOG2_E = np.float32(1.44269504)
# ln 2 in two parts: k times the first one is exact.
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)
_HALF, _ONE, _ZERO = np.float32(0.5), np.float32(1), np.float32(0)
_C0, _C1, _C2 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_C3, _C4, _C5 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_BIAS, _MANTISSA_BITS = np.int32(127), np.int32(23)


@subkernel
def exponentials(x_N, top):  # type: ignore[no-untyped-def]
    """x[n] = e^(x[n] − top) in place, where no x is larger than `top`; NaN stays NaN."""
    for n in range(x_N.shape[0]):
        z = x_N[n] - top
        # Compared this way round, NaN is not replaced.
        bounded = LEAST if z < LEAST else z
        k = np.floor(bounded * _LOG2_E + _HALF)
        r = (bounded - k * _LN2_HIGH) - k * _LN2_LOW
        p = ((((_C0 * r + _C1) * r + _C2) * r + _C3) * r + _C4) * r + _C5
        value = (p * r * r + r) + _ONE
        power = np.int32((np.int32(k) + _BIAS) << _MANTISSA_BITS).view(np.float32)
        x_N[n] = _ZERO if z < LEAST else value * power
