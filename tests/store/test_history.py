"""Going back to an earlier version loses nothing, and a night writes no more than it changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from tests.graphs import LEARN, assert_sound, everything, fresh_labels, listing, vectors, write_tsv
from tests.store.nights import current, night, numbers


@pytest.fixture
def store(with_nights: Path, tmp_path: Path) -> Path:
    """Snapshot 1 with model 2, night 3 with model 4, night 5 with model 6."""
    return Path(shutil.copytree(with_nights, tmp_path / "store"))


def rows_of_labels(store: Path) -> list[list[str]]:
    """The labels of all rows, by kind."""
    opened = Store.open(store)
    return [names.labels(range(len(names))) for names in opened.dictionaries(opened.head())]


class TestRollback:
    def test_moves_what_is_current_and_loses_nothing(self, store: Path) -> None:
        before = {version: numbers(store, version) for version in (2, 4, 6)}
        files = {name: kind for name, kind in listing(store).items() if name != "head"}
        report = api.rollback(store, 4)
        assert (report["version"], report["to"], report["snapshot"], report["model"]) == (7, 4, "night1", 4)
        assert current(store) == (3, 4)
        assert numbers(store) == before[4]
        assert {version: numbers(store, version) for version in (2, 4, 6)} == before
        now = listing(store)
        assert {name: now.get(name) for name in files} == files
        last = api.log(store)["versions"][-1]
        assert (last["kind"], last["parent"], last["name"]) == ("rollback", 4, "night1")
        assert_sound(store)
        assert api.update(store)["unchanged"]

    def test_can_be_rolled_back(self, store: Path) -> None:
        before = numbers(store)
        api.rollback(store, 2)
        assert current(store) == (1, 2)
        api.rollback(store, 7)
        assert current(store) == (1, 2)
        api.rollback(store, 6)
        assert current(store) == (5, 6)
        assert numbers(store) == before
        assert_sound(store)

    def test_to_a_version_without_a_model(self, store: Path) -> None:
        assert api.rollback(store, 1)["model"] is None
        with pytest.raises(StoreError, match="there is no model yet; `dkge train"):
            api.evaluate(store)
        assert numbers(store, 6)["version"] == 6

    @pytest.mark.parametrize("version", [0, 7, -1])
    def test_to_nowhere(self, store: Path, version: int) -> None:
        before = listing(store)
        with pytest.raises(StoreError, match=f"no version {version}"):
            api.rollback(store, version)
        assert listing(store) == before

    def test_rows_of_labels_are_for_ever(self, store: Path) -> None:
        before = rows_of_labels(store)
        api.rollback(store, 2)
        assert rows_of_labels(store) == before
        night(store, 3)
        api.update(store)
        after = rows_of_labels(store)
        for kind in range(2):
            assert after[kind][: len(before[kind])] == before[kind]
            assert len(set(after[kind])) == len(after[kind])
        assert "new2a" in after[0]
        assert "new2a" not in {end for h, _, t in everything(store, "night3") for end in (h, t)}

    def test_learning_goes_on_from_there(self, store: Path, tmp_path: Path) -> None:
        """The night that was taken back never happened to what is learnt next."""
        frozen_before = vectors(store, 4)
        api.rollback(store, 4)
        night(store, 3)
        report = api.update(store)
        assert (report["from"], report["parent"]) == ("night1", 4)
        assert report["emerging_entities"] == 2
        assert_sound(store)
        found = vectors(store, report["version"])
        kept = frozen_before["entities/context"].shape[0]
        assert (found["entities/context"][:kept] == frozen_before["entities/context"]).all()
        assert numbers(store)["version"] == report["version"]

    def test_a_night_that_brings_nobody(self, store: Path) -> None:
        """Labels of the night that was taken back have rows, though nobody of them is alive."""
        api.rollback(store, 2)
        night(store, 4, added=[("e1", "r1", "e9"), ("e2", "r0", "e9"), ("e1", "r2", "e50")])
        report = api.update(store)
        assert (report["emerging_entities"], report["emerging_relations"]) == (0, 0)
        assert report["affected_entities"] > 0
        assert numbers(store)["version"] == report["version"]
        assert_sound(store)

    def test_a_label_that_comes_back_is_emerging_again(self, store: Path) -> None:
        row = rows_of_labels(store)[0].index("new2a")
        api.rollback(store, 4)
        night(store, 5, added=fresh_labels(2))
        report = api.update(store)
        assert report["emerging_entities"] == 2
        assert rows_of_labels(store)[0].index("new2a") == row
        assert_sound(store)


@pytest.mark.parametrize("triples", [1, 8])
def test_a_night_writes_little_more_than_its_rows(tmp_path: Path, triples: int) -> None:
    """Three times the bytes of the rows it changed, and a constant; never the table."""
    store = tmp_path / "store"
    chain = [(f"e{i}", f"r{i % 2}", f"e{(i * 7 + 1) % 3000}") for i in range(3000)]
    api.ingest(store, write_tsv(tmp_path / "base.tsv", chain), valid=10)
    dim = 64
    api.train(store, settings=[*LEARN, f"model.dim={dim}", "train.max_epochs=1", "train.batch_size=2000"])
    night(store, 1, [(f"e{i}", "r0", f"e{i + 100}") for i in range(triples)], deleted=0)
    sizes = {path: path.stat().st_size for path in store.rglob("*") if path.is_file()}
    report = api.update(store)
    rows = sum(report[f"{kind}_{noun}"] for kind in ("emerging", "affected") for noun in ("entities", "relations"))
    new = {path: path.stat().st_size for path in store.rglob("*") if path.is_file() and path not in sizes}
    parts = sum(size for path, size in new.items() if path.parent.parent.name == "parts")
    assert parts == report["bytes_written"]
    # o^k and o* of every row, and nothing of the other three thousand.
    changed = rows * 2 * dim * 4
    constant = 16_384
    assert parts <= 3 * changed + constant
    assert sum(new.values()) <= 3 * changed + 2 * constant
    assert parts < 3000 * dim * 4 / 10
