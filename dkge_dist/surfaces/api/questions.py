"""Public functions that ask a model: metrics, answers, scores, its evidence, its vectors."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from dkge_dist.jobs.report import PathLike, ProgressOption, Report, seconds_since, shown
from dkge_dist.jobs.runtimes import ClusterOptions, choose_runtime
from dkge_dist.store.store import Store
from dkge_dist.surfaces.api.arguments import VersionName, as_path, version_name
from dkge_dist.types import DkgeError, Field, UsageError

if TYPE_CHECKING:
    import zarr

    from dkge_dist.ask.batches import Line, Triplets
    from dkge_dist.ask.results import Batch, Evaluation
    from dkge_dist.ask.session import Session
    from dkge_dist.jobs.open_store import OpenStore


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
    from dkge_dist.ask.session import open_session
    from dkge_dist.jobs import evaluate as job

    began = time.monotonic()
    runtime = choose_runtime(ClusterOptions(shards, 1, address, wait_seconds))
    tables = tuple(name for name, wanted in (("relations", relations), ("categories", categories)) if wanted)
    options = job.EvaluateOptions(split, as_path(triples), protocol, evidence, tables, ranks)
    with (
        open_session(Store.open(store), runtime, version_name(version)) as session,
        shown(progress, "evaluate") as callback,
    ):
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
    return job.fidelity(
        Store.open(store), runtime, version_name(version), job.FidelityOptions(version_name(since), evidence)
    )


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
    from dkge_dist.ask import answer as job

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
    from dkge_dist.ask import score as job

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
    from dkge_dist.ask import similar as job

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
    from dkge_dist.ask.evidence import FEW_QUESTIONS
    from dkge_dist.ask.results import Failure
    from dkge_dist.ask.session import open_session

    began = time.monotonic()
    with open_session(
        Store.open(store), choose_runtime(cluster), version_name(version), len(lines) > FEW_QUESTIONS
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

    return OpenStore(Store.open(store), version_name(version))


def evidence_table(
    store: PathLike, *, version: VersionName = None, relation: str | None = None, top: int = 5
) -> Report:
    """What the evidence of a model says of every relation, or of one: what supports it, and what counts how much.

    `links` are the `top` relations that join the same pairs, `paths` the two-step paths that do; `weights` are those of
    every feature by side. Read from what the version keeps, without the graph.
    """
    from dkge_dist.ask import evidence_table as job

    if top < 1:
        raise UsageError(f"--top {top}: at least one of each kind")
    return job.evidence_table(Store.open(store), version_name(version), relation, top)


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
        return job.export_changes(Store.open(store), Path(out), format, version_name(version), str(since), Field(what))
    return job.export(Store.open(store), Path(out), format, version_name(version), Field(what))


def open_version(store: PathLike, version: VersionName = None) -> zarr.Group:
    """The vectors of a model as a read-only zarr group: `entities/joint` and so on, read lazily, deltas applied."""
    from dkge_dist.store import zarr_store

    return zarr_store.open_version(Store.open(store), version)
