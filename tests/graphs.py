"""Small graphs as labels: written to files, brought into stores, and read back out of them as plain Python sets."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.diff import EMPTY_CONTENT, content_after
from dkge_dist.graph.holdout import HeldOut
from dkge_dist.graph.labels import Labels
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.source_diff import SnapshotDiff, diff_of_changes, diff_of_snapshot, diff_of_splits
from dkge_dist.store.manifest import Manifest
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import Split, Triples
from tests.models import load_vectors

Labelled = tuple[str, str, str]
Names = tuple[Dictionary, Dictionary]

ODD_LABELS = [
    '"quoted" and "more',
    "'",
    '"',
    "NA",
    "NaN",
    "NULL",
    "null",
    "None",
    "\\N",
    "back\\slash\\t\\n",
    " leading and trailing ",
    "  ",
    "a\u2028b\u2029c\x0b\x0c\x1c\x85d",
    "\u00e9",
    "e\u0301",
    "\ufeffmark",
    "nul\0byte",
    "inner\rreturn",
    "#hash",
    "+plus",
    "-minus",
    "<iri>",
    "😀",
    "x,y;z|w",
    "m" * 1_000_000,
]
"""Labels that are easily read wrongly; none has a tab or a newline or ends in a carriage return."""


def odd_triples() -> list[Labelled]:
    """Every odd label as head, relation and tail."""
    count = len(ODD_LABELS)
    return [(ODD_LABELS[i], ODD_LABELS[i - 7], ODD_LABELS[(i * 5 + 3) % count]) for i in range(count)]


def lines(triples: Iterable[Labelled], sign: str = "", end: str = "\n") -> str:
    return "".join(sign + "\t".join(triple) + end for triple in triples)


def write_tsv(path: Path, triples: Iterable[Labelled]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lines(triples).encode("utf-8"))
    return path


def write_changes(path: Path, added: Iterable[Labelled] = (), deleted: Iterable[Labelled] = ()) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((lines(added, "+\t") + lines(deleted, "-\t")).encode("utf-8"))
    return path


def movies(count: int, first: int = 0) -> list[Labelled]:
    """Triples `first` to `first + count` of an endless list, all different: two a title, and fifty people."""
    numbers = range(first, first + count)
    return [(f"title{i // 2}", ("actor", "director")[i % 2], f"person{(i * 3 + i // 2) % 50}") for i in numbers]


def rows(triples: Iterable[Labelled], names: Names) -> Triples:
    """As rows; new labels get the next ones, in this order."""
    columns = [list(column) for column in zip(*triples, strict=True)] or [[], [], []]
    entities, relations = names
    return Triples(
        entities.encode(Labels.from_strings(columns[0])),
        relations.encode(Labels.from_strings(columns[1])),
        entities.encode(Labels.from_strings(columns[2])),
    )


def labelled(triples: Triples, names: Names) -> set[Labelled]:
    """As labels. Fails if a triple stands twice."""
    entities, relations = names
    columns = entities.labels(triples.head), relations.labels(triples.relation), entities.labels(triples.tail)
    found = list(zip(*columns, strict=True))
    assert len(found) == len(set(found))
    return set(found)


def alive(flags: np.ndarray, names: Dictionary) -> set[str]:
    return set(names.labels(np.flatnonzero(flags)))


def content(path: Path, version: str | Manifest) -> dict[Split, set[Labelled]]:
    """What a snapshot of a store holds, by split."""
    store = Store.open(path)
    manifest = version if isinstance(version, Manifest) else store.find_snapshot(version)
    names, snapshot = store.dictionaries(manifest), store.snapshot(manifest)
    return {split: labelled(snapshot.triples(split), names) for split in Split}


def everything(path: Path, version: str | Manifest) -> set[Labelled]:
    """What a snapshot of a store holds, in whatever split."""
    return set().union(*content(path, version).values())


def head(path: Path) -> Manifest:
    manifest = Store.open(path).head()
    assert manifest is not None
    return manifest


def listing(folder: Path) -> dict[str, str]:
    """Every file below a folder with the checksum of its bytes, and every folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = "folder" if path.is_dir() else hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def assert_sound(path: Path) -> None:
    report = api.check(path)
    assert report["problems"] == [], report["problems"]
    assert report["ok"] is True


class Chain:
    """Snapshots in memory, one made from the other as an ingest does it; `order` gives labels their rows beforehand."""

    def __init__(self, order: Iterable[Labelled] = ()) -> None:
        self.names: Names = (Dictionary(noun="entity"), Dictionary(noun="relation"))
        rows(order, self.names)
        self.snapshot = Snapshot.empty()
        self.content = EMPTY_CONTENT
        self._ever_trained: set[Labelled] = set()

    def full(self, triples: Iterable[Labelled], wanted: HeldOut | None = None) -> SnapshotDiff:
        """A whole snapshot without splits."""
        given = rows(triples, self.names)
        return self._take(diff_of_snapshot(self.snapshot, given, wanted or HeldOut(), self.names, self._trained))

    def change(self, signed: Iterable[tuple[str, Labelled]], wanted: HeldOut | None = None) -> SnapshotDiff:
        """A change file: `+` or `-` and a triple, in order."""
        signed = list(signed)
        deleted = np.array([sign == "-" for sign, _ in signed], bool)
        given = rows([triple for _, triple in signed], self.names)
        return self._take(
            diff_of_changes(self.snapshot, given, deleted, wanted or HeldOut(), self.names, self._trained)
        )

    def splits(self, given: dict[Split, list[Labelled]]) -> SnapshotDiff:
        """A whole snapshot that brings its splits."""
        train, valid, test = (rows(given.get(split, []), self.names) for split in Split)
        return self._take(diff_of_splits(self.snapshot, (train, valid, test)))

    @property
    def state(self) -> dict[Split, set[Labelled]]:
        return {split: labelled(self.snapshot.triples(split), self.names) for split in Split}

    def _take(self, snapshot_diff: SnapshotDiff) -> SnapshotDiff:
        entities, relations = self.names
        self.content = content_after(self.content, snapshot_diff.diff, *self.names)
        self.snapshot = self.snapshot.after(snapshot_diff.diff, len(entities), len(relations))
        self._ever_trained |= self.state[Split.TRAIN]
        return snapshot_diff

    def _trained(self, triples: Triples) -> np.ndarray:
        columns = self.names[0].labels(triples.head), self.names[1].labels(triples.relation)
        asked = zip(*columns, self.names[0].labels(triples.tail), strict=True)
        return np.array([triple in self._ever_trained for triple in asked], bool)


LEARN = ["model.dim=8", "train.max_epochs=2", "train.batch_size=200", "train.negatives=16", "online.max_epochs=1",
         "online.retrain_when=never", "threads=1"]  # fmt: skip
"""Settings with which a small graph is learnt in a second."""


def dense(count: int = 400, seed: int = 1, entities: int = 60) -> list[Labelled]:
    """Random triples over few entities, so that each is in many of them."""
    columns = np.random.default_rng(seed).integers(0, [[entities], [4], [entities]], (3, count))
    return sorted({(f"e{h}", f"r{r}", f"e{t}") for h, r, t in columns.T})


def fresh_labels(number: int) -> list[Labelled]:
    """Triples that a night adds: two new entities and a new relation, and new triples between known ones."""
    new, other = f"new{number}a", f"new{number}b"
    return [
        (f"e{number}", "r0", new),
        (new, "r1", f"e{number + 7}"),
        (other, "r3", new),
        (f"e{number + 5}", f"r{number + 10}", f"e{number + 9}"),
        (f"e{number + 8}", f"r{number + 10}", f"e{number + 3}"),
    ]


def vectors(path: Path, version: int) -> dict[str, np.ndarray]:
    """Every table and dense parameter of a model version, by name."""
    store = Store.open(path)
    learnt = load_vectors(store, store.model_manifest(version).model)
    tables = {f"{kind}/{field}": v for kind in ("entities", "relations") for field, v in getattr(learnt, kind).items()}
    return {**tables, **learnt.dense}


def assert_same_vectors(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    """To the bit."""
    assert one.keys() == other.keys()
    for name, values in one.items():
        assert np.array_equal(values, other[name]), name
