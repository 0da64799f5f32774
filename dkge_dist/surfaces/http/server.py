"""`dkge serve`: one process, or several that share a port and the mapped pages of the store."""

from __future__ import annotations

import json
import os
import signal
import socket
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvicorn

from dkge_dist.store.store import Store
from dkge_dist.surfaces.http.app import create_app
from dkge_dist.surfaces.http.guards import App
from dkge_dist.surfaces.http.mmap_cache import cache_folder
from dkge_dist.surfaces.http.options import ServeOptions
from dkge_dist.surfaces.http.request_metrics import metrics_bytes
from dkge_dist.surfaces.http.service import Limits, Service
from dkge_dist.surfaces.http.versions import Versions
from dkge_dist.types import DkgeError, Report, UsageError

OPTIONS = "DKGE_SERVE_OPTIONS"
COUNTS = "DKGE_SERVE_COUNTS"
"""Where a process of the server finds how it is to run, and the file that all of them count requests in."""
MAX_ROUTES = 64
BACKLOG = 2048
MAX_CONNECTIONS = 1000
"""At once, in a process; others are told to come again."""
KEEP_ALIVE_SECONDS = 15
SHUTDOWN_SECONDS = 30


def open_service(options: ServeOptions) -> Service:
    """Open the store and begin to follow it."""
    versions = Versions(Store.open(options.store), options.version_name, cache_folder(), options.open_versions)
    versions.start(options.poll_seconds)
    return Service(versions, Limits(k=options.max_k, batch=options.max_batch))


def app_of(options: ServeOptions, counts: Path | None = None) -> App:
    """The application for some options."""
    return create_app(lambda: open_service(options), options, counts)


def app_of_environment() -> App:
    """The application of a process that another one started."""
    options = json.loads(os.environ[OPTIONS])
    return app_of(ServeOptions(**options), Path(os.environ[COUNTS]))


def serve(options: ServeOptions, listens: Callable[[Report], None]) -> None:
    """Answer until SIGINT or SIGTERM; requests under way are answered before it ends.

    `listens` is told where, once a client may connect.
    """
    options = options.checked()
    # Before anything listens: a store that cannot be asked is an error of the command.
    model = Store.open(options.store).find_model(options.version_name)
    with _listening(options) as listening:
        host, port = listening.getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        listens({"url": f"http://{shown}:{port}/", "version": model.version, "workers": options.workers})
        if options.workers == 1:
            _run(uvicorn.Config(app_of(options), **_settings()), [listening])
        else:
            _run_several(options, listening)


def _settings() -> dict[str, Any]:
    return {
        "log_level": "warning",
        "access_log": False,
        "server_header": False,
        # Whoever stands in front of this server must not say on behalf of whom, unless it is asked to.
        "proxy_headers": False,
        "ws": "none",
        "http": "h11",
        "h11_max_incomplete_event_size": 65536,
        "limit_concurrency": MAX_CONNECTIONS,
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "timeout_graceful_shutdown": SHUTDOWN_SECONDS,
        "timeout_worker_healthcheck": 60,
        "lifespan": "on",
    }


def _listening(options: ServeOptions) -> socket.socket:
    try:
        found = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listening = socket.socket(found[0], socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(found[4])
        listening.listen(BACKLOG)
    except (OSError, OverflowError) as error:
        raise UsageError(f"--host {options.host} --port {options.port}: {error}") from None
    return listening


def _run(config: uvicorn.Config, sockets: list[socket.socket]) -> None:
    server = uvicorn.Server(config)
    # uvicorn ends gracefully and then raises the signal again, which would end this process as if it had failed.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    server.run(sockets)
    if not server.started:
        raise DkgeError("the server could not start: see above")


def _run_several(options: ServeOptions, listening: socket.socket) -> None:
    """Several processes; one that dies is replaced. They count their requests in one file."""
    from uvicorn.supervisors import Multiprocess

    with tempfile.TemporaryDirectory(prefix="dkge-serve-") as folder:
        shared = Path(folder) / "metrics"
        shared.write_bytes(bytes(metrics_bytes(options.workers, MAX_ROUTES)))
        os.environ[OPTIONS] = json.dumps(asdict(options), default=os.fspath)
        os.environ[COUNTS] = str(shared)
        config = uvicorn.Config(
            "dkge_dist.surfaces.http.server:app_of_environment",
            factory=True,
            workers=options.workers,
            **_settings(),
        )
        Multiprocess(config, sockets=[listening]).run()
