"""Stable hashes (digests of labels, priorities for consistent sampling), and bits of words.

A label's digest is XXH64 of its UTF-8 bytes with seed 0 (a published, frozen algorithm), so samples and held-out cuts
are the same in every store that holds the label, whatever its row. Digests are not cryptographic: labels are equal only
if their bytes are.
"""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import as_readonly, parallel_kernel, prange, subkernel
from dkge_dist.types import Array

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)


@subkernel
def _rotate(x, bits):  # type: ignore[no-untyped-def]
    return (x << np.uint64(bits)) | (x >> np.uint64(64 - bits))


@subkernel
def _word(data, i, size):  # type: ignore[no-untyped-def]
    """`size` bytes at `i`, little endian."""
    value = np.uint64(0)
    for k in range(size):
        value |= np.uint64(data[i + k]) << np.uint64(8 * k)
    return value


@subkernel
def _round(lane, word):  # type: ignore[no-untyped-def]
    return _rotate(lane + word * _P2, 31) * _P1


@subkernel
def _merge(digest, lane):  # type: ignore[no-untyped-def]
    return (digest ^ _round(np.uint64(0), lane)) * _P1 + _P4


@subkernel
def _long_start(data, start, stop):  # type: ignore[no-untyped-def]
    """The four lanes of XXH64 over all whole stripes of 32 bytes; (digest, where the rest begins)."""
    a, b, c, d = _P1 + _P2, _P2, np.uint64(0), np.uint64(0) - _P1
    i = start
    while i + 32 <= stop:
        a = _round(a, _word(data, i, 8))
        b = _round(b, _word(data, i + 8, 8))
        c = _round(c, _word(data, i + 16, 8))
        d = _round(d, _word(data, i + 24, 8))
        i += 32
    digest = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
    return _merge(_merge(_merge(_merge(digest, a), b), c), d), i


@subkernel
def xxh64(data, start, stop):  # type: ignore[no-untyped-def]
    """XXH64, seed 0, of `data[start:stop]`."""
    i = start
    if stop - start >= 32:
        digest, i = _long_start(data, start, stop)
    else:
        digest = _P5
    digest += np.uint64(stop - start)
    while i + 8 <= stop:
        digest = _rotate(digest ^ _round(np.uint64(0), _word(data, i, 8)), 27) * _P1 + _P4
        i += 8
    if i + 4 <= stop:
        digest = _rotate(digest ^ (_word(data, i, 4) * _P1), 23) * _P2 + _P3
        i += 4
    while i < stop:
        digest = _rotate(digest ^ (np.uint64(data[i]) * _P5), 11) * _P1
        i += 1
    return avalanche(digest)


@subkernel
def avalanche(x):  # type: ignore[no-untyped-def]
    """The finalizer of XXH64: every input bit affects every output bit."""
    x = (x ^ (x >> np.uint64(33))) * _P2
    x = (x ^ (x >> np.uint64(29))) * _P3
    return x ^ (x >> np.uint64(32))


@subkernel
def combine(left, right):  # type: ignore[no-untyped-def]
    """One hash of an ordered pair of 64-bit values."""
    return avalanche(_rotate(left, 27) * _P1 + right * _P2 + _P4)


@subkernel
def count_bits(word):  # type: ignore[no-untyped-def]
    """Number of set bits."""
    word -= (word >> np.uint64(1)) & np.uint64(0x5555555555555555)
    word = (word & np.uint64(0x3333333333333333)) + ((word >> np.uint64(2)) & np.uint64(0x3333333333333333))
    word = (word + (word >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((word * np.uint64(0x0101010101010101)) >> np.uint64(56))


@subkernel
def lowest_set_bit(word):  # type: ignore[no-untyped-def]
    """Index of the lowest set bit."""
    return count_bits((word & (np.uint64(0) - word)) - np.uint64(1))


@parallel_kernel
def _digests(data, start, stop, out):  # type: ignore[no-untyped-def]
    for i in prange(start.shape[0]):
        out[i] = xxh64(data, start[i], stop[i])


def digests(data: Array, start: Array, stop: Array) -> Array:
    """The digest of every label `data[start[i]:stop[i]]`."""
    out = np.empty(start.shape[0], np.uint64)
    _digests(as_readonly(data), as_readonly(start), as_readonly(stop), out)
    return out


@parallel_kernel
def _triple_hashes(seed, head, relation, tail, out):  # type: ignore[no-untyped-def]
    for i in prange(head.shape[0]):
        out[i] = combine(combine(combine(seed, head[i]), relation[i]), tail[i])


def triple_hashes(seed: int, head: Array, relation: Array, tail: Array) -> Array:
    """A hash of every triple, from the digests of its three labels."""
    out = np.empty(head.shape[0], np.uint64)
    _triple_hashes(np.uint64(seed), as_readonly(head), as_readonly(relation), as_readonly(tail), out)
    return out
