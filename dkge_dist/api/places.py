"""Where to work: here, or on a Ray cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dkge_dist.types import UsageError

if TYPE_CHECKING:
    from dkge_dist.cluster.session import Place


def place_of(shards: int | None, workers: int, address: str | None, wait_seconds: float | None) -> Place | None:
    """Where to work: None is here, without Ray."""
    if shards is None:
        if workers != 1 or address is not None:
            raise UsageError("--workers and --address go with --shards N: without shards no Ray is used")
        return None
    from dkge_dist.cluster.session import Place

    place = Place(shards, workers, address)
    return place if wait_seconds is None else Place(shards, workers, address, wait_seconds)


@contextmanager
def reached(place: Place | None, cpus: int = 1) -> Iterator[None]:
    """Stay connected to where the work is, over several steps of it."""
    if place is None:
        yield
        return
    from dkge_dist.cluster.session import connected

    with connected(place, cpus):
        yield
