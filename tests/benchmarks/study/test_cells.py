"""Cells: done once, told and tried again when they failed or were interrupted, and never half written."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.study.cells import Cell, Ledger
from benchmarks.study.figures import Figures, export, restore

CELL = Cell("comparison", "TransE", "YAGO-3SP", "snapshot1", 1, "margin 5", 600.0)
Shown = pytest.CaptureFixture[str]


def test_what_is_done_is_not_done_again(tmp_path: Path) -> None:
    ledger, calls = Ledger(tmp_path, "python -m benchmarks.study {} --seeds 2".format), []
    for _ in range(2):
        assert ledger.run(CELL, lambda: calls.append(1) or {"mrr": 0.5}) == {"mrr": 0.5}
    assert len(calls) == 1
    (envelope,) = Ledger(tmp_path).all("comparison")
    assert envelope["command"] == "python -m benchmarks.study comparison --seeds 2"
    assert envelope["cell"]["setting"] == "margin 5"
    assert envelope["seconds"] >= 0
    assert envelope["machine"]["versions"]["torch"]
    assert list(tmp_path.rglob("*.tmp")) == list(tmp_path.rglob("*.running")) == []


@pytest.mark.parametrize("field", ["system", "data", "snapshot", "setting"])
def test_cells_that_look_alike_are_told_apart(field: str) -> None:
    assert Cell(**{**vars(CELL), field: "a/b"}).name != Cell(**{**vars(CELL), field: "a b"}).name


def test_a_budget_and_a_seed_make_another_cell() -> None:
    assert len({CELL.name, Cell(**{**vars(CELL), "budget": 60.0}).name, Cell(**{**vars(CELL), "seed": 2}).name}) == 3


def test_a_failed_cell_is_told_and_tried_again(tmp_path: Path, capsys: Shown) -> None:
    ledger = Ledger(tmp_path)

    def fail() -> dict[str, float]:
        raise ValueError(f"no file {tmp_path}/secret/place")

    assert ledger.run(CELL, fail) is None
    assert ledger.failed == [CELL]
    assert ledger.result(CELL) is None
    (envelope,) = ledger.all()
    assert (envelope["status"], envelope["error"]) == ("failed", "ValueError: no file place")
    assert Ledger(tmp_path).run(CELL, lambda: {"mrr": 1.0}) == {"mrr": 1.0}
    assert "failed before, tried again" in capsys.readouterr().err


def test_an_interrupted_cell_is_told_and_tried_again(tmp_path: Path, capsys: Shown) -> None:
    def interrupt() -> dict[str, float]:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Ledger(tmp_path).run(CELL, interrupt)
    assert list(Ledger(tmp_path).all()) == []
    assert Ledger(tmp_path).run(CELL, lambda: {"mrr": 1.0}) == {"mrr": 1.0}
    assert "interrupted before, tried again" in capsys.readouterr().err


def test_a_damaged_file_counts_as_nothing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path)
    ledger.path(CELL).parent.mkdir(parents=True)
    ledger.path(CELL).write_text('{"status": "done", "resu')
    assert ledger.run(CELL, lambda: {"mrr": 1.0}) == {"mrr": 1.0}


def test_figures_are_means_over_seeds_of_the_largest_budget(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "cells")
    for seed, budget, mrr in ((1, 60.0, 0.1), (1, 600.0, 0.4), (2, 600.0, 0.6)):
        ledger.run(Cell(**{**vars(CELL), "seed": seed, "budget": budget}), lambda mrr=mrr: {"vectors": {"mrr": mrr}})
    figures = Figures.of(tmp_path)
    found = figures.find("comparison", system="TransE")
    assert len(found) == 2
    assert figures.mean(found, "vectors", "mrr") == pytest.approx(0.5)
    assert figures.mean(found, "vectors", "mr") is None
    export(tmp_path, tmp_path / "study.json", lambda text: None)
    assert len(json.loads((tmp_path / "study.json").read_text())["cells"]) == 3
    with pytest.raises(SystemExit, match="nothing measured"):
        export(tmp_path / "elsewhere", tmp_path / "none.json")


def test_an_export_keeps_what_was_measured_elsewhere(tmp_path: Path) -> None:
    other, told = Cell(**{**vars(CELL), "seed": 2}), list[str]()
    for place, cell, mrr in (("there", CELL, 0.1), ("there", other, 0.2), ("here", other, 0.3)):
        Ledger(tmp_path / place / "cells").run(cell, lambda mrr=mrr: {"mrr": mrr})
    for place in ("there", "here"):
        export(tmp_path / place, tmp_path / "study.json", told.append)
    cells = json.loads((tmp_path / "study.json").read_text())["cells"]
    assert {one["cell"]["seed"]: one["result"]["mrr"] for one in cells} == {1: 0.1, 2: 0.3}
    assert told[-1] == "1 cells, 0 failed ones left out, 1 from elsewhere kept"


def test_what_was_exported_is_not_measured_again(tmp_path: Path) -> None:
    other = Cell(**{**vars(CELL), "seed": 2})
    for cell, mrr in ((CELL, 0.4), (other, 0.6)):
        Ledger(tmp_path / "there" / "cells").run(cell, lambda mrr=mrr: {"mrr": mrr})
    export(tmp_path / "there", tmp_path / "study.json", lambda text: None)
    here = Ledger(tmp_path / "here" / "cells")
    here.run(other, lambda: {"mrr": 0.7})
    told: list[str] = []
    restore(tmp_path / "here", tmp_path / "study.json", told.append)
    assert told == ["1 of 2 cells taken, the others were there"]
    assert here.run(CELL, lambda: pytest.fail("measured again")) == {"mrr": 0.4}
    assert here.result(other) == {"mrr": 0.7}
    assert next(iter(here.all()))["command"] == "python -m benchmarks.study comparison"
    with pytest.raises(SystemExit, match="nothing exported"):
        restore(tmp_path / "here", tmp_path / "none.json")
