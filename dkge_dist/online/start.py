"""Start values of emerging objects: at random as published, or solved from what is known of their triples.

An emerging entity should sit where its triples say: at the mean of t* − r* over those it heads and of h* + r* over
those it ends. Its `^c` is the mean of those of its siblings, the entities that stand in the same role to the same
neighbours, and its `^k` is what is left for the gate to add. Nobody is written here; the caller gets values.
"""

from __future__ import annotations

import numpy as np
import torch

from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.selection import siblings_of
from dkge_dist.learn.encode import Batches, encode, pull
from dkge_dist.model.dkge import Dkge, Encoder
from dkge_dist.online.plan import UpdatePlan
from dkge_dist.shards.shard import Field, initial_rows
from dkge_dist.shards.table import Table
from dkge_dist.types import ROW, Array, Triples

SIBLINGS = 16
LEAST_GATE = 0.05
"""Where the gate lets less than this of `^k` through, solving for it would only blow it up."""


def random_start(tables: tuple[Table, Table], plan: UpdatePlan, dim: int, scale: float, seed: int) -> None:
    """Vectors at random for emerging objects, as in learning from scratch."""
    for kind, (table, objects) in enumerate(zip(tables, (plan.entities, plan.relations), strict=True)):
        rng = np.random.default_rng([seed, 5, kind])
        rows = objects.emerging.astype(ROW)
        for field in (Field.KNOWLEDGE, Field.CONTEXT):
            table.write(field, rows, initial_rows(rows.shape[0], dim, rng, scale))


def warm_start(
    model: Dkge, tables: tuple[Table, Table], contexts: tuple[Batches, Batches], plan: UpdatePlan, now: Topology
) -> None:
    """Better ones where something is known; on top of `random_start`."""
    entities, relations = tables
    _borrow_context(entities, plan, now)
    rows, where = _targets(tables, plan)
    _solve_knowledge(model.entity, entities, contexts[0], rows, where)
    rows, where = _relation_targets(entities, plan)
    _solve_knowledge(model.relation, relations, contexts[1], rows, where)


def _borrow_context(table: Table, plan: UpdatePlan, now: Topology) -> None:
    """`^c` of an emerging entity: the mean of its siblings', where it has existing ones."""
    emerging = plan.entities.emerging.astype(ROW)
    of, sibling = siblings_of(now.outgoing, now.incoming, emerging, SIBLINGS)
    old = ~np.isin(sibling, emerging)
    of, sibling = of[old], sibling[old]
    if not of.shape[0]:
        return
    rows, number = np.unique(sibling, return_inverse=True)
    values = table.pull({Field.CONTEXT: rows.astype(ROW)})[Field.CONTEXT]
    found, mean = _means(of, values[number])
    table.write(Field.CONTEXT, emerging[found], mean)


def _means(of: Array, values: Array) -> tuple[Array, Array]:
    """(the distinct numbers of `of`, the mean of their values)."""
    numbers, place, count = np.unique(of, return_inverse=True, return_counts=True)
    total = np.zeros((numbers.shape[0], values.shape[1]), np.float32)
    np.add.at(total, place, values)
    return numbers, total / count[:, None].astype(np.float32)


def _joint(table: Table, rows: Array) -> Array:
    return table.pull({Field.JOINT: rows.astype(ROW)})[Field.JOINT]


def _targets(tables: tuple[Table, Table], plan: UpdatePlan) -> tuple[Array, Array]:
    """Where emerging entities should sit, from triples whose other two objects are not emerging."""
    head, relation, tail = plan.triples
    known_relation = ~np.isin(relation, plan.relations.emerging)
    parts = []
    for own, other, sign in ((head, tail, -1.0), (tail, head, 1.0)):
        here = np.isin(own, plan.entities.emerging) & ~np.isin(other, plan.entities.emerging) & known_relation
        wanted = _joint(tables[0], other[here]) + np.float32(sign) * _joint(tables[1], relation[here])
        parts.append((own[here], wanted))
    return _means(np.concatenate([rows for rows, _ in parts]), np.concatenate([values for _, values in parts]))


def _relation_targets(entities: Table, plan: UpdatePlan) -> tuple[Array, Array]:
    """Where emerging relations should sit: the mean of t* − h*."""
    triples: Triples = plan.triples
    new = plan.entities.emerging
    here = np.isin(triples.relation, plan.relations.emerging) & ~np.isin(triples.head, new)
    some = triples.take(here & ~np.isin(triples.tail, new))
    return _means(some.relation, _joint(entities, some.tail) - _joint(entities, some.head))


@torch.no_grad()
def _solve_knowledge(encoder: Encoder, table: Table, contexts: Batches, rows: Array, wanted: Array) -> None:
    """`^k` such that o* is what is wanted, given what the context says with no `^k` at all."""
    if not rows.shape[0]:
        return
    rows = rows.astype(ROW)
    table.write(Field.KNOWLEDGE, rows, np.zeros_like(wanted))
    batch = contexts.batch(rows)
    without = encode(encoder, pull(table, batch), batch).numpy()
    gate = torch.sigmoid(encoder.gate.logits).numpy()
    table.write(Field.KNOWLEDGE, rows, (wanted - without) / np.maximum(gate, LEAST_GATE))
