"""GAKE: an object is known by its company in the graph (Feng, Huang, Yang, Zhu: GAKE: Graph Aware Knowledge Embedding,
COLING 2016).

Entities and relations are *subjects* alike, with one vector φ each. A subject is predicted from a context c, a set of
other subjects:

    π(c) = Σ a_j φ_j,   a = softmax over c of θ_j          (attention: θ, one number a subject, is learnt)
    P(s | c) ∝ exp(φ_s · π(c))

Contexts are of three kinds, each with a weight, its *prestige*:
- *neighbour*: of a tail its head and relation, of a head its tail and the relation backwards, of a relation both ends;
- *path*: the subjects that a random walk came by, for the entity that it ended at;
- *edge*: the relations that an entity has, forwards and backwards.

The graph is directed, so that a relation walked backwards is a subject of its own. The sum over all subjects in P is
estimated by entities drawn for a batch; over relations it is exact. (h, r, ?) is answered by P(t | {h, r}).

Shapes: B targets of a batch, K subjects of a context (−1 fills up), N drawn entities, D dimensions, Q questions, C
candidates.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers.protocol import FitReport, Graph, Watch
from benchmarks.peers.ranking import validation_hits
from dkge_dist.types import Array, Triples

BATCH = 1000
DRAWN = 500
"""Entities that compete with the targets of a batch."""
STEPS = (2, 3)
"""Shortest and longest walk of a path context; one step would be a neighbour context."""
EDGES = 8
"""Relations of an edge context at most, drawn from all that the entity has."""
FOREVER = 1_000_000


class Gake:
    """`neighbour`, `path` and `edge` are the prestiges of the contexts."""

    def __init__(
        self,
        neighbour: float = 1.0,
        path: float = 0.1,
        edge: float = 0.1,
        dim: int = 100,
        rate: float = 0.1,
        seed: int = 0,
    ) -> None:
        self.prestige = {"neighbour": neighbour, "path": path, "edge": edge}
        self.dim, self.rate, self.seed = dim, rate, seed

    def fit(self, graph: Graph, budget: float) -> FitReport:
        """Until the budget is used up, or validation gets no better; the best vectors are kept."""
        rng = np.random.default_rng(self.seed)
        torch.manual_seed(self.seed)
        # Gradients of embeddings are sound; said aloud, torch does not warn of what it does not check.
        torch.sparse.check_sparse_tensor_invariants.disable()
        self.candidates = graph.candidates
        contexts = Contexts(graph)
        self.subjects = Subjects(contexts.entities, graph.relation_rows, self.dim)
        optimizer = torch.optim.Adagrad(self.subjects.parameters(), lr=self.rate)
        best: dict[str, Tensor] = {}

        def keep() -> None:
            best.update({name: value.detach().clone() for name, value in self.subjects.state_dict().items()})

        watch = Watch(budget, lambda: validation_hits(self, graph, self.seed), keep)
        batches = -(-graph.train.count // BATCH)
        for number in range(FOREVER):
            if number % batches == 0:
                order = rng.permutation(graph.train.count)
            chosen = order[number % batches * BATCH :][:BATCH]
            optimizer.zero_grad()
            self._loss(contexts, chosen, rng).backward()
            optimizer.step()
            if watch.after_batch((number + 1) / batches):
                break
        report = watch.end()
        self.subjects.load_state_dict(best)
        return report

    def _loss(self, contexts: Contexts, chosen: Array, rng: np.random.Generator) -> Tensor:
        """Of a batch of triples: their neighbour contexts, as many walks, and the edges of their entities."""
        drawn_N = torch.from_numpy(rng.integers(0, contexts.entities, DRAWN))
        total = torch.zeros(())
        for kind, parts in (
            ("neighbour", contexts.neighbours(chosen)),
            ("path", [contexts.paths(chosen, rng)]),
            ("edge", [contexts.edges(chosen, rng)]),
        ):
            for target_B, context_BK in parts:
                total = total + self.prestige[kind] * self.subjects.surprise(target_B, context_BK, drawn_N)
        target_B, context_BK = contexts.of_relations(chosen)
        return total + self.prestige["neighbour"] * self.subjects.surprise_of_relations(target_B, context_BK)

    def scores(self, entity_Q: Array, relation_Q: Array, asks_tail: bool) -> Array:
        """φ_t · π({h, r}), or φ_h · π({t, r backwards})."""
        subjects = self.subjects
        entity = np.searchsorted(self.candidates, entity_Q)
        first = subjects.entities + (0 if asks_tail else subjects.relations)
        context_QK = torch.from_numpy(np.stack([entity, first + relation_Q], 1).astype(np.int64))
        with torch.inference_mode():
            score_QC: Array = (subjects.pooled(context_QK) @ subjects.vector.weight[: subjects.entities].T).numpy()
        return score_QC


class Subjects(torch.nn.Module):
    """φ and θ: entities first, then relations, then relations backwards."""

    def __init__(self, entities: int, relations: int, dim: int) -> None:
        super().__init__()
        self.entities, self.relations = entities, relations
        count = entities + 2 * relations
        self.vector = torch.nn.Embedding(count, dim, sparse=True)
        self.attention = torch.nn.Embedding(count, 1, sparse=True)
        torch.nn.init.normal_(self.vector.weight, std=dim**-0.5)
        torch.nn.init.zeros_(self.attention.weight)

    def pooled(self, context_BK: Tensor) -> Tensor:
        """π of contexts."""
        absent_BK = context_BK < 0
        present_BK = context_BK.clamp(min=0)
        logit_BK = self.attention(present_BK).squeeze(-1).masked_fill(absent_BK, -torch.inf)
        return torch.einsum("bk,bkd->bd", logit_BK.softmax(-1), self.vector(present_BK))

    def surprise(self, target_B: Tensor, context_BK: Tensor, drawn_N: Tensor) -> Tensor:
        """−log P of target entities, summed; drawn entities stand for all."""
        pooled_BD = self.pooled(context_BK)
        own_B1 = (pooled_BD * self.vector(target_B)).sum(-1, keepdim=True)
        drawn_BN = pooled_BD @ self.vector(drawn_N).T
        # Drawn by accident, the target would compete with itself.
        drawn_BN = drawn_BN.masked_fill(drawn_N == target_B[:, None], -torch.inf)
        weight = float(np.log(max(1.0, self.entities / drawn_N.shape[0])))
        logit = torch.cat([own_B1, drawn_BN + weight], 1)
        return torch.nn.functional.cross_entropy(logit, torch.zeros_like(target_B), reduction="sum")

    def surprise_of_relations(self, target_B: Tensor, context_BK: Tensor) -> Tensor:
        """−log P of target relations among all relations, summed."""
        every = torch.arange(self.entities, self.entities + self.relations)
        logit_BR = self.pooled(context_BK) @ self.vector(every).T
        return torch.nn.functional.cross_entropy(logit_BR, target_B - self.entities, reduction="sum")


class Contexts:
    """The contexts of a graph, over the entities alive numbered from 0 on."""

    def __init__(self, graph: Graph) -> None:
        self.entities, self.relations = graph.candidates.shape[0], graph.relation_rows
        head, tail = (np.searchsorted(graph.candidates, rows) for rows in (graph.train.head, graph.train.tail))
        self.triples = Triples(head, graph.train.relation.astype(np.int64), tail)
        forwards = self.entities + self.triples.relation
        source, target = np.concatenate([head, tail]), np.concatenate([tail, head])
        order = np.argsort(source, kind="stable")
        self._indptr = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=self.entities))])
        self._to = target[order]
        self._by = np.concatenate([forwards, forwards + self.relations])[order]

    def neighbours(self, chosen: Array) -> list[tuple[Tensor, Tensor]]:
        """Of triples: (tail, {head, relation}) and (head, {tail, relation backwards})."""
        head, relation, tail = self.triples.take(chosen)
        forwards = self.entities + relation
        return [
            _tensors(tail, np.stack([head, forwards], 1)),
            _tensors(head, np.stack([tail, forwards + self.relations], 1)),
        ]

    def of_relations(self, chosen: Array) -> tuple[Tensor, Tensor]:
        """Of triples: (relation, {head, tail})."""
        head, relation, tail = self.triples.take(chosen)
        return _tensors(self.entities + relation, np.stack([head, tail], 1))

    def paths(self, chosen: Array, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """A walk from the head of each triple: (where it ends, all that it came by)."""
        at = self.triples.head[chosen]
        length = rng.integers(STEPS[0], STEPS[1] + 1, at.shape[0])
        passed = np.full((at.shape[0], 2 * STEPS[1]), -1)
        for step in range(STEPS[1]):
            going = step < length
            place = self._indptr[at] + (rng.random(at.shape[0]) * np.diff(self._indptr)[at]).astype(np.int64)
            passed[:, 2 * step] = np.where(going, at, -1)
            passed[:, 2 * step + 1] = np.where(going, self._by[place], -1)
            at = np.where(going, self._to[place], at)
        return _tensors(at, passed)

    def edges(self, chosen: Array, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        """Of the heads of triples: (head, some of its relations, both ways)."""
        head = self.triples.head[chosen]
        degree = np.diff(self._indptr)[head]
        place = self._indptr[head][:, None] + (rng.random((head.shape[0], EDGES)) * degree[:, None]).astype(np.int64)
        kept = np.arange(EDGES) < np.minimum(degree, EDGES)[:, None]
        return _tensors(head, np.where(kept, self._by[place], -1))


def _tensors(target: Array, context: Array) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(target.astype(np.int64)), torch.from_numpy(context.astype(np.int64))
