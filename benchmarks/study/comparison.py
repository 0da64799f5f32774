"""Every system on YAGO-3SP and on a small graph in the shape of IMDB-30SP: three snapshots, one budget, one evaluator.

Each system has four settings, of which validation Hits@10 on snapshot 1 chooses, each learnt in a quarter of the
budget. Ours stays at its defaults, `paper` at what is published. Snapshots 2 and 3 are also learnt online by those who
can: puTransE, `paper` and ours.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from benchmarks.peers.putranse import PuTransE
from benchmarks.published import trained, updated
from benchmarks.study.cells import Cell, Result
from benchmarks.study.graphs import DataSet, Study, movie_graph, yago
from benchmarks.study.published import MOVIES_ENTITIES
from benchmarks.study.systems import (
    PEERS,
    choose_peer,
    fit_peer,
    measure_ours,
    ours_online,
    update_peer,
)

PART = "comparison"
OURS = {"paper": "DKGE, literal", "default": "ours"}
"""Preset by preset: what the system is called."""
ONLINE = ", online"
GRID_SHARE = 4
"""A setting is tried for this part of the budget."""


def data_sets(study: Study) -> list[DataSet]:
    """Those of the comparison, or of one `--data` of them."""
    makers: dict[str, Callable[[Study], DataSet]] = {
        "yago": yago,
        "movies": lambda study: movie_graph(study, entities=MOVIES_ENTITIES),
    }
    wanted = "yago" if study.quick else study.option("data")
    return [make(study) for name, make in makers.items() if wanted in (None, name)]


def systems(study: Study) -> list[str]:
    """All of them, or those asked for by `--systems`."""
    wanted = study.option("systems")
    every = [*OURS.values(), *PEERS]
    if not isinstance(wanted, list):
        return every
    unknown = set(wanted) - set(every)
    if unknown:
        raise SystemExit(f"--systems {', '.join(sorted(unknown))}: no such system; there are {', '.join(every)}")
    return [name for name in every if name in wanted]


def run(study: Study) -> None:
    """All cells that are not done yet."""
    for data in data_sets(study):
        for preset, name in OURS.items():
            if name in systems(study):
                for seed in study.all_seeds:
                    ours_from_scratch_and_online(study, data, preset, seed)
        for name in systems(study):
            if name in PEERS:
                peer_from_scratch_and_online(study, data, name)


def our_words(study: Study, data: DataSet, preset: str, seed: int) -> list[str]:
    """Settings of ours: the seed, the budget, and of `paper` the batch that is published for such a graph."""
    words = [f"seed={seed}", f"train.max_seconds={study.budget:g}"]
    if preset == "paper" and data.name.startswith("imdb"):
        words.append("train.batch_size=200")
    quick = [word for word in study.threads() if preset == "default" or "negatives" not in word]
    return words + quick


def ours_from_scratch_and_online(study: Study, data: DataSet, preset: str, seed: int) -> None:
    """Every snapshot from scratch; all but the first also online, each from the one before."""
    for snapshot in data.snapshots:
        our_scratch(study, data, preset, snapshot, seed)
    for night, snapshot in enumerate(data.snapshots[1:], 1):
        done = study.ledger.run(
            Cell(PART, OURS[preset] + ONLINE, data.name, snapshot, seed, budget=study.budget),
            lambda night=night: _measured_update(study, data, preset, seed, night),  # type: ignore[misc]
        )
        if done is None:
            return


def our_scratch(study: Study, data: DataSet, preset: str, snapshot: str, seed: int) -> Result | None:
    """A snapshot learnt from scratch by ours."""
    words = our_words(study, data, preset, seed)

    def work() -> Result:
        done = trained(data.store, snapshot, preset, words)
        fit = {"seconds": done["seconds"], "best_seconds": done["seconds"], "epochs": done["epochs"]}
        return {**measure_ours(data.store, done["version"], data.before(snapshot)), "fit": fit, "settings": words}

    return study.ledger.run(Cell(PART, OURS[preset], data.name, snapshot, seed, budget=study.budget), work)


def version_after(study: Study, data: DataSet, preset: str, seed: int, nights: Sequence[str]) -> int:
    """The first snapshot from scratch, then some nights online. Cells may come from another machine, and models with
    them do not: what the store lacks is learnt again.
    """
    base = trained(data.store, data.snapshots[0], preset, our_words(study, data, preset, seed))
    return updated(data.store, base["version"], nights)


def _measured_update(study: Study, data: DataSet, preset: str, seed: int, night: int) -> Result:
    since, snapshot = version_after(study, data, preset, seed, data.snapshots[1:night]), data.snapshots[night]
    fit, version = ours_online(data, snapshot, since)
    return {**measure_ours(data.store, version, data.before(snapshot)), "fit": fit, "since": since}


def peer_from_scratch_and_online(study: Study, data: DataSet, name: str) -> None:
    """The grid, then every snapshot from scratch, and online by puTransE."""
    setting = chosen(study, data, name)
    if setting is None:
        return
    for seed in study.all_seeds:
        for snapshot in data.snapshots:
            study.ledger.run(
                Cell(PART, name, data.name, snapshot, seed, budget=study.budget),
                lambda snapshot=snapshot, seed=seed: _fit(study, data, name, setting, snapshot, seed),  # type: ignore[misc]
            )
        if name == "puTransE":
            putranse_online(study, data, name, setting, seed)


def _fit(study: Study, data: DataSet, name: str, setting: str, snapshot: str, seed: int) -> Result:
    peer = PEERS[name][setting](seed, study.quick)
    found = fit_peer(peer, data, snapshot, seed, study.budget)
    if isinstance(peer, PuTransE) and snapshot == data.snapshots[0]:
        peer.save(spaces_path(study, data, snapshot, seed))
    return {**found, "setting": setting}


def putranse_online(study: Study, data: DataSet, name: str, setting: str, seed: int) -> None:
    """Each later snapshot from the spaces of the one before."""
    for before, snapshot in pairwise(data.snapshots):

        def work(before: str = before, snapshot: str = snapshot) -> Result:
            peer = PEERS[name][setting](seed, study.quick)
            assert isinstance(peer, PuTransE)
            peer.load(spaces_path(study, data, before, seed))
            found = update_peer(peer, data, snapshot, seed, study.budget)
            peer.save(spaces_path(study, data, snapshot, seed))
            return {**found, "setting": setting}

        if study.ledger.run(Cell(PART, name + ONLINE, data.name, snapshot, seed, budget=study.budget), work) is None:
            return


def spaces_path(study: Study, data: DataSet, snapshot: str, seed: int) -> Path:
    """Where the spaces of puTransE are kept, for the next night."""
    folder = study.work / "putranse"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{Cell(PART, 'puTransE', data.name, snapshot, seed, budget=study.budget).name}.npz"


def grid_cells(study: Study, data: DataSet, name: str) -> Iterator[tuple[str, Cell]]:
    """A cell for every setting of a system."""
    settings = list(PEERS[name])[: 1 if study.quick else None]
    for setting in settings:
        yield setting, Cell(PART, f"{name}, grid", data.name, data.snapshots[0], 1, setting, study.budget / GRID_SHARE)


def chosen(study: Study, data: DataSet, name: str) -> str | None:
    """The best setting of a system on the validation triples of snapshot 1."""
    tried = {}
    for setting, cell in grid_cells(study, data, name):
        found = study.ledger.run(
            cell,
            lambda setting=setting, cell=cell: choose_peer(  # type: ignore[misc]
                PEERS[name][setting](1, study.quick), data, 1, cell.budget
            ),
        )
        if found is not None:
            tried[setting] = found["valid_hits@10"]
    return max(tried, key=lambda setting: tried[setting]) if tried else None
