"""How kernels are compiled: caches that cannot be stale, one form of inputs, and the number of threads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dkge_dist.kernels import jit


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A kernel module that uses a step of another one and one of a folder below, in a package of its own."""
    folder = tmp_path / "kernels"
    (folder / "below").mkdir(parents=True)
    (folder / "steps.py").write_text("STEP = 1\n")
    (folder / "below" / "deep.py").write_text("DEEP = 1\n")
    text = "from dkge_dist.kernels.steps import STEP\nfrom dkge_dist.kernels.below.deep import DEEP\n"
    (folder / "uses.py").write_text(text)
    return folder


def test_cache_folder_depends_on_every_source_of_a_kernel(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a kernel with an old step compiled into it would be run after an upgrade."""
    monkeypatch.setattr(jit, "__file__", str(package / "jit.py"))
    monkeypatch.delenv("NUMBA_CACHE_DIR", raising=False)

    def folders() -> list[str]:
        jit._cache_folder.cache_clear()
        jit._sources.cache_clear()
        return [jit._cache_folder(package / name) for name in ("uses.py", "steps.py")]

    try:
        before = folders()
        assert before == folders()
        assert len(set(before)) == 2
        assert all(Path(folder).parent == package / "__pycache__" for folder in before)
        (package / "uses.py").write_text((package / "uses.py").read_text() + "# changed\n")
        caller_changed = folders()
        assert caller_changed[0] != before[0] and caller_changed[1] == before[1]
        (package / "steps.py").write_text("STEP = 2\n")
        step_changed = folders()
        assert step_changed[0] != caller_changed[0] and step_changed[1] != caller_changed[1]
        (package / "below" / "deep.py").write_text("DEEP = 2\n")
        deep_changed = folders()
        assert deep_changed[0] != step_changed[0] and deep_changed[1] == step_changed[1]
    finally:
        jit._cache_folder.cache_clear()
        jit._sources.cache_clear()


def test_cache_may_be_put_elsewhere(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "chosen"))
    jit._cache_folder.cache_clear()
    try:
        assert Path(jit._cache_folder(package / "steps.py")).parent == tmp_path / "chosen"
    finally:
        jit._cache_folder.cache_clear()


def test_every_kernel_module_imports_steps_in_the_form_that_the_cache_knows() -> None:
    """Sources are found by `from dkge_dist.kernels.x import`: another form would be missed."""
    folder = Path(jit.__file__).parent
    for module in folder.rglob("*.py"):
        text = module.read_text(encoding="utf-8")
        assert "import dkge_dist.kernels" not in text
        assert "from dkge_dist.kernels import" not in text
        assert "from ." not in text


@pytest.mark.parametrize("given", [np.arange(12.0), np.arange(24.0)[::2], np.arange(12.0).reshape(3, 4).T])
def test_readonly_arrays_are_contiguous_and_cannot_be_written(given: np.ndarray) -> None:
    view = jit.as_readonly(given)
    assert np.array_equal(view, given)
    assert view.flags.c_contiguous and not view.flags.writeable
    assert given.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        view[0] = 1


def test_readonly_arrays_share_memory_unless_the_type_changes() -> None:
    given = np.arange(5, dtype=np.int32)
    assert np.shares_memory(jit.as_readonly(given, np.int32), given)
    converted = jit.as_readonly(given, np.int64)
    assert converted.dtype == np.int64
    assert not np.shares_memory(converted, given)


def test_threads_are_limited_to_those_numba_started_with() -> None:
    before = jit.threads()
    try:
        jit.set_threads(1)
        assert jit.threads() == 1
        jit.set_threads(10_000)
        assert 1 <= jit.threads() <= (os.cpu_count() or 1)
    finally:
        jit.set_threads(before)


@pytest.mark.skipif(os.environ.get("NUMBA_DISABLE_JIT") == "1", reason="nothing is compiled")
def test_two_threads_may_run_parallel_kernels_at_once() -> None:
    """The prefetcher does. With numba's own choice of a threading layer the process might be aborted."""
    script = (
        "import threading, numpy as np\n"
        "from dkge_dist.kernels.jit import as_readonly\n"
        "from dkge_dist.kernels.rows import gather_rows\n"
        "table, rows = np.ones((5000, 8), np.float32), as_readonly(np.arange(5000), np.int32)\n"
        "def work():\n"
        "    for _ in range(200): gather_rows(table, rows, np.empty((5000, 8), np.float32))\n"
        "some = [threading.Thread(target=work) for _ in range(4)]\n"
        "[t.start() for t in some]; [t.join() for t in some]; print('done')\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=200, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr


def test_kernels_run_without_blas_and_cffi_and_others_still_find_them() -> None:
    code = """
import sys
import numpy as np
from dkge_dist.kernels.jit import load_minimal
load_minimal()
from dkge_dist.kernels.rows import gather_rows
out = np.empty((2, 3), np.float32)
gather_rows(np.arange(12, dtype=np.float32).reshape(4, 3), np.array([3, 1], np.int32), out)
assert out.tolist() == [[9, 10, 11], [3, 4, 5]], out
assert not {"scipy.linalg", "cffi"} & set(sys.modules)
import cffi
import scipy.linalg
assert scipy.linalg.norm([3, 4]) == 5
assert cffi.FFI().sizeof("int") == 4
load_minimal()
assert (sys.modules["scipy.linalg"], sys.modules["cffi"]) == (scipy.linalg, cffi)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
