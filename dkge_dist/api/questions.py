"""What a model knows: link prediction, answers, and its vectors for others to use. Reads o*; no torch is needed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from dkge_dist.api.places import place_of
from dkge_dist.api.reports import PathLike, Report, since
from dkge_dist.api.tables import sharded
from dkge_dist.evaluation.answers import nearest
from dkge_dist.evaluation.breakdown import by_category, by_relation
from dkge_dist.evaluation.link_prediction import Joint, JointVectors, Protocol, Ranks, known_triples, metrics, rank
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.labels import Labels
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.kernels.jit import set_threads
from dkge_dist.kernels.triples import contains
from dkge_dist.store.export import Format, TableRows, Vectors, write_vectors
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.store import Store
from dkge_dist.store.tables import blocks, load_table
from dkge_dist.types import ROW, Array, DkgeError, Field, Split, Triples, UsageError

if TYPE_CHECKING:
    from dkge_dist.cluster.ranking import ShardedJoint
    from dkge_dist.cluster.session import Place

SUGGESTIONS = 5
ANY = "?"


class Opened(NamedTuple):
    """A model with the snapshot it was learnt from."""

    store: Store
    model: ModelManifest
    snapshot: Snapshot
    snapshot_name: str
    names: tuple[Dictionary, Dictionary]


def _open(store: PathLike, version: str | None) -> Opened:
    opened = Store.open(Path(store))
    model = opened.find_model(version)
    manifest = opened.snapshot_manifest(model.model.snapshot)
    return Opened(opened, model, opened.snapshot(manifest), manifest.snapshot.name, opened.dictionaries(manifest))


def evaluate(
    store: PathLike,
    *,
    version: str | None = None,
    split: Literal["valid", "test"] = "test",
    protocol: Protocol = "paper",
    relations: bool = False,
    categories: bool = False,
    threads: int = 0,
    shards: int | None = None,
    address: str | None = None,
    wait_seconds: float | None = None,
) -> Report:
    """Rank the held-out triples of the snapshot that a model was learnt from.

    `without_train` leaves out triples that stand in train too. `relations` and `categories` add tables. With `shards`
    the entities lie in so many Ray actors, which count for themselves.
    """
    place = place_of(shards, 1, address, wait_seconds)
    if threads:
        set_threads(threads)
    return evaluations(store, [split], place, version, protocol, relations, categories)[split]


def evaluations(
    store: PathLike,
    splits: Sequence[str],
    place: Place | None = None,
    version: str | None = None,
    protocol: Protocol = "paper",
    relations: bool = False,
    categories: bool = False,
) -> dict[str, Report]:
    """`evaluate` on several splits, with the vectors brought up once."""
    began = time.monotonic()
    opened = _open(store, version)
    triples = {split: opened.snapshot.triples(Split[split.upper()]) for split in splits}
    for split in splits:
        if not triples[split].count:
            raise DkgeError(
                f"{store}: snapshot {opened.snapshot_name!r} has no {split} triples; ingest with --{split} N"
            )
    reports = {}
    with _joint(place, opened) as joint:
        for split in splits:
            report = _evaluated(opened, joint, triples[split], protocol, relations, categories)
            reports[split] = {**report, "split": split, "seconds": since(began)}
    return reports


def _evaluated(
    opened: Opened, joint: JointVectors, triples: Triples, protocol: Protocol, relations: bool, categories: bool
) -> Report:
    every = tuple(opened.snapshot.triples(split) for split in Split)
    train = every[Split.TRAIN]
    ranks = rank(joint, triples, known_triples(every, protocol))  # type: ignore[arg-type]
    apart = ~contains(train, triples)
    report: Report = {
        **metrics(ranks.both),
        "triples": triples.count,
        "version": opened.model.version,
        "snapshot": opened.snapshot_name,
        "protocol": protocol,
        "candidates": int(opened.snapshot.entities_alive.sum()),
        "leaked": int((~apart).sum()),
        "without_train": metrics(Ranks(ranks.tail[apart], ranks.head[apart]).both),
        "head": metrics(ranks.head),
        "tail": metrics(ranks.tail),
    }
    if relations:
        tables = by_relation(ranks, triples)
        report["relations"] = [{"relation": opened.names[1].label(row), **line} for row, line in tables.items()]
    if categories:
        report["categories"] = by_category(ranks, triples, train)
    return report


@contextmanager
def _joint(place: Place | None, opened: Opened) -> Iterator[JointVectors]:
    """o* of a model, here or in shards."""
    storage, entry = opened.store.storage, opened.model.model
    relations = load_table(storage, entry.relations[Field.JOINT])
    candidates = np.flatnonzero(opened.snapshot.entities_alive).astype(ROW)
    if place is None:
        yield Joint(load_table(storage, entry.entities[Field.JOINT]), relations, candidates)
        return
    with _sharded_joint(place, opened, relations, candidates) as joint:
        yield joint


@contextmanager
def _sharded_joint(place: Place, opened: Opened, relations: Array, candidates: Array) -> Iterator[ShardedJoint]:
    from dkge_dist.cluster.ranking import ShardedJoint

    rows = opened.model.model.entities[Field.JOINT].rows
    with sharded(place, opened.store, opened.model, rows, (Field.JOINT,)) as table:
        yield ShardedJoint(table, relations, candidates)


def answer(
    store: PathLike,
    head: str | None = None,
    relation: str | None = None,
    *,
    tail: str | None = None,
    top: int = 10,
    version: str | None = None,
    batch: PathLike | None = None,
    shards: int | None = None,
    address: str | None = None,
    wait_seconds: float | None = None,
) -> Report:
    """The best answers to (head, relation, ?) or, with `tail`, to (?, relation, tail).

    `batch` is a file of questions, one a line: head, relation and tail with tabs between, `?` for what is asked. With
    `shards` the entities lie in so many Ray actors, each of which names its best.
    """
    began = time.monotonic()
    place = place_of(shards, 1, address, wait_seconds)
    if top < 1:
        raise UsageError(f"--top {top}: at least one answer")
    questions = _questions(head, relation, tail, Path(batch) if batch is not None else None)
    opened = _open(store, version)
    entry = opened.model.model
    anchors = _rows(opened.names[0], [q.anchor for q in questions], [q.where for q in questions])
    kinds = _rows(opened.names[1], [q.relation for q in questions], [q.where for q in questions])
    alive = opened.snapshot.entities_alive
    there = alive[anchors] & opened.snapshot.relations_alive[kinds]
    for dead in np.flatnonzero(~there):
        q = questions[dead]
        label = q.relation if alive[anchors[dead]] else q.anchor
        raise DkgeError(f"{q.where}{label!r} is not in snapshot {opened.snapshot_name!r} (it was in another one)")
    storage = opened.store.storage
    sign = np.array([1.0 if q.asks_tail else -1.0 for q in questions], np.float32)
    relations = load_table(storage, entry.relations[Field.JOINT])
    step = sign[:, None] * relations[kinds]
    if place is None:
        query = _vectors_of(blocks(storage, entry.entities[Field.JOINT]), anchors) + step
        best = nearest(query, blocks(storage, entry.entities[Field.JOINT]), alive, top)
    else:
        with _sharded_joint(place, opened, relations, np.flatnonzero(alive).astype(ROW)) as joint:
            best = joint.nearest(joint.vectors(anchors) + step, top)
    answered = []
    for number, question in enumerate(questions):
        known = _known(opened.snapshot, question, int(anchors[number]), int(kinds[number]), best.rows[number])
        labels = opened.names[0].labels(best.rows[number])
        answers = [
            {"entity": label, "score": round(float(score), 6), "known": bool(mark)}
            for label, score, mark in zip(labels, best.distances[number], known, strict=True)
        ]
        answered.append({**question.given, "answers": answers})
    about = {"version": opened.model.version, "snapshot": opened.snapshot_name}
    if batch is not None:
        return {**about, "questions": answered, "seconds": since(began)}
    return {**about, **answered[0], "seconds": since(began)}


def export(
    store: PathLike,
    out: PathLike,
    *,
    format: Format = "parquet",
    version: str | None = None,
    what: Literal["joint", "knowledge", "context"] = "joint",
) -> Report:
    """Write the vectors of all entities and relations of a model's snapshot, with their labels, to a new folder."""
    began = time.monotonic()
    opened = _open(store, version)
    entry = opened.model.model
    kinds = (
        ("entities", entry.entities[Field(what)], opened.snapshot.entities_alive, opened.names[0]),
        ("relations", entry.relations[Field(what)], opened.snapshot.relations_alive, opened.names[1]),
    )
    vectors = []
    for noun, table, alive, names in kinds:
        rows = np.flatnonzero(alive)
        vectors.append(Vectors(noun, rows, names.labels(rows), TableRows(opened.store.storage, table, rows)))
    written = write_vectors(Path(out), format, vectors)
    return {
        "out": str(out),
        "format": format,
        "what": what,
        "version": opened.model.version,
        "snapshot": opened.snapshot_name,
        **{v.noun: len(v.labels) for v in vectors},
        "dim": entry.entities[Field(what)].dim,
        "files": written,
        "seconds": since(began),
    }


class Question(NamedTuple):
    """A question; `where` names its place in a file, for errors."""

    anchor: str
    relation: str
    asks_tail: bool
    where: str = ""

    @property
    def given(self) -> dict[str, Any]:
        """What was given, by its role."""
        return {("head" if self.asks_tail else "tail"): self.anchor, "relation": self.relation}


def _questions(head: str | None, relation: str | None, tail: str | None, batch: Path | None) -> list[Question]:
    if batch is None:
        if relation is None or (head is None) == (tail is None):
            raise UsageError("ask with HEAD and RELATION, with RELATION and --tail, or with --batch FILE")
        return [Question(head, relation, True) if head is not None else Question(str(tail), relation, False)]
    if head is not None or relation is not None or tail is not None:
        raise UsageError("--batch FILE brings its own questions: no HEAD, RELATION or --tail beside it")
    try:
        # A line ends as it does in sources: labels may hold what else Python takes for the end of one.
        lines = [line.removesuffix("\r") for line in batch.read_bytes().decode("utf-8").split("\n")]
    except UnicodeDecodeError as error:
        raise UsageError(f"{batch}: not UTF-8: {error}") from None
    questions = list(_from_lines(batch, lines))
    if not questions:
        raise UsageError(f"{batch}: holds no question")
    return questions


def _from_lines(path: Path, lines: Sequence[str]) -> Iterator[Question]:
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        where = f"{path}, line {number}: "
        fields = line.split("\t")
        if len(fields) != 3 or (fields[0] == ANY) == (fields[2] == ANY):
            raise UsageError(f"{where}expected `head<TAB>relation<TAB>?` or `?<TAB>relation<TAB>tail`")
        asks_tail = fields[2] == ANY
        yield Question(fields[0] if asks_tail else fields[2], fields[1], asks_tail, where)


def _rows(names: Dictionary, labels: list[str], where: list[str]) -> Array:
    rows = names.lookup(Labels.from_strings(labels))
    for missing in np.flatnonzero(rows < 0):
        near = _nearest_labels(names, labels[missing])
        hint = f"; nearest: {', '.join(near)}" if near else ""
        raise DkgeError(f"{where[missing]}no {names.noun} {labels[missing]!r}{hint}")
    return rows


def _nearest_labels(names: Dictionary, wanted: str) -> list[str]:
    from rapidfuzz import fuzz, process, utils

    every = (label for segment in names.segments for label in segment.labels)
    found = process.extract(
        wanted, every, scorer=fuzz.token_sort_ratio, processor=utils.default_process, limit=SUGGESTIONS, score_cutoff=50
    )
    return [label for label, _, _ in found]


def _vectors_of(table: Iterator[tuple[int, Array]], rows: Array) -> Array:
    """Some rows of a table that comes block by block."""
    found: Array | None = None
    for first, values in table:
        if found is None:
            found = np.zeros((rows.shape[0], values.shape[1]), np.float32)
        here = (rows >= first) & (rows < first + values.shape[0])
        found[here] = values[rows[here] - first]
    assert found is not None, "an entity that has a row is in the table"
    return found


def _known(snapshot: Snapshot, question: Question, anchor: int, kind: int, answers: Array) -> Array:
    """Which answers stand in the graph already, in whatever split."""
    same, relation = np.full(answers.shape[0], anchor, ROW), np.full(answers.shape[0], kind, ROW)
    others = answers.astype(ROW)
    asked = Triples(same, relation, others) if question.asks_tail else Triples(others, relation, same)
    known: Array = np.logical_or.reduce([snapshot.contains(split, asked) for split in Split])
    return known
