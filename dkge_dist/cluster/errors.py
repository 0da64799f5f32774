"""Errors of a shard that a caller tells apart by their class, wherever they were raised. Imports `types` alone."""

from __future__ import annotations

from dkge_dist.types import DkgeError


class StaleAttemptError(DkgeError):
    """The shard is not (or no longer) part of the attempt that calls it. Raised by the shard."""


class ShardLostError(DkgeError):
    """A shard does not answer any more, or not to this attempt. What it held is gone; what is saved is not."""
