"""The public functions: a request each, by its fields. Each returns what its command prints with --json."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, get_args, get_type_hints

from dkge_dist.surfaces.requests.fields import Request, VersionName, version_name
from dkge_dist.surfaces.requests.graphs import Diff, Ingest, Synth
from dkge_dist.surfaces.requests.history import Alias, Check, Collect, NightReport, Rollback, VersionLog
from dkge_dist.surfaces.requests.learning import Nightly, Train, Update
from dkge_dist.surfaces.requests.questions import Answer, Evaluate, EvidenceTable, Export, Fidelity, Score, Similar
from dkge_dist.types import PathLike

if TYPE_CHECKING:
    import zarr

    from dkge_dist.surfaces.open_store import OpenStore

__all__ = [
    "alias", "answer", "check", "diff", "evaluate", "evidence_table", "export", "fidelity", "gc", "ingest", "log",
    "nightly", "open", "open_version", "report", "rollback", "score", "similar", "synth", "train", "update",
]  # fmt: skip

P = ParamSpec("P")
Result = TypeVar("Result")


def _function(name: str, request: Callable[P, Request[Result]]) -> Callable[P, Result]:
    """A function that takes the fields of a request, and runs it."""

    def call(*args: P.args, **kwargs: P.kwargs) -> Result:
        return request(*args, **kwargs).run()

    call.__name__ = call.__qualname__ = name
    call.__doc__ = _documentation(request)
    types = get_type_hints(request)
    parameters = inspect.signature(request).parameters.values()
    plain = [one.replace(annotation=types[one.name]) for one in parameters]
    call.__signature__ = inspect.Signature(plain)  # type: ignore[attr-defined]
    return call


def _documentation(request: Any) -> str:
    """The docstring of a request, and what its fields mean."""
    hints = get_type_hints(request, include_extras=True)
    lines = [inspect.getdoc(request) or "", "", "Arguments:"]
    for field in fields(request):
        told = next((one.help for one in get_args(hints[field.name])[1:] if hasattr(one, "help")), "")
        lines.append(f"    {field.name}: {told}")
    return "\n".join(lines)


synth = _function("synth", Synth)
ingest = _function("ingest", Ingest)
train = _function("train", Train)
update = _function("update", Update)
nightly = _function("nightly", Nightly)
log = _function("log", VersionLog)
report = _function("report", NightReport)
diff = _function("diff", Diff)
check = _function("check", Check)
rollback = _function("rollback", Rollback)
alias = _function("alias", Alias)
gc = _function("gc", Collect)
evaluate = _function("evaluate", Evaluate)
fidelity = _function("fidelity", Fidelity)
answer = _function("answer", Answer)
score = _function("score", Score)
similar = _function("similar", Similar)
evidence_table = _function("evidence_table", EvidenceTable)
export = _function("export", Export)


def open(store: PathLike, *, version: VersionName = None) -> OpenStore:
    """A store opened for many questions: `.answer`, `.score`, `.similar`, `.vectors`, `.evaluate`, `.log`, `.report`,
    `.refresh`.

    The current model, or that of a version or snapshot. Many threads may ask at once. Use it in a `with` statement, or
    `close` it.
    """
    from dkge_dist.store.store import Store
    from dkge_dist.surfaces.open_store import OpenStore

    return OpenStore(Store.open(store), version_name(version))


def open_version(store: PathLike, version: VersionName = None) -> zarr.Group:
    """The vectors of a model as a read-only zarr group: `entities/joint` and so on, read lazily, deltas applied."""
    from dkge_dist.store import zarr_store
    from dkge_dist.store.store import Store

    return zarr_store.open_version(Store.open(store), version)
