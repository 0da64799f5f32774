"""Slow, obvious twins of the kernels, on Python sets and dictionaries. Nothing here is imported by the package."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise, product

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


def first_unsound(triples: Sequence[Triple], entities: int, relations: int) -> int:
    for place, (head, relation, tail) in enumerate(triples):
        if not (0 <= head < entities and 0 <= relation < relations and 0 <= tail < entities):
            return place
        if place and canonical([triples[place - 1], triples[place]]) != [triples[place - 1], triples[place]]:
            return place
    return -1


def removable_triples(triples: Sequence[Triple], count: int) -> list[int]:
    """The first `count` positions that can be removed in order, with every object keeping a triple."""
    left = dict(enumerate(triples))
    taken: list[int] = []
    for i, (head, relation, tail) in enumerate(triples):
        rest = [triple for j, triple in left.items() if j != i]
        entities_stay = {head, tail} <= {end for h, _, t in rest for end in (h, t)}
        if len(taken) < count and entities_stay and relation in {r for _, r, _ in rest}:
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
    """Every entity whose context, rebuilt from nothing on both graphs, is not the same."""
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
    """All alive rows sorted by L1 distance, the smaller row first among equals; the first `top`."""
    distance = {row: float(np.abs(query - table[row]).sum()) for row in range(len(table)) if alive[row]}
    return sorted(distance.items(), key=lambda pair: (pair[1], pair[0]))[:top]


def partition(rows: Sequence[int], block: int, shards: int) -> tuple[list[int], list[int], list[int]]:
    """(order, local rows, begin) of rows whose blocks are dealt to the shards round robin."""
    order, local, begin = [], [], [0]
    for shard in range(shards):
        for number, row in enumerate(rows):
            if row // block % shards == shard:
                order.append(number)
                local.append(row // block // shards * block + row % block)
        begin.append(len(order))
    return order, local, begin


def corrupt(
    known: set[Triple],
    triples: Sequence[Triple],
    candidates: Sequence[int],
    head_chance: Sequence[float],
    draws: np.ndarray,
) -> list[tuple[int, int]]:
    """(side, entity) for each triple: tries one after the other, first on the side drawn, then on the other."""
    out = []
    for (head, relation, tail), (*tries, choice) in zip(triples, draws.tolist(), strict=True):
        first = 0 if choice < head_chance[relation] else 1
        chosen = (1 - first, head if first == 0 else tail)
        for side in (first, 1 - first):
            made = [candidates[min(int(draw * len(candidates)), len(candidates) - 1)] for draw in tries]
            free = [e for e in made if ((e, relation, tail) if side == 0 else (head, relation, e)) not in known]
            if free:
                chosen = (side, free[0])
                break
        out.append(chosen)
    return out


def head_chance(triples: Iterable[Triple], relation: int) -> float:
    """tph / (tph + hpt): tails per head against heads per tail; one half for a relation without triples."""
    mine = [triple for triple in triples if triple[1] == relation]
    if not mine:
        return 0.5
    tails_per_head = len(mine) / len({head for head, _, _ in mine})
    heads_per_tail = len(mine) / len({tail for _, _, tail in mine})
    return tails_per_head / (tails_per_head + heads_per_tail)


def sequential_l1(one: np.ndarray, other: np.ndarray) -> np.float32:
    """The L1 distance, summed in 32 bits from the first dimension to the last."""
    total = np.float32(0)
    for a, b in zip(one, other, strict=True):
        total += np.abs(np.float32(a) - np.float32(b))
    return total


def count_closer(
    query: np.ndarray, bound: float, table: np.ndarray, candidates: Iterable[int], filtered: Iterable[int]
) -> tuple[int, int]:
    """How many candidates that are not filtered are closer than the bound, and how many just as close."""
    distances = [sequential_l1(query, table[row]) for row in set(candidates) - set(filtered)]
    return sum(d < bound for d in distances), sum(d == bound for d in distances)


def softmax_loss(
    query: np.ndarray, candidates: np.ndarray, positive: np.ndarray, denied: np.ndarray, own: np.ndarray,
    known: np.ndarray, logq: np.ndarray, margin: float,
) -> list[np.ndarray]:  # fmt: skip
    """Loss of each query and the gradients of their sum by positive, own entity, query and candidates, in 64 bits.

    −log p of the positive; −log(1 − p) where it is denied.
    """
    difference = query[:, None].astype(np.float64) - candidates[None].astype(np.float64)
    weight = np.where(known, 0.0, np.exp(logq.astype(np.float64) - np.abs(difference).sum(-1)))
    true, itself = np.exp(-positive.astype(np.float64) - margin), np.exp(-own.astype(np.float64))
    rest = itself + weight.sum(1)
    total = true + rest
    chance = true / total
    # By the weight of another candidate.
    slope = 1 / total - np.where(denied, 1 / np.where(denied, rest, 1), 0)
    by_pair = -(weight * slope[:, None])[..., None] * np.sign(difference)
    return [
        np.log(total / np.where(denied, rest, true)),
        np.where(denied, -chance, 1 - chance),
        -itself * slope,
        by_pair.sum(1),
        -by_pair.sum(0),
    ]


def margin_loss(
    entities: np.ndarray, relations: np.ndarray, triples: Sequence[tuple[int, int, int, int, bool]], margin: float
) -> list[np.ndarray]:
    """Loss of each corrupted triple and the gradients of their sum by entities and relations, in 64 bits."""
    entities, relations = entities.astype(np.float64), relations.astype(np.float64)
    losses, by_entity, by_relation = [], np.zeros_like(entities), np.zeros_like(relations)
    for head, relation, tail, negative, corrupts_head in triples:
        other_head, other_tail = (negative, tail) if corrupts_head else (head, negative)
        near = entities[head] + relations[relation] - entities[tail]
        far = entities[other_head] + relations[relation] - entities[other_tail]
        losses.append(max(0.0, np.abs(near).sum() + margin - np.abs(far).sum()))
        if losses[-1] > 0:
            by_entity[head] += np.sign(near)
            by_entity[tail] -= np.sign(near)
            by_entity[other_head] -= np.sign(far)
            by_entity[other_tail] += np.sign(far)
            by_relation[relation] += np.sign(near) - np.sign(far)
    return [np.array(losses), by_entity, by_relation]


def adagrad(
    values: np.ndarray, state: float, gradient: np.ndarray, rate: float, damping: float = 0.0
) -> tuple[np.ndarray, float]:
    """One step of row-wise Adagrad for one row: (row, accumulated mean square)."""
    state += float((gradient.astype(np.float64) ** 2).mean())
    return values - rate * gradient / np.sqrt(state + damping), state


def ball(graph: Mapping[int, set[int]], row: int, radius: int) -> set[int]:
    """Everything within `radius` steps."""
    out = {row}
    for _ in range(radius):
        out |= set().union(*(graph.get(v, set()) for v in out))
    return out


def longer_walk_pairs(triples: Iterable[Triple], edge: tuple[int, int], length: int) -> set[tuple[int, int]]:
    """Linked pairs at the ends of a walk of 3 to `length` steps, one of which leads over the edge."""
    steps = {(head, tail) for head, _, tail in triples}
    walks: list[tuple[int, ...]] = [(head, tail) for head, tail in steps]
    found = set()
    for size in range(2, length + 1):
        walks = [(*walk, end) for walk in walks for start, end in steps if walk[-1] == start]
        for walk in walks if size >= 3 else []:
            if (walk[0], walk[-1]) in steps and edge in pairwise(walk):
                found.add((walk[0], walk[-1]))
    return found


def key_slot(key: bytes, prefix: bytes) -> int:
    """The number of a key among all keys of its prefix with 1 to 9 digits, shorter ones first; -1 if it is none."""
    digits = key.removeprefix(prefix)
    if not key.startswith(prefix) or not digits.isdigit() or len(digits) > 9:
        return -1
    return sum(10**size for size in range(1, len(digits))) + int(digits)


def quoted_records(text: str, delimiter: str) -> list[list[str]] | None:
    """The records of a CSV text that ends in a newline, empty lines left out; None if it breaks a rule."""
    quoted = re.compile(rf'"((?:[^"]|"")*)"(\r?\n|{delimiter})')
    plain = re.compile(rf"([^{delimiter}\n]*)(\n|{delimiter})")
    records: list[list[str]] = []
    at = 0
    record: list[str] = []
    while at < len(text):
        match = (quoted if text[at] == '"' else plain).match(text, at)
        if match is None:
            return None
        field, ended = match[1], match[2].endswith("\n")
        if text[at] == '"':
            field = field.replace('""', '"')
        elif re.match(' +"', field):
            return None
        elif ended:
            field = field.removesuffix("\r")
        is_empty_line = not record and text[at : match.end()] in ("\n", "\r\n")
        at = match.end()
        if not is_empty_line:
            record.append(field)
        if ended and record:
            records.append(record)
            record = []
    return records


def rows_within(words: np.ndarray, query: np.ndarray, limit: int, sure: int) -> tuple[int, int]:
    """Bits of the rows of a tile by their distances in bytes, less the error and with it."""
    near = surely = 0
    asked = query.tobytes()
    for row in range(words.shape[1]):
        own, error = words[:-1, row].tobytes(), int(words[-1, row]) & 0xFFFFFFFF
        distance = sum(abs(a - b) for a, b in zip(own, asked, strict=True))
        near |= (distance - error <= limit) << row
        surely |= (distance + error <= sure) << row
    return near, surely
