"""Trainings that something happens to, and how they are compared with quiet ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from tests.graphs import assert_same_vectors, movies, vectors, write_tsv

WORDS = [
    "model.dim=8",
    "train.batch_size=64",
    "train.negatives=32",
    "train.max_epochs=60",
    "train.eval_every=20",
    "train.checkpoint_seconds=0",
    "threads=1",
]


def assert_same_models(one: Path, other: Path) -> None:
    """The current ones, to the bit."""
    assert_same_vectors(*(vectors(store, Store.open(store).find_model().version) for store in (one, other)))


def store_of(folder: Path) -> Path:
    source = write_tsv(folder / "movies.tsv", movies(400))
    api.ingest(folder / "store", source, valid=40, test=40, name="first")
    return folder / "store"


def disturbed(accidents: dict[int, Callable[[], object]]) -> Callable[[float, str], None]:
    """A listener that lets each accident happen once the training has come to its epoch (or was last seen beyond)."""

    def progress(share: float, message: str) -> None:
        now = int(message.removeprefix("epoch ").partition("/")[0]) if message.startswith("epoch ") else 0
        due = [epoch for epoch in accidents if epoch <= now]
        if due:
            accidents.pop(min(due))()

    return progress
