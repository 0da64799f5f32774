"""All that training moves: dense parameters with their optimizer, and the two tables. Saved and loaded as one."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from safetensors.torch import load
from safetensors.torch import save as to_bytes

from dkge_dist.learn.contexts import ObjectBatch
from dkge_dist.learn.encode import ObjectSource, TrainedObjects
from dkge_dist.learn.prefetch import PreparedBatch
from dkge_dist.learn.step import DenseParameters, Loss, Step
from dkge_dist.model.dkge import Dkge
from dkge_dist.runtime import Communicator
from dkge_dist.tables.checkpoint import CheckpointFolder
from dkge_dist.tables.shard import Optimizer, OptimizerKind
from dkge_dist.tables.table import Tables
from dkge_dist.types import Array, Field

DENSE, DENSE_STATE = "dense.safetensors", "dense-state.safetensors"


@dataclass(frozen=True)
class Rates:
    """Learning rates of rows and of dense parameters."""

    rows: float
    dense: float

    def scaled(self, factor: float) -> Rates:
        """Both times a factor."""
        return Rates(self.rows * factor, self.dense * factor)


class Learner:
    """A model that learns batch by batch."""

    def __init__(
        self,
        model: Dkge,
        tables: Tables,
        loss: Loss,
        optimizer: OptimizerKind,
        device: torch.device,
        communicator: Communicator,
    ) -> None:
        self.model, self.tables, self.kind = model.to(device), tables, optimizer
        self.entities = TrainedObjects(model.entity, tables.entities, device)
        self.relations = TrainedObjects(model.relation, tables.relations, device)
        kind = torch.optim.SGD if optimizer == "sgd" else torch.optim.Adagrad
        self.dense = kind(model.parameters(), lr=1.0)
        dense = DenseParameters(list(model.parameters()), self.dense)
        self.step = Step(self.entities, self.relations, loss, communicator, dense)

    def learn(self, prepared: PreparedBatch[ObjectBatch], rates: Rates, offset_share: float = 0.0) -> float:
        """One step, with a share of the evidence offsets; the loss of the batch."""
        for group in self.dense.param_groups:
            group["lr"] = rates.dense
        return self.step.learn(prepared, Optimizer(self.kind, rates.rows), offset_share)

    def materialise(
        self, entity_contexts: ObjectSource, relation_contexts: ObjectSource, entities: Array, relations: Array
    ) -> None:
        """Write o* of some entities and relations (rows) into the tables."""
        for objects, contexts, rows in (
            (self.entities, entity_contexts, entities),
            (self.relations, relation_contexts, relations),
        ):
            for some, values in objects.joint_vectors(contexts, rows):
                objects.table.write(Field.JOINT, some, values)

    def dense_values(self) -> dict[str, Array]:
        """Dense parameters by name."""
        return {name: value.detach().cpu().numpy() for name, value in self.model.state_dict().items()}

    def save(self, folder: CheckpointFolder) -> None:
        """Write everything that a later `load` needs to go on as if nothing had happened."""
        parameters = {name: value.detach().cpu() for name, value in self.model.state_dict().items()}
        # Not by `save_file`: of a full disk it raises an error of its own, without a file name.
        (folder / DENSE).write_bytes(to_bytes(parameters))
        state = {
            f"{number}.{name}": value
            for number, values in self.dense.state_dict()["state"].items()
            for name, value in values.items()
            if isinstance(value, torch.Tensor)
        }
        compact = {name: value.detach().cpu().contiguous() for name, value in state.items()}
        (folder / DENSE_STATE).write_bytes(to_bytes(compact))
        for name, table in self.tables._asdict().items():
            table.save_checkpoint(folder / name)

    def load(self, folder: CheckpointFolder) -> None:
        """Load what `save` wrote."""
        self.model.load_state_dict(load((folder / DENSE).read_bytes()))
        state = self.dense.state_dict()
        for key, value in load((folder / DENSE_STATE).read_bytes()).items():
            number, _, name = key.partition(".")
            state["state"].setdefault(int(number), {})[name] = value
        self.dense.load_state_dict(state)
        for name, table in self.tables._asdict().items():
            table.load_checkpoint(folder / name)
