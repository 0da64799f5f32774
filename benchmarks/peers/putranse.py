"""puTransE: many small spaces instead of one (Tay, Luu, Hui: Non-Parametric Estimation of Multiple Embeddings for Link
Prediction on Dynamic Knowledge Graphs, AAAI 2017).

A space, or universe, is a TransE of its own over a few hundred to a few thousand triples. They are found by random
walks that may go either way along an edge (what belongs together structurally), begun at triples of one relation (what
belongs together semantically). Its margin, learning rate, epochs, norm and size are drawn at random, so that nothing
has to be tuned. The energy of a triple is the best one over the spaces that hold its head, relation and tail. A triple
that no space holds has none.

A change needs no retraining: spaces with a deleted triple are dropped, and as many new ones, at least enough for the
added triples, are learnt around these. All other spaces stay as they are, bit by bit.

Many spaces learn at once: their vectors are stacked, and every step takes a batch of every space.

Shapes: S spaces of a group, B triples of a batch, N entities and M relations of all its spaces, D dimensions, Q
questions, C candidates.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from benchmarks.peers.protocol import FitReport, Graph
from dkge_dist.kernels.triples import contains
from dkge_dist.types import ROW, Array, Triples

AT_ONCE = 64
"""Spaces that learn together."""
BATCH = 100
"""Triples of a space that a step takes."""
WALKERS = 32
"""Walks of a space that are under way at a time. Few and long ones stay among neighbours."""
ROUNDS = 2000
"""Steps of the walks at most: a small component has no more triples to find."""
SEEDS = 50
"""Added triples that a new space begins with, at most."""


@dataclass(frozen=True)
class Ranges:
    """What a space draws its settings from, evenly; learning rates and margins of the paper's order."""

    triples: tuple[int, int] = (500, 2000)
    epochs: tuple[int, int] = (50, 150)
    margin: tuple[float, float] = (1.0, 4.0)
    rate: tuple[float, float] = (0.01, 0.1)


@dataclass(frozen=True)
class Space:
    """One universe: ascending rows of its objects, their vectors, its triples (canonical), and 1 or 2 for its norm."""

    entities: Array
    relations: Array
    entity_ND: Array
    relation_MD: Array
    triples: Triples
    norm: int


class PuTransE:
    """`spaces` of them, `dim` dimensions each."""

    def __init__(self, spaces: int = 1000, dim: int = 20, seed: int = 0, ranges: Ranges | None = None) -> None:
        self.wanted, self.dim, self.ranges = spaces, dim, ranges or Ranges()
        self.rng = np.random.default_rng(seed)
        self.spaces: list[Space] = []
        self.candidates: Array = np.empty(0, ROW)

    def fit(self, graph: Graph, budget: float) -> FitReport:
        """As many spaces as wanted, or as the budget allows."""
        began = time.perf_counter()
        self.spaces, self.candidates = [], graph.candidates
        walks = Walks(graph.train, graph.entity_rows)
        starts = _starts_by_relation(graph.train, self.rng)
        return self._grow(began, budget, self.wanted, walks, starts)

    def update(self, before: Graph, after: Graph, budget: float) -> FitReport:
        """Drop the spaces that hold a deleted triple; learn new ones around added triples."""
        began = time.perf_counter()
        deleted = before.train.take(~contains(after.train, before.train))
        added = after.train.take(~contains(before.train, after.train))
        self.candidates = after.candidates
        kept = [space for space in self.spaces if not contains(space.triples, deleted).any()]
        dropped, self.spaces = len(self.spaces) - len(kept), kept
        starts = _starts_at(after.train, added, self.rng)
        missing = max(dropped, -(-added.count // SEEDS))
        report = self._grow(began, budget, missing, Walks(after.train, after.entity_rows), starts)
        report.facts |= {"dropped": dropped, "added": added.count, "deleted": deleted.count}
        return report

    def _grow(self, began: float, budget: float, count: int, walks: Walks, starts: Iterator[Array]) -> FitReport:
        """Learn `count` more spaces in groups; at least one group, however small the budget."""
        made = 0
        while made < count and (not made or time.perf_counter() - began < budget):
            sizes = self.rng.integers(*self.ranges.triples, min(AT_ONCE, count - made), endpoint=True)
            samples = [walks.triples.take(walks.sample(next(starts), int(size), self.rng)) for size in sizes]
            self.spaces += learn_spaces(samples, self.dim, self.ranges, self.rng)
            made += len(samples)
        seconds = time.perf_counter() - began
        facts = {"spaces": len(self.spaces), "learnt": made, "wanted": count}
        stopped_by = "end" if made == count else "budget"
        return FitReport(seconds, seconds, epochs=float(made), stopped_by=stopped_by, facts=facts)

    def scores(self, entity_Q: Array, relation_Q: Array, asks_tail: bool) -> Array:
        """Minus the best energy over the spaces; −inf where no space holds all three."""
        score_QC = np.full((entity_Q.shape[0], self.candidates.shape[0]), -np.inf, np.float32)
        for space in self.spaces:
            entity, relation = _places(space.entities, entity_Q), _places(space.relations, relation_Q)
            held = np.flatnonzero((entity >= 0) & (relation >= 0))
            column = _places(self.candidates, space.entities)
            alive = np.flatnonzero(column >= 0)
            if not held.shape[0] or not alive.shape[0]:
                continue
            sign = 1 if asks_tail else -1
            query_HD = space.entity_ND[entity[held]] + sign * space.relation_MD[relation[held]]
            energy_HN = torch.cdist(
                torch.from_numpy(query_HD), torch.from_numpy(space.entity_ND[alive]), p=float(space.norm)
            ).numpy()
            block = np.ix_(held, column[alive])
            score_QC[block] = np.maximum(score_QC[block], -energy_HN)
        return score_QC

    def save(self, path: Path) -> None:
        """Every space, as plain arrays."""
        arrays = {"candidates": self.candidates}
        for number, space in enumerate(self.spaces):
            named = {**vars(space), **space.triples._asdict(), "norm": np.array(space.norm)}
            arrays |= {f"{number}.{name}": value for name, value in named.items() if name != "triples"}
        with path.open("wb") as file:
            np.savez(file, **arrays)

    def load(self, path: Path) -> None:
        """What `save` wrote."""
        with np.load(path, allow_pickle=False) as arrays:
            self.candidates = arrays["candidates"]
            self.spaces = []
            for number in range((len(arrays.files) - 1) // len(STORED)):
                entities, relations, entity_ND, relation_MD, norm, *columns = (
                    arrays[f"{number}.{name}"] for name in STORED
                )
                self.spaces.append(Space(entities, relations, entity_ND, relation_MD, Triples(*columns), int(norm)))


STORED = ("entities", "relations", "entity_ND", "relation_MD", "norm", "head", "relation", "tail")


def _places(rows: Array, wanted: Array) -> Array:
    """Where each wanted row stands among ascending `rows`, or -1."""
    place = np.minimum(np.searchsorted(rows, wanted), rows.shape[0] - 1)
    return np.where(rows[place] == wanted, place, -1) if rows.shape[0] else np.full(wanted.shape, -1)


class Walks:
    """Random walks over a graph, either way along an edge."""

    def __init__(self, triples: Triples, entity_rows: int) -> None:
        self.triples = triples
        ends = np.concatenate([triples.head, triples.tail])
        order = np.argsort(ends, kind="stable")
        self._edges = order % triples.count
        self._indptr = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=entity_rows))])

    def sample(self, start: Array, size: int, rng: np.random.Generator) -> Array:
        """Positions of `size` distinct triples (fewer if there are no more to find), ascending: those of `start`, and
        those that walks from their ends come by first.
        """
        found = dict.fromkeys(start[:size].tolist())
        ends = np.concatenate([self.triples.head[start], self.triples.tail[start]])
        at, came_by = rng.choice(ends, WALKERS), len(found)
        for round_ in range(ROUNDS):
            degree = self._indptr[at + 1] - self._indptr[at]
            edge = self._edges[self._indptr[at] + (rng.random(WALKERS) * degree).astype(np.int64)]
            at = self.triples.head[edge] + self.triples.tail[edge] - at
            found |= dict.fromkeys(edge.tolist())
            if len(found) >= size:
                break
            if round_ % 50 == 49:
                if len(found) == came_by:
                    break  # Every walk stays where all is known.
                came_by = len(found)
        return np.sort(np.fromiter(found, np.int64)[:size])


def _starts_by_relation(train: Triples, rng: np.random.Generator) -> Iterator[Array]:
    """Where spaces begin: a few triples of one relation, drawn by how many triples it has."""
    order = np.argsort(train.relation, kind="stable")
    bounds = np.concatenate([[0], np.cumsum(np.bincount(train.relation))])
    while True:
        relation = train.relation[rng.integers(train.count)]
        yield order[rng.integers(bounds[relation], bounds[relation + 1], WALKERS)]


def _starts_at(train: Triples, added: Triples, rng: np.random.Generator) -> Iterator[Array]:
    """Where new spaces begin: some added triples, all of them in turn; anywhere if there are none."""
    if not added.count:
        yield from _starts_by_relation(train, rng)
    place = np.flatnonzero(contains(added, train))
    while True:
        rng.shuffle(place)
        for begin in range(0, place.shape[0], SEEDS):
            yield place[begin : begin + SEEDS]


def learn_spaces(samples: list[Triples], dim: int, ranges: Ranges, rng: np.random.Generator) -> list[Space]:
    """A TransE for each sample of canonical triples, all at once, each with settings of its own."""
    count = len(samples)
    epochs = rng.integers(*ranges.epochs, count, endpoint=True)
    steps_S = np.maximum(1, epochs * np.array([sample.count for sample in samples]) // BATCH)
    # Those that learn longest come first, so that who still learns is a prefix.
    order = np.argsort(-steps_S)
    samples, steps_S = [samples[number] for number in order], steps_S[order]
    stack = _Stack(samples, dim, rng)
    margin_S1 = torch.from_numpy(rng.uniform(*ranges.margin, (count, 1)).astype(np.float32))
    rate_S1 = torch.from_numpy(np.exp(rng.uniform(*np.log(ranges.rate), (count, 1))).astype(np.float32))
    norm_S = rng.integers(1, 3, count)
    generator = torch.Generator().manual_seed(int(rng.integers(2**62)))
    is_l1_S1 = torch.from_numpy(norm_S == 1)[:, None]
    for step in range(int(steps_S[0])):
        learning = int(np.searchsorted(-steps_S, -step))
        stack.step(learning, margin_S1[:learning], rate_S1[:learning], is_l1_S1[:learning], generator)
    return stack.spaces(samples, norm_S)


class _Stack:
    """The vectors of several spaces one below the other, and their triples as numbers of these rows."""

    def __init__(self, samples: list[Triples], dim: int, rng: np.random.Generator) -> None:
        self.entities = [np.unique(np.concatenate([sample.head, sample.tail])) for sample in samples]
        self.relations = [np.unique(sample.relation) for sample in samples]
        self.first_entity = np.cumsum([0, *(rows.shape[0] for rows in self.entities)])
        self.first_relation = np.cumsum([0, *(rows.shape[0] for rows in self.relations)])
        first_triple = np.cumsum([0, *(sample.count for sample in samples)])
        columns: list[list[Array]] = [[], [], []]
        for number, sample in enumerate(samples):
            columns[0].append(self.first_entity[number] + np.searchsorted(self.entities[number], sample.head))
            columns[1].append(self.first_relation[number] + np.searchsorted(self.relations[number], sample.relation))
            columns[2].append(self.first_entity[number] + np.searchsorted(self.entities[number], sample.tail))
        self.head, self.relation, self.tail = (torch.from_numpy(np.concatenate(column)) for column in columns)
        self.triple_S1, self.triples_S1 = _ranges(first_triple)
        self.entity_S1, self.entities_S1 = _ranges(self.first_entity)
        bound = 6 / np.sqrt(dim)
        entity, relation = (
            torch.from_numpy(rng.uniform(-bound, bound, (int(first[-1]), dim)).astype(np.float32))
            for first in (self.first_entity, self.first_relation)
        )
        self.entity_ND = torch.nn.functional.normalize(entity)
        self.relation_MD = torch.nn.functional.normalize(relation)

    def step(self, learning: int, margin_S1: Tensor, rate_S1: Tensor, is_l1_S1: Tensor, seed: torch.Generator) -> None:
        """One batch of each of the first `learning` spaces, by plain descent on the margin loss."""

        def drawn(first_S1: Tensor, count_S1: Tensor) -> Tensor:
            share_SB = torch.rand(learning, BATCH, generator=seed)
            return (first_S1[:learning] + (share_SB * count_S1[:learning]).long()).flatten()

        chosen_B, other_B = drawn(self.triple_S1, self.triples_S1), drawn(self.entity_S1, self.entities_S1)
        head_B, relation_B, tail_B = self.head[chosen_B], self.relation[chosen_B], self.tail[chosen_B]
        at_head_B = torch.rand(chosen_B.shape[0], generator=seed) < 0.5
        false_head_B = torch.where(at_head_B, other_B, head_B)
        false_tail_B = torch.where(at_head_B, tail_B, other_B)
        margin_B, rate_B, is_l1_B = (x.expand(-1, BATCH).flatten() for x in (margin_S1, rate_S1, is_l1_S1))
        true_BD = self.entity_ND[head_B] + self.relation_MD[relation_B] - self.entity_ND[tail_B]
        false_BD = self.entity_ND[false_head_B] + self.relation_MD[relation_B] - self.entity_ND[false_tail_B]
        true_B, true_slope_BD = _energy(true_BD, is_l1_B)
        false_B, false_slope_BD = _energy(false_BD, is_l1_B)
        weight_B1 = (rate_B * (true_B + margin_B > false_B))[:, None]
        true_slope_BD, false_slope_BD = true_slope_BD * weight_B1, false_slope_BD * weight_B1
        touched = torch.cat([head_B, tail_B, false_head_B, false_tail_B])
        moves = torch.cat([-true_slope_BD, true_slope_BD, false_slope_BD, -false_slope_BD])
        self.entity_ND.index_add_(0, touched, moves)
        self.relation_MD.index_add_(0, relation_B, false_slope_BD - true_slope_BD)
        # Entities stay on the sphere, as TransE has them; else the loss would be met by growing.
        self.entity_ND[touched] = torch.nn.functional.normalize(self.entity_ND[touched])

    def spaces(self, samples: list[Triples], norm_S: Array) -> list[Space]:
        entity_ND, relation_MD = self.entity_ND.numpy(), self.relation_MD.numpy()
        return [
            Space(
                self.entities[number],
                self.relations[number],
                entity_ND[self.first_entity[number] : self.first_entity[number + 1]].copy(),
                relation_MD[self.first_relation[number] : self.first_relation[number + 1]].copy(),
                sample,
                int(norm_S[number]),
            )
            for number, sample in enumerate(samples)
        ]


def _ranges(bounds: Array) -> tuple[Tensor, Tensor]:
    """First and count of each range, as columns."""
    return torch.from_numpy(bounds[:-1, None].copy()), torch.from_numpy(np.diff(bounds)[:, None].copy())


def _energy(difference_BD: Tensor, is_l1_B: Tensor) -> tuple[Tensor, Tensor]:
    """‖h + r − t‖ in the norm of each space, and its gradient."""
    l2_B = difference_BD.square().sum(-1).sqrt()
    energy_B = torch.where(is_l1_B, difference_BD.abs().sum(-1), l2_B)
    unit_BD = difference_BD / l2_B.clamp(min=1e-9)[:, None]
    return energy_B, torch.where(is_l1_B[:, None], difference_BD.sign(), unit_BD)
