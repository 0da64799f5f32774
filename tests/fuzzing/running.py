"""Runs cases in another process, so that a signal or a hang is noticed and told with its number."""

from __future__ import annotations

import multiprocessing
import shutil
import tempfile
import traceback
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dkge_dist.types import DkgeError
from tests.fuzzing.mutation import SilentError
from tests.fuzzing.readers import READERS
from tests.fuzzing.stores import STORES, SoundStore

SECONDS = 10.0
KINDS = [*READERS, *STORES]


class Outcome(NamedTuple):
    """How a case ended: `refused`, `read`, or what must not be: `silent`, `traceback`, `signal`, `hang`."""

    number: int
    kind: str
    ending: str
    told: str = ""


WRONG = ("silent", "traceback", "signal", "hang")


def run_case(seed: int, number: int, work: Path, sound: SoundStore) -> Outcome:
    """One case: seed and number say which."""
    kind = KINDS[number % len(KINDS)]
    folder = Path(tempfile.mkdtemp(dir=work))
    rng = np.random.default_rng((seed, number))
    try:
        if kind in READERS:
            READERS[kind](rng, folder)
        else:
            STORES[kind](rng, folder, sound)
        return Outcome(number, kind, "read")
    except DkgeError as error:
        return Outcome(number, kind, "refused" if str(error) else "silent", str(error)[:300])
    except SilentError as error:
        return Outcome(number, kind, "silent", str(error))
    except Exception:
        return Outcome(number, kind, "traceback", traceback.format_exc()[-1500:])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _work(pipe: Connection, seed: int, work: Path) -> None:
    sound = SoundStore(Path(tempfile.mkdtemp(dir=work)))
    pipe.send(None)
    while (number := pipe.recv()) is not None:
        pipe.send(run_case(seed, number, work, sound))


class Worker:
    """A process that runs cases, and is replaced when one of them ends it or does not end."""

    def __init__(self, seed: int, work: Path) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=_work, args=(theirs, seed, work), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.recv()

    def run(self, number: int) -> Outcome:
        kind = KINDS[number % len(KINDS)]
        try:
            self.pipe.send(number)
            if not self.pipe.poll(SECONDS):
                return Outcome(number, kind, "hang")
            outcome: Outcome = self.pipe.recv()
            return outcome
        except (EOFError, OSError):
            self.process.join()
            return Outcome(number, kind, "signal", str(self.process.exitcode))

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run(seed: int, numbers: range) -> Iterator[Outcome]:
    """The outcomes of some cases."""
    with tempfile.TemporaryDirectory() as work:
        worker = Worker(seed, Path(work))
        try:
            for number in numbers:
                outcome = worker.run(number)
                yield outcome
                if outcome.ending in ("signal", "hang"):
                    worker.close()
                    worker = Worker(seed, Path(work))
        finally:
            worker.close()
