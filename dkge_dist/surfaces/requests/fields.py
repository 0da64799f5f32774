"""What the fields of requests say of themselves, and the fields that several requests have. Imports nothing heavy."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Generic, Literal, TypeVar, get_args, get_type_hints

from dkge_dist.graph.sources import FORMATS
from dkge_dist.types import PathLike, ProgressOption, SettingsGiven, StopCallback, UsageError

if TYPE_CHECKING:
    from dkge_dist.graph.sources.base import SourceOptions
    from dkge_dist.runtime import Runtime
    from dkge_dist.store.ingest import IngestOptions
    from dkge_dist.store.store import Store

Result = TypeVar("Result", covariant=True)


@dataclass(frozen=True)
class Option:
    """A field for people: what it means, and how the command line takes it.

    `flags` are its names there (by default its own), `off` is a flag that turns it off, and what that means. `words` is
    its type there where that is not told by the field's. An `argument` is given by its place.
    """

    help: str = ""
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    at_least: float | None = None
    at_most: float | None = None
    off: tuple[str, str] | None = None
    words: Any = None
    argument: bool = False
    default: Any = ...
    """On the command line, where that is another one; MISSING where it has to be given there."""


def argument(metavar: str | None, help: str = "", **more: Any) -> Option:
    """A field that the command line takes by its place."""
    return Option(help, metavar=metavar, argument=True, **more)


@dataclass(frozen=True)
class PythonOnly:
    """A field that the command line does not take, and what it means."""

    help: str


@dataclass(frozen=True)
class Request(ABC, Generic[Result]):
    """What a command takes; `run` does it. The first paragraph of the docstring is the command's help."""

    positional: ClassVar[Option | None] = None
    """Words that stand for several fields by their number and place; `from_words` says for which."""

    @abstractmethod
    def run(self) -> Result:
        """Do it. What it needs is imported here: nobody waits for torch to see a log."""

    @staticmethod
    def from_words(words: list[str], fields: dict[str, Any]) -> dict[str, Any]:
        """All fields, of the words and the options of a command line."""
        raise NotImplementedError


def options_of(request: type[Any]) -> dict[str, Option]:
    """What the fields of a request say of themselves, of those that the command line takes."""
    hints = get_type_hints(request, include_extras=True)
    told = {field.name: get_args(hints[field.name])[1:] for field in fields(request)}
    return {name: option for name, (option,) in told.items() if isinstance(option, Option)}


VersionName = str | int | None
"""A version number, an alias, or the name of a snapshot; None is the current one."""

Quietly = Annotated[
    ProgressOption, PythonOnly("True shows a bar; a function is called with the share done and a text.")
]
Stop = Annotated[
    StopCallback | None,
    PythonOnly("Asked after every batch; when it returns True, the job stops and the store stays as it is."),
]
WithEvidence = Annotated[
    bool,
    Option(
        "Count what the graph says; without, vectors alone decide.",
        off=("--no-evidence", "By vectors alone, without what the graph says."),
    ),
]
SHARDS = "With --shards: "


@dataclass(frozen=True)
class OnStore:
    """A request to one store."""

    store: Annotated[PathLike, argument("STORE", "The store: a folder, or s3://bucket/prefix.", words=str)]

    def open_store(self) -> Store:
        """The store, which has to be there."""
        from dkge_dist.store.store import Store

        return Store.open(self.store)


@dataclass(frozen=True, kw_only=True)
class OnShards:
    """A request that may run on a cluster."""

    shards: Annotated[
        int | None,
        Option("Run on Ray, with the entities in so many shards; without it, no Ray is used.", at_least=1),
    ] = None
    address: Annotated[str | None, Option(SHARDS + "the Ray cluster; one of our own by default.")] = None
    wait_seconds: Annotated[
        float | None, Option(SHARDS + "for room on the cluster.", ("--wait",), "SECONDS", at_least=0)
    ] = None

    def runtime(self) -> Runtime:
        """This process, or a Ray cluster where shards are asked for."""
        from dkge_dist.runtime import LocalRuntime

        workers: int = getattr(self, "workers", 1)
        if self.shards is None:
            if workers != 1 or self.address is not None:
                raise UsageError("--workers and --address go with --shards N: without shards no Ray is used")
            return LocalRuntime()
        from dkge_dist.cluster.runtime import RayRuntime
        from dkge_dist.cluster.session import ClusterConfig

        wait = {} if self.wait_seconds is None else {"wait_seconds": self.wait_seconds}
        return RayRuntime(ClusterConfig(self.shards, workers, self.address, **wait))


@dataclass(frozen=True, kw_only=True)
class OnWorkers(OnShards):
    """A request that may train on a cluster."""

    workers: Annotated[int, Option(SHARDS + "data-parallel workers that train.", at_least=1)] = 1


@dataclass(frozen=True, kw_only=True)
class OfModel:
    """A request to the model of one version."""

    version: Annotated[
        VersionName,
        Option("The model of a version, snapshot or date (UTC).", ("--version", "--as-of"), "V"),
    ] = None

    @property
    def version_name(self) -> str | None:
        """As the store looks it up."""
        return version_name(self.version)


@dataclass(frozen=True, kw_only=True)
class WithSettings:
    """A request that reads settings."""

    settings: Annotated[
        SettingsGiven, argument("key=value", "Settings, as in configs/ and `dkge settings`.", words=list[str] | None)
    ] = ()
    config: Annotated[PathLike | None, Option("YAML file of settings.")] = None

    @property
    def config_path(self) -> Path | None:
        """The file, if there is one."""
        return as_path(self.config)


@dataclass(frozen=True, kw_only=True)
class Learning(WithSettings):
    """A request that learns."""

    log_json: Annotated[PathLike | None, Option("Append a line of JSON for every event to FILE.", metavar="FILE")] = (
        None
    )
    progress: Quietly = None
    stop: Stop = None


@dataclass(frozen=True, kw_only=True)
class FromSource:
    """A request that reads a source into the next snapshot."""

    format: Annotated[str, Option(f"One of auto, {', '.join(FORMATS)}.")] = "auto"
    columns: Annotated[
        str | Sequence[str | int] | None,
        Option("Columns of head, relation and tail: names, or numbers from 1 on.", metavar="H,R,T", words=str | None),
    ] = None
    name: Annotated[str | None, Option("Name of the snapshot; the source's by default.")] = None
    valid: Annotated[int | None, Option("Triples to hold out for validation; about 1% of a first snapshot.")] = None
    test: Annotated[int | None, Option("Triples to hold out for test; likewise. 0 holds none out.")] = None
    force: Annotated[bool, Option("Take a source that looks wrong.")] = False
    strict: Annotated[bool, Option("Refuse new labels that look like a known one misspelt.")] = False
    max_bad_lines: Annotated[int, Option("Bad lines to set aside before giving up.", at_least=0)] = 0
    onto: Annotated[
        VersionName, Option("Refuse unless this snapshot (name or version) is the current one.", metavar="V")
    ] = None
    labels: Annotated[
        PathLike | Iterable[PathLike],
        Option("Display names: label<TAB>name lines.", metavar="FILE", words=list[Path] | None),
    ] = ()
    label_language: Annotated[str, Option("RDF: the language of display names.", metavar="LANG")] = "en"

    def source_options(
        self, released_after: int | None = None, key: Literal["id", "name"] = "id", literals: bool = True
    ) -> SourceOptions:
        """What the readers of sources take."""
        from dkge_dist.graph.sources.base import SourceOptions
        from dkge_dist.graph.sources.columns import parse_columns

        return SourceOptions(released_after, key, literals, self.label_language, parse_columns(self.columns))

    def ingest_options(self) -> IngestOptions:
        """What the store takes beside the source."""
        from dkge_dist.graph.holdout import HeldOut
        from dkge_dist.graph.sources.detect import open_label_files
        from dkge_dist.store.ingest import IngestOptions

        paths = [self.labels] if isinstance(self.labels, str | os.PathLike) else self.labels
        return IngestOptions(
            name=self.name,
            held_out=HeldOut(self.valid, self.test),
            force=self.force,
            max_bad_lines=self.max_bad_lines,
            onto=version_name(self.onto),
            labels=open_label_files([Path(path) for path in paths]),
            strict=self.strict,
        )


def as_path(path: PathLike | None) -> Path | None:
    """A path, if one is given."""
    return Path(path) if path is not None else None


def version_name(version: VersionName) -> str | None:
    """A version, if one is given, as the store looks it up."""
    return str(version) if version is not None else None
