"""Learning from scratch: a snapshot becomes a model version."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from dkge_dist.api.reports import PathLike, Progress, Report, since
from dkge_dist.config import Settings, load_settings
from dkge_dist.evaluate.validation import Validation
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.relation_paths import PathCounts
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.batches import bernoulli_head_chance
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.jit import set_threads, threads
from dkge_dist.learn.batches import BatchMaker
from dkge_dist.learn.memory import keep_freed_memory
from dkge_dist.learn.objects import EntityContexts, Form, ObjectBatch, RelationContexts
from dkge_dist.learn.step import Loss
from dkge_dist.model.dkge import Dkge
from dkge_dist.shards.shard import TRAINED, Field, Shard, initial_rows
from dkge_dist.shards.table import LocalTable
from dkge_dist.store.history import LEARNS
from dkge_dist.store.manifest import SnapshotManifest
from dkge_dist.store.models import About, Learnt, publish_model, save_model
from dkge_dist.store.store import Store
from dkge_dist.train.checkpoints import Checkpoints
from dkge_dist.train.learner import Learner
from dkge_dist.train.trainer import METRIC, Listener, Trainer
from dkge_dist.types import ROW, DkgeError, Split, UsageError

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
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Report:
    """Learn a snapshot (the one in force by default) from scratch and publish the model as the next version.

    A training that was interrupted is resumed, unless `fresh`. `stop` is asked after every batch; when it says yes, a
    checkpoint is left and the training ends with an error.
    """
    chosen = load_settings(Path(config) if config else None, settings, preset)
    opened = Store.open(Path(store))
    manifest = opened.find_snapshot(snapshot) if snapshot else opened.current_snapshot()
    if manifest is None:
        raise DkgeError(f"{store}: holds no snapshot yet; `dkge ingest {store} SOURCE` brings one")
    facts = {"origin": "scratch", "preset": preset}
    return train_snapshot(opened, manifest, chosen, facts, fresh, tensorboard, progress, stop)


def train_snapshot(
    opened: Store,
    manifest: SnapshotManifest,
    chosen: Settings,
    facts: dict[str, Any],
    fresh: bool = False,
    tensorboard: PathLike | None = None,
    progress: Progress | None = None,
    stop: Callable[[], bool] | None = None,
) -> Report:
    """Train with settings that are settled; `facts` are what the version says of its origin."""
    began = time.monotonic()
    device = use_machine(chosen)
    checkpoints = Checkpoints(opened.path / "training" / _key(manifest, chosen))
    with checkpoints.locked():
        (checkpoints.folder / LEARNS).write_text(str(manifest.version), encoding="utf-8")
        if fresh:
            checkpoints.forget()
        resumed = checkpoints.load("last") is not None
        prepared = prepare(opened.snapshot(manifest), opened.dictionaries(manifest), chosen, device)
        with _listener(checkpoints, tensorboard, progress, stop) as listener:
            trainer = Trainer(
                prepared.maker, prepared.learner, prepared.validation, checkpoints, chosen.train, chosen.seed, listener
            )
            done = trainer.run()
            if progress is not None:
                progress(1.0, "writing the model")
            learner, alive = prepared.learner, prepared.alive
            learner.materialise((prepared.maker.entities, prepared.maker.relations), alive)
        speeds = [line["triples_per_second"] for line in done.history]
        facts = facts | {
            "epochs": done.epoch,
            "seconds": round(done.seconds, 3),
            "triples_per_second": float(np.median(speeds)),
            "threads": threads(),
            "device": str(device),
        }
        about = About(chosen.model_dump(mode="json"), done.best, facts, done.history)
        with opened.storage.staging() as staging:
            entry = save_model(staging, manifest.version, _learnt(learner), about, manifest.block_rows)
            published = publish_model(opened, entry, since(began))
        checkpoints.remove()
    return {
        "version": published.version,
        "snapshot": manifest.snapshot.name,
        **facts,
        "best_valid": done.best.get(METRIC),
        "valid": done.best,
        "resumed": resumed,
        "entities": int(alive[0].shape[0]),
        "relations": int(alive[1].shape[0]),
        "dim": chosen.model.dim,
        "bytes_written": staging.written,
        "total_seconds": since(began),
    }


@dataclass(frozen=True)
class Prepared:
    """What a training works with; `alive` are the rows of entities and relations of the snapshot."""

    maker: BatchMaker[ObjectBatch]
    learner: Learner
    validation: Validation
    alive: tuple[np.ndarray, np.ndarray]


def prepare(
    snapshot: Snapshot, names: tuple[Dictionary, Dictionary], settings: Settings, device: torch.device
) -> Prepared:
    """A batch maker over the graph, a learner at its start values, and the validation sample."""
    train = snapshot.triples(Split.TRAIN)
    if not train.count:
        raise DkgeError("the snapshot has no train triples to learn from")
    assert all(len(kind) == kind.digests.shape[0] for kind in names), "kernels index digests by row"
    form: Form = "ragged" if device.type == "cpu" else "padded"
    context = settings.context
    sampling = Sampling(settings.seed, context.cap, context.hops)
    topology = Topology.of(train, len(names[0]))
    paths = PathCounts.of(topology, train, len(names[1]), context.path_length)
    alive = (
        np.flatnonzero(snapshot.entities_alive).astype(ROW),
        np.flatnonzero(snapshot.relations_alive).astype(ROW),
    )
    maker = BatchMaker(
        train,
        EntityContexts(topology, names[0].digests, sampling, form),
        RelationContexts(paths, names[1].digests, sampling, form),
        alive[0],
        bernoulli_head_chance(*train, len(names[1])),
        settings.train.sampler,
        settings.train.negatives,
        settings.train.hide_targets,
        correct_sampling=settings.train.correct_sampling,
    )
    learner = Learner(
        Dkge(settings.model.dim, settings.model.entity_layers, settings.model.relation_layers, settings.seed % 2**63),
        (_table(len(names[0]), settings, 0), _table(len(names[1]), settings, 1)),
        Loss(settings.train.loss, settings.train.margin),
        settings.train.optimizer,
        device,
    )
    return Prepared(maker, learner, validation_of(snapshot, topology, alive[0], settings), alive)


def validation_of(snapshot: Snapshot, topology: Topology, alive: np.ndarray, settings: Settings) -> Validation:
    """The validation sample of a snapshot."""
    limits = (settings.train.valid_triples, settings.train.valid_candidates)
    rng = np.random.default_rng([settings.seed, 2])
    return Validation(snapshot.triples(Split.VALID), topology, alive, *limits, rng)


def _table(rows: int, settings: Settings, kind: int) -> LocalTable:
    """A table at its start values."""
    rng = np.random.default_rng([settings.seed, kind])
    dim = settings.model.dim
    values = {field: initial_rows(rows, dim, rng, settings.train.init_scale) for field in TRAINED}
    return LocalTable(Shard({**values, Field.JOINT: np.zeros((rows, dim), np.float32)}))


def _learnt(learner: Learner) -> Learnt:
    entities, relations = (cast(LocalTable, table).shard.values for table in learner.tables)
    dense = {name: value.detach().cpu().numpy() for name, value in learner.model.state_dict().items()}
    return Learnt(
        {field.value: values for field, values in entities.items()},
        {field.value: values for field, values in relations.items()},
        dense,
    )


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
