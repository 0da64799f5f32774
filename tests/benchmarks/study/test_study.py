"""The study on a small graph: one smoke of a system of each kind, and (slow) every part as a command runs it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.study.__main__ import PARTS, main
from benchmarks.study.figures import Figures

pytestmark = pytest.mark.usefixtures("one_thread")
OWN = ["--systems", "ours", "DKGE, literal", "puTransE", "GAKE"]
"""Systems that need no PyKEEN."""


def test_smoke(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["comparison", "--quick", "--work", str(tmp_path), "--systems", "ours", "puTransE", "--budget", "0.2"]
    assert main(words) == 0
    figures = Figures.of(tmp_path / "quick")
    systems = {one["cell"]["system"] for one in figures.done}
    assert systems == {"ours", "ours, online", "puTransE", "puTransE, online", "puTransE, grid"}
    for one in figures.done:
        assert one["command"] == "python -m benchmarks.study comparison --quick --budget 0.2"
        assert str(tmp_path) not in json.dumps(one)
    (ours,) = figures.find("comparison", system="ours, online")
    (base,) = figures.find("comparison", system="ours", snapshot="snapshot-000")
    assert ours["result"]["since"] == base["result"]["version"]
    assert ours["result"]["night"]["vectors"].keys() == ours["result"]["night"]["with_evidence"].keys()
    capsys.readouterr()
    assert main(words) == 0
    assert "comparison:" not in capsys.readouterr().err, "nothing is done again"
    page = tmp_path / "study.html"
    assert main(["report", "--quick", "--work", str(tmp_path), "--out", str(page)]) == 0
    assert "puTransE, online" in page.read_text()
    assert "| ours, with evidence, online |" in page.with_suffix(".md").read_text()


def test_an_unknown_system_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no such system"):
        main(["comparison", "--quick", "--work", str(tmp_path), "--systems", "TransX"])


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", PARTS)
def test_every_part(part: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    # One folder for all: parts find each other's models, as they do in earnest.
    work = tmp_path_factory.getbasetemp() / "study"
    assert main([part, "--quick", "--work", str(work), *(OWN if part in ("comparison", "efficiency") else [])]) == 0
    figures = Figures.of(work / "quick")
    assert not figures.failed
    assert figures.find(part)


@pytest.mark.slow
@pytest.mark.parametrize("part", ["debian", "scale"])
def test_cells_from_elsewhere_come_without_their_stores(part: str, tmp_path: Path) -> None:
    here, there = (tmp_path / name for name in ("here", "there"))
    words = [part, "--quick", "--budget", "0.2", "--work"]
    assert main([*words, str(here)]) == 0
    shutil.copytree(here / "quick" / "cells", there / "quick" / "cells")
    last = max((there / "quick" / "cells" / part).glob("*.json"), key=lambda path: path.stat().st_mtime)
    last.unlink()
    assert main([*words, str(there)]) == 0
    assert last.exists()
