"""Learning from scratch: a snapshot becomes a model version, here or on a cluster."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import torch

from dkge_dist.api.places import place_of
from dkge_dist.api.reports import PathLike, Progress, Report, since
from dkge_dist.config import Settings, load_settings
from dkge_dist.evaluation.validation import Validation
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.relation_paths import PathCounts
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.batches import bernoulli_head_chance
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.jit import set_threads, threads
from dkge_dist.learning.batches import BatchMaker
from dkge_dist.learning.contexts import EntityContexts, Form, ObjectBatch, RelationContexts
from dkge_dist.learning.memory import keep_freed_memory
from dkge_dist.learning.step import Loss
from dkge_dist.model.dkge import Dkge
from dkge_dist.store.manifest import SnapshotManifest
from dkge_dist.store.models import ModelMetadata, Tables, publish_model, save_model, save_small
from dkge_dist.store.storage import Staging
from dkge_dist.store.store import Store
from dkge_dist.store.tables import save_table
from dkge_dist.tables.plan import ShardPlan
from dkge_dist.tables.shard import TRAINED, RowInitializer, Shard
from dkge_dist.tables.table import LocalTable, Table
from dkge_dist.training.checkpoints import Checkpoints
from dkge_dist.training.learner import Learner
from dkge_dist.training.trainer import METRIC, DivergedError, Listener, StoppedError, Trainer
from dkge_dist.training.trainer import Progress as Done
from dkge_dist.types import ROW, Array, DkgeError, Field, Split, Triples, UsageError

if TYPE_CHECKING:
    from dkge_dist.cluster.session import Place
    from dkge_dist.cluster.workers import Worker

VOLATILE = {"threads", "device"}
"""Settings that change how fast a training is, not what it is: it may be resumed with others."""


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
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Report:
    """Learn a snapshot (the one in force by default) from scratch and publish the model as the next version.

    A training that was interrupted is resumed, unless `fresh`. `stop` is asked after every batch; when it says yes, a
    checkpoint is left and the training ends with an error. With `shards` it runs on Ray.
    """
    place = place_of(shards, workers, address, wait_seconds)
    chosen = load_settings(Path(config) if config else None, settings, preset)
    opened = Store.open(Path(store))
    manifest = opened.find_snapshot(snapshot) if snapshot else opened.current_snapshot()
    if manifest is None:
        raise DkgeError(f"{store}: holds no snapshot yet; `dkge ingest {store} SOURCE` brings one")
    facts = {"origin": "scratch", "preset": preset}
    return train_snapshot(opened, manifest, chosen, facts, fresh, tensorboard, progress, stop, place)


def train_snapshot(
    opened: Store,
    manifest: SnapshotManifest,
    chosen: Settings,
    facts: dict[str, Any],
    fresh: bool = False,
    tensorboard: PathLike | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
    place: Place | None = None,
) -> Report:
    """Train with settings that are settled; `facts` are what the version says of its origin."""
    began = time.monotonic()
    with opened.trainings.open(_key(manifest, chosen), manifest.version) as training:
        checkpoints = Checkpoints(training.folder)
        if fresh:
            checkpoints.forget()
        resumed = checkpoints.load("last") is not None
        ground = Ground.of(opened.snapshot(manifest), opened.dictionaries(manifest), chosen)
        learn = _learn_here if place is None else _learn_on(place, manifest.block_rows)
        with (
            _listener(checkpoints, tensorboard, progress, stop) as listener,
            learn(ground, chosen, checkpoints, listener) as learnt,
        ):
            if progress is not None:
                progress(1.0, "writing the model")
            done = learnt.done
            speeds = [line["triples_per_second"] for line in done.history]
            facts = facts | {
                "epochs": done.epoch,
                "seconds": round(done.seconds, 3),
                "triples_per_second": float(np.median(speeds)),
                **learnt.facts,
            }
            about = ModelMetadata(chosen.model_dump(mode="json"), done.best, facts, done.history)
            with opened.storage.staging() as staging:
                tables = (learnt.save_entities(staging, manifest.block_rows), save_small(staging, learnt.relations))
                entry = save_model(staging, manifest.version, tables, learnt.dense, about)
                published = publish_model(opened, entry, since(began))
        training.remove()
    return {
        "version": published.version,
        "snapshot": manifest.snapshot.name,
        **facts,
        "best_valid": done.best.get(METRIC),
        "valid": done.best,
        "resumed": resumed,
        "entities": int(ground.alive[0].shape[0]),
        "relations": int(ground.alive[1].shape[0]),
        "dim": chosen.model.dim,
        "bytes_written": staging.written,
        "total_seconds": since(began),
    }


@dataclass(frozen=True)
class Ground:
    """What a training needs of a snapshot: arrays alone, so that workers on one machine can share them."""

    train: Triples
    valid: Triples
    topology: Topology
    paths: PathCounts
    digests: tuple[Array, Array]
    alive: tuple[Array, Array]

    @staticmethod
    def of(snapshot: Snapshot, names: tuple[Dictionary, Dictionary], settings: Settings) -> Ground:
        """Of a snapshot; entities and relations alive are given by their rows."""
        train = snapshot.triples(Split.TRAIN)
        if not train.count:
            raise DkgeError("the snapshot has no train triples to learn from")
        assert all(len(kind) == kind.digests.shape[0] for kind in names), "kernels index digests by row"
        topology = Topology.of(train, len(names[0]))
        return Ground(
            train,
            snapshot.triples(Split.VALID),
            topology,
            PathCounts.of(topology, train, len(names[1]), settings.context.path_length),
            (names[0].digests, names[1].digests),
            (
                np.flatnonzero(snapshot.entities_alive).astype(ROW),
                np.flatnonzero(snapshot.relations_alive).astype(ROW),
            ),
        )


@dataclass(frozen=True)
class Outcome:
    """What came of a training, wherever it ran: how it went, and what is to be stored."""

    done: Done
    save_entities: Callable[[Staging, int], Tables]
    relations: dict[Field, Array]
    dense: dict[str, Array]
    facts: dict[str, Any]


@contextmanager
def _learn_here(ground: Ground, settings: Settings, checkpoints: Checkpoints, listener: Listener) -> Iterator[Outcome]:
    """In this process."""
    device = use_machine(settings)
    tables = local_tables(ground, settings)
    prepared = assemble(ground, settings, device, tables)
    learner = prepared.learner
    trainer = Trainer(
        prepared.maker, learner, prepared.validation, checkpoints, settings.train, settings.seed, listener
    )
    done = trainer.run()
    learner.materialise((prepared.maker.entities, prepared.maker.relations), ground.alive)

    def save(staging: Staging, block_rows: int) -> Tables:
        return {name: save_table(staging, values, block_rows) for name, values in by_name(tables[0]).items()}

    facts = {"threads": threads(), "device": str(device)}
    yield Outcome(done, save, by_name(tables[1]), _dense(learner), facts)


Learn = Callable[[Ground, Settings, Checkpoints, Listener], Any]


def _learn_on(place: Place, block_rows: int) -> Learn:
    """On a Ray cluster."""
    from dkge_dist.cluster.session import connected, require_workers, shard_actors
    from dkge_dist.cluster.training import Driver, fit

    @contextmanager
    def learn(ground: Ground, settings: Settings, checkpoints: Checkpoints, listener: Listener) -> Iterator[Outcome]:
        plan = ShardPlan(ground.digests[0].shape[0], block_rows, place.shards)
        row_bytes = settings.model.dim * 4 * len(Field) + 4 * len(TRAINED)
        cpus = settings.threads or 1
        with connected(place, place.workers * cpus), shard_actors(place, plan, row_bytes) as actors:
            use_gpu = _cluster_gpus(settings, place)
            require_workers(place, cpus, int(use_gpu))
            job = TrainingJob(ground, settings, checkpoints.folder)
            driver = Driver(listener.on_batch, listener.on_epoch, listener.stop)
            outcome = fit(learn_part, job, place, plan, actors, cpus, use_gpu, checkpoints.folder, driver)
            if "error" in outcome:
                kinds = {"StoppedError": StoppedError, "DivergedError": DivergedError}
                raise kinds.get(outcome["error"], DkgeError)(outcome["message"])
            from dkge_dist.cluster.table import RayTable

            table = RayTable(plan, actors, outcome["attempt"], settings.model.dim)
            facts = {**outcome["facts"], "shards": place.shards, "workers": place.workers, "shard_stats": table.stats()}
            yield Outcome(
                Done(**outcome["done"]),
                lambda staging, _: table.save_tables(staging),
                outcome["relations"],
                outcome["dense"],
                facts,
            )

    return learn


def _cluster_gpus(settings: Settings, place: Place) -> bool:
    """Do workers get a GPU each?"""
    if settings.device != "auto":
        return settings.device.startswith("cuda")
    from dkge_dist.cluster.session import gpus

    return gpus() >= place.workers


@dataclass(frozen=True)
class TrainingJob:
    """What all workers of a training are given."""

    ground: Ground
    settings: Settings
    folder: Path


def learn_part(worker: Worker, job: TrainingJob) -> dict[str, Any]:
    """One worker's part of a training: what `_learn_here` does alone."""
    ground, settings = job.ground, job.settings
    use_machine(settings.model_copy(update={"threads": settings.threads or 1, "device": str(worker.device)}))
    entities = worker.table(start_of(ground, settings, 0))
    relations = worker.replicated(_start_values(start_of(ground, settings, 1)))
    prepared = assemble(
        ground, settings, worker.device, (entities, relations), (worker.rank, worker.world), worker.add_up
    )
    trainer = Trainer(
        prepared.maker,
        prepared.learner,
        prepared.validation,
        worker.checkpoints(job.folder),
        settings.train,
        settings.seed,
        Listener(worker.report, worker.add_line, worker.stopping),
        worker.clock,
        worker.agreed,
    )
    done = trainer.run()
    mine = ground.alive[0][worker.rank :: worker.world]
    prepared.learner.materialise((prepared.maker.entities, prepared.maker.relations), (mine, ground.alive[1]))
    return {
        "done": asdict(done),
        "attempt": entities.attempt,
        "relations": by_name(relations),
        "dense": _dense(prepared.learner),
        "facts": {"threads": threads(), "device": str(worker.device)},
    }


@dataclass(frozen=True)
class Prepared:
    """What a training works with; `alive` are the rows of entities and relations of the snapshot."""

    maker: BatchMaker[ObjectBatch]
    learner: Learner
    validation: Validation
    alive: tuple[Array, Array]


def prepare(
    snapshot: Snapshot, names: tuple[Dictionary, Dictionary], settings: Settings, device: torch.device
) -> Prepared:
    """A training in this process, at its start."""
    ground = Ground.of(snapshot, names, settings)
    return assemble(ground, settings, device, local_tables(ground, settings))


def assemble(
    ground: Ground,
    settings: Settings,
    device: torch.device,
    tables: tuple[Table, Table],
    part: tuple[int, int] = (0, 1),
    add_up: Callable[[list[torch.Tensor]], None] = lambda tensors: None,
) -> Prepared:
    """A batch maker over the graph, a learner at its start values, and the validation sample."""
    form: Form = "ragged" if device.type == "cpu" else "padded"
    context, train = settings.context, settings.train
    sampling = Sampling(settings.seed, context.cap, context.hops)
    maker = BatchMaker(
        ground.train,
        EntityContexts(ground.topology, ground.digests[0], sampling, form),
        RelationContexts(ground.paths, ground.digests[1], sampling, form),
        ground.alive[0],
        bernoulli_head_chance(*ground.train, ground.digests[1].shape[0]),
        train.sampler,
        train.negatives,
        train.hide_targets,
        logq_correction=train.logq_correction,
        part=part,
    )
    learner = Learner(
        Dkge(settings.model.dim, settings.model.entity_layers, settings.model.relation_layers, settings.seed % 2**63),
        tables,
        Loss(train.loss, train.margin),
        train.optimizer,
        device,
        add_up,
    )
    validation = validation_of(ground.valid, ground.topology, ground.alive[0], settings)
    return Prepared(maker, learner, validation, ground.alive)


def validation_of(valid: Triples, topology: Topology, alive: Array, settings: Settings) -> Validation:
    """The validation sample of a snapshot."""
    limits = (settings.train.valid_triples, settings.train.valid_candidates)
    rng = np.random.default_rng([settings.seed, 2])
    return Validation(valid, topology, alive, *limits, rng)


def start_of(ground: Ground, settings: Settings, kind: int) -> RowInitializer:
    """The start values of entities (0) or relations (1)."""
    rows = int(ground.digests[kind].shape[0])
    return RowInitializer((settings.seed, kind), rows, settings.model.dim, settings.train.init_scale)


def _start_values(start: RowInitializer) -> dict[Field, Array]:
    values = {field: start.run(field, 0, start.rows) for field in TRAINED}
    return {**values, Field.JOINT: np.zeros((start.rows, start.dim), np.float32)}


def local_tables(ground: Ground, settings: Settings) -> tuple[LocalTable, LocalTable]:
    """Both tables in this process, at their start values."""
    entities, relations = (LocalTable(Shard(_start_values(start_of(ground, settings, kind)))) for kind in (0, 1))
    return entities, relations


def by_name(table: Table) -> dict[Field, Array]:
    """The vectors of a table in this process."""
    return cast(LocalTable, table).shard.values


def _dense(learner: Learner) -> dict[str, Array]:
    return {name: value.detach().cpu().numpy() for name, value in learner.model.state_dict().items()}


def use_machine(settings: Settings) -> torch.device:
    """Set the threads and how memory is kept, and choose the device."""
    keep_freed_memory()
    if settings.threads:
        set_threads(settings.threads)
        torch.set_num_threads(settings.threads)
    name = settings.device
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    if name.startswith("cuda"):
        number = int(name.partition(":")[2] or 0)
        if number >= torch.cuda.device_count():
            raise UsageError(f"device={settings.device}: this machine has {torch.cuda.device_count()} GPUs")
    return torch.device(name)


def _key(manifest: SnapshotManifest, settings: Settings) -> str:
    """Names a training: what is learnt, and how."""
    how = settings.model_dump(mode="json", exclude=VOLATILE)
    how["train"].pop("checkpoint_seconds")
    text = json.dumps([manifest.snapshot.content, manifest.version, how], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@contextmanager
def _listener(
    checkpoints: Checkpoints,
    tensorboard: PathLike | None,
    progress: Progress | None,
    stop: Callable[[], bool] | None,
) -> Iterator[Listener]:
    """Metrics go to a JSONL file, always, and to TensorBoard where that is asked for."""
    writer = _tensorboard(tensorboard) if tensorboard is not None else None
    found = checkpoints.load("last")
    with (checkpoints.folder / "metrics.jsonl").open("w", encoding="utf-8") as file:

        def on_epoch(line: dict[str, Any]) -> None:
            file.write(json.dumps(line) + "\n")
            file.flush()
            if writer is not None:
                for name, value in line.items():
                    if name != "epoch":
                        writer.add_scalar(name, value, line["epoch"])
                writer.flush()

        for line in found[1]["history"] if found else []:
            on_epoch(line)
        silent = Listener()
        yield Listener(progress or silent.on_batch, on_epoch, stop or silent.stop)
    if writer is not None:
        writer.close()


def _tensorboard(folder: PathLike) -> Any:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError("--tensorboard needs the extra: pip install 'dkge_dist[tensorboard]'") from None
    return SummaryWriter(str(folder))
