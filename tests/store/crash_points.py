"""Run as a script: one ingest is killed at every call that changes the disk, each time on a fresh copy of the store.

In: a folder with `store` (or none), and a source. Out: a JSON line per crash with the step that it came before (what
was to be done, and where) and what the store was like afterwards.
Kernels run as plain Python (NUMBA_DISABLE_JIT=1), so that no threads are about and forks are cheap and safe.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dkge_dist.store.store import Store
from dkge_dist.surfaces import api

DISK_CALLS = ("fsync", "link", "replace", "mkdir", "unlink", "rmdir")
PLACES = ("parts", "versions", "staging")
STEPS = {
    "mkdir staging",
    "fsync staging",
    "replace parts",
    "fsync parts",
    "fsync versions",
    "link versions",
    "unlink the store",
    "rmdir staging",
}
"""Everything that publishing does, in this order: a part is written, made durable, put in place and its folder made
durable; then the manifest is written, made durable, given its name, and its other name and the folder of parts go."""


def step(call: str, arguments: tuple[Any, ...], options: dict[str, Any]) -> str:
    """The name of a step: a call, and the part of the store that it changes."""
    target = arguments[1] if call in ("link", "replace") else arguments[0]
    path = Path(os.readlink(f"/proc/self/fd/{target}") if isinstance(target, int) else os.fspath(target))
    if options.get("dir_fd") is not None:
        path = Path(os.readlink(f"/proc/self/fd/{options['dir_fd']}")) / path
    return f"{call} {next((part for part in path.parts if part in PLACES), 'the store')}"


def die_at(crash: int, told: Path) -> None:
    """Let this process be killed right before its n-th call that changes the disk; `told` then names it."""
    count = 0

    def guarded(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == crash:
                told.write_text(step(name, arguments, options))
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)

        return call

    for name in DISK_CALLS:
        setattr(os, name, guarded(name, getattr(os, name)))


def in_child(work: Callable[[], None]) -> int:
    """The exit status of a forked process that does some work."""
    child = os.fork()
    if child == 0:
        try:
            work()
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def state(path: Path) -> list[str] | None:
    """The content of every version; None where there is no store yet."""
    if not (path / "store.json").exists():
        return None
    store = Store.open(path)
    return [store.manifest(number).snapshot.content for number in store.versions()]


def main(folder: Path, source: Path) -> None:
    store, copy, told = folder / "store", folder / "copy", folder / "step"
    crash = 0
    killed = True
    while killed:
        crash += 1
        shutil.rmtree(copy, ignore_errors=True)
        if store.exists():
            shutil.copytree(store, copy)

        def ingest(crash: int = crash) -> None:
            die_at(crash, told)
            api.ingest(copy, source)

        killed = in_child(ingest) == -signal.SIGKILL
        left = state(copy)
        report = {
            "crash": crash,
            "killed": killed,
            "step": told.read_text(),
            "left": left,
            "problems": [] if left is None else api.check(copy)["problems"],
            "again": api.ingest(copy, source)["version"],
            "final": state(copy),
            "problems_at_the_end": api.check(copy)["problems"],
        }
        print(json.dumps(report))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
