"""`dkge serve` asked without a pause while nights are published: requests that fail, and answers that mix two versions.

Clients are processes that keep their connection. Every answer names its version, and has to be what another server,
started when all is over, says of that very version.
"""

from __future__ import annotations

import http.client
import json
import multiprocessing
import re
import statistics
import sys
import tempfile
import time
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import numpy as np
import xxhash

from benchmarks.bench_serve import Server
from benchmarks.report import options, publish
from dkge_dist import open as open_store
from dkge_dist.surfaces import api
from dkge_dist.types import Split

NOTICE = re.compile(rb',"notice":"[^"]*"')
"""That a newer snapshot is not learnt yet is no part of what a version says."""
FAILED = "failed"
KINDS = ("answer", "similar", "entity", "score", "search", "batch")


class Asked(NamedTuple):
    """A request; `body` is posted."""

    path: str
    body: dict[str, Any] | None = None

    def of_version(self, version: str) -> Asked:
        """The same, of a version by its number."""
        if self.body is not None:
            return Asked(self.path, {**self.body, "version": version})
        return Asked(f"{self.path}&version={version}")

    def send(self, connection: http.client.HTTPConnection) -> tuple[str, int]:
        """(the version that the answer names, a digest of the answer); where there is none, (FAILED, the status)."""
        body = json.dumps(self.body) if self.body is not None else None
        connection.request("GET" if body is None else "POST", self.path, body, {"content-type": "application/json"})
        reply = connection.getresponse()
        text = reply.read()
        if reply.status != 200:
            return FAILED, reply.status
        return str(reply.headers["x-dkge-version"]), xxhash.xxh3_64_intdigest(NOTICE.sub(b"", text))


Seen = Counter[tuple[int, str, int]]
"""How often a question (by its number) was answered by a version with an answer of that digest."""


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--nights", type=int, default=20, help="published meanwhile, evenly")
    parser.add_argument("--preset", default="demo")
    parser.add_argument("--entities", type=int, default=None)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--questions", type=int, default=60, help="different ones")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        graph, store = Path(folder) / "graph", Path(folder) / "store"
        api.synth(graph, arguments.preset, nights=arguments.nights, entities=arguments.entities)
        api.ingest(store, graph / "snapshot-000.tsv")
        api.train(store, settings=["train.max_epochs=2"])
        nights = sorted(graph.glob("night-*.changes"))
        questions = _questions(store, arguments.questions)
        words = ["--poll", "0.5", "--workers", str(arguments.workers)]
        server = Server(store, words, folder)
        server.ready()
        load = _Load(server.port, questions, arguments.requests, arguments.clients)
        published = _publish_meanwhile(load, store, nights, arguments.requests)
        seen, milliseconds = load.end()
        memory = server.anonymous_megabytes()
        server.end()
        checking = Server(store, words[:2], folder)
        checking.ready()
        result = _judged(seen, checking.connect(), questions)
        checking.end()
    cuts = statistics.quantiles(milliseconds, n=100, method="inclusive")
    result |= {
        "nights published meanwhile": published,
        "requests a second": load.requests / load.seconds,
        "request, p50 ms": cuts[49],
        "request, p99 ms": cuts[98],
        "longest request, ms": max(milliseconds),
        "memory beyond mapped files, MB": memory,
    }
    limits = {"failed": "0", "answers that mix versions": "0"}
    shown = {name: (value, limits.get(name, "")) for name, value in result.items()}
    publish("bench_serve_load", result, arguments, shown)


def _questions(store: Path, count: int) -> list[Asked]:
    """About triples of the first snapshot, of all kinds in turn."""
    rng = np.random.default_rng(0)
    with open_store(store) as opened:
        found = opened.model
        train, (entities, relations) = found.snapshot.triples(Split.TRAIN), found.names
        # Entities with many facts outlive the nights: who is gone is told so, which is no failure and no answer.
        degree = found.snapshot.base.entities.total[train.head]
        places = rng.choice(np.argsort(-degree, kind="stable")[: 10 * count], count, replace=False)
        asked = []
        for number, place in enumerate(places.tolist()):
            head, tail = (entities.label(int(column[place])) for column in (train.head, train.tail))
            relation = relations.label(int(train.relation[place]))
            asked.append(_question(KINDS[number % len(KINDS)], head, relation, tail))
        return asked


def _question(kind: str, head: str, relation: str, tail: str) -> Asked:
    if kind == "batch":
        return Asked("/api/answer", {"batch": [{"head": head, "relation": relation}] * 3, "k": 5})
    parameters = {
        "answer": {"head": head, "relation": relation, "k": 5},
        "similar": {"entity": head, "k": 5},
        "entity": {"label": head, "limit": 50},
        "score": {"head": head, "relation": relation, "tail": tail},
        "search": {"q": head[:4]},
    }[kind]
    return Asked(f"/api/{kind}?{urlencode(parameters)}")


def _client(port: int, questions: Sequence[Asked], first: int, count: int, done: Any, results: Any) -> None:
    """Ask `count` times, beginning at another question than other clients."""
    seen: Seen = Counter()
    milliseconds = array("f")
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    for turn in range(count):
        number = (first + turn) % len(questions)
        began = time.perf_counter()
        try:
            answer = questions[number].send(connection)
        except (OSError, http.client.HTTPException):
            answer = (FAILED, 0)
            connection.close()
        milliseconds.append(1000 * (time.perf_counter() - began))
        seen[number, *answer] += 1
        done[first] = turn + 1
    results.put((dict(seen), milliseconds.tobytes()))


class _Load:
    """Clients that ask, from now on."""

    def __init__(self, port: int, questions: Sequence[Asked], requests: int, clients: int) -> None:
        # Not forked: this process has threads that learn.
        context = multiprocessing.get_context("spawn")
        self._done, self._results = context.Array("q", clients, lock=False), context.Queue()
        shares = [len(range(number, requests, clients)) for number in range(clients)]
        self._clients = [
            context.Process(
                target=_client, args=(port, questions, number, share, self._done, self._results), daemon=True
            )
            for number, share in enumerate(shares)
        ]
        self.requests, self.began, self.seconds = requests, time.perf_counter(), 0.0
        for client in self._clients:
            client.start()

    @property
    def done(self) -> int:
        """Requests that were answered."""
        return sum(self._done)

    @property
    def is_over(self) -> bool:
        return not any(client.is_alive() for client in self._clients)

    def end(self) -> tuple[Seen, list[float]]:
        """What all clients saw, and how long they waited."""
        seen: Seen = Counter()
        milliseconds = array("f")
        for _ in self._clients:
            theirs, waited = self._results.get()
            seen.update(theirs)
            milliseconds.frombytes(waited)
        self.seconds = time.perf_counter() - self.began
        for client in self._clients:
            client.join()
        return seen, list(milliseconds)


def _publish_meanwhile(load: _Load, store: Path, nights: Sequence[Path], requests: int) -> int:
    """Learn one night after the other while clients ask. How many were published before they were done."""
    published = 0
    for number, night in enumerate(nights):
        while load.done < requests * (number + 1) // (len(nights) + 1):
            if load.done >= requests or load.is_over:
                return published
            time.sleep(0.1)
        api.ingest(store, night)
        api.update(store)
        published += not load.is_over
    return published


def _judged(seen: Seen, connection: http.client.HTTPConnection, questions: Sequence[Asked]) -> dict[str, Any]:
    """What was seen, compared with what each version says by itself."""
    failed, mixed = 0, 0
    for (number, version, digest), times in seen.items():
        if version == FAILED:
            print(f"failed {times} times, status {digest}: {questions[number]}", file=sys.stderr)
            failed += times
        elif questions[number].of_version(version).send(connection) != (version, digest):
            print(f"{times} times not what version {version} says: {questions[number]}", file=sys.stderr)
            mixed += times
    versions = {version for _, version, _ in seen if version != FAILED}
    different = len({(number, digest) for number, _, digest in seen})
    return {
        "requests": sum(seen.values()),
        "failed": failed,
        "answers that mix versions": mixed,
        "versions that answered": len(versions),
        "different answers": different,
    }


if __name__ == "__main__":
    main()
