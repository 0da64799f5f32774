"""What a run goes back to: checkpoints of a training on disk, or the best state of a night in memory.

A checkpoint is a whole folder that appears at once, so that a kill at any moment leaves the one before. Two lines are
kept, `last` (to resume from) and `best` (to end with). `store.trainings` gives the folder they are in to one process at
a time, and removes what a killed one left unfinished: what has a hidden name.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load
from safetensors.torch import save as to_bytes

from dkge_dist import files
from dkge_dist.learn.frozen import FrozenObjects
from dkge_dist.learn.loop import Line, Progress
from dkge_dist.learn.step import DenseParameters
from dkge_dist.runtime import Communicator
from dkge_dist.store.remote_trainings import RemoteFolder
from dkge_dist.store.storage import MissingError
from dkge_dist.tables.checkpoint import CheckpointFolder, DamagedCheckpointError
from dkge_dist.tables.table import Tables
from dkge_dist.types import Array, DkgeError, Field

DENSE, DENSE_STATE = "dense.safetensors", "dense-state.safetensors"
PROGRESS = "progress.json"
NAME = re.compile(r"(last|best)-([0-9]{9})")


class Checkpoints:
    """The checkpoints in the folder of one training: of a file system, or of objects in a storage."""

    def __init__(self, folder: CheckpointFolder) -> None:
        self.folder = folder
        self._home = _Objects(folder) if isinstance(folder, RemoteFolder) else _Folders(folder)

    def save(self, line: Line, write: Callable[[Any], None], progress: dict[str, Any]) -> None:
        """Let `write` fill a folder and make it the newest of its line; the one before goes once this is durable."""
        before = self._numbers(line)
        content = {"sha256": _checksum(progress), "progress": progress}
        try:
            self._home.add(_name(line, max(before, default=0) + 1), write, json.dumps(content).encode())
        except OSError as error:
            # Another attempt would meet the same: the user has to make room.
            kept = f"{_name(line, max(before))} is kept" if before else "there was none before"
            raise DkgeError(f"{self.folder}: checkpoint not saved: {error.strerror}; {kept}") from error
        for number in before:
            self._home.remove(_name(line, number))

    def load(self, line: Line) -> tuple[Any, dict[str, Any]] | None:
        """The newest checkpoint of a line: (its folder, its progress)."""
        numbers = self._numbers(line)
        if not numbers:
            return None
        name = _name(line, max(numbers))
        folder = self.folder / name
        try:
            content = json.loads(self._home.progress(name))
            progress: dict[str, Any] = content["progress"]
            if content["sha256"] != _checksum(progress):
                raise ValueError(f"{PROGRESS} does not have the checksum that it names")
        except (OSError, MissingError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise self.damaged(folder, error) from None
        return folder, progress

    def damaged(self, folder: CheckpointFolder, why: object) -> DkgeError:
        """What to tell of a checkpoint that cannot be used."""
        return DkgeError(f"{folder}: damaged checkpoint ({why}); remove {self.folder} to start afresh")

    def forget(self) -> None:
        """Start afresh."""
        for name in self._home.names():
            if NAME.fullmatch(name):
                self._home.remove(name)

    def _numbers(self, line: Line) -> list[int]:
        names = (NAME.fullmatch(name) for name in self._home.names())
        return sorted(int(name[2]) for name in names if name and name[1] == line)


class _Folders:
    """A checkpoint is a folder that gets its name when it is complete."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        return [path.name for path in self.folder.iterdir()] if self.folder.exists() else []

    def add(self, name: str, write: Callable[[Path], None], progress: bytes) -> None:
        temporary = self.folder / f".{secrets.token_hex(8)}"
        try:
            temporary.mkdir(parents=True)
            write(temporary)
            (temporary / PROGRESS).write_bytes(progress)
            files.sync_tree(temporary)
            temporary.rename(self.folder / name)
            files.sync(self.folder)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def progress(self, name: str) -> bytes:
        for path in (self.folder / name).rglob("*"):
            # A pipe would be waited for when it is read, and a link may lead anywhere. Tables have their own folders.
            if path.is_symlink() or not path.is_dir():
                files.open_regular(path, follow_links=False).close()
        return files.read_regular(self.folder / name / PROGRESS, follow_links=False)

    def remove(self, name: str) -> None:
        shutil.rmtree(self.folder / name, ignore_errors=True)


class _Objects:
    """A checkpoint is there when its progress is, which is written last and removed first.

    What a killed process left without a progress is written over by the next one of that number.
    """

    def __init__(self, folder: RemoteFolder) -> None:
        self.folder = folder

    def names(self) -> list[str]:
        return [name.removesuffix(".json") for name in self.folder.names() if name.endswith(".json")]

    def add(self, name: str, write: Callable[[RemoteFolder], None], progress: bytes) -> None:
        write(self.folder / name)
        (self.folder / f"{name}.json").write_bytes(progress)

    def progress(self, name: str) -> bytes:
        return (self.folder / f"{name}.json").read_bytes()

    def remove(self, name: str) -> None:
        (self.folder / f"{name}.json").remove()
        (self.folder / name).remove()


def _name(line: Line, number: int) -> str:
    return f"{line}-{number:09d}"


def _checksum(progress: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(progress, sort_keys=True).encode()).hexdigest()


def save_state(folder: CheckpointFolder, dense: DenseParameters, tables: Tables) -> None:
    """Write everything that a later `load_state` needs to go on as if nothing had happened."""
    parameters = {name: value.detach().cpu() for name, value in dense.model.state_dict().items()}
    # Not by `save_file`: of a full disk it raises an error of its own, without a file name.
    (folder / DENSE).write_bytes(to_bytes(parameters))
    state = {
        f"{number}.{name}": value.detach().cpu().contiguous()
        for number, values in dense.optimizer.state_dict()["state"].items()
        for name, value in values.items()
        if isinstance(value, torch.Tensor)
    }
    (folder / DENSE_STATE).write_bytes(to_bytes(state))
    for name, table in tables._asdict().items():
        table.save_checkpoint(folder / name)


def load_state(folder: CheckpointFolder, dense: DenseParameters, tables: Tables) -> None:
    """Load what `save_state` wrote."""
    dense.model.load_state_dict(load((folder / DENSE).read_bytes()))
    state = dense.optimizer.state_dict()
    for key, value in load((folder / DENSE_STATE).read_bytes()).items():
        number, _, name = key.partition(".")
        state["state"].setdefault(int(number), {})[name] = value
    dense.optimizer.load_state_dict(state)
    for name, table in tables._asdict().items():
        table.load_checkpoint(folder / name)


class CheckpointKeeper:
    """Keeps all that a training moves in its checkpoints; the first worker writes, the others wait for it."""

    def __init__(
        self, checkpoints: Checkpoints, dense: DenseParameters, tables: Tables, communicator: Communicator
    ) -> None:
        self.checkpoints, self.dense, self.tables, self.communicator = checkpoints, dense, tables, communicator

    def resume(self, batches: int) -> Progress | None:
        """Load the newest checkpoint, if there is one."""
        found = self.checkpoints.load("last")
        if found is None:
            return None
        folder, values = found
        if values.keys() != {known.name for known in fields(Progress)} or values["batch"] > batches:
            raise self.checkpoints.damaged(folder, "its progress is not one of this training")
        self.load(folder)
        return Progress(**values)

    def load(self, folder: CheckpointFolder) -> None:
        """Load a checkpoint; what cannot be used is named."""
        try:
            load_state(folder, self.dense, self.tables)
        except (
            DamagedCheckpointError, MissingError, SafetensorError, OSError, ValueError, KeyError, RuntimeError
        ) as error:  # fmt: skip
            raise self.checkpoints.damaged(folder, error) from None

    def save(self, line: Line, progress: Progress) -> None:
        """Write a checkpoint."""
        values = asdict(progress) if line == "last" else {"epoch": progress.epoch, **progress.best}
        if self.communicator.rank == 0:
            self.checkpoints.save(line, lambda folder: save_state(folder, self.dense, self.tables), values)
        self.communicator.barrier()

    def restore_best(self, progress: Progress) -> Progress:
        """Load the best checkpoint, if there is one."""
        best = self.checkpoints.load("best")
        if best is None:
            return progress
        folder, found = best
        self.load(folder)
        return replace(progress, best={name: value for name, value in found.items() if name != "epoch"})

    def stopped(self, progress: Progress) -> str:
        """How to go on."""
        return f"stopped in epoch {progress.epoch + 1}; the same command goes on from here ({self.checkpoints.folder})"

    def advice(self, cause: object) -> str:
        """What to do about a training that diverged."""
        kept = self.checkpoints.load("last")
        where = f"the last good checkpoint is in {kept[0]}" if kept else "there was no checkpoint yet"
        return f"training diverged: {cause}. Try a smaller train.learning_rate; {where}"


class MemoryKeeper:
    """Keeps the best vectors of a night, which are few; a night that is stopped begins again."""

    def __init__(self, objects: Sequence[FrozenObjects]) -> None:
        self.objects = objects
        self._kept: list[dict[Field, tuple[Array, Array]]] = []

    def resume(self, batches: int) -> Progress | None:
        """There is nothing to resume."""
        return None

    def save(self, line: Line, progress: Progress) -> None:
        """Copy what is trained."""
        if line == "best":
            self._kept = [some.trained_values() for some in self.objects]

    def restore_best(self, progress: Progress) -> Progress:
        """Set what is trained to what it was at the best."""
        for some, kept in zip(self.objects, self._kept, strict=False):
            some.restore(kept)
        return progress

    def stopped(self, progress: Progress) -> str:
        """How to go on."""
        return "the update was stopped; the store is as before, and the same command starts it again"

    def advice(self, cause: object) -> str:
        """What to do about a night that diverged."""
        return f"the update diverged: {cause}. Try a smaller online.learning_rate; the store is as before"
