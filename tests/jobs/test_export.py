"""Vectors for other programs: every field, of those alive, with their labels."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Literal, get_args

import numpy as np
import pyarrow.parquet as pq
import pytest

import dkge_dist
from dkge_dist.ask.model import open_model
from dkge_dist.jobs.export import export
from dkge_dist.store.store import Store
from dkge_dist.types import Field, UsageError
from tests.jobs.building import ADDED, ingest_night, write_lines
from tests.jobs.reads import counted_reads
from tests.models import vectors_of

pytestmark = pytest.mark.usefixtures("one_thread")

Format = Literal["parquet", "npy", "safetensors", "zarr"]


@pytest.fixture
def grown(store: Path, tmp_path: Path) -> Path:
    """A store whose second night removed what the first one had brought: model 5 of `n2`."""
    ingest_night(tmp_path / "n1.changes", store, ADDED, [])
    ingest_night(tmp_path / "n2.changes", store, ["e2\tr0\tlast"], ADDED)
    dkge_dist.update(store)
    return store


@pytest.mark.parametrize("field", list(Field))
def test_vectors_of_those_alive_with_their_labels(grown: Path, tmp_path: Path, field: Field) -> None:
    report = export(Store.open(grown), tmp_path / "out", "npy", None, field)
    opened, vectors = open_model(Store.open(grown)), vectors_of(grown)
    assert (report["version"], report["snapshot"], report["what"], report["dim"]) == (5, "n2", field.value, 12)
    for noun, names, alive, tables in (
        ("entities", opened.names[0], opened.snapshot.alive_entities, vectors.entities),
        ("relations", opened.names[1], opened.snapshot.alive_relations, vectors.relations),
    ):
        labels = json.loads((tmp_path / "out" / f"{noun}.json").read_text(encoding="utf-8"))
        assert labels == names.labels(alive)
        assert not {"new1", "new2", "r9"} & set(labels)
        assert np.array_equal(np.load(tmp_path / "out" / f"{noun}.npy"), tables[field][alive])
        assert report[noun] == len(labels)


@pytest.mark.parametrize("format", get_args(Format))
def test_the_report_names_the_files(store: Path, tmp_path: Path, format: Format) -> None:
    report = export(Store.open(store), tmp_path / "out", format, None, Field.JOINT)
    assert (report["out"], report["format"]) == (str(tmp_path / "out"), format)
    assert report["files"] == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert report["files"]


def test_an_earlier_version_has_the_entities_of_its_snapshot(grown: Path, tmp_path: Path) -> None:
    report = export(Store.open(grown), tmp_path / "out", "npy", "2", Field.JOINT)
    assert (report["version"], report["snapshot"], report["entities"]) == (2, "base", 60)


def test_what_is_there_stays(store: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "kept").write_text("x")
    with pytest.raises(UsageError, match="exists already; name a new or empty folder"):
        export(Store.open(store), tmp_path / "out", "npy", None, Field.JOINT)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["kept"]


def test_it_opens_the_store_once_and_reads_one_field(store: Path, tmp_path: Path) -> None:
    model = Store.open(store).find_model().model
    with counted_reads(store) as reads:
        dkge_dist.export(store, tmp_path / "out", what="context")
    assert reads.stores == 1
    assert model.entities["context"].base.digest in reads.parts
    assert not {model.entities["joint"].base.digest, model.entities["knowledge"].base.digest} & set(reads.parts)


def test_display_names_are_a_further_column(store: Path, tmp_path: Path) -> None:
    names = write_lines(tmp_path / "names.tsv", ["e7\tSeven", "r1\tone of them"])
    dkge_dist.ingest(store, names, format="labels")
    export(Store.open(store), tmp_path / "out", "parquet", None, Field.JOINT)
    for noun, expected in (("entities", {"e7": "Seven"}), ("relations", {"r1": "one of them"})):
        table = pq.read_table(tmp_path / "out" / f"{noun}.parquet")
        found = dict(zip(table["label"].to_pylist(), table["name"].to_pylist(), strict=True))
        assert {label: name for label, name in found.items() if name is not None} == expected
    report = export(Store.open(store), tmp_path / "npy", "npy", None, Field.JOINT)
    assert "entities-names.json" in report["files"]
    labels, names_ = (
        json.loads((tmp_path / "npy" / f"{name}.json").read_text()) for name in ("entities", "entities-names")
    )
    assert [label for label, name in zip(labels, names_, strict=True) if name is not None] == ["e7"]


def test_without_display_names_there_is_no_column(store: Path, tmp_path: Path) -> None:
    report = export(Store.open(store), tmp_path / "out", "npy", None, Field.JOINT)
    kinds = ("entities", "relations")
    expected = [f"{kind}{ending}" for kind in kinds for ending in (".json", ".npy", "_rows.npy")]
    assert report["files"] == expected
