"""A small table that every worker has a copy of: gradients are added up, and all of them take the same step."""

from __future__ import annotations

import numpy as np
import torch

from dkge_dist.cluster.communicator import RayCommunicator
from dkge_dist.tables.shard import Optimizer, Shard
from dkge_dist.tables.table import Gradients, LocalTable


class ReplicatedTable(LocalTable):
    """The relations of a training with several workers."""

    def __init__(self, shard: Shard, communicator: RayCommunicator) -> None:
        super().__init__(shard)
        self._communicator = communicator

    def push(self, gradients: Gradients, optimizer: Optimizer) -> None:
        """One optimizer step on the rows that any worker has a gradient of."""
        for field, (rows, values) in gradients.items():
            count, dim = self.shard.values[field].shape
            # The last column counts the workers that have a gradient of a row.
            whole = torch.zeros(count, dim + 1)
            whole[torch.from_numpy(rows).long()] = torch.cat(
                [torch.from_numpy(np.asarray(values)), torch.ones(rows.shape[0], 1)], 1
            )
            self._communicator.sum(whole)
            touched = np.flatnonzero(whole[:, dim].numpy())
            self.shard.step(field, touched, whole[:, :dim].numpy()[touched], optimizer)
