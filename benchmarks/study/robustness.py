"""Thirty nights without retraining: how much is lost against training from scratch, and after how many nights.

A movie graph in the shape of `imdb-30`, of a size that two cores can learn anew every fifth night. A share of every
night is held out too. Ours, the literal method and puTransE learn every night online; at every fifth all are learnt
from scratch on the same snapshot. The same nights are also learnt 3, 7 and 9 at once.
"""

from __future__ import annotations

from benchmarks.published import trained
from benchmarks.study.cells import Cell, Result
from benchmarks.study.comparison import OURS, our_words, spaces_path, version_after
from benchmarks.study.graphs import DataSet, Study, growing_movies
from benchmarks.study.systems import PEERS, fit_peer, measure_ours, ours_online, update_peer

PART = "robustness"
ENTITIES, NIGHTS, SHARE = 8000, 30, 0.06
EVERY = 5
"""Nights between two trainings from scratch."""
AT_ONCE = (3, 7, 9)
SPACES = "500 spaces"
"""Of puTransE: the graph is small."""


def data_of(study: Study) -> DataSet:
    """The graph and its nights."""
    return growing_movies(study, ENTITIES, 2 if study.quick else NIGHTS, SHARE)


def at_once(study: Study) -> tuple[int, ...]:
    """How many nights are learnt together."""
    return (2,) if study.quick else AT_ONCE


def is_compared(study: Study, night: int) -> bool:
    """Is this night learnt from scratch too?"""
    return night % (2 if study.quick else EVERY) == 0


def run(study: Study) -> None:
    """Every night of every system, then several at once."""
    data = data_of(study)
    for seed in study.all_seeds:
        for preset, name in OURS.items():
            _ours(study, data, preset, name, seed)
        _putranse(study, data, seed)


def _ours(study: Study, data: DataSet, preset: str, name: str, seed: int) -> None:
    for night, snapshot in enumerate(data.snapshots):
        if is_compared(study, night):
            cell = Cell(PART, name, data.name, snapshot, seed, budget=study.budget)
            study.ledger.run(cell, lambda snapshot=snapshot: _scratch(study, data, preset, seed, snapshot))  # type: ignore[misc]
    for several in (1, *at_once(study)):
        nights = _steps(data, several)
        for number, snapshot in enumerate(nights):
            setting = f"{several} at once" if several > 1 else ""
            cell = Cell(PART, f"{name}, online", data.name, snapshot, seed, setting, study.budget)
            before = nights[:number]
            done = study.ledger.run(
                cell,
                lambda before=before, snapshot=snapshot: _update(study, data, preset, seed, before, snapshot),  # type: ignore[misc]
            )
            if done is None:
                break


def _scratch(study: Study, data: DataSet, preset: str, seed: int, snapshot: str) -> Result:
    done = trained(data.store, snapshot, preset, our_words(study, data, preset, seed))
    fit = {"seconds": done["seconds"], "epochs": done["epochs"]}
    return {**measure_ours(data.store, done["version"], data.before(snapshot)), "fit": fit}


def _update(study: Study, data: DataSet, preset: str, seed: int, before: list[str], snapshot: str) -> Result:
    """A night, or several, after those `before`."""
    fit, version = ours_online(data, snapshot, version_after(study, data, preset, seed, before))
    return {**measure_ours(data.store, version, data.before(snapshot)), "fit": fit}


def _steps(data: DataSet, several: int) -> list[str]:
    """The snapshots after every so many nights, and the last one."""
    last = len(data.snapshots) - 1
    return [data.snapshots[night] for night in [*range(several, last, several), last]]


def _putranse(study: Study, data: DataSet, seed: int) -> None:
    """As ours, with the spaces of the night before read from the work folder."""
    make = PEERS["puTransE"][SPACES]
    for night, snapshot in enumerate(data.snapshots):
        if is_compared(study, night):

            def scratch(night: int = night, snapshot: str = snapshot) -> Result:
                peer = make(seed, study.quick)
                found = fit_peer(peer, data, snapshot, seed, study.budget)
                if night == 0:
                    peer.save(spaces_path(study, data, snapshot, seed))  # type: ignore[attr-defined]
                return found

            cell = Cell(PART, "puTransE", data.name, snapshot, seed, budget=study.budget)
            if study.ledger.run(cell, scratch) is None and night == 0:
                return
        if night == 0:
            continue

        def online(night: int = night, snapshot: str = snapshot) -> Result:
            peer = make(seed, study.quick)
            peer.load(spaces_path(study, data, data.snapshots[night - 1], seed))  # type: ignore[attr-defined]
            found = update_peer(peer, data, snapshot, seed, study.budget)  # type: ignore[arg-type]
            peer.save(spaces_path(study, data, snapshot, seed))  # type: ignore[attr-defined]
            return found

        cell = Cell(PART, "puTransE, online", data.name, snapshot, seed, budget=study.budget)
        if study.ledger.run(cell, online) is None:
            return
