"""The public functions. Each returns what its command prints with --json.

The module of a job is imported when it runs: nobody waits for torch to see a log.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dkge_dist.config import SettingsGiven, load_settings, settings_of_model
from dkge_dist.jobs.report import (
    PathLike,
    ProgressOption,
    Report,
    StopCallback,
    seconds_since,
    shown,
)
from dkge_dist.jobs.runtimes import ClusterOptions, choose_runtime
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError, Field, UsageError

if TYPE_CHECKING:
    import zarr

    from dkge_dist.jobs.batches import Line, Triplets
    from dkge_dist.jobs.open_store import OpenStore
    from dkge_dist.jobs.results import Batch, Evaluation, Log
    from dkge_dist.jobs.session import Session

VersionName = str | int | None
"""A version number, an alias, or the name of a snapshot; None is the current one."""


def synth(
    out: PathLike,
    preset: str = "demo",
    *,
    entities: int | None = None,
    triples: int | None = None,
    nights: int | None = None,
    seed: int | None = None,
    full: bool = False,
    progress: ProgressOption = None,
) -> Report:
    """Write a synthetic evolving movie graph to the folder `out`.

    Sizes that are given replace those of the preset, the others keep their proportion; `full` writes every night as a
    whole snapshot too, beside its changes.
    """
    from dkge_dist.jobs import synth as job

    with shown(progress, "synth") as callback:
        return job.synth(Path(out), preset, (entities, triples, nights, seed), full, callback)


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
    onto: VersionName = None,
    released_after: int | None = None,
    key: Literal["id", "name"] = "id",
    literals: bool = True,
    labels: PathLike | Iterable[PathLike] = (),
    label_language: str = "en",
    nodelist: Sequence[str | int] | None = None,
    relation: str | None = None,
    progress: ProgressOption = None,
) -> Report:
    """Make the next snapshot of `store` out of `source`; on any error the store is as before.

    `source` is a path, a pattern, several of them, a table (pandas, polars, pyarrow), an iterable of (head, relation,
    tail), a networkx graph, or a scipy adjacency matrix with the labels of its rows in `nodelist`; `relation` names
    edges that have no name. `columns` are head, relation and tail of a table, as names or numbers from 1 on.
    `valid` and `test` triples are held out; by default about 1% of a first snapshot, and what its parent holds out of a
    later one. `strict` refuses new labels that look like a known one misspelt. With `onto` (a name or version number)
    it is refused unless that snapshot is current. `labels` are files of display names, `label<TAB>name` lines, beside
    those that the source gives; `label_language` chooses among those of RDF.
    """
    from dkge_dist.graph.holdout import HeldOut
    from dkge_dist.graph.sources.columns import parse_columns
    from dkge_dist.graph.sources.detect import SourceOptions, open_label_files
    from dkge_dist.graph.sources.several import open_given
    from dkge_dist.jobs import ingest as job
    from dkge_dist.store.ingest import IngestOptions

    source_options = SourceOptions(released_after, key, literals, label_language, parse_columns(columns))
    reader = open_given(source, format, source_options, nodelist, relation)
    files = open_label_files(_paths(labels))
    options = IngestOptions(name, HeldOut(valid, test), force, max_bad_lines, _name(onto), files, strict)
    with shown(progress, "ingest") as callback:
        return job.ingest(Store.open_or_new(store), reader, options, callback)[0]


def train(
    store: PathLike,
    *,
    snapshot: VersionName = None,
    preset: str = "default",
    config: PathLike | None = None,
    settings: SettingsGiven = (),
    fresh: bool = False,
    tensorboard: PathLike | None = None,
    shards: int | None = None,
    workers: int = 1,
    address: str | None = None,
    wait_seconds: float | None = None,
    log_json: PathLike | None = None,
    progress: ProgressOption = None,
    stop: StopCallback | None = None,
) -> Report:
    """Learn a snapshot (the current one by default) from scratch and publish the model as the next version.

    A training that was interrupted is resumed, unless `fresh`. `stop` is asked after every batch; when it returns True,
    a checkpoint is left and the training ends with an error. With `shards` it runs on Ray.
    """
    from dkge_dist.jobs import train as job
    from dkge_dist.jobs.announce import Announcer
    from dkge_dist.jobs.event_log import LoggingMonitor, event_log
    from dkge_dist.jobs.nightly import headline_of_training

    runtime = choose_runtime(ClusterOptions(shards, workers, address, wait_seconds))
    chosen = load_settings(_path(config), settings, preset)
    facts = {"origin": "scratch", "preset": preset}
    options = job.TrainOptions(fresh, _path(tensorboard))
    opened = Store.open(store)
    with event_log(_path(log_json), "train") as log, shown(progress, "train") as callback:
        announcer, monitor = Announcer(chosen, log), LoggingMonitor(callback, stop, log)
        report = job.train(opened, runtime, _name(snapshot), chosen, facts, options, monitor)
        announcer.published(opened, report["version"], report["snapshot"], headline_of_training(report))
        return announcer.finished(report)


def update(
    store: PathLike,
    *,
    to: VersionName = None,
    since_version: VersionName = None,
    plan: bool = False,
    config: PathLike | None = None,
    settings: SettingsGiven = (),
    shards: int | None = None,
    address: str | None = None,
    wait_seconds: float | None = None,
    log_json: PathLike | None = None,
    progress: ProgressOption = None,
    stop: StopCallback | None = None,
) -> Report:
    """Bring the current model (or the one of `since_version`) to a later snapshot, and publish it.

    With `plan` nothing is done: the report says what would be. With `shards` the entities lie in so many Ray actors; a
    plan tells which of them would be written to. `stop` is asked after every batch; when it returns True, the store
    stays as it is.
    """
    from dkge_dist.jobs import update as job
    from dkge_dist.jobs.announce import Announcer
    from dkge_dist.jobs.event_log import LoggingMonitor, event_log
    from dkge_dist.jobs.nightly import headline

    opened = Store.open(store)
    parent = opened.find_model(_name(since_version))
    chosen = settings_of_model(parent.model.settings, _path(config), settings)
    if plan:
        return job.plan(opened, parent, _name(to), chosen, shards or 1)
    runtime = choose_runtime(ClusterOptions(shards, 1, address, wait_seconds))
    with event_log(_path(log_json), "update") as log, shown(progress, "update") as callback:
        announcer = Announcer(chosen, log)
        report = job.update(opened, runtime, parent, _name(to), chosen, LoggingMonitor(callback, stop, log))
        if not report.get("unchanged"):
            line = headline(report, parent.model.metrics)
            announcer.published(opened, report["version"], report["snapshot"], line)
        return announcer.finished(report)


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
    onto: VersionName = None,
    labels: PathLike | Iterable[PathLike] = (),
    label_language: str = "en",
    since_version: VersionName = None,
    config: PathLike | None = None,
    settings: SettingsGiven = (),
    shards: int | None = None,
    workers: int = 1,
    address: str | None = None,
    wait_seconds: float | None = None,
    log_json: PathLike | None = None,
    metrics: PathLike | None = None,
    report: PathLike | None = None,
    progress: ProgressOption = None,
    stop: StopCallback | None = None,
) -> Report:
    """Ingest a night (`source` and its options as for `ingest`), learn it online (and from scratch, if the drift policy
    says so), and evaluate.

    Idempotent: what was done already is not done again, so a night that failed half-way is simply run again. With
    `onto` it is refused unless that snapshot is current before it. With `since_version` what is learnt online starts
    from the model of that version, over all nights since. `log_json` gets a line of JSON for every event, `metrics` is
    written for Prometheus' textfile collector, `report` is where a page about the nights is written; that it could not
    be is told in `report_problem`, and the night stands.
    """
    from dkge_dist.graph.holdout import HeldOut
    from dkge_dist.graph.sources.columns import parse_columns
    from dkge_dist.graph.sources.detect import SourceOptions, open_label_files
    from dkge_dist.graph.sources.several import open_given
    from dkge_dist.jobs import nightly as job
    from dkge_dist.jobs.announce import Announcer
    from dkge_dist.jobs.event_log import LoggingMonitor, event_log
    from dkge_dist.jobs.metrics import night_families, write_metrics
    from dkge_dist.store.ingest import IngestOptions

    runtime = choose_runtime(ClusterOptions(shards, workers, address, wait_seconds))
    reader = open_given(source, format, SourceOptions(label_language=label_language, columns=parse_columns(columns)))
    files = open_label_files(_paths(labels))
    chosen, opened = load_settings(_path(config), settings), Store.open_or_new(store)
    with event_log(_path(log_json), "nightly") as log, shown(progress, "nightly") as callback:
        announcer = Announcer(chosen, log)
        night = job.nightly(
            opened,
            runtime,
            reader,
            IngestOptions(name, HeldOut(valid, test), force, max_bad_lines, _name(onto), files, strict),
            job.LearnOptions(_path(config), settings, _name(since_version)),
            LoggingMonitor(callback, stop, log),
            announcer.published,
        )
        if metrics is not None:
            write_metrics(Path(metrics), night_families(opened, night))
        done = announcer.finished(night)
    return done if report is None else {**done, **_write_report(store, report)}


def _write_report(store: PathLike, out: PathLike) -> Report:
    """The page of a night that is published: whatever goes wrong with it, the night stands."""
    from dkge_dist.jobs import night_report as job

    try:
        figures = job.night_report(Store.open(store), choose_runtime(ClusterOptions()))
        job.write_report(Path(out), figures)
    except Exception as error:
        # Not DkgeError alone: a fault of the page must not make a job run the night again.
        return {"report_problem": f"the night is done, its report is not: {error}"}
    return {"report": os.fspath(out)}


def evaluate(
    store: PathLike,
    *,
    version: VersionName = None,
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
    progress: ProgressOption = None,
) -> Evaluation:
    """Rank the held-out triples of the snapshot that a model was learnt from, or those of the file `triples`.

    The metrics at the top are those of `protocol`, with the evidence of the graph unless `evidence` is False; `paper`,
    `filtered` and `vectors` (without evidence) hold the rest. `without_train` leaves out triples that stand in train
    too. `relations` and `categories` add tables, `ranks` those of every triple. With `shards` the entities lie in so
    many Ray actors, which count by themselves.
    """
    from dkge_dist.jobs import evaluate as job
    from dkge_dist.jobs.session import open_session

    began = time.monotonic()
    runtime = choose_runtime(ClusterOptions(shards, 1, address, wait_seconds))
    tables = tuple(name for name, wanted in (("relations", relations), ("categories", categories)) if wanted)
    options = job.EvaluateOptions(split, _path(triples), protocol, evidence, tables, ranks)
    with open_session(Store.open(store), runtime, _name(version)) as session, shown(progress, "evaluate") as callback:
        report = job.evaluate(session, options, threads, callback)
    report["seconds"] = seconds_since(began)
    return report


def fidelity(
    store: PathLike,
    *,
    version: VersionName = None,
    since: VersionName = None,
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
    return job.fidelity(Store.open(store), runtime, _name(version), job.FidelityOptions(_name(since), evidence))


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
    version: VersionName = None,
    batch: Triplets | None = None,
    shards: int | None = None,
    address: str | None = None,
    wait_seconds: float | None = None,
) -> Report:
    """The best answers to (head, relation, ?), (?, relation, tail) or (head, ?, tail): known facts, then predictions.

    What is asked is left out, None or `?`. `new_only` leaves out what is known, `why` adds the evidence of each answer;
    with `evidence=False` vectors alone decide. Scores are higher for better answers. `batch` is a list of (head,
    relation, tail), or a file of such lines with tabs between; one that cannot be answered is told in its place. With
    `shards` the entities lie in so many Ray actors. `open` answers many questions faster.
    """
    from dkge_dist.jobs import answer as job

    lines = job.questions_of(head, relation, tail, batch)
    options = job.AnswerOptions(top, new_only, why, evidence)
    cluster = ClusterOptions(shards, 1, address, wait_seconds)
    return _ask(store, version, cluster, lines, lambda session: job.answer(session, lines, options), batch is None)


def score(
    store: PathLike,
    head: str | None = None,
    relation: str | None = None,
    tail: str | None = None,
    *,
    ranks: bool = True,
    evidence: bool = True,
    version: VersionName = None,
    batch: Triplets | None = None,
    shards: int | None = None,
    address: str | None = None,
    wait_seconds: float | None = None,
) -> Report:
    """How plausible a triple is, or each of a `batch` (a list, or a file of lines with tabs between).

    `score` is higher for better triples; `tail_rank` and `head_rank` say how many alternatives score higher, known
    triples left out; `probability` is that of being true rather than a true triple with another end of the same
    relation, as calibrated on validation triples, and one half at `threshold`. `ranks=False` saves a pass over all
    entities.
    """
    from dkge_dist.jobs import score as job

    lines = job.triples_of(head, relation, tail, batch)
    options = job.ScoreOptions(evidence, ranks)
    cluster = ClusterOptions(shards, 1, address, wait_seconds)
    return _ask(store, version, cluster, lines, lambda session: job.score(session, lines, options), batch is None)


def similar(
    store: PathLike,
    entity: str | None = None,
    *,
    top: int = 10,
    version: VersionName = None,
    batch: PathLike | Iterable[str] | None = None,
    shards: int | None = None,
    address: str | None = None,
    wait_seconds: float | None = None,
) -> Report:
    """The entities whose vectors are nearest to that of one, or of each of a `batch` (a list, or a file: one a line).

    Exact; the score is minus the L1 distance, higher is better.
    """
    from dkge_dist.jobs import similar as job

    lines = job.entities_of(entity, batch)
    cluster = ClusterOptions(shards, 1, address, wait_seconds)
    return _ask(store, version, cluster, lines, lambda session: job.similar(session, lines, top), batch is None)


def _ask(
    store: PathLike,
    version: VersionName,
    cluster: ClusterOptions,
    lines: Sequence[Line],
    ask: Callable[[Session], Batch],
    is_single: bool,
) -> Report:
    """Open a store for one question, or for one batch of them. A single one that cannot be answered is an error."""
    from dkge_dist.jobs.evidence import FEW_QUESTIONS
    from dkge_dist.jobs.results import Failure
    from dkge_dist.jobs.session import open_session

    began = time.monotonic()
    with open_session(
        Store.open(store), choose_runtime(cluster), _name(version), len(lines) > FEW_QUESTIONS
    ) as session:
        found = ask(session)
    if is_single and isinstance(found[0], Failure):
        raise DkgeError(found[0].error)
    return {**(found.one() if is_single else found.to_dict()), "seconds": seconds_since(began)}


def open(store: PathLike, *, version: VersionName = None) -> OpenStore:
    """A store opened for many questions: `.answer`, `.score`, `.similar`, `.vectors`, `.evaluate`, `.log`, `.report`,
    `.refresh`.

    The current model, or that of a version or snapshot. Many threads may ask at once. Use it in a `with` statement, or
    `close` it.
    """
    from dkge_dist.jobs.open_store import OpenStore

    return OpenStore(Store.open(store), _name(version))


def evidence_table(
    store: PathLike, *, version: VersionName = None, relation: str | None = None, top: int = 5
) -> Report:
    """What the evidence of a model says of every relation, or of one: what supports it, and what counts how much.

    `links` are the `top` relations that join the same pairs, `paths` the two-step paths that do; `weights` are those of
    every feature by side. Read from what the version keeps, without the graph.
    """
    from dkge_dist.jobs import evidence_table as job

    if top < 1:
        raise UsageError(f"--top {top}: at least one of each kind")
    return job.evidence_table(Store.open(store), _name(version), relation, top)


def export(
    store: PathLike,
    out: PathLike,
    *,
    format: Literal["parquet", "npy", "safetensors", "zarr"] = "parquet",
    version: VersionName = None,
    since: VersionName = None,
    what: Literal["joint", "knowledge", "context"] = "joint",
) -> Report:
    """Write the vectors of all entities and relations of a model's snapshot, with their labels, to a new folder.

    With `since` (a version or snapshot, as `version`) only what changed from that model to this one: vectors to upsert,
    and labels and rows to delete.
    """
    from dkge_dist.jobs import export as job

    if since is not None:
        return job.export_changes(Store.open(store), Path(out), format, _name(version), str(since), Field(what))
    return job.export(Store.open(store), Path(out), format, _name(version), Field(what))


def open_version(store: PathLike, version: VersionName = None) -> zarr.Group:
    """The vectors of a model as a read-only zarr group: `entities/joint` and so on, read lazily, deltas applied."""
    from dkge_dist.store import zarr_store

    return zarr_store.open_version(Store.open(store), version)


def log(store: PathLike) -> Log:
    """Every version: what it is, its parent, what it changed."""
    from dkge_dist.jobs import maintenance as job

    return job.log(Store.open(store))


def report(store: PathLike, out: PathLike | None = None, *, nights: int | None = None, answers: bool = True) -> Report:
    """What the newest `nights` did (a year of them by default), as one self-contained HTML page for who was asleep.

    What came and went, quality and fidelity, drift and what the policy decided, costs, storage and what gc would free.
    `answers` also asks the models before and after the last night whose answers changed. The figures are returned;
    without `out` nothing is written.
    """
    from dkge_dist.jobs import night_report as job

    if nights is not None and nights < 1:
        raise UsageError(f"--nights {nights}: at least one is shown")
    figures = job.night_report(Store.open(store), choose_runtime(ClusterOptions()), nights or job.NIGHTS, answers)
    if out is not None:
        figures |= {"out": os.fspath(out), "page_bytes": job.write_report(Path(out), figures)}
    return figures


def diff(
    store: PathLike,
    old: str | int,
    new: str | int,
    *,
    out: PathLike | None = None,
    examples: int = 0,
    affected: bool = False,
    answers: bool = False,
    config: PathLike | None = None,
    settings: SettingsGiven = (),
) -> Report:
    """What changed from snapshot `old` to snapshot `new` (names, version numbers or dates).

    `out` writes the train triples as a change file; `examples` is how many of everything to show. `affected` adds who
    is affected under the context settings, `answers` which questions of changed triples (a sample) have other best
    answers by the model of `new` than by the model of `old`.
    """
    from dkge_dist.jobs import diff as job

    chosen = load_settings(_path(config), settings)
    runtime = choose_runtime(ClusterOptions()) if answers else None
    chosen_for = chosen if affected else None
    return job.diff(Store.open(store), str(old), str(new), _path(out), examples, chosen_for, runtime)


def check(store: PathLike, *, progress: ProgressOption = None) -> Report:
    """Verify every checksum and that the parts fit together; `problems` names what is broken."""
    from dkge_dist.jobs import maintenance as job

    with shown(progress, "check") as callback:
        return job.check(Store.open(store), callback)


def rollback(store: PathLike, version: int | str) -> Report:
    """Make the state of an earlier version or date current again. Loses nothing: it can be rolled back itself."""
    from dkge_dist.jobs import maintenance as job

    return job.rollback(Store.open(store), version)


def alias(store: PathLike, name: str | None = None, version: VersionName = None, *, remove: bool = False) -> Report:
    """Let the alias `name` pin a version, or `remove` it; without a name, nothing is done. All aliases afterwards.

    An alias may be used wherever a version may. `gc` keeps the version that it pins.
    """
    from dkge_dist.jobs import maintenance as job

    if (name is None and (remove or version is not None)) or (name is not None and remove == (version is not None)):
        raise UsageError("name an alias and its version, an alias to remove, or neither to list them")
    return job.alias(Store.open(store), name, _name(version), remove)


def gc(
    store: PathLike,
    *,
    keep: int,
    dry_run: bool = False,
    grace_hours: float = 24.0,
    progress: ProgressOption = None,
) -> Report:
    """Clear old versions but the newest `keep` and all that is needed, and whatever killed writers left."""
    from dkge_dist.jobs import maintenance as job

    if keep < 1:
        raise UsageError(f"--keep {keep}: at least one version is kept")
    with shown(progress, "gc") as callback:
        return job.gc(Store.open(store), keep, dry_run, grace_hours, callback)


def _path(path: PathLike | None) -> Path | None:
    return Path(path) if path is not None else None


def _paths(given: PathLike | Iterable[PathLike]) -> list[Path]:
    """One path or several."""
    return [Path(given)] if isinstance(given, str | os.PathLike) else [Path(path) for path in given]


def _name(version: VersionName) -> str | None:
    return str(version) if version is not None else None
