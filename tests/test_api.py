"""The public functions: all of them are there, and none imports what it does not use."""

from __future__ import annotations

import inspect
import json
import pydoc
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import dkge_dist
from dkge_dist.surfaces import api
from tests.graphs import movies, write_changes, write_tsv

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "ray", "pandas")
CLASSES = {"DkgeError", "OpenStore", "UsageError"}
FUNCTIONS = [name for name in dkge_dist.__all__ if name not in {"__version__", *CLASSES}]


def test_every_public_function_is_exported() -> None:
    public = {
        name
        for name, value in vars(api).items()
        if inspect.isfunction(value) and value.__module__ == api.__name__ and not name.startswith("_")
    }
    assert public == set(FUNCTIONS) == set(api.__all__)
    assert dkge_dist.__all__ == sorted(dkge_dist.__all__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_package_gives_the_functions_of_the_api(name: str) -> None:
    function = getattr(dkge_dist, name)
    assert function is getattr(api, name)
    assert (function.__doc__ or "").strip()
    parameters = inspect.signature(function).parameters.values()
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in parameters)


def test_names_can_be_listed_and_errors_caught() -> None:
    assert set(dkge_dist.__all__) <= set(dir(dkge_dist))
    assert issubclass(dkge_dist.UsageError, dkge_dist.DkgeError)
    assert "many questions" in pydoc.plain(pydoc.render_doc(dkge_dist.open))
    text = pydoc.plain(pydoc.render_doc(dkge_dist))
    assert all(f"    {name}(" in text for name in FUNCTIONS)


def test_types_are_shipped() -> None:
    assert (Path(dkge_dist.__path__[0]) / "py.typed").exists()
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    shipped = settings["tool"]["setuptools"]["package-data"]["dkge_dist"]
    assert "py.typed" in shipped
    for pattern in shipped:
        assert list(Path(dkge_dist.__path__[0]).glob(pattern)), f"nothing is {pattern}"


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'dkge_dist' has no attribute 'retrain'"):
        dkge_dist.retrain  # noqa: B018


def test_no_module_has_the_name_of_a_function() -> None:
    """Python would put the module into the function's place once it is imported."""
    modules = {path.stem for path in Path(dkge_dist.__path__[0]).iterdir()}
    assert not modules & set(dkge_dist.__all__)


def imported(script: str) -> set[str]:
    """Which of the heavy packages a new process has imported at the end of a script."""
    script += f"\nimport sys, json; print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("api")
    dkge_dist.ingest(folder / "store", write_tsv(folder / "base.tsv", movies(30)), name="first")
    dkge_dist.ingest(folder / "store", write_tsv(folder / "next.tsv", movies(32)), name="second")
    return folder / "store"


@pytest.mark.parametrize(
    "script",
    [
        "import dkge_dist",
        "import dkge_dist; dkge_dist.__version__",
        "import dkge_dist; dkge_dist.log({store!r})",
        "import dkge_dist; dkge_dist.diff({store!r}, 'first', 'second', affected=True)",
        "import dkge_dist; dkge_dist.check({store!r})",
        "import dkge_dist; dkge_dist.ingest({store!r}, {source!r})",
        "import dkge_dist; dkge_dist.gc({store!r}, keep=5, dry_run=True)",
    ],
    ids=["import", "version", "log", "diff", "check", "ingest", "gc"],
)
def test_light_jobs_import_neither_torch_nor_ray(store: Path, script: str) -> None:
    source = str(store.parent / "next.tsv")
    assert imported(script.format(store=str(store), source=source)) == set()


def test_learning_in_this_process_imports_torch_alone(store: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(store, tmp_path / "store"))
    night = write_changes(tmp_path / "night.changes", movies(1, first=40), movies(1))
    words = ["model.dim=4", "train.max_epochs=1", "threads=1"]
    train = f"dkge_dist.train({str(path)!r}, settings={words!r})"
    assert imported(f"import dkge_dist; {train}; dkge_dist.nightly({str(path)!r}, {str(night)!r})") == {"torch"}


def test_answers_and_evaluations_in_this_process_import_no_ray(store: Path) -> None:
    if not any(line["kind"] == "model" for line in dkge_dist.log(store)["versions"]):
        dkge_dist.train(store, settings=["model.dim=4", "train.max_epochs=1", "threads=1"])
    script = f"import dkge_dist; dkge_dist.answer({str(store)!r}, 'title1', 'actor')"
    assert "ray" not in imported(script)
    asked = "store.answer('title1', 'actor'), store.score('title1', 'actor', 'title2'), store.similar('title1')"
    assert imported(f"import dkge_dist; store = dkge_dist.open({str(store)!r}); {asked}") == set()


def test_settings_are_words_or_a_mapping_and_versions_numbers_or_names(store: Path, tmp_path: Path) -> None:
    path = Path(shutil.copytree(store, tmp_path / "store"))
    shown: list[float] = []
    settings = {"model.dim": 4, "train": {"max_epochs": 1, "learning_rate": 1e-5}, "threads": 1}
    report = dkge_dist.train(
        path, snapshot="first", settings=settings, progress=lambda share, text: shown.append(share)
    )
    assert (report["snapshot"], report["dim"], report["epochs"]) == ("first", 4, 1) and shown
    with pytest.raises(dkge_dist.UsageError, match=r"train\.epochs.*max_epochs"):
        dkge_dist.train(path, settings={"train.epochs": 1})
    by_number = dkge_dist.diff(path, 1, 2)
    assert by_number["added"] == dkge_dist.diff(path, "first", "second")["added"]
    assert dkge_dist.answer(path, "title1", "actor", version=report["version"])["version"] == report["version"]


def test_a_bar_of_progress_goes_to_stderr_and_away(store: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert dkge_dist.check(store, progress=True)["ok"]
    assert capfd.readouterr().out == ""


def test_the_table_of_evidence_imports_neither_torch_nor_ray(store: Path) -> None:
    if not any(line["kind"] == "model" for line in dkge_dist.log(store)["versions"]):
        dkge_dist.train(store, settings=["model.dim=4", "train.max_epochs=1", "threads=1"])
    assert imported(f"import dkge_dist; dkge_dist.evidence_table({str(store)!r})") == set()
