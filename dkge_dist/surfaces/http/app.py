"""The HTTP application: routes, errors, pages. Answers are computed in threads, each by one whole version."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from fastapi import FastAPI, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from dkge_dist import __version__
from dkge_dist.surfaces.events import EventLog
from dkge_dist.surfaces.http import schemas
from dkge_dist.surfaces.http.api_page import api_page
from dkge_dist.surfaces.http.guards import App, Guard, GuardOptions, Receive, Scope, Send, error_body
from dkge_dist.surfaces.http.options import ServeOptions
from dkge_dist.surfaces.http.request_metrics import RequestMetrics
from dkge_dist.surfaces.http.service import NotFoundError, Service, chosen_version
from dkge_dist.surfaces.http.versions import NotReadyError
from dkge_dist.surfaces.metrics import Family, exposition, version_families
from dkge_dist.types import DkgeError, UsageError

LOG = logging.getLogger("dkge.serve")
EXPLORER = Path(__file__).parent / "static" / "explorer.html"
JSON, HTML = "application/json", "text/html; charset=utf-8"
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
ERRORS: dict[int | str, dict[str, Any]] = {
    400: {"model": schemas.ErrorMessage, "description": "The question is wrong."},
    404: {"model": schemas.ErrorMessage, "description": "No such label or version."},
    422: {"model": schemas.ErrorMessage, "description": "A parameter is wrong."},
}


class Route(NamedTuple):
    """A question over HTTP: `asked` are the parameters of a GET, or the body of a POST."""

    method: str
    path: str
    asked: type[BaseModel]
    gives: type[BaseModel]
    work: Callable[[Service, Any], BaseModel]
    about: str


ROUTES = (
    Route(
        "GET", "answer", schemas.AnswerQuery, schemas.AnswerResponse, lambda at, asked: at.answer_one(asked.request()),
        "The best answers to (head, relation, ?), (?, relation, tail) or (head, ?, tail): known facts first.",
    ),
    Route(
        "POST", "answer", schemas.AnswerRequest, schemas.AnswerBatch, Service.answer,
        "Many questions at once, all by the same version; one that cannot be answered is told in its place.",
    ),
    Route(
        "GET", "score", schemas.ScoreQuery, schemas.ScoreResponse, lambda at, asked: at.score_one(asked.request()),
        "How plausible a triple is.",
    ),
    Route("POST", "score", schemas.ScoreRequest, schemas.ScoreBatch, Service.score, "How plausible many triples are."),
    Route(
        "GET", "similar", schemas.SimilarQuery, schemas.SimilarResponse,
        lambda at, asked: at.similar_one(asked.request()), "The nearest entities.",
    ),
    Route(
        "POST", "similar", schemas.SimilarRequest, schemas.SimilarBatch, Service.similar,
        "The nearest entities of many.",
    ),
    Route(
        "GET", "vectors", schemas.VectorQuery, schemas.VectorResponse,
        lambda at, asked: at.vector(asked.label, asked.kind, chosen_version(asked.version, asked.as_of)),
        "The vector of an entity or a relation.",
    ),
    Route(
        "GET", "search", schemas.SearchQuery, schemas.SearchResults,
        lambda at, asked: at.search(asked.q, asked.kind, asked.limit, chosen_version(asked.version, asked.as_of)),
        "Entities or relations by the beginning of their label or display name, whatever its case.",
    ),
    Route(
        "GET", "entity", schemas.EntityQuery, schemas.EntityFacts,
        lambda at, asked: at.entity(asked.label, asked.limit, asked.offset, chosen_version(asked.version, asked.as_of)),
        "An entity and its facts.",
    ),
    Route(
        "GET", "versions", schemas.VersionsQuery, schemas.VersionList, lambda at, asked: at.versions_list(asked.limit),
        "The versions of the store, the one that is asked by default, and the aliases.",
    ),
    Route(
        "GET", "diff", schemas.DiffQuery, schemas.DiffResponse,
        lambda at, asked: at.diff(asked.from_, asked.to, asked.limit, asked.about),
        "What changed between two snapshots.",
    ),
    Route(
        "GET", "fidelity", schemas.FidelityQuery, schemas.FidelityResponse,
        lambda at, asked: at.fidelity(chosen_version(asked.version, asked.as_of)),
        "What a version learnt of its night, as it was measured then.",
    ),
)  # fmt: skip


def create_app(open_service: Callable[[], Service], options: ServeOptions, counts: Path | None = None) -> App:
    """The application, with its guards around it. The service is opened when the server starts, closed when it ends.

    `counts` is a file that several processes count their requests in.
    """
    api = _Api(open_service, options)
    app = FastAPI(
        title="dkge serve",
        version=__version__,
        description="Answers of a knowledge graph embedding. Every one names the version and snapshot it comes from.",
        docs_url=None,
        redoc_url=None,
        lifespan=api.lifespan,
    )
    api.add_routes(app)
    _handle_errors(app, api)
    routes = [str(getattr(route, "path", "")) for route in app.routes]
    api.metrics = RequestMetrics(sorted(set(routes)), counts, options.workers)
    log = EventLog(Path(options.log_json), "serve") if options.log_json is not None else None
    guard = GuardOptions(options.token(), 1024 * options.max_body_kb, options.max_seconds, options.rate or 0.0)
    return Guard(_without_blanks(app), guard, api.metrics, log)


def _without_blanks(app: App) -> App:
    """Parameters without a value, as forms send them, are left out."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            pairs = scope["query_string"].split(b"&")
            scope["query_string"] = b"&".join(pair for pair in pairs if pair.partition(b"=")[2])
        await app(scope, receive, send)

    return call


class _Api:
    """The routes, and what they share."""

    metrics: RequestMetrics

    def __init__(self, open_service: Callable[[], Service], options: ServeOptions) -> None:
        self._open, self._options = open_service, options
        self._service: Service | None = None
        self._threads: ThreadPoolExecutor | None = None

    @asynccontextmanager
    async def lifespan(self, app: FastAPI) -> AsyncIterator[None]:
        """From the opening of the store to its closing."""
        self._threads = ThreadPoolExecutor(self._options.threads, "answer")
        self._service = await asyncio.get_running_loop().run_in_executor(self._threads, self._open)
        try:
            yield
        finally:
            service, self._service = self._service, None
            # Requests are over, but for those that took too long.
            self._threads.shutdown(wait=False, cancel_futures=True)
            await asyncio.to_thread(service.versions.close)

    @property
    def service(self) -> Service:
        """What answers."""
        if self._service is None:
            raise NotReadyError("the server is starting or stopping; ask again")
        return self._service

    def without_paths(self, message: str) -> str:
        """A message that does not tell where on its machine the store is."""
        where = str(self._service.versions.store) if self._service is not None else ""
        return message.removeprefix(f"{where}: ").replace(where, "STORE") if where else message

    async def _answer(self, work: Callable[[], BaseModel]) -> Response:
        """Compute an answer in a thread. There are so many threads and no more: others wait, and give up in time."""

        def compute() -> Response:
            found = work()
            version = getattr(found, "version", None)
            text = self.without_paths(found.model_dump_json(exclude_none=True, by_alias=True))
            headers = {"x-dkge-version": str(version)} if version is not None else {}
            return Response(text, media_type=JSON, headers=headers)

        if self._threads is None:
            raise NotReadyError("the server is starting or stopping; ask again")
        return await asyncio.get_running_loop().run_in_executor(self._threads, compute)

    def _endpoint(self, route: Route) -> Callable[..., Awaitable[Response]]:
        """A route as FastAPI reads it: by the annotations of a function."""

        async def endpoint(asked: Any) -> Response:
            return await self._answer(lambda: route.work(self.service, asked))

        is_query = route.method == "GET"
        endpoint.__annotations__ = {"asked": Annotated[route.asked, Query()] if is_query else route.asked}
        endpoint.__name__ = route.path + ("" if is_query else "_batch")
        return endpoint

    def add_routes(self, app: FastAPI) -> None:
        """All of them."""
        for route in ROUTES:
            app.add_api_route(
                f"/api/{route.path}",
                self._endpoint(route),
                methods=[route.method],
                response_model=route.gives,
                responses=ERRORS,
                response_model_exclude_none=True,
                description=route.about,
            )

        @app.get("/health", response_model=schemas.Health)
        async def health() -> schemas.Health:
            """Is the process alive?"""
            return schemas.Health(status="ok")

        @app.get("/ready", response_model=schemas.Readiness, responses={503: {"model": schemas.Readiness}})
        async def ready() -> Response:
            """Is everything made that quick answers need? 503 before."""
            found = self._readiness()
            status = 200 if found.status == "ready" else 503
            return Response(found.model_dump_json(exclude_none=True), status, media_type=JSON)

        @app.get("/metrics", include_in_schema=False)
        async def metrics() -> Response:
            """Figures for Prometheus."""
            text = await asyncio.get_running_loop().run_in_executor(self._threads, self._metrics)
            return Response(text, media_type=PROMETHEUS)

        @app.get("/", include_in_schema=False)
        async def explorer() -> Response:
            """The page to look around in the graph."""
            if not EXPLORER.is_file():
                raise HTTPException(404, "the explorer page is not installed; /docs lists what can be asked")
            return Response(EXPLORER.read_bytes(), media_type=HTML)

        @app.get("/docs", include_in_schema=False)
        async def docs() -> Response:
            """What can be asked, for people. Loads nothing from elsewhere."""
            return Response(api_page(app.openapi()), media_type=HTML)

    def _readiness(self) -> schemas.Readiness:
        if self._service is None:
            return schemas.Readiness(status="starting")
        versions = self._service.versions
        problem = "the store cannot be followed; the log says why" if versions.problem is not None else None
        return schemas.Readiness(
            status="ready" if versions.is_ready else "starting",
            version=versions.current.model.version,
            snapshot=versions.current.model.snapshot_name,
            problem=problem,
        )

    def _metrics(self) -> str:
        versions = self.service.versions
        served = versions.current.model
        behind = Family("dkge_serve_versions_behind", "gauge", "Models that took over after the one that is asked.")
        version = Family("dkge_serve_version", "gauge", "The version that is asked.")
        failures = Family("dkge_serve_follow_failures_total", "counter", "Newer versions that could not be opened.")
        ready = Family("dkge_serve_ready", "gauge", "1 if all is made that quick answers need.")
        families = [
            version.add(served.version),
            behind.add(versions.behind()),
            failures.add(versions.failures),
            ready.add(versions.is_ready),
            *self.metrics.families(),
            *version_families(versions.store, served.manifest),
        ]
        return exposition(families)


def _handle_errors(app: FastAPI, api: _Api) -> None:
    """Errors are JSON with a message for whoever asked; what is wrong with the store is for the log."""

    def told(status: int, message: str, headers: dict[str, str] | None = None) -> Response:
        return Response(error_body(api.without_paths(message)), status, headers, JSON)

    @app.exception_handler(RequestValidationError)
    async def wrong_parameter(request: Request, error: RequestValidationError) -> Response:
        first = error.errors()[0]
        # The first part of a place says where it was given: in the query, or in the body.
        place = ".".join(str(part)[:100] for part in first["loc"][1:])
        return told(422, f"{place}: {first['msg']}" if place else str(first["msg"]))

    @app.exception_handler(HTTPException)
    async def no_route(request: Request, error: HTTPException) -> Response:
        return told(error.status_code, str(error.detail), dict(error.headers or {}))

    @app.exception_handler(DkgeError)
    async def cannot(request: Request, error: DkgeError) -> Response:
        if isinstance(error, UsageError):
            return told(400, str(error))
        if isinstance(error, NotFoundError):
            return told(404, str(error))
        if isinstance(error, NotReadyError):
            return told(503, str(error), {"retry-after": "1"})
        LOG.error("%s", error)
        return told(500, "the store cannot be read; the server's log says why")

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> Response:
        LOG.exception("unexpected", exc_info=error)
        return told(500, "an error of the server; its log says more")
