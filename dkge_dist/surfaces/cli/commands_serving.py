"""The command that answers others: an HTTP server over a store."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dkge_dist.surfaces.cli.options import Json, LogJson, ModelVersion, StoreLocation
from dkge_dist.surfaces.cli.output import emit
from dkge_dist.types import UsageError


def serve(
    store: StoreLocation,
    host: Annotated[str, typer.Option(help="Where to listen; others than loopback need a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.")] = 8080,
    version: ModelVersion = None,
    workers: Annotated[int, typer.Option(min=1, max=256, help="Processes; they share the pages of the store.")] = 1,
    threads: Annotated[
        int, typer.Option(min=0, max=256, help="Questions answered at once in a process; 0: by the cores.")
    ] = 0,
    token_file: Annotated[
        Path | None, typer.Option(help="File with the token to ask for; or in the environment: DKGE_TOKEN.")
    ] = None,
    poll: Annotated[
        float, typer.Option(min=0.05, max=3600, metavar="SECONDS", help="Between looks for a newer version.")
    ] = 2.0,
    open_versions: Annotated[int, typer.Option(min=1, max=64, help="Other versions that are kept open at most.")] = 3,
    max_k: Annotated[int, typer.Option(min=1, help="Answers to a question at most.")] = 1000,
    max_batch: Annotated[int, typer.Option(min=1, help="Questions in a batch at most.")] = 256,
    max_body_kb: Annotated[int, typer.Option(min=1, metavar="KB", help="Size of a request at most.")] = 1024,
    max_seconds: Annotated[float, typer.Option(min=0.1, help="Time of a request at most.")] = 30.0,
    rate: Annotated[
        float | None,
        typer.Option(min=0, help="Requests a second and address; 0: any. Default: any on loopback, else 50."),
    ] = None,
    log_json: LogJson = None,
    as_json: Json = False,
) -> None:
    """Answer over HTTP: an API, a page to explore, metrics. Follows new versions by itself; Ctrl-C ends it."""
    try:
        from dkge_dist.surfaces.http.options import ServeOptions
        from dkge_dist.surfaces.http.server import serve as run
    except ModuleNotFoundError as error:
        if error.name not in ("fastapi", "starlette", "uvicorn"):
            raise
        raise UsageError("dkge serve needs more: pip install 'dkge_dist[serve]'") from None
    options = ServeOptions(
        store, version, host, port, workers, threads, poll, open_versions, max_k, max_batch, max_body_kb, max_seconds,
        rate, _text(token_file), _text(log_json),
    )  # fmt: skip

    def listens(report: dict[str, Any]) -> None:
        emit(report, as_json, lambda report: None)
        sys.stdout.flush()  # A pipe is told at once where to ask.
        print(f"dkge serve: {report['url']} (Ctrl-C ends it)", file=sys.stderr, flush=True)

    run(options, listens)


def _text(path: Path | None) -> str | None:
    return str(path) if path is not None else None
