"""The public functions. Each returns what its command prints with --json.

The module of a job is imported when it runs: nobody waits for torch to see a log.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dkge_dist.config import load_settings, settings_of_model
from dkge_dist.jobs.report import CallbackMonitor, PathLike, ProgressCallback, Report, StopCallback
from dkge_dist.jobs.runtimes import ClusterOptions, choose_runtime
from dkge_dist.store.store import Store
from dkge_dist.types import Field, UsageError

if TYPE_CHECKING:
    import zarr


def synth(
    out: PathLike,
    preset: str = "demo",
    *,
    entities: int | None = None,
    triples: int | None = None,
    nights: int | None = None,
    seed: int | None = None,
    full: bool = False,
    progress: ProgressCallback | None = None,
) -> Report:
    """Write a synthetic evolving movie graph to the folder `out`.

    Sizes that are given replace those of the preset, the others keep their proportion; `full` writes every night as a
    whole snapshot too, beside its changes.
    """
    from dkge_dist.jobs import synth as job

    return job.synth(Path(out), preset, (entities, triples, nights, seed), full, progress)


def ingest(
    store: PathLike,
    source: Any,
    *,
    format: str = "auto",
    columns: str | Sequence[str | int] | None = None,
    name: str | None = None,
    valid: int | None = None,
    test: int | None = None,
    force: bool = False,
    strict: bool = False,
    max_bad_lines: int = 0,
    onto: str | None = None,
    released_after: int | None = None,
    key: Literal["id", "name"] = "id",
    literals: bool = True,
    nodelist: Sequence[str | int] | None = None,
    relation: str | None = None,
    progress: ProgressCallback | None = None,
) -> Report:
    """Make the next snapshot of `store` out of `source`; on any error the store is as before.

    `source` is a path, a pattern, several of them, a table (pandas, polars, pyarrow), an iterable of (head, relation,
    tail), a networkx graph, or a scipy adjacency matrix with the labels of its rows in `nodelist`; `relation` names
    edges that have no name. `columns` are head, relation and tail of a table, as names or numbers from 1 on.
    `valid` and `test` triples are held out; by default about 1% of a first snapshot, and what its parent holds out of a
    later one. `strict` refuses new labels that look like a known one misspelt. With `onto` (a name or version number)
    it is refused unless that snapshot is current.
    """
    from dkge_dist.graph.holdout import HeldOut
    from dkge_dist.graph.sources.columns import parse_columns
    from dkge_dist.graph.sources.detect import SourceOptions
    from dkge_dist.graph.sources.several import open_given
    from dkge_dist.jobs import ingest as job
    from dkge_dist.store.ingest import IngestOptions

    source_options = SourceOptions(released_after, key, literals, parse_columns(columns))
    reader = open_given(source, format, source_options, nodelist, relation)
    options = IngestOptions(name, HeldOut(valid, test), force, max_bad_lines, onto, strict)
    return job.ingest(Store.open_or_new(store), reader, options, progress)[0]


def train(
    store: PathLike,
    *,
    snapshot: str | None = None,
    preset: str = "default",
    config: PathLike | None = None,
    settings: Iterable[str] = (),
    fresh: bool = False,
    tensorboard: PathLike | None = None,
    shards: int | None = None,
    workers: int = 1,
    address: str | None = None,
    wait_seconds: float | None = None,
    progress: ProgressCallback | None = None,
    stop: StopCallback | None = None,
) -> Report:
    """Learn a snapshot (the current one by default) from scratch and publish the model as the next version.

    A training that was interrupted is resumed, unless `fresh`. `stop` is asked after every batch; when it returns True,
    a checkpoint is left and the training ends with an error. With `shards` it runs on Ray.
    """
    from dkge_dist.jobs import train as job

    runtime = choose_runtime(ClusterOptions(shards, workers, address, wait_seconds))
    chosen = load_settings(_path(config), settings, preset)
    facts = {"origin": "scratch", "preset": preset}
    options = job.TrainOptions(fresh, _path(tensorboard))
    monitor = CallbackMonitor(progress, stop)
    return job.train(Store.open(store), runtime, snapshot, chosen, facts, options, monitor)


def update(
    store: PathLike,
    *,
    to: str | None = None,
    since_version: str | None = None,
    plan: bool = False,
    config: PathLike | None = None,
    settings: Iterable[str] = (),
    shards: int | None = None,
    address: str | None = None,
    wait_seconds: float | None = None,
    progress: ProgressCallback | None = None,
    stop: StopCallback | None = None,
) -> Report:
    """Bring the current model (or the one of `since_version`) to a later snapshot, and publish it.

    With `plan` nothing is done: the report says what would be. With `shards` the entities lie in so many Ray actors; a
    plan tells which of them would be written to. `stop` is asked after every batch; when it returns True, the store
    stays as it is.
    """
    from dkge_dist.jobs import update as job

    opened = Store.open(store)
    parent = opened.find_model(since_version)
    chosen = settings_of_model(parent.model.settings, _path(config), settings)
    if plan:
        return job.plan(opened, parent, to, chosen, shards or 1)
    runtime = choose_runtime(ClusterOptions(shards, 1, address, wait_seconds))
    return job.update(opened, runtime, parent, to, chosen, CallbackMonitor(progress, stop))


def nightly(
    store: PathLike,
    source: Any,
    *,
    format: str = "auto",
    columns: str | Sequence[str | int] | None = None,
    name: str | None = None,
    valid: int | None = None,
    test: int | None = None,
    force: bool = False,
    strict: bool = False,
    max_bad_lines: int = 0,
    onto: str | None = None,
    since_version: str | None = None,
    config: PathLike | None = None,
    settings: Iterable[str] = (),
    shards: int | None = None,
    workers: int = 1,
    address: str | None = None,
    wait_seconds: float | None = None,
    progress: ProgressCallback | None = None,
    stop: StopCallback | None = None,
) -> Report:
    """Ingest a night (`source` and its options as for `ingest`), learn it online (and from scratch, if the drift policy
    says so), and evaluate.

    Idempotent: what was done already is not done again, so a night that failed half-way is simply run again. With
    `onto` it is refused unless that snapshot is current before it. With `since_version` what is learnt online starts
    from the model of that version, over all nights since.
    """
    from dkge_dist.graph.holdout import HeldOut
    from dkge_dist.graph.sources.columns import parse_columns
    from dkge_dist.graph.sources.detect import SourceOptions
    from dkge_dist.graph.sources.several import open_given
    from dkge_dist.jobs import nightly as job
    from dkge_dist.store.ingest import IngestOptions

    runtime = choose_runtime(ClusterOptions(shards, workers, address, wait_seconds))
    return job.nightly(
        Store.open_or_new(store),
        runtime,
        open_given(source, format, SourceOptions(columns=parse_columns(columns))),
        IngestOptions(name, HeldOut(valid, test), force, max_bad_lines, onto, strict),
        job.LearnOptions(_path(config), list(settings), since_version),
        CallbackMonitor(progress, stop),
    )


def evaluate(
    store: PathLike,
    *,
    version: str | None = None,
    split: Literal["valid", "test"] = "test",
    triples: PathLike | None = None,
    protocol: Literal["paper", "filtered"] = "filtered",
    evidence: bool = True,
    relations: bool = False,
    categories: bool = False,
    ranks: bool = False,
    threads: int = 0,
    shards: int | None = None,
    address: str | None = None,
    wait_seconds: float | None = None,
) -> Report:
    """Rank the held-out triples of the snapshot that a model was learnt from, or those of the file `triples`.

    The metrics at the top are those of `protocol`, with the evidence of the graph unless `evidence` is False; `paper`,
    `filtered` and `vectors` (without evidence) hold the rest. `without_train` leaves out triples that stand in train
    too. `relations` and `categories` add tables, `ranks` those of every triple. With `shards` the entities lie in so
    many Ray actors, which count by themselves.
    """
    from dkge_dist.jobs import evaluate as job

    runtime = choose_runtime(ClusterOptions(shards, 1, address, wait_seconds))
    tables = tuple(name for name, wanted in (("relations", relations), ("categories", categories)) if wanted)
    options = job.EvaluateOptions(split, _path(triples), protocol, evidence, tables, ranks)
    return job.evaluate(Store.open(store), runtime, version, options, threads)


def fidelity(
    store: PathLike,
    *,
    version: str | None = None,
    since: str | None = None,
    evidence: bool = True,
    shards: int | None = None,
    address: str | None = None,
    wait_seconds: float | None = None,
) -> Report:
    """What a model learnt of its night: ranks of the triples that it added, deleted, replaced and kept. Exact.

    The night is what happened since the snapshot that the model was updated from, or since the one named by `since`.
    """
    from dkge_dist.jobs import fidelity as job

    runtime = choose_runtime(ClusterOptions(shards, 1, address, wait_seconds))
    return job.fidelity(Store.open(store), runtime, version, job.FidelityOptions(since, evidence))


def answer(
    store: PathLike,
    head: str | None = None,
    relation: str | None = None,
    *,
    tail: str | None = None,
    top: int = 10,
    new_only: bool = False,
    why: bool = False,
    evidence: bool = True,
    version: str | None = None,
    batch: PathLike | None = None,
    shards: int | None = None,
    address: str | None = None,
    wait_seconds: float | None = None,
) -> Report:
    """The best answers to (head, relation, ?) or, with `tail`, to (?, relation, tail): known facts, then predictions.

    `new_only` leaves out what is known, `why` adds the evidence of each answer; with `evidence=False` vectors alone
    decide. Scores are higher for better answers. `batch` is a file of questions, one a line: head, relation and tail
    with tabs between, `?` for what is asked. With `shards` the entities lie in so many Ray actors.
    """
    from dkge_dist.jobs import answer as job

    runtime = choose_runtime(ClusterOptions(shards, 1, address, wait_seconds))
    if top < 1:
        raise UsageError(f"--top {top}: at least one answer")
    questions = job.questions_of(head, relation, tail, _path(batch))
    options = job.AnswerOptions(top, new_only, why, evidence)
    report = job.answer(Store.open(store), runtime, questions, version, options)
    return report if batch is not None else {**report.pop("questions")[0], **report}


def evidence_table(store: PathLike, *, version: str | None = None, relation: str | None = None, top: int = 5) -> Report:
    """What the evidence of a model says of every relation, or of one: what supports it, and what counts how much.

    `links` are the `top` relations that join the same pairs, `paths` the two-step paths that do; `weights` are those of
    every feature by side. Read from what the version keeps, without the graph.
    """
    from dkge_dist.jobs import evidence_table as job

    if top < 1:
        raise UsageError(f"--top {top}: at least one of each kind")
    return job.evidence_table(Store.open(store), version, relation, top)


def export(
    store: PathLike,
    out: PathLike,
    *,
    format: Literal["parquet", "npy", "safetensors", "zarr"] = "parquet",
    version: str | None = None,
    what: Literal["joint", "knowledge", "context"] = "joint",
) -> Report:
    """Write the vectors of all entities and relations of a model's snapshot, with their labels, to a new folder."""
    from dkge_dist.jobs import export as job

    return job.export(Store.open(store), Path(out), format, version, Field(what))


def open_version(store: PathLike, version: str | int | None = None) -> zarr.Group:
    """The vectors of a model as a read-only zarr group: `entities/joint` and so on, read lazily, deltas applied."""
    from dkge_dist.store import zarr_store

    return zarr_store.open_version(Store.open(store), version)


def log(store: PathLike) -> Report:
    """Every version: what it is, its parent, what it changed."""
    from dkge_dist.jobs import maintenance as job

    return job.log(Store.open(store))


def diff(
    store: PathLike,
    old: str,
    new: str,
    *,
    out: PathLike | None = None,
    examples: int = 0,
    affected: bool = False,
    config: PathLike | None = None,
    settings: Iterable[str] = (),
) -> Report:
    """What changed from snapshot `old` to snapshot `new` (names or version numbers).

    `out` writes the train triples as a change file; `examples` shows some; `affected` adds how many objects are
    affected under the context settings.
    """
    from dkge_dist.jobs import diff as job

    chosen = load_settings(_path(config), settings)
    return job.diff(Store.open(store), old, new, _path(out), examples, chosen if affected else None)


def check(store: PathLike, *, progress: ProgressCallback | None = None) -> Report:
    """Verify every checksum and that the parts fit together; `problems` names what is broken."""
    from dkge_dist.jobs import maintenance as job

    return job.check(Store.open(store), progress)


def rollback(store: PathLike, version: int) -> Report:
    """Make the state of an earlier version current again. Loses nothing: it can be rolled back itself."""
    from dkge_dist.jobs import maintenance as job

    return job.rollback(Store.open(store), version)


def gc(store: PathLike, *, keep: int, dry_run: bool = False, grace_hours: float = 24.0) -> Report:
    """Clear old versions but the newest `keep` and all that is needed, and whatever killed writers left."""
    from dkge_dist.jobs import maintenance as job

    if keep < 1:
        raise UsageError(f"--keep {keep}: at least one version is kept")
    return job.gc(Store.open(store), keep, dry_run, grace_hours)


def _path(path: PathLike | None) -> Path | None:
    return Path(path) if path is not None else None
