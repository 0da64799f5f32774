"""A whole step equals the same computation written densely; steps learn; the same seed gives the same result."""

import numpy as np
import pytest
import torch

from dkge_dist.graph.relation_paths import PathCounts
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.batches import bernoulli_head_chance
from dkge_dist.kernels.contexts import Sampling
from dkge_dist.kernels.triples import canonical
from dkge_dist.learning.batches import BatchMaker
from dkge_dist.learning.contexts import EntityContexts, RelationContexts
from dkge_dist.learning.step import Loss, train_step
from dkge_dist.model.dkge import Dkge
from dkge_dist.tables.shard import TRAINED, Optimizer, Shard, initial_rows
from dkge_dist.tables.table import LocalTable
from dkge_dist.types import Field, Triples
from tests import reference
from tests.strategies import digests, to_list, to_triples

pytestmark = pytest.mark.usefixtures("one_thread")

ROWS, RELATIONS, DIM = 40, 4, 12
SAMPLING = Sampling(5, 6, 1)


def graph(seed: int = 0) -> Triples:
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, [[ROWS], [RELATIONS], [ROWS]], (3, 160))
    return canonical(to_triples([(int(h), int(r), int(t)) for h, r, t in columns.T]))


def maker(train: Triples, sampler: str, negatives: int = 16) -> BatchMaker:
    topology = Topology.of(train, ROWS)
    paths = PathCounts.of(topology, train, RELATIONS)
    return BatchMaker(
        train,
        EntityContexts(topology, digests(ROWS), SAMPLING),
        RelationContexts(paths, digests(RELATIONS, 1), SAMPLING),
        np.arange(ROWS, dtype=np.int32),
        bernoulli_head_chance(train.head, train.relation, train.tail, RELATIONS),
        sampler,
        negatives,
    )


def tables(seed: int = 0) -> tuple[LocalTable, LocalTable]:
    rng = np.random.default_rng(seed)
    made = []
    for count in (ROWS, RELATIONS):
        values = {field: initial_rows(count, DIM, rng) for field in TRAINED}
        made.append(LocalTable(Shard({**values, Field.JOINT: np.zeros((count, DIM), np.float32)})))
    return made[0], made[1]


def dense_joints(train: Triples, model: Dkge, rows: tuple) -> tuple[torch.Tensor, torch.Tensor]:
    """o* of everybody by the reference, from (entity ^k, entity ^c, relation ^k, relation ^c) in 64 bits."""
    triples = to_list(train)
    simple = reference.neighbours(triples)
    contexts = [reference.entity_context(simple, digests(ROWS), *SAMPLING, e) for e in range(ROWS)]
    around = [(np.array(c[0]), reference.normalised_adjacency(c)) for c in contexts]
    counts = reference.together(triples, 2)
    features, related = [], []
    for relation in range(RELATIONS):
        context = reference.relation_context(counts, digests(RELATIONS, 1), SAMPLING.seed, SAMPLING.cap, relation)
        related.append(
            (np.arange(len(features), len(features) + len(context[0])), reference.normalised_adjacency(context))
        )
        features += [sum(rows[3][r] for r in path) for path in context[0]]
    joints = []
    for encoder, bag, feature, own in (
        (model.entity, around, rows[1], rows[0]),
        (model.relation, related, torch.stack(features), rows[2]),
    ):
        weights = [w.double() for w in encoder.gcn.weights]
        joints.append(
            reference.encode(bag, feature, own, weights, encoder.gcn.attention.double(), encoder.gate.logits.double())
        )
    return joints[0], joints[1]


@pytest.mark.parametrize(
    ("sampler", "loss"),
    [("bernoulli", Loss("margin", 10.0)), ("shared", Loss("softmax", 0.0)), ("shared", Loss("self_adversarial", 3.0))],
)
def test_one_step_of_descent_equals_the_dense_gradient(sampler: str, loss: Loss) -> None:
    train = graph()
    batch = maker(train, sampler).make(np.arange(30), np.random.default_rng(1))
    model = Dkge(DIM, 1, 1, seed=3)
    entities, relations = tables()
    before = [t.shard.values[f].copy() for t in (entities, relations) for f in TRAINED]
    leaves = [torch.from_numpy(x).double().requires_grad_() for x in before]
    entity, relation = dense_joints(train, model, tuple(leaves))

    rows, kinds = torch.from_numpy(batch.entities.rows).long(), torch.from_numpy(batch.relations.rows).long()
    head, tail = (entity[rows[torch.from_numpy(x).long()]] for x in (batch.head, batch.tail))
    kind = relation[kinds[torch.from_numpy(batch.relation).long()]]
    positive = (head + kind - tail).abs().sum(-1)
    if sampler == "bernoulli":
        other = entity[rows[torch.from_numpy(batch.negative).long()]]
        at_head = torch.from_numpy(batch.corrupts_head)
        made = torch.where(at_head[:, None], other + kind - tail, head + kind - other).abs().sum(-1)
        total = torch.relu(positive + loss.margin - made).sum()
    else:
        shared = entity[rows[torch.from_numpy(batch.shared).long()]]
        total = torch.zeros((), dtype=torch.float64)
        for query, blocked in ((head + kind, batch.known_tail_mask), (tail - kind, batch.known_head_mask)):
            far = (query[:, None] - shared[None]).abs().sum(-1)
            logits = (torch.from_numpy(batch.weight) - far).masked_fill(torch.from_numpy(blocked), -torch.inf)
            if loss.kind == "softmax":
                total = total - torch.log_softmax(torch.cat([-positive[:, None], logits], 1), 1)[:, 0].sum()
            else:
                weight = logits.detach().softmax(-1)
                total = total + torch.nn.functional.softplus(positive - loss.margin).sum()
                total = total + (weight * torch.nn.functional.softplus(loss.margin - far)).sum()
    expected = torch.autograd.grad(total, leaves)

    dense = torch.optim.SGD(model.parameters(), lr=0.0)
    value = train_step(model, dense, (entities, relations), batch, loss, Optimizer("sgd", 1e-2))
    assert value == pytest.approx(total.item(), rel=1e-5)
    after = [t.shard.values[f] for t in (entities, relations) for f in TRAINED]
    for old, new, gradient in zip(before, after, expected, strict=True):
        np.testing.assert_allclose((old - new) / 1e-2, gradient.numpy(), rtol=2e-3, atol=2e-3)


def learn(seed: int, steps: int = 200) -> tuple[list[float], np.ndarray]:
    train = graph()
    batches = maker(train, "shared")
    model = Dkge(DIM, 1, 1, seed=seed)
    both = tables(seed)
    dense = torch.optim.Adagrad(model.parameters(), lr=0.01)
    losses = []
    for step in range(steps):
        rng = np.random.default_rng([seed, step])
        batch = batches.make(rng.permutation(train.count)[:64], rng)
        losses.append(train_step(model, dense, both, batch, Loss("softmax", 0.0), Optimizer("adagrad", 0.1)))
    return losses, both[0].shard.values[Field.KNOWLEDGE]


def test_steps_learn_and_the_same_seed_gives_the_same_vectors() -> None:
    losses, vectors = learn(0)
    assert np.mean(losses[-10:]) < 0.5 * np.mean(losses[:10])
    again, same = learn(0)
    assert losses == again
    assert np.array_equal(vectors, same)
    assert not np.array_equal(vectors, learn(1, steps=1)[1])
