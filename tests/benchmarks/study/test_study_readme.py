"""The results in the README come from what was measured, and from nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.study.figures import EXPORTED, Figures
from benchmarks.study.readme import BEGIN, END, PICTURE, README, block, write
from benchmarks.study.render import standalone
from benchmarks.study.sections.comparison import comparison_picture
from tests.benchmarks.study.test_page import figures


def test_only_what_is_between_the_marks_changes(tmp_path: Path) -> None:
    path, picture = tmp_path / "README.md", tmp_path / "picture.svg"
    path.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    write(figures(0.47), path, picture)
    assert path.read_text() == f"before\n{block(figures(0.47))}\nafter\n"
    assert "| ours, with evidence | **400** | **.470** | **.570** | **.300** | 300 | – |" in path.read_text()
    assert "| ours, by vectors, online | 3.00 | .900 | .200 | – |" in path.read_text()
    assert "RotatE" in picture.read_text()


def test_a_readme_without_marks_stays_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text("nothing here")
    with pytest.raises(SystemExit, match="are not there"):
        write(figures(0.47), path, tmp_path / "picture.svg")
    with pytest.raises(SystemExit, match="nothing measured"):
        write(Figures([]), path, tmp_path / "picture.svg")
    assert path.read_text() == "nothing here"


@pytest.mark.skipif(not EXPORTED.exists(), reason="nothing measured yet")
def test_the_readme_says_what_was_measured() -> None:
    measured = Figures.of(None)
    assert block(measured) in README.read_text(), "python -m benchmarks.study readme"
    assert PICTURE.read_text() == standalone(comparison_picture(measured))
