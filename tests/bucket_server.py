"""An object store for tests: moto as a real HTTP server in a process of its own, and a proxy that spoils the way to it.

moto looks whether an object is there and then puts it; here both are one step, as in S3.
"""

from __future__ import annotations

import random
import select
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BUCKET = "bucket"


def serve() -> None:
    """Serve until the standard input ends, which it does when the process of the tests is gone."""
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, MotoRequestHandler, create_backend_app
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    app: Any = DomainDispatcherApplication(create_backend_app)
    conditional = threading.Lock()

    def atomic(environ: dict[str, Any], start_response: Any) -> Any:
        if "HTTP_IF_NONE_MATCH" in environ or "HTTP_IF_MATCH" in environ:
            with conditional:
                return app(environ, start_response)
        return app(environ, start_response)

    server = make_server("127.0.0.1", 0, atomic, threaded=True, request_handler=MotoRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_port, flush=True)
    sys.stdin.read()


@contextmanager
def bucket_server() -> Iterator[int]:
    """A server with an empty bucket; its port."""
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-m", "tests.bucket_server"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT,
    ) as process:  # fmt: skip
        try:
            assert process.stdout is not None
            port = int(process.stdout.readline())
            request = urllib.request.Request(f"http://127.0.0.1:{port}/{BUCKET}", method="PUT")
            urllib.request.urlopen(request).close()
            yield port
        finally:
            process.kill()


def environment(port: int, cache: Path) -> dict[str, str]:
    """What a process needs to use the server, with a cache to itself."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_REGION": "us-east-1",
        "DKGE_CACHE": str(cache),
    }


Spoil = Callable[[bytes], bytes | None]
"""What becomes of some bytes on their way; None cuts the connection."""


class Proxy:
    """A way to a server on which requests and answers can be spoilt. Every connection carries one request."""

    def __init__(self, port: int) -> None:
        self._to = port
        self.requests: Spoil = lambda data: data
        self.answers: Callable[[bytes, bytes], bytes | None] = lambda request, data: data
        """Gets the first bytes of the request too."""
        self.instead: Callable[[bytes], bytes | None] = lambda request: None
        """An answer to a request that the server never sees."""
        self.seen: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(client,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        with client, suppress(OSError), socket.create_connection(("127.0.0.1", self._to)) as server:
            first = b""
            while True:
                for ready in select.select([client, server], [], [])[0]:
                    data = ready.recv(1 << 16)
                    if ready is client:
                        if not first and data:
                            first = data
                            self.seen.append(data.partition(b"\r\n")[0])
                            if (answer := self.instead(data)) is not None:
                                client.sendall(answer)
                                return
                        data = self.requests(data) if data else data
                    else:
                        data = self.answers(first, data) if data else data
                    if not data:
                        return
                    (server if ready is client else client).sendall(data)


class Weather:
    """A slow and failing network: delays, cuts connections, spoils bytes of bodies; so often of a hundred times."""

    def __init__(self, seed: int, delay: float = 0.0, cut: float = 0.0, spoil: float = 0.0) -> None:
        self._rng, self._lock = random.Random(seed), threading.Lock()
        self._delay, self._cut, self._spoil = delay, cut, spoil

    def _happens(self, percent: float) -> bool:
        with self._lock:
            return self._rng.random() * 100 < percent

    def request(self, data: bytes) -> bytes | None:
        """On the way to the server."""
        time.sleep(self._delay)
        return None if self._happens(self._cut) else data

    def answer(self, request: bytes, data: bytes) -> bytes | None:
        """On the way back."""
        if self._happens(self._cut):
            return None
        head, gap, body = data.rpartition(b"\r\n\r\n")
        # The bodies of parts, manifests and lists; a header that is spoilt is an answer that cannot be read.
        if request.startswith(b"GET") and b"list-type" not in request and body and self._happens(self._spoil):
            place = self._rng.randrange(len(body))
            body = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        return head + gap + body


if __name__ == "__main__":
    serve()
