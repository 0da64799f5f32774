"""Slow, obvious twins of the kernels, on Python sets and dictionaries. Nothing here is imported by the package."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

import numpy as np
import torch

Triple = tuple[int, int, int]  # head, relation, tail
WORD = 2**64

P1, P2, P3, P4 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63


def combine(left: int, right: int) -> int:
    """One hash of an ordered pair."""
    rotated = ((left << 27) | (left >> 37)) % WORD
    x = (rotated * P1 + right * P2 + P4) % WORD
    x = ((x ^ (x >> 33)) * P2) % WORD
    x = ((x ^ (x >> 29)) * P3) % WORD
    return x ^ (x >> 32)


def canonical(triples: Iterable[Triple]) -> list[Triple]:
    return sorted(set(triples), key=lambda triple: (triple[0], triple[2], triple[1]))


def removable_triples(triples: Sequence[Triple], count: int) -> list[int]:
    """The first `count` positions that can go, in order, so that whoever stood in a triple still does."""
    left = dict(enumerate(triples))
    taken: list[int] = []
    for i, (head, relation, tail) in enumerate(triples):
        rest = [triple for j, triple in left.items() if j != i]
        everybody = {head, tail} <= {end for h, _, t in rest for end in (h, t)}
        if len(taken) < count and everybody and relation in {r for _, r, _ in rest}:
            del left[i]
            taken.append(i)
    return taken


def neighbours(triples: Iterable[Triple]) -> dict[int, set[int]]:
    """The undirected simple graph."""
    out: dict[int, set[int]] = defaultdict(set)
    for head, _, tail in triples:
        if head != tail:
            out[head].add(tail)
            out[tail].add(head)
    return out


Context = tuple[list[int], frozenset[tuple[int, int]]]  # vertices (the object first), edges among them


def entity_context(
    graph: Mapping[int, set[int]], digest: Sequence[int], seed: int, cap: int, hops: int, entity: int
) -> Context:
    """The object, a bottom-k sample of what lies within `hops` (nearer first), and all edges among these."""
    key = combine(seed, int(digest[entity]))
    kept = {entity}
    layer = {entity}
    for _ in range(hops):
        candidates = set().union(*(graph.get(v, set()) for v in layer)) - kept
        ranked = sorted(candidates, key=lambda c: (combine(key, int(digest[c])), c))
        layer = set(ranked[: cap + 1 - len(kept)])
        kept |= layer
    vertices = [entity, *sorted(kept - {entity})]
    edges = frozenset((a, b) for a in vertices for b in vertices if b in graph.get(a, set()))
    return vertices, edges


def without_vertex(context: Context, gone: int) -> Context:
    """What the vertices induce once one of them is taken out; the object itself stays."""
    vertices, edges = context
    left = [vertices[0], *(v for v in vertices[1:] if v != gone)]
    return left, frozenset((a, b) for a, b in edges if a in left and b in left)


def links(triples: Iterable[Triple], one: int, other: int) -> int:
    """How many different triples link two entities, in either direction."""
    return sum({head, tail} == {one, other} for head, _, tail in set(triples))


def hidden_pairs(train: Iterable[Triple], batch: Iterable[Triple]) -> set[frozenset[int]]:
    """Pairs that triples of the batch link and no other train triple does."""
    outside = {frozenset((head, tail)) for head, _, tail in set(train) - set(batch)}
    return {frozenset((head, tail)) for head, _, tail in batch} - outside


def normalised_adjacency(context: Context) -> np.ndarray:
    """D̂^-1/2 (A + I) D̂^-1/2, dense, in 64 bits."""
    vertices, edges = context
    a_hat = np.eye(len(vertices))
    for i, j in product(range(len(vertices)), repeat=2):
        if (vertices[i], vertices[j]) in edges:
            a_hat[i, j] = 1
    scale = np.diag(a_hat.sum(1) ** -0.5)
    return scale @ a_hat @ scale


def padded_adjacency(context: Context, width: int) -> list[list[float]]:
    """The same as a padded block, in plain Python."""
    vertices, edges = context
    degree = [1 + sum((v, other) in edges for other in vertices) for v in vertices]
    block = [[0.0] * width for _ in range(width)]
    for i, v in enumerate(vertices):
        for j, other in enumerate(vertices):
            if i == j or (v, other) in edges:
                block[i][j] = (degree[i] * degree[j]) ** -0.5
    return block


Path = tuple[int, ...]


def path_sets(triples: Iterable[Triple], length: int) -> dict[tuple[int, int], set[Path]]:
    """For every evidence pair (linked directly): all relation paths of up to `length` that link it."""
    triples = list(set(triples))
    out: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for head, relation, tail in triples:
        out[head].append((relation, tail))
    pairs = {(head, tail) for head, _, tail in triples}
    found: dict[tuple[int, int], set[Path]] = {pair: set() for pair in pairs}
    for start in {head for head, _ in pairs}:
        walks: set[tuple[Path, int]] = {((), start)}
        for _ in range(length):
            walks = {((*path, relation), end) for path, at in walks for relation, end in out.get(at, [])}
            for path, end in walks:
                if (start, end) in found:
                    found[start, end].add(path)
    return found


def together(triples: Iterable[Triple], length: int) -> Counter[tuple[Path, Path]]:
    """How many evidence pairs two different paths both link."""
    counts: Counter[tuple[Path, Path]] = Counter()
    for paths in path_sets(triples, length).values():
        counts.update((a, b) for a in paths for b in paths if a != b)
    return counts


def path_digest(path: Path, digest: Sequence[int]) -> int:
    value = 0
    for relation in path:
        value = combine(value, int(digest[relation]))
    return value


def relation_context(
    counts: Mapping[tuple[Path, Path], int], digest: Sequence[int], seed: int, cap: int, relation: int
) -> tuple[list[Path], frozenset[tuple[Path, Path]]]:
    """The relation, the paths that link a pair it links (shorter first, then bottom-k), and the edges among them."""
    own: Path = (relation,)
    key = combine(seed, int(digest[relation]))
    partners = {b for a, b in counts if a == own}
    ranked = sorted(partners, key=lambda p: (len(p), combine(key, path_digest(p, digest))))
    chosen = ranked[:cap]
    vertices = [own, *sorted(chosen, key=lambda p: (len(p), p[::-1]))]
    edges = frozenset((a, b) for a in vertices for b in vertices if (a, b) in counts)
    return vertices, edges


def affected_entities(
    before: Iterable[Triple], after: Iterable[Triple], rows: int, digest: Sequence[int], seed: int, cap: int, hops: int
) -> set[int]:
    """Everybody whose context, rebuilt from nothing on both graphs, is not the same."""
    old, new = neighbours(before), neighbours(after)
    arguments = (digest, seed, cap, hops)
    return {e for e in range(rows) if entity_context(old, *arguments, e) != entity_context(new, *arguments, e)}


def affected_relations(
    before: Iterable[Triple],
    after: Iterable[Triple],
    rows: int,
    digest: Sequence[int],
    seed: int,
    cap: int,
    length: int,
) -> set[int]:
    """Every relation whose context, rebuilt from nothing on both graphs, is not the same."""
    old, new = together(before, length), together(after, length)
    arguments = (digest, seed, cap)
    return {r for r in range(rows) if relation_context(old, *arguments, r) != relation_context(new, *arguments, r)}


def encode(
    contexts: Sequence[tuple[np.ndarray, np.ndarray]],
    features: torch.Tensor,
    knowledge: torch.Tensor,
    weights: Sequence[torch.Tensor],
    attention: torch.Tensor,
    gate: torch.Tensor,
) -> torch.Tensor:
    """o* by the published formulas, one object at a time, dense: contexts are (feature row of each vertex, Â)."""
    out = []
    for (rows, adjacency), own in zip(contexts, knowledge, strict=True):
        hidden = features[torch.as_tensor(rows)]
        for weight in weights:
            hidden = torch.relu(torch.as_tensor(adjacency) @ hidden @ weight)
        score = torch.stack([attention @ torch.relu(vertex * own) for vertex in hidden])
        alpha = torch.softmax(score, 0)
        context = sum(a * vertex for a, vertex in zip(alpha, hidden, strict=True))
        mix = torch.sigmoid(gate)
        out.append(mix * own + (1 - mix) * context)
    return torch.stack(out)


def triples_of(triples: Iterable[Triple], rows: Iterable[int], limit: int, seed: int) -> list[Triple]:
    """What each row heads, by (tail, relation), then what it ends, by (head, relation): all, or evenly spaced ones."""
    known, found = set(triples), []
    for row in rows:
        heads = sorted((t for t in known if t[0] == row), key=lambda t: (t[2], t[1]))
        ends = sorted((t for t in known if t[2] == row), key=lambda t: (t[0], t[1]))
        mine = heads + ends
        count = min(limit, len(mine))
        first = combine(seed, row) % max(len(mine), 1)
        found += [mine[(first + k * len(mine) // count) % len(mine)] for k in range(count)]
    return found


def attend(hidden: np.ndarray, query: np.ndarray) -> np.ndarray:
    """Vertices weighted by the softmax of their products with a query, in 64 bits."""
    score = hidden.astype(np.float64) @ query.astype(np.float64)
    weight = np.exp(score - score.max())
    return weight / weight.sum() @ hidden.astype(np.float64)


def nearest(query: np.ndarray, table: np.ndarray, alive: Sequence[bool], top: int) -> list[tuple[int, float]]:
    """Everybody alive sorted by L1 distance, the smaller row first among equals; the first `top`."""
    distance = {row: float(np.abs(query - table[row]).sum()) for row in range(len(table)) if alive[row]}
    return sorted(distance.items(), key=lambda pair: (pair[1], pair[0]))[:top]
