"""The public functions: all of them are there, and none imports what it does not use."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from pathlib import Path

import pytest

import dkge_dist
from dkge_dist import api
from tests.graphs import movies, write_tsv

ROOT = Path(__file__).parents[1]
HEAVY = ("torch", "ray")
FUNCTIONS = [name for name in dkge_dist.__all__ if name != "__version__"]


def test_every_public_function_is_exported() -> None:
    public = {
        name
        for name, value in vars(api).items()
        if inspect.isfunction(value) and value.__module__ == api.__name__ and not name.startswith("_")
    }
    assert public == set(FUNCTIONS)
    assert dkge_dist.__all__ == sorted(dkge_dist.__all__)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_package_gives_the_functions_of_the_api(name: str) -> None:
    function = getattr(dkge_dist, name)
    assert function is getattr(api, name)
    assert (function.__doc__ or "").strip()
    parameters = inspect.signature(function).parameters.values()
    assert all(parameter.annotation is not inspect.Parameter.empty for parameter in parameters)


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


def test_a_training_in_this_process_imports_no_ray(store: Path) -> None:
    words = ["model.dim=4", "train.max_epochs=1", "threads=1"]
    script = f"import dkge_dist; dkge_dist.train({str(store)!r}, settings={words!r})"
    assert imported(script) == {"torch"}


def test_answers_and_evaluations_in_this_process_import_no_ray(store: Path) -> None:
    if not any(line["kind"] == "model" for line in dkge_dist.log(store)["versions"]):
        dkge_dist.train(store, settings=["model.dim=4", "train.max_epochs=1", "threads=1"])
    script = f"import dkge_dist; dkge_dist.answer({str(store)!r}, 'title1', 'actor')"
    assert "ray" not in imported(script)


def test_the_table_of_evidence_imports_neither_torch_nor_ray(store: Path) -> None:
    if not any(line["kind"] == "model" for line in dkge_dist.log(store)["versions"]):
        dkge_dist.train(store, settings=["model.dim=4", "train.max_epochs=1", "threads=1"])
    assert imported(f"import dkge_dist; dkge_dist.evidence_table({str(store)!r})") == set()
