"""All that training moves: dense parameters with their optimizer, and the two tables. Saved and loaded as one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from dkge_dist.learning.batches import Batch
from dkge_dist.learning.contexts import ObjectBatch
from dkge_dist.learning.encode import Batches, joint_vectors, rows_of
from dkge_dist.learning.step import Loss, train_step
from dkge_dist.model.dkge import Dkge
from dkge_dist.tables.shard import Optimizer
from dkge_dist.tables.table import Table
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
        tables: tuple[Table, Table],
        loss: Loss,
        optimizer: Literal["adagrad", "sgd"],
        device: torch.device,
        add_up: Callable[[list[Tensor]], None] = lambda tensors: None,
    ) -> None:
        self.add_up = add_up
        self.model, self.tables, self.loss, self.kind, self.device = model.to(device), tables, loss, optimizer, device
        kind = torch.optim.Adagrad if optimizer == "adagrad" else torch.optim.SGD
        self.dense = kind(model.parameters(), lr=1.0)

    def learn(self, batch: Batch[ObjectBatch], rates: Rates) -> float:
        """One step; the loss of the batch."""
        for group in self.dense.param_groups:
            group["lr"] = rates.dense
        rows = Optimizer(self.kind, rates.rows)
        return train_step(self.model, self.dense, self.tables, batch, self.loss, rows, self.device, self.add_up)

    def expect(self, batch: Batch[ObjectBatch]) -> None:
        """Say what the next batch will be, so that its rows can be on their way. From any thread."""
        for table, part in zip(self.tables, (batch.entities, batch.relations), strict=True):
            table.expect(rows_of(part))

    def materialise(self, contexts: tuple[Batches, Batches], rows: tuple[Array, Array]) -> None:
        """Write o* of some entities and relations into the tables."""
        encoders = (self.model.entity, self.model.relation)
        for encoder, table, around, wanted in zip(encoders, self.tables, contexts, rows, strict=True):
            for some, values in joint_vectors(encoder, table, around, wanted, self.device):
                table.write(Field.JOINT, some, values)

    def save(self, folder: Path) -> None:
        """Write everything that a later `load` needs to go on as if nothing had happened."""
        parameters = {name: value.detach().cpu() for name, value in self.model.state_dict().items()}
        save_file(parameters, folder / DENSE)
        sums = {
            f"{number}.{name}": value
            for number, state in self.dense.state_dict()["state"].items()
            for name, value in state.items()
            if isinstance(value, torch.Tensor)
        }
        save_file({name: value.detach().cpu().contiguous() for name, value in sums.items()}, folder / DENSE_STATE)
        for name, table in zip(("entities", "relations"), self.tables, strict=True):
            (folder / name).mkdir()
            table.save(folder / name)

    def load(self, folder: Path) -> None:
        """Go back to what `save` wrote."""
        self.model.load_state_dict(load_file(folder / DENSE))
        state = self.dense.state_dict()
        for key, value in load_file(folder / DENSE_STATE).items():
            number, _, name = key.partition(".")
            state["state"].setdefault(int(number), {})[name] = value
        self.dense.load_state_dict(state)
        for name, table in zip(("entities", "relations"), self.tables, strict=True):
            table.load(folder / name)
