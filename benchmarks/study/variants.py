"""DKGE between its text and its authors' published code: the same model, with differences to switch on one by one.

Contexts, batches and negatives are the package's; vectors are whole torch parameters, so that any optimizer and any
norm can be tried. With no difference it is the `paper` preset, slower.

Shapes: B objects or triples, U distinct rows of contexts, M vertex slots, D dimensions, Q questions, C candidates.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.peers.protocol import FitReport, Graph, Watch
from benchmarks.peers.ranking import validation_hits
from dkge_dist.graph.training_graph import TrainingGraph
from dkge_dist.kernels.jit import as_readonly
from dkge_dist.kernels.ragged import RaggedBatch
from dkge_dist.kernels.triples import group
from dkge_dist.learn.batches import Batch, BatchMaker, NegativeSampling
from dkge_dist.learn.contexts import EntityContexts, ObjectBatch, RelationContexts
from dkge_dist.learn.encode import features_of
from dkge_dist.model.dkge import Dkge, Encoder
from dkge_dist.settings import Settings
from dkge_dist.types import OFFSET, ROW, Array, Triples

START, OWN, CAP, PADDING = "start values", "own vector in its context", "cap 30", "padding in the softmax"
RATIO, ORDER, NORM, ADAM = "global Bernoulli ratio", "fixed batch order", "L2", "Adam"
LAST_PASS = "vectors of the last pass"
DIFFERENCES = (START, NORM, CAP, PADDING, RATIO, ORDER, LAST_PASS, OWN, ADAM)
"""What the authors' code does otherwise than the text. Start values: Xavier over the whole table for `^k`, standard
normal for `^c`, ±1/√d for W, 0 to 1 for attention and gates. Adam is what the code runs, with SGD in a comment beside
it; no text has it."""
CHUNK = 4096
FOREVER = 1_000_000


class VariantDkge:
    """A peer (`benchmarks.peers.protocol`) over the train graph `training`."""

    def __init__(self, training: TrainingGraph, settings: Settings, differences: frozenset[str]) -> None:
        unknown = differences - set(DIFFERENCES)
        if unknown:
            raise ValueError(f"unknown differences: {sorted(unknown)}")
        self.training, self.settings, self.differences = training, settings, differences
        torch.manual_seed(settings.seed)
        self.vectors = _Vectors(training, settings, START in differences)
        self.entities = EntityContexts(training.topology, training.digests[0], training.sampling)
        self.relations = RelationContexts(training.paths, training.digests[1], training.sampling)
        self.joint_ED = np.zeros((training.digests[0].shape[0], settings.model.dim), np.float32)
        self.joint_RD = np.zeros((training.digests[1].shape[0], settings.model.dim), np.float32)
        self.candidates: Array = np.empty(0, ROW)

    def fit(self, graph: Graph, budget: float) -> FitReport:
        """Until the budget is used up, or validation gets no better; the best vectors are kept."""
        train, self.candidates = self.settings.train, graph.candidates
        maker, count = self._maker(), graph.train.count
        size, _ = train.batch_for(count)
        kind = torch.optim.Adam if ADAM in self.differences else torch.optim.SGD
        optimizer: torch.optim.Optimizer = kind(self.vectors.parameters(), lr=train.learning_rate)
        best: dict[str, Array] = {}

        def validate() -> float:
            self._materialise(graph)
            return validation_hits(self, graph, self.settings.seed)

        def keep() -> None:
            best.update(entities=self.joint_ED.copy(), relations=self.joint_RD.copy())

        watch, batches = Watch(budget, validate, keep), -(-count // size)
        for number in range(FOREVER):
            epoch, batch = divmod(number, batches)
            if epoch >= train.max_epochs:
                break
            if batch == 0:
                order = self._order(count, epoch)
            chosen = order[batch * size :][:size]
            made = maker.make(chosen, np.random.default_rng([self.settings.seed, epoch, batch]))
            optimizer.zero_grad()
            self._loss(made).backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if watch.after_batch((number + 1) / batches):
                break
        report = watch.end()
        self.joint_ED, self.joint_RD = best["entities"], best["relations"]
        return report

    def scores(self, entity_Q: Array, relation_Q: Array, asks_tail: bool) -> Array:
        """Minus the distance of every candidate."""
        sign = 1 if asks_tail else -1
        query_QD = self.joint_ED[entity_Q] + sign * self.joint_RD[relation_Q]
        rows_CD = torch.from_numpy(self.joint_ED[self.candidates])
        found: Array = -torch.cdist(torch.from_numpy(query_QD), rows_CD, p=self._norm).numpy()
        return found

    @property
    def _norm(self) -> float:
        return 2.0 if NORM in self.differences else 1.0

    def _maker(self) -> BatchMaker[ObjectBatch]:
        graph, train = self.training, self.settings.train
        negatives = NegativeSampling.of(graph, "bernoulli", 1, False)
        if RATIO in self.differences:
            chance = np.full(graph.relation_rows, head_chance_of_all(graph.train))
            assert negatives.head_chance is not None
            negatives = replace(negatives, head_chance=chance.astype(negatives.head_chance.dtype))
        return BatchMaker(graph.train, self.entities, self.relations, negatives, train.hide_targets)

    def _order(self, count: int, epoch: int) -> Array:
        if ORDER in self.differences:
            return np.arange(count)
        return np.random.default_rng([self.settings.seed, epoch]).permutation(count)

    def _loss(self, batch: Batch[ObjectBatch]) -> Tensor:
        """Σ max(0, f(pos) + γ − f(neg))."""
        entity_BD = self._encode(self.vectors.entity, batch.entities)
        relation_BD = self._encode(self.vectors.relation, batch.relations)
        if LAST_PASS in self.differences:
            self._remember(batch, entity_BD, relation_BD)
        columns = (batch.head, batch.relation, batch.tail, batch.negative, batch.corrupts_head)
        head, relation, tail, negative, at_head = (torch.from_numpy(np.asarray(column)) for column in columns)
        at_head = at_head.bool()
        r = relation_BD[relation.long()]

        def energy(h: Tensor, t: Tensor) -> Tensor:
            difference = entity_BD[h.long()] + r - entity_BD[t.long()]
            return difference.norm(p=self._norm, dim=-1)

        false = energy(torch.where(at_head, negative, head), torch.where(at_head, tail, negative))
        return torch.relu(energy(head, tail) + self.settings.train.margin - false).sum()

    def _encode(self, kind: _Kind, batch: ObjectBatch) -> Tensor:
        """o* of a batch, as the package has it but for the differences."""
        own_BD = kind.knowledge[torch.from_numpy(batch.rows).long()]
        features = features_of(kind.context[torch.from_numpy(batch.vertex_rows).long()], batch)
        contexts = batch.contexts
        assert isinstance(contexts, RaggedBatch)
        if OWN in self.differences:
            features, contexts = with_own_vectors(features, contexts, own_BD)
        if PADDING not in self.differences:
            out: Tensor = kind.encoder(features, contexts, own_BD)
            return out
        hidden_MD = kind.encoder.gcn.hidden(features, contexts)
        query_BD = kind.encoder.gcn.attention * torch.relu(own_BD)
        found = padded_attention(hidden_MD, query_BD, contexts.indptr, self.training.sampling.cap + 1)
        gated: Tensor = kind.encoder.gate(own_BD, found)
        return gated

    def _remember(self, batch: Batch[ObjectBatch], entity_BD: Tensor, relation_BD: Tensor) -> None:
        """The vectors of the positives as they were in this step: the code tests these."""
        for places in (batch.head, batch.tail):
            self.joint_ED[batch.entities.rows[places]] = entity_BD.detach().numpy()[places]
        self.joint_RD[batch.relations.rows[batch.relation]] = relation_BD.detach().numpy()[batch.relation]

    @torch.no_grad()
    def _materialise(self, graph: Graph) -> None:
        """o* of all objects; of the last pass only what no positive had."""
        seen = LAST_PASS in self.differences
        entities = graph.candidates[~self.joint_ED[graph.candidates].any(1)] if seen else graph.candidates
        relations = np.arange(self.joint_RD.shape[0], dtype=ROW)
        if seen:
            relations = relations[~self.joint_RD.any(1)]
        for kind, source, rows, out in (
            (self.vectors.entity, self.entities, entities, self.joint_ED),
            (self.vectors.relation, self.relations, relations, self.joint_RD),
        ):
            for first in range(0, rows.shape[0], CHUNK):
                batch = source.batch(rows[first : first + CHUNK])
                out[batch.rows] = self._encode(kind, batch).numpy()


class _Kind(nn.Module):
    """The vectors and the encoder of entities, or of relations."""

    def __init__(self, rows: int, encoder: Encoder, dim: int, scale: float, xavier: bool) -> None:
        super().__init__()
        bound = 6 / math.sqrt(dim) * scale
        self.knowledge = nn.Parameter(torch.empty(rows, dim).uniform_(-bound, bound))
        self.context = nn.Parameter(torch.empty(rows, dim).uniform_(-bound, bound))
        self.encoder = encoder
        if xavier:
            nn.init.xavier_uniform_(self.knowledge)
            nn.init.normal_(self.context)
            nn.init.uniform_(encoder.gcn.attention)
            nn.init.uniform_(encoder.gate.logits)
            for weight in encoder.gcn.weights:
                nn.init.uniform_(weight, -(dim**-0.5), dim**-0.5)


class _Vectors(nn.Module):
    def __init__(self, training: TrainingGraph, settings: Settings, xavier: bool) -> None:
        super().__init__()
        model = settings.model
        dense = Dkge(model.dim, model.entity_layers, model.relation_layers, settings.seed)
        rows = (training.digests[0].shape[0], training.digests[1].shape[0])
        how: Any = (model.dim, settings.train.init_scale, xavier)
        self.entity, self.relation = _Kind(rows[0], dense.entity, *how), _Kind(rows[1], dense.relation, *how)


def head_chance_of_all(train: Triples) -> float:
    """tph / (tph + hpt) over all relations at once."""
    tails, heads = (np.unique(column).shape[0] for column in (train.head, train.tail))
    per_head, per_tail = train.count / tails, train.count / heads
    return per_head / (per_head + per_tail)


def with_own_vectors(features_UD: Tensor, contexts: RaggedBatch, own_BD: Tensor) -> tuple[Tensor, RaggedBatch]:
    """The same contexts with `^k` instead of `^c` at the object's own vertex, which is the first one of each."""
    distinct, count = features_UD.shape[0], own_BD.shape[0]
    slot_row = np.array(contexts.slot_row, ROW)
    slot_row[contexts.indptr[:-1]] = distinct + np.arange(count)
    row_ptr, row_slot = group(slot_row, np.arange(slot_row.shape[0], dtype=ROW), distinct + count)
    renewed = contexts._replace(
        slot_row=as_readonly(slot_row, ROW), row_ptr=as_readonly(row_ptr, OFFSET), row_slot=as_readonly(row_slot, ROW)
    )
    return torch.cat([features_UD, own_BD]), renewed


def padded_attention(hidden_MD: Tensor, query_BD: Tensor, indptr: Array, width: int) -> Tensor:
    """Σ α_i v_i where contexts are filled up to `width` with vertices of zeros that take part in the softmax."""
    size = np.diff(indptr)
    place_M = torch.from_numpy(np.repeat(np.arange(size.shape[0]), size))
    empty_B = torch.from_numpy(np.maximum(width - size, 0)).to(hidden_MD.dtype)
    score_M = (hidden_MD * query_BD[place_M]).sum(-1)
    # A vertex of zeros has the score 0.
    top_B = torch.zeros(size.shape[0]).scatter_reduce(0, place_M, score_M.detach(), "amax")
    weight_M = (score_M - top_B[place_M]).exp()
    total_B = torch.zeros(size.shape[0]).index_add(0, place_M, weight_M) + empty_B * (-top_B).exp()
    summed_BD = torch.zeros_like(query_BD).index_add(0, place_M, weight_M[:, None] * hidden_MD)
    return summed_BD / total_B[:, None]
