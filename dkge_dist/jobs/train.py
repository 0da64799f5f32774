"""Learning a whole snapshot, from scratch or from the vectors of a model of it: it becomes a model version."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dkge_dist import files
from dkge_dist.ask.calibration import measure_calibration
from dkge_dist.ask.model import Model, joint_embedding
from dkge_dist.evidence.fitting import EvidenceFitting, validation_half
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.stored import current_lists, to_arrays
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.training_graph import TrainingGraph, training_graph
from dkge_dist.learn.batches import EvidenceOffsets
from dkge_dist.learn.checkpoints import Checkpoints
from dkge_dist.learn.plan import Plan
from dkge_dist.learn.task import Candidate, LearnTask, learn, refresh_settings
from dkge_dist.measure.drift import Incumbent, compare
from dkge_dist.measure.fidelity import sampled_fidelity
from dkge_dist.measure.validation import measure_validation
from dkge_dist.records import Fidelity, TrainingRecord
from dkge_dist.runtime import Monitor, Runtime, WorkerSpec
from dkge_dist.settings import OF_THE_MACHINE, Settings
from dkge_dist.store.manifest import ModelManifest, SnapshotManifest
from dkge_dist.store.models import ModelMetadata, load_arrays, publish_model, save_model
from dkge_dist.store.store import Store
from dkge_dist.store.tables import block_rows
from dkge_dist.tables.checkpoint import CheckpointFolder
from dkge_dist.tables.initializer import RowInitializer, StoredTables, TableStart
from dkge_dist.tables.table import Tables
from dkge_dist.types import Array, DkgeError, UsageError, seconds_since

VOLATILE = {"threads", "device", *OF_THE_MACHINE}
"""Settings that change how fast a training is, not what it learns: it may be resumed with others."""


@dataclass(frozen=True)
class TrainOptions:
    """`fresh` does not resume an interrupted training; `tensorboard` is a folder for its metrics."""

    fresh: bool = False
    tensorboard: Path | None = None


@dataclass(frozen=True)
class TrainRequest:
    """What to train, with settings that are settled; `why` is the reason of a night that trains.

    `incumbent` is the current model of the same snapshot, to be compared with. `start` is a model of it to go on from,
    with fewer epochs: a refresh.
    """

    manifest: SnapshotManifest
    snapshot: Snapshot
    names: tuple[Dictionary, Dictionary]
    settings: Settings
    preset: str | None = None
    why: str | None = None
    options: TrainOptions = TrainOptions()
    incumbent: Incumbent | None = None
    start: ModelManifest | None = None


def train(
    store: Store,
    runtime: Runtime,
    snapshot: str | None,
    settings: Settings,
    preset: str | None,
    options: TrainOptions,
    monitor: Monitor,
    start: ModelManifest | None = None,
) -> TrainingRecord:
    """Train a snapshot (the current one by default) and publish the model; with `start`, a refresh of that model."""
    manifest = store.find_snapshot(snapshot) if snapshot else store.current_snapshot()
    if manifest is None:
        raise DkgeError(f"{store}: holds no snapshot yet; `dkge ingest {store} SOURCE` brings one")
    if start is not None and start.model.snapshot != manifest.version:
        learnt = store.snapshot_manifest(start.model.snapshot).snapshot.name
        raise DkgeError(
            f"{store}: the model to refresh (version {start.version}) is of snapshot {learnt!r}, not of "
            f"{manifest.snapshot.name!r}; `dkge update {store}` brings it there first"
        )
    names, current = store.dictionaries(manifest), store.current_model()
    is_of_it = current is not None and current.model.snapshot == manifest.version
    incumbent = Incumbent.of(store, current) if current is not None and is_of_it else None
    request = TrainRequest(manifest, store.snapshot(manifest), names, settings, preset, None, options, incumbent, start)
    with trained(store, runtime, request, monitor) as (record, model):
        comparison = record.comparison
        if comparison is None or not comparison.worse:
            return record
        old, new = comparison.incumbent, model.manifest
        is_worse = f"version {new.version} is measurably worse than version {old}: {'; '.join(comparison.worse)}"
        back = f"`dkge rollback {store} {_way_back(store, new, old)}` goes back"
        return record.with_(warning=f"{is_worse}; {back}")


def _way_back(store: Store, published: ModelManifest, model: int) -> int:
    """The version to roll back to for a model: with the snapshot of now, which may have been ingested meanwhile."""
    for number in range(published.version - 1, model, -1):
        state = store.state_at(number)
        if (state.model, state.snapshot) == (model, published.current.snapshot):
            return number
    return model


@contextmanager
def trained(
    store: Store, runtime: Runtime, request: TrainRequest, monitor: Monitor
) -> Iterator[tuple[TrainingRecord, Model]]:
    """Train a snapshot and publish the model; it goes on from a checkpoint unless `fresh`."""
    began = time.monotonic()
    settings, manifest, start = request.settings, request.manifest, request.start
    with store.trainings.open(_key(request), manifest.version) as training:
        checkpoints = Checkpoints(training.checkpoints(manifest.block_rows))
        if request.options.fresh:
            checkpoints.forget()
        last = checkpoints.load("last")
        digests = (request.names[0].digests, request.names[1].digests)
        graph = training_graph(request.snapshot, digests, settings)
        monitor.progress(0.0, "reading evidence off the graph")
        fitting = EvidenceFitting.of(graph, WalkLimits.of(settings)) if settings.evidence.enabled else None
        dense = load_arrays(store, start.model.dense) if start is not None else None
        task = _task(graph, settings, fitting, checkpoints.folder, dense)
        begin = stored_start(store, start, graph) if start is not None else random_start(graph, settings)
        spec = WorkerSpec(learn, task, *begin, manifest.block_rows, settings.threads, settings.device, training.folder)
        history = last[1]["history"] if last else []
        with (
            _metrics_log(monitor, training.folder, request.options.tensorboard, history) as log,
            runtime.run(spec, log) as run,
        ):
            monitor.progress(1.0, "writing the model")
            result: Candidate = run.result
            evidence, embedding = None, joint_embedding(run.tables, request.snapshot)
            if fitting is not None:
                evidence = fitting.fitted(embedding.distances)
            calibration = measure_calibration(graph, embedding, evidence, settings.seed, settings.calibration)
            valid, ranked = measure_validation(graph, run.tables, settings, evidence)
            fidelity = _fidelity(request, graph, run.tables, evidence)
            comparison = compare(request.incumbent, ranked, fidelity) if request.incumbent is not None else None
            promoted, why = comparison is None or comparison.promoted, request.why
            if comparison is not None and not promoted:
                why = f"{why}; is not promoted: {'; '.join(comparison.worse)}"
            optional = {
                "start": start.version if start is not None else None,
                "preset": request.preset,
                "why": why,
                "evidence_fitted_on": fitting.fitted_on if fitting is not None else None,
                "fidelity": fidelity,
            }
            record = TrainingRecord(
                origin="scratch" if start is None else "refresh",
                snapshot=manifest.snapshot.name,
                epochs=result.progress.epoch,
                seconds=round(result.progress.seconds, 3),
                triples_per_second=float(np.median([line["triples_per_second"] for line in result.progress.history])),
                **result.facts,
                **run.facts,
                comparison=comparison,
                best_valid=valid.get(settings.train.early_stopping_metric),
                valid=valid,
                resumed=last is not None,
                entities=int(graph.entities.shape[0]),
                relations=int(graph.relations.shape[0]),
                dim=settings.model.dim,
            ).with_(**{name: value for name, value in optional.items() if value is not None})
            metadata = ModelMetadata(
                settings.of_the_model(),
                record,
                result.progress.history,
                to_arrays(evidence) if evidence is not None else None,
                {**ranked.to_arrays(), **calibration} if ranked is not None else None,
                paths=graph.paths.to_arrays(),
            )
            with store.storage.staging() as staging:
                lists = current_lists(
                    store, staging, manifest, request.snapshot, digests[0], fitting.graph.limits if fitting else None
                )
                tables = (
                    run.tables.entities.save(staging, manifest.block_rows),
                    run.tables.relations.save(staging, block_rows(graph.relation_rows)),
                )
                entry = save_model(staging, manifest.version, tables, result.dense, replace(metadata, lists=lists))
                published = publish_model(store, entry, seconds_since(began), promoted=promoted)
            training.remove()
            record = record.with_(
                version=published.version, bytes_written=staging.written, total_seconds=seconds_since(began)
            )
            known = (request.snapshot, request.names, embedding, evidence)
            yield record, Model(store, published, *known)


def _task(
    graph: TrainingGraph,
    settings: Settings,
    fitting: EvidenceFitting | None,
    folder: CheckpointFolder,
    dense: dict[str, Array] | None = None,
) -> LearnTask:
    """What the workers are given: without evidence all validation triples stop the training, else one half of them.

    With `dense` parameters it is a refresh, without offsets: a training ends without them.
    """
    held_out = graph.valid if fitting is None else validation_half(graph)
    if dense is not None:
        return LearnTask(Plan.refresh(graph), graph, refresh_settings(settings), held_out, folder, dense=dense)
    offsets = EvidenceOffsets.of(fitting.graph, graph.train, settings.evidence.offset) if fitting is not None else None
    return LearnTask(Plan.from_scratch(graph), graph, settings, held_out, folder, offsets)


def random_start(graph: TrainingGraph, settings: Settings) -> tuple[TableStart, TableStart]:
    """Start values of entities and relations, at random."""
    how = (settings.model.dim, settings.train.init_scale)
    return (
        RowInitializer((settings.seed, 0), graph.entity_rows, *how),
        RowInitializer((settings.seed, 1), graph.relation_rows, *how),
    )


def stored_start(store: Store, model: ModelManifest, graph: TrainingGraph) -> tuple[TableStart, TableStart]:
    """The vectors of a model as start values."""
    kinds = ((model.model.entities, graph.entity_rows), (model.model.relations, graph.relation_rows))
    entities, relations = (StoredTables(store.storage.location, dict(tables), rows) for tables, rows in kinds)
    return entities, relations


def _fidelity(
    request: TrainRequest, graph: TrainingGraph, tables: Tables, evidence: Evidence | None
) -> Fidelity | None:
    """What a model knows of the night that it is compared on."""
    if request.incumbent is None or request.incumbent.night is None:
        return None
    sizes = (evidence, request.settings.online.valid_candidates)
    return sampled_fidelity(graph, request.snapshot, request.incumbent.night, tables, *sizes)


def _key(request: TrainRequest) -> str:
    """Names a training: what is learnt, and how."""
    manifest, start = request.manifest, request.start
    how = request.settings.model_dump(mode="json", exclude=VOLATILE)
    how["train"].pop("checkpoint_seconds")
    begin = [] if start is None else [start.version]
    text = json.dumps([manifest.snapshot.content, manifest.version, how, *begin], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


class _MetricsLog(Monitor):
    """Passes everything on, and writes the metrics of every epoch to a JSONL file and to TensorBoard."""

    def __init__(self, monitor: Monitor, file: Any, writer: Any) -> None:
        self._file, self._writer = file, writer
        self.progress, self.should_stop = monitor.progress, monitor.should_stop  # type: ignore[method-assign]

    def epoch(self, metrics: dict[str, Any]) -> None:
        """An epoch is over."""
        self._file.write(json.dumps(metrics) + "\n")
        self._file.flush()
        if self._writer is not None:
            for name, value in metrics.items():
                if name != "epoch":
                    self._writer.add_scalar(name, value, metrics["epoch"])
            self._writer.flush()


@contextmanager
def _metrics_log(
    monitor: Monitor, folder: Path, tensorboard: Path | None, history: list[dict[str, Any]]
) -> Iterator[Monitor]:
    """A log that begins with the epochs of a resumed training."""
    writer = _tensorboard(tensorboard) if tensorboard is not None else None
    with io.TextIOWrapper(files.write_regular(folder / "metrics.jsonl"), encoding="utf-8") as file:
        log = _MetricsLog(monitor, file, writer)
        for line in history:
            log.epoch(line)
        yield log
    if writer is not None:
        writer.close()


def _tensorboard(folder: Path) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError("--tensorboard needs the extra: pip install 'dkge_dist[tensorboard]'") from None
    return SummaryWriter(str(folder))
