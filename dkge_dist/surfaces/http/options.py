"""The request to answer others: an HTTP server over a store."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields, replace
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Self

from dkge_dist.files import read_regular
from dkge_dist.surfaces.requests.fields import OfModel, OnStore, Option, PythonOnly, Request
from dkge_dist.types import PathLike, UsageError

TOKEN = "DKGE_TOKEN"
"""The environment variable with the token: on a command line everybody on the machine could read it."""
TOKEN_TEXT = re.compile(rb"[\x21-\x7e]{16,512}")
MAX_TOKEN_FILE = 4096
PUBLIC_RATE = 50.0
"""Requests a second that an address may send to a server that others reach, unless something else is said."""


@dataclass(frozen=True)
class ServeOptions(OfModel, OnStore):
    """How a server is to run, as one value that also its processes are handed. The token is no part of it."""

    _: KW_ONLY
    host: Annotated[str, Option("Where to listen; others than loopback need a token.")] = "127.0.0.1"
    port: Annotated[int, Option("0: any free one.", at_least=0, at_most=65535)] = 8080
    workers: Annotated[int, Option("Processes; they share the pages of the store.", at_least=1, at_most=256)] = 1
    threads: Annotated[
        int, Option("Questions answered at once in a process; 0: by the cores.", at_least=0, at_most=256)
    ] = 0
    token_file: Annotated[
        PathLike | None, Option("File with the token to ask for; or in the environment: DKGE_TOKEN.")
    ] = None
    poll_seconds: Annotated[
        float, Option("Between looks for a newer version.", ("--poll",), "SECONDS", at_least=0.05, at_most=3600)
    ] = 2.0
    open_versions: Annotated[int, Option("Other versions that are kept open at most.", at_least=1, at_most=64)] = 3
    max_k: Annotated[int, Option("Answers to a question at most.", at_least=1)] = 1000
    max_batch: Annotated[int, Option("Questions in a batch at most.", at_least=1)] = 256
    max_body_kb: Annotated[int, Option("Size of a request at most.", metavar="KB", at_least=1)] = 1024
    max_seconds: Annotated[float, Option("Time of a request at most.", at_least=0.1)] = 30.0
    rate: Annotated[
        float | None,
        Option("Requests a second and address; 0: any. Default: any on loopback, else 50.", at_least=0),
    ] = None
    log_json: Annotated[PathLike | None, Option("Append a line of JSON for every event to FILE.", metavar="FILE")] = (
        None
    )

    def checked(self) -> Self:
        """With what was left open decided; UsageError if the server must not run so."""
        if self.token() is None and not is_loopback(self.host):
            raise UsageError(
                f"--host {self.host}: others could ask too: set {TOKEN}, or name a --token-file (mode 600)"
            )
        rate = self.rate if self.rate is not None else 0.0 if is_loopback(self.host) else PUBLIC_RATE
        threads = self.threads or 2 * (os.cpu_count() or 1) + 2
        # Its directory may be another one's in a process of the server.
        store = os.fspath(self.store)
        return replace(self, rate=rate, threads=threads, store=store if "://" in store else os.path.abspath(store))

    def token(self) -> bytes | None:
        """The token that is asked for, None if everybody on this machine may ask."""
        if self.token_file is not None:
            path = Path(self.token_file)
            try:
                token = read_regular(path, MAX_TOKEN_FILE).strip()
            except OSError as error:
                raise UsageError(f"--token-file {path}: {error.strerror}") from None
            source = f"--token-file {path}"
        else:
            given = os.environ.get(TOKEN)
            if given is None:
                return None
            token, source = given.encode("utf-8", "surrogateescape"), TOKEN
        if not TOKEN_TEXT.fullmatch(token):
            raise UsageError(
                f"{source}: a token is 16 to 512 letters, digits and signs, such as `openssl rand -hex 32`"
            )
        return token


@dataclass(frozen=True, kw_only=True)
class Serve(ServeOptions, Request[None]):
    """Answer over HTTP: an API, a page to explore, metrics. Follows new versions by itself; Ctrl-C ends it."""

    listens: Annotated[
        Callable[[dict[str, Any]], None], PythonOnly("Called with the address once a client may connect.")
    ] = print

    def run(self) -> None:
        """Answer until SIGINT or SIGTERM."""
        try:
            from dkge_dist.surfaces.http.server import serve
        except ModuleNotFoundError as error:
            if error.name not in ("fastapi", "starlette", "uvicorn"):
                raise
            raise UsageError("dkge serve needs more: pip install 'dkge_dist[serve]'") from None
        serve(ServeOptions(**{field.name: getattr(self, field.name) for field in fields(ServeOptions)}), self.listens)


def is_loopback(host: str) -> bool:
    """Is this a name or an address of this machine alone?"""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
