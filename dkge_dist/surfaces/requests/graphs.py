"""Requests about graphs: make one, read one into a store, compare two snapshots."""

from __future__ import annotations

import time
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from dkge_dist.surfaces.requests.fields import (
    FromSource,
    OnStore,
    Option,
    PythonOnly,
    Quietly,
    Request,
    WithSettings,
    argument,
    as_path,
)
from dkge_dist.types import PathLike, Report, UsageError, seconds_since

if TYPE_CHECKING:
    from dkge_dist.records import IngestRecord

FORMATS_HELP = "Files (or a pattern such as 'dumps/*.tsv.gz') or a folder; - is a pipe; `apt` with --format debian."


@dataclass(frozen=True)
class Synth(Request[Report]):
    """Write a synthetic evolving movie graph: a snapshot, and nights of changes.

    Sizes that are given replace those of the preset, the others keep their proportion.
    """

    out: Annotated[PathLike, argument("OUT", "Folder to write to.")]
    preset: Annotated[str, Option("demo, imdb-30 or imdb-13.")] = "demo"
    _: KW_ONLY
    entities: Annotated[int | None, Option("Entities instead of the preset's.")] = None
    triples: Annotated[int | None, Option("Triples instead of the preset's.")] = None
    nights: Annotated[int | None, Option("Nights instead of the preset's.")] = None
    seed: Annotated[int | None, Option("Another seed gives another graph.")] = None
    full: Annotated[bool, Option("Write every night as a whole snapshot too.")] = False
    progress: Quietly = None

    def run(self) -> Report:
        """Write the graph."""
        from dkge_dist.surfaces.progress import shown
        from dkge_dist.synthetic import PRESETS, write_synth

        if self.preset not in PRESETS:
            raise UsageError(f"no preset {self.preset!r}: one of {', '.join(PRESETS)}")
        began = time.monotonic()
        try:
            with shown(self.progress, "synth") as callback:
                spec = PRESETS[self.preset].resized(self.entities, self.triples, self.nights, self.seed)
                report = write_synth(spec, Path(self.out), self.full, callback)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return {**report, "seconds": seconds_since(began)}


@dataclass(frozen=True)
class Ingest(FromSource, OnStore, Request["IngestRecord"]):
    """Read a source into the next snapshot of STORE (made if it does not exist).

    On any error the store is as before. In Python the source may also be a table (pandas, polars, pyarrow), an iterable
    of (head, relation, tail), a networkx graph, or a scipy adjacency matrix with the labels of its rows in `nodelist`.
    """

    source: Annotated[Any, argument("SOURCE...", FORMATS_HELP, words=list[str])]
    _: KW_ONLY
    released_after: Annotated[int | None, Option("imdb: only titles released after this year.")] = None
    key: Annotated[Literal["id", "name"], Option("imdb: what identifies titles and people.")] = "id"
    literals: Annotated[bool, Option("RDF: take literals as entities.")] = True
    nodelist: Annotated[Any, PythonOnly("Labels of the rows of a matrix.")] = None
    relation: Annotated[str | None, PythonOnly("The relation of edges that have no name.")] = None
    progress: Quietly = None

    def run(self) -> IngestRecord:
        """Read it."""
        from dkge_dist.graph.sources.detect import open_given
        from dkge_dist.jobs import ingest as job
        from dkge_dist.store.store import Store
        from dkge_dist.surfaces.progress import shown

        options = self.source_options(self.released_after, self.key, self.literals)
        reader = open_given(self.source, self.format, options, self.nodelist, self.relation)
        ingest_options = self.ingest_options()
        with shown(self.progress, "ingest") as callback:
            return job.ingest(Store.open_or_new(self.store), reader, ingest_options, callback)[0]


SNAPSHOT_HELP = "Snapshot: its name, version number or date (UTC)."


@dataclass(frozen=True)
class Diff(WithSettings, OnStore, Request[Report]):
    """What changed from snapshot A to snapshot B."""

    old: Annotated[str | int, argument("A", SNAPSHOT_HELP)]
    new: Annotated[str | int, argument("B", SNAPSHOT_HELP)]
    _: KW_ONLY
    examples: Annotated[int, Option("How many changed triples, objects, questions to show.", at_least=0, default=5)] = 0
    affected: Annotated[bool, Option("Also who is affected, under the settings of contexts.")] = False
    answers: Annotated[bool, Option("Also whose answers changed, by the models of both.")] = False
    out: Annotated[PathLike | None, Option("Write the train triples as a change file.")] = None

    def run(self) -> Report:
        """Compare them."""
        from dkge_dist.jobs import diff as job
        from dkge_dist.runtime import LocalRuntime
        from dkge_dist.settings import load_settings

        chosen = load_settings(self.config_path, self.settings)
        runtime = LocalRuntime() if self.answers else None
        chosen_for = chosen if self.affected else None
        return job.diff(
            self.open_store(), str(self.old), str(self.new), as_path(self.out), self.examples, chosen_for, runtime
        )
