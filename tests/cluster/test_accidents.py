"""Accidents at random moments: shards, workers and nodes are killed, stopped or cut off, and all ends as promised.

What is promised stands in README.md, "When something is lost". An update and a question end with an error that names
the shard, within the time that is stated, and leave the store as it was. A training goes on and ends bit for bit where
an undisturbed one ends. `DKGE_ACCIDENTS` says how many are played in all, `DKGE_SEED` which.

    DKGE_ACCIDENTS=100 python -m pytest -m slow -s tests/cluster/test_accidents.py
"""

from __future__ import annotations

import os
import random
import re
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import ray

from dkge_dist.cluster.calls import PING_AFTER
from dkge_dist.cluster.calls import START_SECONDS as SHARD_START_SECONDS
from dkge_dist.cluster.transport import client
from dkge_dist.cluster.transport.address import CONNECT_SECONDS
from dkge_dist.cluster.transport.channel import SILENCE_SECONDS
from dkge_dist.cluster.workers import START_SECONDS, WORKER_SILENCE_SECONDS
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import DkgeError
from tests.cluster.disturbed import WORDS, assert_same_models, store_of
from tests.cluster.namespace import Namespace
from tests.cluster.nodes import Nodes, kill, processes, soon, stop, stop_shard
from tests.graphs import assert_sound, listing, movies, write_changes, write_tsv

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

COUNT = int(os.environ.get("DKGE_ACCIDENTS", "12"))
SEED = int(os.environ.get("DKGE_SEED", str(time.time_ns() % 1_000_000)))
SHARDS = 3

# How many of a hundred accidents happen to what, and how.
COMMANDS = {
    "one machine": {"shard killed": 40, "node killed": 16, "shard stopped": 14},
    "two machines": {"link cut": 7, "packets dropped": 7},
}
TRAININGS = {
    "one machine": {"shard killed": 3, "worker killed": 3, "node killed": 3, "shard stopped": 2, "worker stopped": 2},
    "two machines": {"link cut": 2, "packets dropped": 1},
}
ACCIDENTS_A_TRAINING = {"one machine": 5, "two machines": 1}
"""A training survives so many starts of its workers. The node that is cut off has a shard only once: Ray does not move
shards back."""

LOST_SECONDS = max(SILENCE_SECONDS, PING_AFTER + client.TRIES * (CONNECT_SECONDS + client.TRIES * client.PAUSE))
"""After which a shard that is stopped or cut off counts as lost, whether rows or answers are asked of it."""
ENDING_SECONDS = 30
"""To take everything down after that, on a busy machine."""

LONG = [*WORDS, "train.max_epochs=400", "train.eval_every=100", "train.checkpoint_seconds=1"]
"""A training that takes long enough for several accidents."""

LOST = re.compile(
    r"shard \d+ (is gone: .+|cannot be reached: .+|has been restarted|belongs to another attempt by now"
    r"|refuses our secret: restarted.+)"
)


@dataclass
class Tally:
    """Seconds from every accident to its end, by what it happened to and how."""

    seconds: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    survived: int = 0

    def add(self, command: str, kind: str, seconds: float, told: str = "") -> None:
        self.seconds[command, kind].append(seconds)
        print(f"{command}, {kind}: {seconds:.1f} s {told.partition(';')[0]}", flush=True)

    def __str__(self) -> str:
        lines = [f"{'command':10} {'accident':16} count  longest"]
        for (command, kind), some in sorted(self.seconds.items()):
            lines.append(f"{command:10} {kind:16} {len(some):5} {max(some):6.1f} s")
        total = sum(map(len, self.seconds.values()))
        return "\n".join([*lines, f"{total} accidents; {self.survived} came too late to disturb. DKGE_SEED={SEED}"])


@pytest.fixture(scope="module")
def tally() -> Iterator[Tally]:
    made = Tally()
    yield made
    print(f"\n{made}")


class Place:
    """A cluster, and what can happen in it. On two machines the second one can be cut off."""

    def __init__(self, name: str) -> None:
        ray.shutdown()  # One Ray at a time: others of this session are over or will start their own.
        self.name = name
        self.namespace = Namespace() if name == "two machines" else None
        try:
            self.nodes = Nodes(self.namespace.here if self.namespace else None)
            self.nodes.add()
            self.nodes.add()
            self._join()
        except BaseException:
            self.close()
            raise
        self.kinds: dict[str, Callable[[], Any]] = {
            "shard killed": lambda: kill("ShardActor"),
            "shard stopped": stop_shard,
            "worker killed": lambda: kill("RayTrainWorker"),
            "worker stopped": lambda: stop("RayTrainWorker"),
            "node killed": self.nodes.lose,
        }
        if self.namespace is not None:
            self.kinds |= {"link cut": self.namespace.cut, "packets dropped": self.namespace.drop}

    def _join(self) -> None:
        if self.namespace is not None:
            self.namespace.start_node(self.nodes.cluster.address)

    def repair(self, kind: str) -> None:
        """Bring another node for one that was lost. What was cut off may not come back as what it was."""
        if kind == "node killed":
            self.nodes.add()
        elif self.namespace is not None:
            self.namespace.end_node()
            self.namespace.heal()
            self._join()

    def close(self) -> None:
        try:
            if hasattr(self, "nodes"):
                self.nodes.close()
        finally:
            if self.namespace is not None:
                self.namespace.close()


@pytest.fixture(scope="module", params=["one machine", "two machines"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    print(f"\nDKGE_ACCIDENTS={COUNT} DKGE_SEED={SEED}")
    made = Place(request.param)
    yield made
    made.close()


def scheduled(shares: dict[str, int], rng: random.Random) -> list[str]:
    """Kinds of accidents, in any order: a share of all of them, and at least one."""
    population = [kind for kind, share in shares.items() for _ in range(share)]
    count = max(1, round(COUNT * len(population) / 100))
    return rng.sample(population * (1 + count // len(population)), count)


# Updates and questions


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a model and a night that it has not learnt, and a file of questions beside it."""
    folder = tmp_path_factory.mktemp("accidents")
    api.ingest(folder / "store", write_tsv(folder / "movies.tsv", movies(2000)), valid=100, test=400, name="first")
    api.train(folder / "store", settings=[*WORDS, "train.max_epochs=5"])
    night = [(f"title{number}", "actor", f"newcomer{number}") for number in range(40)]
    api.ingest(folder / "store", write_changes(folder / "night.changes", added=night), name="second")
    questions = [f"title{number}\tactor\t?\n" for number in range(500)]
    (folder / "questions.tsv").write_text("".join(questions))
    return folder


def update(store: Path) -> dict[str, Any]:
    return api.update(store, settings=["online.max_epochs=100", "online.patience=0"], shards=SHARDS)


def evaluate(store: Path) -> dict[str, Any]:
    return api.evaluate(store, shards=SHARDS)


def answer(store: Path) -> dict[str, Any]:
    return api.answer(store, batch=store.parent / "questions.tsv", shards=SHARDS)


class Accident(Thread):
    """Happens once, so many seconds after the first shard is there; `at` tells when, unless the command ended first."""

    def __init__(self, happen: Callable[[], Any], delay: float) -> None:
        super().__init__(daemon=True)
        self._happen, self._delay, self._over = happen, delay, Event()
        self.at: float | None = None

    def run(self) -> None:
        while not processes("ShardActor"):
            if self._over.wait(0.05):
                return
        if self._over.wait(self._delay):
            return
        self.at = time.monotonic()
        while self._happen() is False and not self._over.wait(0.05):  # There is none to happen to yet.
            self.at = time.monotonic()

    def end(self) -> float:
        """Seconds since it happened; none if it came too late."""
        seconds = time.monotonic() - self.at if self.at is not None else 0.0
        self._over.set()
        self.join()
        return seconds


def disturbed_command(
    command: Callable[[Path], dict[str, Any]], store: Path, accident: Accident
) -> tuple[dict[str, Any] | None, str, float]:
    """(its report, its error, seconds from the accident to the end): a report or an error."""
    accident.start()
    report, told = None, ""
    try:
        report = command(store)
    except DkgeError as error:
        told = str(error)
    finally:
        seconds = accident.end()
    return report, told, seconds


def stated_seconds(told: str) -> float:
    """A shard that has not told its address yet is given more time: it may still be importing."""
    return SHARD_START_SECONDS if told.partition(";")[0].endswith(f" {SHARD_START_SECONDS:g} s") else LOST_SECONDS


def comparable(report: dict[str, Any], store: Path) -> dict[str, Any]:
    """Without what was measured by the clock; the notice of a newer snapshot names no store."""
    return {**report, "seconds": 0, "notice": (report["notice"] or "").replace(str(store), "STORE")}


def assert_as_it_was(store: Path, before: dict[str, str], command: Callable[[Path], dict[str, Any]]) -> None:
    """A shard that is killed while it writes leaves parts that no version names, and its folder. No other file may be
    there, none may have changed, and `gc` takes them away. Questions leave nothing at all."""
    after = listing(store)
    if command is update and after != before:
        assert before.items() <= after.items()
        left = after.keys() - before.keys()
        assert all(name.startswith(("parts/", "staging/")) for name in left), left
        soon(lambda: Store.open(store).storage.staging_since() is None)  # A killed one holds its lock a little longer.
        api.gc(store, keep=100, grace_hours=0)
        (store / "gc.lock").unlink()
        after = {name: what for name, what in listing(store).items() if name in before or what != "folder"}
    assert after == before


def test_updates_and_questions_end_with_an_error_and_can_be_repeated(
    prepared: Path, place: Place, tally: Tally, tmp_path: Path
) -> None:
    rng = random.Random(f"{SEED} {place.name}")
    quiet = tmp_path / "quiet" / "store"
    shutil.copytree(prepared, quiet.parent)
    commands = [evaluate, answer, update]
    evaluate(quiet)  # The first command takes longer, and would let accidents come too late.
    expected, lasts = {}, {}
    for command in commands:
        soon(lambda: not processes("ShardActor"))
        expected[command], _, lasts[command] = disturbed_command(command, quiet, Accident(lambda: None, 0))
    soon(lambda: not processes("ShardActor"))
    for number, kind in enumerate(scheduled(COMMANDS[place.name], rng)):
        command = rng.choice(commands)
        store = tmp_path / str(number) / "store"
        shutil.copytree(prepared, store.parent)
        before = listing(store)
        accident = Accident(place.kinds[kind], rng.uniform(0, lasts[command]))
        report, told, seconds = disturbed_command(command, store, accident)
        if told:
            tally.add(command.__name__, kind, seconds, told)
            assert LOST.match(told) and told.endswith(f"; {store} is as it was, and the same command starts again")
            assert 0 < seconds < stated_seconds(told) + ENDING_SECONDS
            assert_as_it_was(store, before, command)
        elif command is update:
            assert_same_models(quiet, store)
        else:
            assert report is not None and comparable(report, store) == comparable(expected[command], quiet)
        assert_sound(store)
        tally.survived += not told
        if accident.at is not None:
            place.repair(kind)
        soon(lambda: not processes("ShardActor"))
    again = command(store)
    assert command is update or comparable(again, store) == comparable(expected[command], quiet)
    assert_sound(store)


# Trainings


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = store_of(tmp_path_factory.mktemp("undisturbed"))
    api.train(folder, settings=LONG)
    return folder


class Disturbance:
    """A listener of a training that plays accidents, each after the one before was recovered from; a quarter of them
    strikes while it is."""

    def __init__(self, place: Place, kinds: list[str], rng: random.Random, tally: Tally) -> None:
        self.left, self._place, self._rng, self._tally = kinds, place, rng, tally
        self._suffered = ""  # What is not recovered from yet.
        self._at = self._due = 0.0
        self._message, self._workers = "", set[int]()

    def __call__(self, share: float, message: str) -> None:
        now = time.monotonic()
        if self._suffered:
            # All kinds have in common that other workers go on from a checkpoint.
            if message != self._message and set(processes("RayTrainWorker")) - self._workers:
                self._recover(now)
        elif not self._due and message.startswith("epoch "):
            self._due = now + self._rng.uniform(0, 4)
        if self.left and self._due and now >= self._due:
            self._strike(message)

    def _strike(self, message: str) -> None:
        workers, at = set(processes("RayTrainWorker")), time.monotonic()
        kind = self.left[0]
        if self._place.kinds[kind]() is False:
            return  # There is none right now.
        self.left.pop(0)
        print(f"train, {kind} at {message!r}", flush=True)
        self._suffered = f"{self._suffered} + {kind}" if self._suffered else kind
        self._at, self._message, self._workers = at, message, workers
        if kind == "node killed":
            self._place.repair(kind)
        is_followed = self._rng.random() < 0.25 and self._place.namespace is None
        self._due = at + self._rng.uniform(1, 10) if is_followed else 0.0

    def _recover(self, now: float) -> None:
        kind, self._suffered = self._suffered, ""
        self._tally.add("train", kind, now - self._at)
        noticed = WORKER_SILENCE_SECONDS if "stopped" in kind else LOST_SECONDS
        assert now - self._at < noticed + START_SECONDS
        if self._place.namespace is not None:
            self._place.repair(kind)
        self._due = 0.0


def test_a_training_goes_on_and_ends_where_an_undisturbed_one_ends(
    undisturbed: Path, place: Place, tally: Tally, tmp_path: Path
) -> None:
    rng = random.Random(f"{SEED} training {place.name}")
    left = scheduled(TRAININGS[place.name], rng)
    while left:
        some, left = left[: ACCIDENTS_A_TRAINING[place.name]], left[ACCIDENTS_A_TRAINING[place.name] :]
        store = store_of(tmp_path / str(len(left)))
        disturbance = Disturbance(place, some, rng, tally)
        report = trained_in_the_end(store, disturbance)
        assert report["epochs"] == 400
        assert_same_models(undisturbed, store)
        assert not list((store / "training").iterdir())
        assert_sound(store)
        left += disturbance.left  # Those that it was too short for.


def trained_in_the_end(store: Path, disturbance: Disturbance) -> dict[str, Any]:
    """By one command, or by another one if a shard is lost while the model is written."""
    for _ in range(3):
        try:
            return api.train(store, settings=LONG, shards=SHARDS, progress=disturbance, wait_seconds=START_SECONDS)
        except DkgeError as error:
            told = str(error)
        print(told)
        assert LOST.match(told) and told.endswith("; the same command goes on from what is saved")
    raise AssertionError(told)
