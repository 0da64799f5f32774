"""From rows of a table to joint vectors, and back with the gradients."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dkge_dist.kernels.contexts import Sampling
from dkge_dist.learn.encode import CHUNK, TrainedObjects, encode, features_of, gradient_of, on
from dkge_dist.model.dkge import Dkge
from dkge_dist.types import ROW, Field
from tests.learn.graphs import NOTHING, contexts_of, table_of

pytestmark = pytest.mark.usefixtures("one_thread")

DIM = 8
TRIPLES = [(0, 0, 1), (1, 1, 2), (0, 1, 2), (3, 0, 1), (2, 0, 3)]


def entities_and_relations() -> tuple[TrainedObjects, TrainedObjects]:
    model = Dkge(DIM, 1, 1, 0)
    return TrainedObjects(model.entity, table_of(5, DIM), NOTHING), TrainedObjects(
        model.relation, table_of(2, DIM, 1), NOTHING
    )


def test_a_batch_pulls_knowledge_of_its_objects_and_context_of_their_vertices() -> None:
    objects, _ = entities_and_relations()
    contexts, _ = contexts_of(TRIPLES, 5, 2, Sampling(1, 35, 1))
    batch = contexts.batch(np.array([3, 0], ROW))
    leaves = objects.pull(batch)
    expected = objects.table.pull({Field.KNOWLEDGE: batch.rows, Field.CONTEXT: batch.vertex_rows})
    assert np.array_equal(leaves.knowledge_BD.detach().numpy(), expected[Field.KNOWLEDGE])
    assert np.array_equal(leaves.context_UD.detach().numpy(), expected[Field.CONTEXT])
    assert leaves.knowledge_BD.requires_grad and leaves.context_UD.requires_grad
    out, _ = objects.encode(batch)
    assert torch.equal(out, encode(objects.encoder, leaves, batch))


@pytest.mark.parametrize("kind", [0, 1], ids=["entities", "relations"])
def test_gradients_are_those_of_small_moves(kind: int) -> None:
    """By difference quotients, of `^k` and of `^c`."""
    objects = entities_and_relations()[kind]
    contexts = contexts_of(TRIPLES, 5, 2, Sampling(1, 35, 1))[kind]
    batch = contexts.batch(np.array([1, 0], ROW))
    weights = torch.from_numpy(np.random.default_rng(0).normal(size=(2, DIM)).astype(np.float32))

    def total() -> torch.Tensor:
        return (objects.encode(batch)[0] * weights).sum()

    out, leaves = objects.encode(batch)
    (out * weights).sum().backward()  # type: ignore[no-untyped-call]
    rng = np.random.default_rng(1)
    for field, (rows, gradient) in objects.gradients(batch, leaves).items():
        values = objects.table.pull({field: rows})[field]
        direction = rng.normal(size=values.shape).astype(np.float32)
        slopes = []
        for sign in (1, -1):
            objects.table.write(field, rows, values + np.float32(sign * 1e-2) * direction)
            slopes.append(total().item())
        objects.table.write(field, rows, values)
        assert (slopes[0] - slopes[1]) / 2e-2 == pytest.approx(float((gradient * direction).sum()), rel=2e-2)


def test_a_leaf_that_nothing_came_back_to_has_a_gradient_of_zeros() -> None:
    leaf = torch.ones(3, 2, requires_grad=True)
    assert gradient_of(leaf).tolist() == [[0, 0]] * 3
    (2 * leaf[1]).sum().backward()
    assert gradient_of(leaf).tolist() == [[0, 0], [2, 2], [0, 0]]


def test_features_of_relation_paths_are_sums_over_their_relations() -> None:
    _, objects = entities_and_relations()
    _, contexts = contexts_of(TRIPLES, 5, 2, Sampling(1, 35, 1))
    batch = contexts.batch(np.array([0, 1], ROW))
    assert batch.bag is not None and batch.bag_offsets is not None
    context = objects.encode(batch)[1].context_UD.detach()
    paths = np.split(batch.bag, batch.bag_offsets[1:])
    assert {len(path) for path in paths} == {1, 2}
    expected = torch.stack([context[torch.from_numpy(path)].sum(0) for path in paths])
    torch.testing.assert_close(features_of(context, batch), expected)


def test_vectors_of_many_objects_are_those_of_each_alone() -> None:
    """More objects than are encoded at once, in any order; and none at all."""
    rng = np.random.default_rng(0)
    rows = CHUNK + 10
    triples = [(int(h), 0, int(t)) for h, t in rng.integers(0, rows, (9000, 2))]
    contexts, _ = contexts_of(triples, rows, 1, Sampling(1, 6, 1))
    objects = TrainedObjects(Dkge(DIM, 1, 1, 0).entity, table_of(rows, DIM), contexts)
    order = rng.permutation(rows).astype(ROW)
    found = objects.joint(order)
    for number in (0, 1, CHUNK - 1, CHUNK, rows - 1):
        alone = objects.joint(order[number : number + 1])
        np.testing.assert_allclose(found[number], alone[0], rtol=1e-6, atol=1e-6)
    assert objects.joint(order[:0]).shape == (0, DIM)


def test_on_the_cpu_an_array_is_not_copied() -> None:
    array = np.arange(3)
    on(torch.device("cpu"), array)[1] = 7
    assert array.tolist() == [0, 7, 2]
