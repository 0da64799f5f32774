"""A version as a Zarr group: the numbers of its tables, read lazily, by any thread or process, and never written."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from dkge_dist.records import NightRecord
from dkge_dist.store.manifest import ModelManifest
from dkge_dist.store.models import ModelMetadata, publish_model, save_update
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.store.tables import BlockIndex, StoredTable, load_table, save_delta
from dkge_dist.store.zarr_store import VersionStore, open_version
from dkge_dist.surfaces import api
from dkge_dist.types import ROW, Field
from tests.graphs import movies, odd_triples, write_changes, write_tsv
from tests.store.small_models import BLOCK, DIM, night, publish

KINDS = ("entities", "relations")


def update(path: Path, seed: int = 1) -> ModelManifest:
    """Learn a night: random new vectors for some rows, old ones and new ones."""
    store = Store.open(path)
    parent, snapshot = store.find_model(), store.current_snapshot()
    assert snapshot is not None
    rng = np.random.default_rng(seed)
    counts = tuple(len(names) for names in store.dictionaries(store.head()))
    with store.storage.staging() as staging:
        deltas = []
        for count in counts:
            rows = np.unique(np.append(rng.choice(count, 1 + count // 20), count - 1)).astype(ROW)
            values = rng.normal(size=(2, len(rows), DIM)).astype(np.float32)
            fields = zip((Field.KNOWLEDGE, Field.JOINT), values, strict=True)
            deltas.append({field: [save_delta(staging, rows, some)] for field, some in fields})
        about = ModelMetadata({}, NightRecord(), [])
        entry = save_update(staging, parent, snapshot.version, counts, (deltas[0], deltas[1]), about)  # type: ignore[arg-type]
        return publish_model(store, entry, 1.0, parent.version)


@pytest.fixture
def updated(model: Path) -> Path:
    """Model 2, night 3, model 4, night 5, model 6."""
    for number in (1, 2):
        night(model, number)
        update(model, seed=number)
    return model


def array(group: zarr.Group, path: str) -> zarr.Array:
    found = group[path]
    assert isinstance(found, zarr.Array)
    return found


@pytest.mark.parametrize("version", [None, 2, "4", "night2"])
def test_arrays_are_the_tables_with_their_deltas(updated: Path, version: str | int | None) -> None:
    store = Store.open(updated)
    manifest = store.find_model(None if version is None else str(version))
    group = open_version(store, version)
    assert group.attrs["version"] == manifest.version == {None: 6, 2: 2, "4": 4, "night2": 6}[version]
    for kind, tables in zip(KINDS, (manifest.model.entities, manifest.model.relations), strict=True):
        for field in Field:
            found, expected = array(group, f"{kind}/{field}"), load_table(store.storage, tables[field])
            assert (found.shape, found.dtype) == (expected.shape, np.float32)
            assert found.chunks == (BlockIndex(store.storage, tables[field]).block, DIM)
            assert np.array_equal(found[:], expected)
            assert np.array_equal(found[1:3], expected[1:3])
            assert np.array_equal(found.oindex[[0, len(expected) - 1]], expected[[0, -1]])


def test_labels_and_alive_belong_to_the_rows(updated: Path, tmp_path: Path) -> None:
    api.ingest(updated, write_changes(tmp_path / "night3.changes", deleted=movies(2, first=40)))
    update(updated)
    store = Store.open(updated)
    for version in (2, 4, 6, 8):
        manifest = store.model_manifest(version)
        snapshot = store.snapshot(store.snapshot_manifest(manifest.model.snapshot))
        group = open_version(store, version)
        for number, flags in enumerate((snapshot.entities_alive, snapshot.relations_alive)):
            names = store.dictionaries(manifest)[number]
            rows = array(group, f"{KINDS[number]}/joint").shape[0]
            labels, alive = array(group, f"{KINDS[number]}/labels"), array(group, f"{KINDS[number]}/alive")
            assert labels.shape == alive.shape == (rows,)
            assert labels[:].tolist() == names.labels(np.arange(rows))
            assert alive.dtype == bool
            assert np.array_equal(alive[:], np.append(flags, np.zeros(rows - len(flags), bool)))
    removed = array(open_version(store), "entities/labels")[:][~array(open_version(store), "entities/alive")[:]]
    assert removed.tolist() == ["title20", "person40", "person43"]


def test_odd_labels(tmp_path: Path) -> None:
    api.ingest(tmp_path / "store", write_tsv(tmp_path / "odd.tsv", odd_triples()), force=True)
    publish(tmp_path / "store")
    store = Store.open(tmp_path / "store")
    group = open_version(store)
    for kind, names in zip(KINDS, store.dictionaries(store.head()), strict=True):
        assert array(group, f"{kind}/labels")[:].tolist() == names.labels(np.arange(len(names)))


def test_a_model_that_was_published_after_another_snapshot(model: Path) -> None:
    """Labels are known by then that its tables have no rows of."""
    parent = Store.open(model).find_model()
    night(model, 1)
    store = Store.open(model)
    publish_model(store, parent.model, 1.0)
    group = open_version(store)
    assert group.attrs["version"] == 4
    rows = array(group, "entities/joint").shape[0]
    assert rows < len(store.dictionaries(store.head())[0])
    assert array(group, "entities/labels").shape == array(group, "entities/alive").shape == (rows,)
    assert array(group, "entities/alive")[:].all()
    assert len(set(array(group, "entities/labels")[:])) == rows


def test_attributes_and_members(updated: Path) -> None:
    group = open_version(Store.open(updated), 4)
    assert dict(group.attrs) == {
        "version": 4,
        "snapshot": "night1",
        "snapshot_version": 3,
        "dimension": DIM,
        "labels": {"entities": "entities/labels", "relations": "relations/labels"},
    }
    assert sorted(name for name, _ in group.groups()) == sorted(KINDS)
    expected = sorted([*Field, "labels", "alive"])
    for kind in KINDS:
        found = group[kind]
        assert isinstance(found, zarr.Group)
        assert sorted(name for name, _ in found.arrays()) == expected
    assert len(group.members(max_depth=None)) == 2 + 2 * len(expected)


def read_all(store: VersionStore) -> dict[str, bytes]:
    async def everything() -> dict[str, bytes]:
        found = {}
        async for key in store.list():
            value = await store.get(key, default_buffer_prototype())
            assert value is not None
            assert await store.exists(key)
            found[key] = value.to_bytes()
        return found

    return sync(everything())


def test_keys_copied_to_a_folder_are_a_zarr_store(updated: Path, tmp_path: Path) -> None:
    """What any other implementation of the format sees."""
    store = Store.open(updated)
    for key, value in read_all(VersionStore(store, store.find_model())).items():
        (tmp_path / "copy" / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / key).write_bytes(value)
    group, copy = open_version(store), zarr.open_group(tmp_path / "copy", mode="r", zarr_format=3)
    assert dict(copy.attrs) == dict(group.attrs)
    for name, member in group.members(max_depth=None):
        if isinstance(member, zarr.Array):
            assert np.array_equal(array(copy, name)[:], member[:])


def test_vectors_are_described_just_as_the_stored_index_does(updated: Path) -> None:
    """The part that names the blocks and what zarr writes of such an array say the same."""
    store = Store.open(updated)
    entry = store.find_model().model.entities[Field.JOINT]
    stored = json.loads(store.storage.part_path(entry.base.part).read_bytes())
    shown = json.loads(read_all(VersionStore(store, store.find_model()))["entities/joint/zarr.json"])
    for key in ("zarr_format", "node_type", "data_type", "chunk_grid", "chunk_key_encoding", "fill_value", "codecs"):
        assert stored[key] == shown[key], key


@pytest.mark.parametrize(
    "key",
    ["", "zarr.jso", "entities", "entities/joint", "entities/joint/c", "entities/joint/c/0", "entities/joint/c/0/1",
     "entities/joint/c/00/0", "entities/joint/c/-1/0", "entities/joint/c/999/0", "entities/labels/c/0/0",
     "entities/other/c/0/0", "other/zarr.json", "entities/joint/c/0/0/", "/zarr.json", "../store.json", ".zgroup"],
)  # fmt: skip
def test_keys_that_are_not_there(updated: Path, key: str) -> None:
    store = VersionStore(Store.open(updated), Store.open(updated).find_model())
    assert sync(store.get(key, default_buffer_prototype())) is None
    assert not sync(store.exists(key))


def test_nothing_is_read_before_it_is_asked_for(updated: Path) -> None:
    """With all blocks and deltas gone, only reading them fails; what has other blocks is there."""
    store = Store.open(updated)
    tables = store.find_model().model.entities
    for part in [
        *BlockIndex(store.storage, tables[Field.CONTEXT]).parts,
        *(d.part for d in tables[Field.JOINT].deltas),
    ]:
        store.storage.part_path(part).unlink()
    group = open_version(store)
    for field in (Field.CONTEXT, Field.JOINT):
        with pytest.raises(StoreError, match=r"part .* is missing"):
            array(group, f"entities/{field}")[:]
    assert array(group, "entities/knowledge")[:].any()


def test_only_the_chunks_of_the_rows_are_read(updated: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[int] = []
    real = StoredTable.chunk

    def watched(self: StoredTable, number: int) -> np.ndarray:
        read.append(number)
        return real(self, number)

    monkeypatch.setattr(StoredTable, "chunk", watched)
    array(open_version(Store.open(updated)), "entities/joint")[BLOCK + 1 : BLOCK + 3]
    assert read == [1]


def test_writing_is_refused(updated: Path) -> None:
    group = open_version(Store.open(updated))
    assert group.read_only
    for write in (
        lambda: array(group, "entities/joint").__setitem__(0, 1),
        lambda: group.create_group("more"),
        lambda: group.attrs.update(version=7),
        lambda: sync(group.store.delete("zarr.json")),
        lambda: sync(group.store.set("zarr.json", default_buffer_prototype().buffer.from_bytes(b"x"))),
    ):
        with pytest.raises(ValueError, match="read-only"):
            write()


def test_many_threads_read_the_same(updated: Path) -> None:
    store = Store.open(updated)
    group = open_version(store)
    expected = {f"entities/{field}": load_table(store.storage, table) for field, table in
                store.find_model().model.entities.items()}  # fmt: skip
    labels = store.dictionaries(store.head())[0].labels(np.arange(len(expected["entities/joint"])))

    def read(number: int) -> bool:
        name = list(expected)[number % 3]
        return (
            np.array_equal(array(group, name)[:], expected[name])
            and array(group, "entities/labels")[:].tolist() == labels
        )

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(48)))


def test_another_process_can_open_it(updated: Path) -> None:
    group = open_version(Store.open(updated), 4)
    night(updated, 3)
    again = pickle.loads(pickle.dumps(group))  # noqa: S301  # of our own making
    assert again.store == group.store
    assert again.store != open_version(Store.open(updated), 6).store
    script = "import pickle, sys; print(pickle.load(sys.stdin.buffer)['entities/joint'][:].tobytes().hex())"
    done = subprocess.run(
        [sys.executable, "-c", script], input=pickle.dumps(group), stdout=subprocess.PIPE, timeout=120, check=True
    )
    assert bytes.fromhex(done.stdout.decode()) == array(group, "entities/joint")[:].tobytes()
