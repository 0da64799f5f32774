"""Ranges sorted and searched, and arrays that grow, inside a kernel."""

from __future__ import annotations

import numpy as np

from dkge_dist.kernels.jit import subkernel

INSERTION_SORT_UP_TO = 24


@subkernel
def sort_few(values, begin, end):  # type: ignore[no-untyped-def]
    """Sort `values[begin:end]` in place by insertion: fastest for short ranges, and quickly compiled."""
    for i in range(begin + 1, end):
        value = values[i]
        j = i
        while j > begin and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value


@subkernel
def sort_range(values, begin, end):  # type: ignore[no-untyped-def]
    """Sort `values[begin:end]` in place, of any length."""
    if end - begin > INSERTION_SORT_UP_TO:
        values[begin:end].sort()
    else:
        sort_few(values, begin, end)


@subkernel
def first_from(values, begin, end, value):  # type: ignore[no-untyped-def]
    """The position in ascending `values[begin:end]` of the first that is at least `value`."""
    while begin < end:
        middle = (begin + end) // 2
        if values[middle] < value:
            begin = middle + 1
        else:
            end = middle
    return begin


@subkernel
def append(buffer, count, value):  # type: ignore[no-untyped-def]
    """Write `value` at position `count`; returns the buffer, twice as long if it was full."""
    if count == buffer.shape[0]:
        bigger = np.empty(2 * count, buffer.dtype)
        bigger[:count] = buffer
        buffer = bigger
    buffer[count] = value
    return buffer


@subkernel
def with_room(buffer, count):  # type: ignore[no-untyped-def]
    """The buffer, at least twice as long if it holds less than `count` values, or rows of them."""
    if count <= buffer.shape[0]:
        return buffer
    bigger = np.empty((max(count, 2 * buffer.shape[0]), *buffer.shape[1:]), buffer.dtype)
    bigger[: buffer.shape[0]] = buffer
    return bigger


@subkernel
def sort_distinct(buffer, count):  # type: ignore[no-untyped-def]
    """Sort the first `count` values and drop duplicates; returns how many are left."""
    sort_range(buffer, 0, count)
    kept = 0
    for i in range(count):
        if i == 0 or buffer[i] != buffer[i - 1]:
            buffer[kept] = buffer[i]
            kept += 1
    return kept
