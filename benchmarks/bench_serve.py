"""`dkge serve`: from its start to the first answer, answers and search once it is warm, memory beyond mapped files.

`--store` names a store with a model; without it, a synthetic graph with random vectors is served.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode

import numpy as np

import dkge_dist
from benchmarks.movies import store_of
from benchmarks.random_model import publish_random_model
from benchmarks.report import median_seconds, options, publish
from dkge_dist.store.store import Store
from dkge_dist.types import Split

DKGE = str(Path(sys.executable).with_name("dkge"))


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--store", type=Path, default=None, help="a store with a model")
    parser.add_argument("--preset", default="imdb-13")
    parser.add_argument("--entities", type=int, default=None)
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--times", type=int, default=200, help="answers that are timed")
    parser.add_argument("--searches", type=int, default=2000)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--workers", type=int, default=1)
    arguments = parser.parse_args()
    path = arguments.store or store_of(arguments.work, arguments.preset, entities=arguments.entities)
    if not any(line["kind"] == "model" for line in dkge_dist.log(path)["versions"]):
        publish_random_model(Store.open(path), 1, [f"model.dim={arguments.dim}"])
    questions, texts, entities = _asked(path, arguments.times + 1, arguments.searches)
    result: dict[str, Any] = {"entities": entities}
    with tempfile.TemporaryDirectory() as cache:
        # The first start of all sorts labels beside its answers; the second finds them sorted.
        for name in ("first start", "later start"):
            server = Server(path, ["--workers", str(arguments.workers)], cache)
            server.ask(questions[0])
            result[f"{name} to first answer, seconds"] = time.perf_counter() - server.began
            server.ready()
            result[f"{name} to ready, seconds"] = time.perf_counter() - server.began
            if name == "first start":
                server.end()
        connection = server.connect()
        for words in questions[:5]:
            server.ask(words, connection)
        result |= _percentiles("answer", [_timed(server, words, connection) for words in questions[1:]])
        result |= _percentiles(
            "search", [_timed(server, f"/api/search?{urlencode({'q': text})}", connection) for text in texts]
        )
        result["answers a second"] = _throughput(server, questions, arguments.clients)
        result["memory beyond mapped files, MB"] = server.anonymous_megabytes()
        server.end()
    words = [value for _, value in parse_qsl(questions[0].partition("?")[2])]
    command = [DKGE, "answer", str(path), *words, "--json"]
    took = median_seconds(lambda: subprocess.run(command, check=True, capture_output=True), 3)
    result["one `dkge answer` command, seconds"] = took
    result["times as many answers a second as commands"] = result["answers a second"] * took
    limits = {
        "later start to first answer, seconds": "3.2 million entities: 3",
        "answer, p50 ms": "3.2 million entities: 150",
        "answer, p99 ms": "3.2 million entities: 400",
        "search, p99 ms": "30",
        "memory beyond mapped files, MB": "3.2 million entities: 500",
        "times as many answers a second as commands": "4",
    }
    publish("bench_serve", result, arguments, {name: (value, limits.get(name, "")) for name, value in result.items()})


def _asked(path: Path, times: int, searches: int) -> tuple[list[str], list[str], int]:
    """Questions about triples of the graph, and beginnings of labels and names of one to eight letters."""
    rng = np.random.default_rng(0)
    with dkge_dist.open(path) as store:
        opened = store.model
        train, (entities, relations) = opened.snapshot.triples(Split.TRAIN), opened.names
        questions = []
        for i in rng.choice(train.count, times).tolist():
            head, relation = entities.label(int(train.head[i])), relations.label(int(train.relation[i]))
            questions.append(f"/api/answer?{urlencode({'head': head, 'relation': relation})}")
        texts = []
        for row in rng.choice(opened.snapshot.alive_entities, searches).tolist():
            named = entities.named(row)
            text = named.name if named.name is not None and rng.random() < 0.5 else named.label
            texts.append(text[: int(rng.integers(1, 9))])
        return questions, texts, int(opened.snapshot.alive_entities.shape[0])


def _percentiles(name: str, seconds: list[float]) -> dict[str, float]:
    cuts = statistics.quantiles(seconds, n=100, method="inclusive")
    return {f"{name}, p50 ms": 1000 * cuts[49], f"{name}, p99 ms": 1000 * cuts[98]}


def _timed(server: Server, words: str, connection: http.client.HTTPConnection) -> float:
    began = time.perf_counter()
    server.ask(words, connection)
    return time.perf_counter() - began


def _throughput(server: Server, questions: list[str], clients: int) -> float:
    """Answers a second to some clients that ask without a pause."""

    def client(number: int) -> None:
        connection = server.connect()
        for words in questions[number::clients]:
            server.ask(words, connection)

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(questions) / (time.perf_counter() - began)


class Server:
    """The command, as a process."""

    def __init__(self, store: Path, words: Sequence[str], cache: str) -> None:
        """`words` are further options of the command."""
        self.began = time.perf_counter()
        command = [DKGE, "serve", str(store), "--port", "0", *words]
        environment = {**os.environ, "DKGE_CACHE": cache}
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
        assert self.process.stderr is not None
        found = re.search(r"http://.*:(\d+)/", self.process.stderr.readline())
        assert found is not None, "the server did not start"
        self.port = int(found[1])

    def connect(self) -> http.client.HTTPConnection:
        """A connection that is kept."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=600)

    def ask(self, words: str, connection: http.client.HTTPConnection | None = None) -> dict[str, Any]:
        """The answer, by a connection of its own if none is given."""
        asked = connection or self.connect()
        asked.request("GET", words)
        reply = asked.getresponse()
        body = reply.read()
        assert reply.status == 200, body
        if connection is None:
            asked.close()
        found: dict[str, Any] = json.loads(body)
        return found

    def ready(self) -> None:
        """Wait until it has all that quick answers need."""
        while True:
            connection = self.connect()
            connection.request("GET", "/ready")
            status = connection.getresponse().status
            connection.close()
            if status == 200:
                return
            time.sleep(0.02)

    def anonymous_megabytes(self) -> float:
        """What no file backs, of all its processes: neighbour lists, caches, the interpreter."""
        own = self.process.pid
        children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        total = 0
        for process in [str(own), *children]:
            (line,) = re.findall(r"RssAnon:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
            total += int(line)
        return total / 1000

    def end(self) -> None:
        """Let it end by itself."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


if __name__ == "__main__":
    main()
