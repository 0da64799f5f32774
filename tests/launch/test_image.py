"""The Dockerfile as text: it copies what is there and not ignored, versions are pinned, the user is that of pods."""

from __future__ import annotations

import re
import shlex
from fnmatch import fnmatch
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def instructions() -> list[tuple[str, str]]:
    """(Instruction, the rest), comments left out, continued lines joined."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = "\n".join(line for line in text.split("\n") if not line.startswith("#"))
    found = re.findall(r"^([A-Z]+) (.+)$", lines.replace("\\\n", " "), re.MULTILINE)
    return [(name, rest) for name, rest in found]


def of(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def is_ignored(path: str) -> bool:
    """By .dockerignore: the last pattern that fits decides."""
    ignored = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            pattern = line.removeprefix("!")
            above = [str(folder) for folder in (Path(path), *Path(path).parents)]
            if any(fnmatch(some, pattern) or fnmatch(f"/{some}", pattern.removeprefix("**")) for some in above):
                ignored = not line.startswith("!")
    return ignored


def copied() -> list[str]:
    return [source for rest in of("COPY") for source in shlex.split(rest)[:-1]]


def test_what_is_copied_is_there_and_not_ignored() -> None:
    assert len(copied()) > 5
    for source in copied():
        assert (ROOT / source).exists(), source
        assert not is_ignored(source), source


def test_nothing_else_is_sent_to_the_build() -> None:
    kept = {path.name for path in ROOT.iterdir() if not is_ignored(path.name)}
    assert kept == {source.split("/")[0] for source in copied()}
    assert is_ignored("dkge_dist/kernels/__pycache__/jit.cpython-311.pyc")
    assert is_ignored(".git/config") and is_ignored(".venv/bin/python")


def test_the_package_is_made_of_what_is_copied() -> None:
    """The build of the package reads these; `launch` and `configs` are for the pods."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    needed = ["pyproject.toml", *re.findall(r'^readme = "(.+)"', text, re.MULTILINE), "LICENSE", "dkge_dist"]
    assert set(needed) <= set(copied())


def test_python_is_the_one_that_is_tested_and_libraries_are_pinned() -> None:
    assert of("FROM") == ["python:3.11-slim-bookworm"]
    installs = [line for line in of("RUN") if "pip install" in line]
    assert ["--constraint constraints.txt" in line or "--no-deps" in line for line in installs] == [True, True]
    (index,) = of("ARG")
    assert index == "TORCH_INDEX=https://download.pytorch.org/whl/cpu"
    assert '--extra-index-url "$TORCH_INDEX"' in installs[0]
    assert re.search(r"^torch==[0-9.]+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE), "no build: either fits"


def test_the_user_is_not_root_and_that_of_the_pods() -> None:
    names = [name for name, _ in instructions()]
    assert of("USER") == ["1000"] and "useradd --create-home --uid 1000 dkge" in of("RUN")
    after = names[names.index("USER") :]
    assert "COPY" not in after, "what root owns is not written to by the user"
    for name in ("rayjob.yaml", "rayjob-bucket.yaml"):
        job = next(yaml.safe_load_all((ROOT / "launch" / name).read_text(encoding="utf-8")))
        pod = job["spec"]["rayClusterSpec"]["headGroupSpec"]["template"]["spec"]
        assert pod["securityContext"]["runAsUser"] == 1000


def test_scripts_are_where_the_pods_look_for_them() -> None:
    assert of("WORKDIR")[0] == "/opt/dkge"
    assert "launch launch" in of("COPY")
    for name in ("rayjob.yaml", "rayjob-bucket.yaml"):
        job = next(yaml.safe_load_all((ROOT / "launch" / name).read_text(encoding="utf-8")))
        script = job["spec"]["entrypoint"].split()[1]
        assert (ROOT / script.removeprefix("/opt/dkge/")).is_file()
