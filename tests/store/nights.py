"""Stores with nights that are trained and updated, and what an evaluation of them gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import Split
from tests.graphs import LEARN, Labelled, dense, fresh_labels, head, labelled, write_changes, write_tsv

SETTINGS = [*LEARN, "model.dim=4", "train.max_epochs=1"]


def train_triples(store: Path) -> list[Labelled]:
    opened = Store.open(store)
    names = opened.dictionaries(opened.head())
    return sorted(labelled(opened.snapshot(opened.current_snapshot()).triples(Split.TRAIN), names))


def night(store: Path, number: int, added: list[Labelled] | None = None, deleted: int = 4) -> None:
    """Ingest a night: new labels, and some old triples gone."""
    known = [triple for triple in train_triples(store) if all(label[0] in "er" for label in triple)]
    gone = known[number :: len(known) // max(deleted, 1)][:deleted] if deleted else []
    come = fresh_labels(number) if added is None else added
    api.ingest(store, write_changes(store.parent / f"night{number}.changes", come, gone))


def store_with_a_night(folder: Path) -> Path:
    """A small model, and a night that it has not learnt yet."""
    base = dense(150, entities=20)
    api.ingest(folder / "store", write_tsv(folder / "base.tsv", base), valid=8, test=8)
    api.train(folder / "store", settings=SETTINGS)
    api.ingest(folder / "store", write_changes(folder / "night1.changes", fresh_labels(1), [base[5], base[50]]))
    return folder / "store"


def numbers(store: Path, version: int | str | None = None) -> dict[str, Any]:
    """An evaluation, but for how long it took and for what is newer by now."""
    found = api.evaluate(store, version=None if version is None else str(version), categories=True)
    return {key: value for key, value in found.items() if key not in ("seconds", "notice")}


def current(store: Path) -> tuple[int, int | None]:
    """The versions of the current snapshot and model."""
    entry = head(store).current
    return entry.snapshot, entry.model
