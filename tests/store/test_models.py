"""Model versions: saved, published, found, listed and checked, among snapshots that come and go."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dkge_dist import api
from dkge_dist.store.manifest import ModelEntry, ModelManifest, PartEntry, TableEntry, parse_manifest, sealed
from dkge_dist.store.models import (
    FIELDS,
    ModelMetadata,
    ModelWeights,
    load_history,
    load_learnt,
    publish_model,
    save_model,
    save_small,
)
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.store.tables import save_table, table_parts
from tests.graphs import assert_sound, everything, head, listing, movies, write_changes, write_tsv

DIM, BLOCK = 3, 16
HISTORY = [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": 0.25, "hits@10": 0.1}]
ABOUT = ModelMetadata({"seed": 7}, {"hits@10": 0.1}, {"preset": "default", "epochs": 2, "device": "cpu"}, HISTORY)


def some_learnt(store: Store, seed: int = 0) -> ModelWeights:
    rng = np.random.default_rng(seed)
    counts = [len(names) for names in store.dictionaries(store.head())]
    kinds = [{field: rng.normal(size=(count, DIM)).astype(np.float32) for field in FIELDS} for count in counts]
    dense = {"entity.gate.logits": rng.normal(size=DIM).astype(np.float32), "w": np.ones((DIM, DIM), np.float32)}
    return ModelWeights(kinds[0], kinds[1], dense)


def saved(store: Store, learnt: ModelWeights, snapshot: int = 1) -> ModelEntry:
    with store.storage.staging() as staging:
        entities = {field: save_table(staging, values, BLOCK) for field, values in learnt.entities.items()}
        tables = (entities, save_small(staging, learnt.relations))
        return save_model(staging, snapshot, tables, learnt.dense, ABOUT)


def publish(path: Path, snapshot: int = 1, seed: int = 0) -> ModelManifest:
    store = Store.open(path)
    return publish_model(store, saved(store, some_learnt(store, seed), snapshot), 1.5)


def assert_equal(one: ModelWeights, other: ModelWeights) -> None:
    for name in ("entities", "relations", "dense"):
        left, right = getattr(one, name), getattr(other, name)
        assert left.keys() == right.keys()
        assert all(np.array_equal(left[key], right[key]) for key in left)


@pytest.fixture(scope="module")
def with_graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graph")
    api.ingest(folder / "store", write_tsv(folder / "base.tsv", movies(60)), name="first", valid=4, test=4)
    return folder / "store"


@pytest.fixture(scope="module")
def with_model(with_graph: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    store = Path(shutil.copytree(with_graph, tmp_path_factory.mktemp("model") / "store"))
    publish(store)
    return store


@pytest.fixture
def graph(with_graph: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(with_graph, tmp_path / "store"))


@pytest.fixture
def model(with_model: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(with_model, tmp_path / "store"))


def night(store: Path, number: int) -> dict:
    source = write_changes(store.parent / f"{number}.changes", movies(4, first=60 + 4 * number), movies(1, number))
    return api.ingest(store, source, name=f"night{number}")


def test_what_is_published_is_loaded(graph: Path) -> None:
    store = Store.open(graph)
    learnt = some_learnt(store)
    published = publish_model(store, saved(store, learnt), 1.5)
    again = Store.open(graph)
    found = again.find_model()
    assert found == published == again.head()
    assert (found.version, found.model.snapshot, found.model.parent) == (2, 1, None)
    assert (found.current.snapshot, found.current.model) == (1, 2)
    assert_equal(load_learnt(again, found.model), learnt)
    assert load_history(again, found.model) == HISTORY
    assert (found.model.settings, found.model.metrics, found.model.facts) == (
        ABOUT.settings,
        ABOUT.metrics,
        ABOUT.facts,
    )
    assert everything(graph, "first") == set(movies(60))
    assert list((graph / "staging").iterdir()) == []
    assert_sound(graph)


def test_some_fields_are_loaded_alone_and_missing_ones_are_named(model: Path) -> None:
    store = Store.open(model)
    entry = store.find_model().model
    learnt = load_learnt(store, entry, ("joint",))
    assert [list(tables) for tables in (learnt.entities, learnt.relations)] == [["joint"], ["joint"]]
    short = entry.model_copy(update={"relations": {"joint": entry.relations["joint"]}})
    with pytest.raises(StoreError, match="a model without knowledge vectors"):
        load_learnt(store, short)


def test_log_shows_models_among_snapshots(model: Path) -> None:
    night(model, 1)
    publish(model, snapshot=3)
    versions = api.log(model)["versions"]
    assert [(v["version"], v["kind"], v["name"], v["parent"]) for v in versions] == [
        (1, "snapshot", "first", None), (2, "model", "first", 1),
        (3, "snapshot", "night1", 1), (4, "model", "night1", 3),
    ]  # fmt: skip
    assert versions[1]["metrics"] == {"hits@10": 0.1}
    assert (versions[1]["epochs"], versions[1]["device"], versions[1]["seconds"]) == (2, "cpu", 1.5)
    json.dumps(versions)


def test_an_ingest_after_training_keeps_the_model_in_force(model: Path) -> None:
    before = load_learnt(Store.open(model), Store.open(model).find_model().model)
    night(model, 1)
    store = Store.open(model)
    current = head(model).current
    assert (current.snapshot, current.model) == (3, 2)
    assert store.find_model().version == 2
    assert_equal(load_learnt(store, store.find_model().model), before)
    assert head(model).snapshot.parent == 1
    night(model, 2)
    assert head(model).snapshot.parent == 3
    assert head(model).current.model == 2
    assert_sound(model)


def test_an_ingest_that_changes_nothing_after_training(model: Path) -> None:
    before = listing(model / "versions")
    report = api.ingest(model, write_tsv(model.parent / "same.tsv", movies(60)))
    assert report["unchanged"]
    assert listing(model / "versions") == before


@pytest.mark.parametrize("others", [1, 3])
def test_a_model_is_published_on_top_of_what_came_meanwhile(
    graph: Path, monkeypatch: pytest.MonkeyPatch, others: int
) -> None:
    """Other writers take the number right before it is asked for, several times in a row."""
    store = Store.open(graph)
    learnt = some_learnt(store)
    entry = saved(store, learnt)
    real, came = Store.publish, []

    def late(self: Store, manifest: ModelManifest) -> None:
        if self is store and len(came) < others:
            came.append(night(graph, len(came))["version"])
        real(self, manifest)

    monkeypatch.setattr(Store, "publish", late)
    published = publish_model(store, entry, 1.0)
    assert came == list(range(2, 2 + others))
    assert published.version == 2 + others
    found = Store.open(graph).find_model()
    assert found == published
    assert (found.current.snapshot, found.model.snapshot) == (1 + others, 1)
    assert_equal(load_learnt(Store.open(graph), found.model), learnt)
    # The dictionary of the version is that of the newest snapshot, not of the one that was learnt.
    assert len(Store.open(graph).dictionaries(found)[0]) > learnt.entities["joint"].shape[0]
    assert_sound(graph)
    assert everything(graph, f"night{others - 1}") > set(movies(others, first=60))


def test_two_trainings_of_one_snapshot_are_two_versions(graph: Path) -> None:
    store = Store.open(graph)
    entries = [saved(store, some_learnt(store, seed)) for seed in (1, 2)]
    published = [publish_model(store, entry, 1.0).version for entry in entries]
    assert published == [2, 3]
    assert Store.open(graph).find_model().version == 3
    assert Store.open(graph).find_model("2").version == 2


def test_models_are_found_by_number_and_by_snapshot(model: Path) -> None:
    night(model, 1)
    night(model, 2)
    publish(model, snapshot=4)
    store = Store.open(model)
    assert store.find_model().version == 5
    assert [store.find_model(str(n)).version for n in (2, 3, 4, 5)] == [2, 2, 2, 5]
    assert store.find_model("first").version == 2
    assert store.find_model("night1").version == 2
    assert store.find_model("night2").version == 5
    with pytest.raises(StoreError, match=f"{model}: there is no model at '1' yet; `dkge train {model}` learns one"):
        store.find_model("1")
    with pytest.raises(StoreError, match="no snapshot 'nobody'; the newest are first, night1, night2"):
        store.find_model("nobody")
    with pytest.raises(StoreError, match="no snapshot '9'"):
        store.find_model("9")


def test_a_store_without_models_says_how_to_get_one(graph: Path, tmp_path: Path) -> None:
    advice = "there is no model{} yet; `dkge train .*` learns one"
    for name, at in ((None, ""), ("1", " at '1'"), ("first", " at 'first'")):
        with pytest.raises(StoreError, match=advice.format(at)):
            Store.open(graph).find_model(name)
    empty = Store(tmp_path / "empty")
    empty.ensure()
    with pytest.raises(StoreError, match=advice.format("")):
        Store.open(tmp_path / "empty").find_model()
    with pytest.raises(StoreError, match="version 1 is a snapshot, not a model"):
        Store.open(graph).model_manifest(1)


def test_a_model_is_no_snapshot(model: Path) -> None:
    store = Store.open(model)
    with pytest.raises(StoreError, match="version 2 is a model, not a snapshot"):
        store.snapshot_manifest(2)
    assert store.find_snapshot("2").version == 1
    assert store.current_snapshot() == store.snapshot_manifest(1)


def test_snapshots_from_before_there_were_models(graph: Path) -> None:
    """Their manifests do not say what is in force: they are, and no model is."""
    path = graph / "versions" / "00000001.json"
    content = json.loads(path.read_bytes())
    del content["sha256"], content["current"]
    path.write_bytes(sealed(json.dumps(content, indent=1)))
    manifest = parse_manifest(path.read_bytes(), str(path))
    assert (manifest.current.snapshot, manifest.current.model) == (1, None)
    with pytest.raises(StoreError, match="there is no model yet"):
        Store.open(graph).find_model()
    assert_sound(graph)
    night(graph, 1)
    publish(graph, snapshot=2)
    assert_sound(graph)
    assert Store.open(graph).find_model("night1").version == 3


def test_a_model_that_does_not_say_what_is_in_force_is_refused(model: Path) -> None:
    path = model / "versions" / "00000002.json"
    content = json.loads(path.read_bytes())
    del content["sha256"], content["current"]
    with pytest.raises(StoreError, match=r"00000002\.json: not a manifest of this program: current"):
        parse_manifest(sealed(json.dumps(content, indent=1)), str(path))


@pytest.mark.parametrize(
    ("current", "message"),
    [
        ({"snapshot": 1, "model": 3}, "says it stands on version 3"),
        ({"snapshot": 3, "model": 2}, "says it stands on version 3"),
        ({"snapshot": 0, "model": 2}, r"current\.snapshot"),
    ],
)
def test_versions_that_stand_on_later_ones_are_refused(model: Path, current: dict, message: str) -> None:
    path = model / "versions" / "00000002.json"
    content = json.loads(path.read_bytes())
    del content["sha256"]
    path.write_bytes(sealed(json.dumps(content | {"current": current}, indent=1)))
    with pytest.raises(StoreError, match=message):
        Store.open(model).find_model()


def model_parts(path: Path) -> dict[str, PartEntry]:
    """Every part of the model in force, by what it is."""
    store = Store.open(path)
    entry = store.find_model().model
    found = {"dense": entry.dense, "history": entry.history}
    for noun, tables in (("entities", entry.entities), ("relations", entry.relations)):
        for field, table in tables.items():
            found[f"{noun}-{field}"] = table.base
            for number, part in enumerate(table_parts(store.storage, table)):
                found[f"{noun}-{field}-{number}"] = part
    return found


def test_check_looks_at_every_part_of_a_model(model: Path) -> None:
    parts = {str(path) for path in (model / "parts").rglob("*") if path.is_file()}
    report = api.check(model)
    assert (report["ok"], report["parts"]) == (True, len(parts))
    assert len(model_parts(model)) > 2 + 6 + 6 * 1


@pytest.mark.parametrize("harm", ["truncated", "missing", "flipped"])
def test_check_names_broken_parts_of_a_model(model: Path, harm: str) -> None:
    store = Store.open(model)
    for what, part in model_parts(model).items():
        path = store.storage.part_path(part.part)
        content = path.read_bytes()
        if harm == "missing":
            path.unlink()
        else:
            middle = len(content) // 2
            path.write_bytes(content[:-1] if harm == "truncated" else content[:middle] + b"#" + content[middle + 1 :])
        problems = api.check(model)["problems"]
        assert [problem["version"] for problem in problems] == [2], what
        assert str(path) in problems[0]["problem"], what
        path.write_bytes(content)
    assert_sound(model)


def republished(path: Path, change: Callable[[ModelEntry], dict]) -> list[str]:
    """What a check finds in a model of sound parts that do not fit together."""
    store = Store.open(path)
    entry = store.find_model().model
    publish_model(store, entry.model_copy(update=change(entry)), 1.0)
    problems = api.check(path)["problems"]
    assert {problem["version"] for problem in problems} <= {3}
    return [problem["problem"] for problem in problems]


def test_check_names_tables_that_do_not_fit_each_other(model: Path) -> None:
    (problem,) = republished(model, lambda entry: {"entities": {**entry.entities, "joint": entry.relations["joint"]}})
    assert problem == "tables of different shapes"


def test_check_names_tables_with_another_shape_than_their_index(model: Path) -> None:
    def more_rows(entry: ModelEntry) -> dict:
        table: TableEntry = entry.relations["joint"]
        return {"relations": {**entry.relations, "joint": table.model_copy(update={"rows": table.rows + 5})}}

    (problem,) = republished(model, more_rows)
    assert f"has 2 rows, its table {2 + 5}" in problem


def test_check_names_vectors_that_are_no_numbers(graph: Path) -> None:
    store = Store.open(graph)
    learnt = some_learnt(store)
    learnt.entities["context"][[17, 20], 1] = [np.nan, np.inf]
    publish_model(store, saved(store, learnt), 1.0)
    problems = [problem["problem"] for problem in api.check(graph)["problems"]]
    assert problems == ["context vector of entity row 17 is not finite (and 1 others)"]


def test_damaged_dense_parameters_and_history_are_named_by_whoever_reads_them(model: Path) -> None:
    store = Store.open(model)
    entry = store.find_model().model
    for part, read in ((entry.dense, load_learnt), (entry.history, load_history)):
        path = store.storage.part_path(part.part)
        path.write_bytes(b"\xff" * part.size)
        with pytest.raises(StoreError, match=f"part {path} is damaged"):
            read(store, entry)
