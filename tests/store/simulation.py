"""A file system that is a scheduler: several processes at once, each of whose calls may come late, fail or be its last.

Processes are threads of which one runs at a time. Before every call that looks at the store or changes it, the schedule
decides by its seed who goes on, and whether this call fails (ENOSPC, EIO, done or not), or its process is killed before
it or after it, or the power fails. After a power failure there is what was synced; of everything else, each name on its
own is as before or as after, and files that were not synced are empty, cut short or whole. The code under test is the
real one, down to its calls of `os`.
"""

from __future__ import annotations

import errno
import fcntl
import os
import random
import secrets
import shutil
import stat
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

CHANGES = ("fsync", "link", "replace", "rename", "mkdir", "unlink", "rmdir", "utime")
LOOKS = ("stat", "lstat", "open", "scandir", "listdir")


class Killed(BaseException):
    """The process is no more. It does nothing on its way out."""


@dataclass(frozen=True)
class Chances:
    """How likely a call is the one at which something happens."""

    switch: float = 0.2
    stall: float = 0.02
    kill: float = 0.001
    error: float = 0.002
    lost_answer: float = 0.002
    power_failure: float = 0.0


@dataclass
class Process:
    """One of those that run at once."""

    name: str
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    is_dead: bool = False
    stalled_until: int = 0
    failure: BaseException | None = None


class Simulation:
    """Runs processes on the folder `root`; `keep`, beside it, holds the files that were synced."""

    def __init__(self, folder: Path, seed: int, chances: Chances) -> None:
        self.root, self.keep = folder / "store", folder / "synced"
        self.root.mkdir(parents=True)
        self.keep.mkdir()
        self.random = random.Random(seed)
        self.chances = chances
        self.is_down = False
        self.turns = 0
        self.happened: Counter[str] = Counter()
        self._me = threading.local()
        self._alive: list[Process] = []
        self._real = {name: getattr(os, name) for name in (*CHANGES, *LOOKS)}
        self._flock, self._token = fcntl.flock, secrets.token_hex
        self._synced: set[int] = set()
        """The inodes of files that are on disk. They are never used again, because `keep` has a link to each."""
        self._entries: dict[str, dict[str, tuple[bool, int]]] = {str(self.root): {}}
        """The names on disk, by directory: is it a directory, and its inode."""

    # Who runs.

    def run(self, programs: dict[str, Callable[[], None]]) -> None:
        """Run programs at once to their ends. A program that fails otherwise than by being killed fails this."""
        self.is_down = False
        self._alive = [Process(name) for name in programs]
        processes = list(self._alive)
        threads = [
            threading.Thread(target=self._life, args=(process, programs[process.name]), daemon=True)
            for process in processes
        ]
        with self._installed():
            for thread in threads:
                thread.start()
            self.random.choice(processes).turn.release()
            for thread in threads:
                thread.join(timeout=120)
                assert not thread.is_alive(), "the schedule hangs"
        if self.is_down:
            self._lose_power()
        for process in processes:
            if process.failure is not None:
                raise process.failure

    def run_quietly(self, program: Callable[[], object]) -> None:
        """Run one program; nothing happens to it."""
        chances, self.chances = self.chances, Chances(0, 0, 0, 0, 0, 0)
        self.run({"alone": lambda: program() and None})
        self.chances = chances

    def _life(self, process: Process, program: Callable[[], None]) -> None:
        process.turn.acquire()
        self._me.process = process
        try:
            if not self.is_down:
                program()
        except Killed:
            pass
        except BaseException as error:
            process.failure = error
        finally:
            self._me.process = None
            self._alive.remove(process)
            if self._alive:
                self.random.choice(self._alive).turn.release()

    def switch(self) -> None:
        """Let another process go on, or this one. Now and then one is stalled: the others get far meanwhile."""
        me = self._me.process
        self.turns += 1
        if self.random.random() < self.chances.stall:
            me.stalled_until = self.turns + self.random.randrange(500)
        ready = [process for process in self._alive if process.stalled_until <= self.turns]
        other = self.random.choice(ready or self._alive)
        if other is not me:
            other.turn.release()
            me.turn.acquire()
        if self.is_down:
            me.is_dead = True
            raise Killed

    def _kill(self, what: str) -> None:
        self.happened[what] += 1
        self._me.process.is_dead = True
        raise Killed

    # What happens at a call.

    @contextmanager
    def _installed(self) -> Iterator[None]:
        try:
            for name in (*CHANGES, *LOOKS):
                setattr(os, name, self._guarded(name))
            fcntl.flock = self._guarded_flock
            secrets.token_hex = self._guarded_token
            yield
        finally:
            for name, real in self._real.items():
                setattr(os, name, real)
            fcntl.flock, secrets.token_hex = self._flock, self._token

    def _guarded(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def call(*arguments: Any, **options: Any) -> Any:
            me: Process | None = getattr(self._me, "process", None)
            if me is None or not self._concerns(arguments):
                return real(*arguments, **options)
            if me.is_dead:
                raise Killed
            chance, chances = self.random.random, self.chances
            if chance() < chances.switch:
                self.switch()
            if name in CHANGES:
                self._before(name, chance, chances)
            done = self._sync(arguments[0]) if name == "fsync" else real(*arguments, **options)
            if name in CHANGES:
                self._after(name, chance, chances)
            return done

        return call

    def _concerns(self, arguments: tuple[Any, ...]) -> bool:
        first = arguments[0] if arguments else "."
        if isinstance(first, int):
            try:
                first = self._real_readlink(first)
            except OSError:
                return False
        return isinstance(first, str | os.PathLike) and os.fspath(first).startswith(str(self.root))

    @staticmethod
    def _real_readlink(descriptor: int) -> str:
        return os.readlink(f"/proc/self/fd/{descriptor}")

    def _before(self, name: str, chance: Callable[[], float], chances: Chances) -> None:
        if chance() < chances.power_failure:
            self.is_down = True
            self._kill("power failure")
        if chance() < chances.kill:
            self._kill("killed before a call")
        if chance() < chances.error and name not in ("unlink", "rmdir"):
            self.happened[f"{name} failed"] += 1
            code = self.random.choice([errno.ENOSPC, errno.EIO])
            raise OSError(code, os.strerror(code), "a file")

    def _after(self, name: str, chance: Callable[[], float], chances: Chances) -> None:
        if chance() < chances.kill:
            self._kill("killed after a call")
        # Most calls are others, and this is the one that publishes.
        if chance() < chances.lost_answer * (20 if name == "link" else 1):
            self.happened[f"answer to {name} lost"] += 1
            code = errno.EEXIST if name in ("link", "mkdir") and self.random.random() < 0.5 else errno.EIO
            raise OSError(code, os.strerror(code), "a file")

    def _guarded_flock(self, file: Any, operation: int) -> None:
        me: Process | None = getattr(self._me, "process", None)
        if me is None or operation & (fcntl.LOCK_NB | fcntl.LOCK_UN):
            self._flock(file, operation)
            return
        while True:
            try:
                self._flock(file, operation | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                self.switch()

    def _guarded_token(self, size: int = 32) -> str:
        if getattr(self._me, "process", None) is None:
            return self._token(size)
        return self.random.randbytes(size).hex()

    # What is on disk.

    def _sync(self, descriptor: int) -> None:
        state = os.fstat(descriptor)
        path = self._real_readlink(descriptor)
        if stat.S_ISDIR(state.st_mode):
            self._entries[path] = self._names(path)
        elif state.st_ino not in self._synced:
            self._real["link"](path, self.keep / str(state.st_ino))
            self._synced.add(state.st_ino)

    def _names(self, path: str) -> dict[str, tuple[bool, int]]:
        try:
            with self._real["scandir"](path) as entries:
                return {entry.name: (entry.is_dir(follow_symlinks=False), entry.inode()) for entry in entries}
        except FileNotFoundError:
            return {}

    def _lose_power(self) -> None:
        files, folders = self._survivors(str(self.root))
        shutil.rmtree(self.root)
        self.root.mkdir()
        for folder in folders:
            Path(folder).mkdir()
        for name, (content, age) in files.items():
            Path(name).write_bytes(content)
            os.utime(name, ns=(age, age))
        self._entries = {folder: self._names(folder) for folder in (str(self.root), *folders)}
        for name in files:
            inode = os.stat(name).st_ino
            if inode not in self._synced:
                os.link(name, self.keep / str(inode))
                self._synced.add(inode)

    def _survivors(self, folder: str) -> tuple[dict[str, tuple[bytes, int]], list[str]]:
        """(Files with their content and age, folders from above to below)."""
        files: dict[str, tuple[bytes, int]] = {}
        folders: list[str] = []
        before, now = self._entries.get(folder, {}), self._names(folder)
        for name in sorted({*before, *now}):
            entry = self.random.choice([before.get(name), now.get(name)])
            if entry is None:
                continue
            path = f"{folder}/{name}"
            is_folder, inode = entry
            if is_folder:
                inner, below = self._survivors(path)
                files |= inner
                folders += [path, *below]
            else:
                files[path] = self._content(path, inode)
        return files, folders

    def _content(self, path: str, inode: int) -> tuple[bytes, int]:
        if inode in self._synced:
            kept = self.keep / str(inode)
            return kept.read_bytes(), kept.stat().st_mtime_ns
        content = b""
        if os.path.exists(path) and os.stat(path).st_ino == inode:
            content = Path(path).read_bytes()
        return content[: self.random.choice([0, len(content) // 2, len(content)])], time.time_ns()

    def pass_time(self, seconds: float) -> None:
        """Everything that is there becomes older, all at once."""
        folders = [str(self.root)]
        while folders:
            folder = folders.pop()
            for name, (is_folder, _) in self._names(folder).items():
                path = f"{folder}/{name}"
                age = self._real["stat"](path, follow_symlinks=False).st_mtime_ns - int(seconds * 1e9)
                self._real["utime"](path, ns=(age, age))
                folders += [path] if is_folder else []
