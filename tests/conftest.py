"""Settings of all tests, how they are dealt to processes, fixtures for published data and single threads, GPUs."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, settings

import dkge_dist  # noqa: F401  # First: it sets how idle threads wait, which torch and numba read when they start.

if TYPE_CHECKING:
    from tests.bucket_server import Proxy

# Compiling a kernel at its first example takes seconds: no example has a deadline.
settings.register_profile("default", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("interpreted", parent=settings.get_profile("default"), max_examples=10)
settings.register_profile("thorough", parent=settings.get_profile("default"), max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

PUBLISHED = ("YAGO-3SP", "DBpedia-3SP")
NO_GPU = "no GPU here"


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """For tests that train: their batches are so small that threads would only wait for each other."""
    import torch

    from dkge_dist.kernels.jit import set_threads, threads

    before = (threads(), torch.get_num_threads())
    set_threads(1)
    torch.set_num_threads(1)
    yield
    set_threads(before[0])
    torch.set_num_threads(before[1])


@pytest.fixture(scope="session")
def bucket_port() -> Iterator[int]:
    """The port of an object store that holds an empty bucket."""
    from tests.bucket_server import bucket_server

    with bucket_server() as port:
        yield port


@pytest.fixture
def bucket(bucket_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place in a bucket where nothing is yet. This process and those it starts can reach it."""
    from tests.bucket_server import BUCKET, environment

    for name, value in environment(bucket_port, tmp_path / "cache").items():
        monkeypatch.setenv(name, value)
    return f"s3://{BUCKET}/{secrets.token_hex(8)}"


@pytest.fixture
def proxy(bucket_port: int, bucket: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A way to the server that this process and its children go from now on."""
    from tests.bucket_server import Proxy

    made = Proxy(bucket_port)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{made.port}")
    yield made
    made.close()


@pytest.fixture(scope="session")
def published_data() -> Path:
    """The folder of the published data sets: `published_data / "YAGO-3SP" / "snapshot1"` is one in OpenKE layout."""
    return data_folder(os.environ.get("DKGE_DATA"))


def data_folder(name: str | None) -> Path:
    """The folder that DKGE_DATA names. Not set: the test is skipped. Set to something else: an error."""
    if not name:
        pytest.skip(f"DKGE_DATA is not set: the folder that holds {' and '.join(PUBLISHED)}")
    folder = Path(name)
    missing = [data_set for data_set in PUBLISHED if not (folder / data_set / "snapshot1").is_dir()]
    assert not missing, f"DKGE_DATA={name}: no {' and no '.join(missing)} there"
    return folder


KERNELS = "tests/kernels/"
"""Tests that compile all kernels, each file others than the next."""
WITH_RAY = ("tests/cluster", "tests/launch")
"""Tests that start Ray: one after the other, because each Ray takes itself to have the machine for itself."""
BEGUN_FIRST = (KERNELS, "tests/cluster/", "tests/store/", "tests/test_readme")
"""After the kernels what takes longest, so that neither process waits for it in the end."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Deal tests out to processes by folder: those of a folder share fixtures that take long to make."""
    from xdist.scheduler import LoadScopeScheduling

    class ByFolder(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            folder = file.rpartition("/")[0]
            if folder in WITH_RAY:
                return "Ray"
            return file if file.startswith(KERNELS) or folder == "tests" else folder

    return ByFolder(config, log)


def _turn(item: pytest.Item) -> int:
    return next((n for n, start in enumerate(BEGUN_FIRST) if item.nodeid.startswith(start)), len(BEGUN_FIRST))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Kernels first: two processes compile half of them each, and all that follows finds them on disk.

    Tests marked `gpu` are skipped where there is none; torch is imported only if there are such tests.
    """
    items.sort(key=_turn)
    needing = [item for item in items if item.get_closest_marker("gpu")]
    if not needing:
        return
    import torch

    if not torch.cuda.is_available():
        for item in needing:
            item.add_marker(pytest.mark.skip(reason=NO_GPU))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say aloud how many tests were skipped for lack of a GPU: nothing else shows that its path was not run."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(NO_GPU in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.write_sep("=", f"{count} tests need a GPU and were NOT run: there is none here", yellow=True)
