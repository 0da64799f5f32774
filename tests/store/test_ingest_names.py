"""Names of snapshots, and labels of any kind: taken as they are, and never for paths."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import UsageError
from tests.graphs import assert_sound, everything, head, lines, listing, movies, odd_triples, write_tsv


class TestLabels:
    def test_odd_labels_go_in_and_out_byte_for_byte(self, tmp_path: Path) -> None:
        path = tmp_path / "store"
        api.ingest(path, write_tsv(tmp_path / "odd.tsv", [("start", "r", "here"), *odd_triples()]))
        assert everything(path, "1") == {("start", "r", "here"), *odd_triples()}
        assert_sound(path)

    def test_a_written_diff_is_a_change_file_that_leads_there(self, tmp_path: Path) -> None:
        one, two, night = tmp_path / "one", tmp_path / "two", tmp_path / "night.changes"
        base = write_tsv(tmp_path / "base.tsv", movies(300))
        for path in (one, two):
            api.ingest(path, base)
        api.ingest(one, write_tsv(tmp_path / "next.tsv", movies(290) + odd_triples()), name="next")
        report = api.diff(one, "base", "next", out=night)
        assert report["out"] == str(night)
        assert sorted(path.name for path in tmp_path.glob("*night*")) == ["night.changes"]
        api.ingest(two, night)
        assert everything(two, "night") == everything(one, "next") == {*movies(290), *odd_triples()}
        assert head(one).snapshot.content == head(two).snapshot.content

    @pytest.mark.parametrize("label", ["tab\there", "line\nend", "return\r"])
    def test_labels_that_a_change_file_cannot_hold(self, tmp_path: Path, store: Path, label: str) -> None:
        h, r, t = (list(column) for column in zip(*movies(200), ("a", "actor", label), strict=True))
        pq.write_table(pa.table({"h": h, "r": r, "t": t}), tmp_path / "next.parquet")
        api.ingest(store, tmp_path / "next.parquet")
        with pytest.raises(UsageError, match="a change file cannot hold the label"):
            api.diff(store, "1", "2", out=tmp_path / "night.changes")
        assert not list(tmp_path.glob("*night*"))


class TestNames:
    def test_a_name_that_the_source_gives_is_made_free(self, tmp_path: Path, store: Path) -> None:
        names = []
        for night in range(1, 4):
            source = write_tsv(tmp_path / str(night) / "dump.tsv", movies(200 + night))
            names.append(api.ingest(store, source)["name"])
        assert names == ["dump", "dump-3", "dump-4"]

    def test_a_numbered_name_may_be_taken_too(self, tmp_path: Path, store: Path) -> None:
        api.ingest(store, write_tsv(tmp_path / "a.tsv", movies(201)), name="dump")
        api.ingest(store, write_tsv(tmp_path / "a.tsv", movies(202)), name="dump-4")
        report = api.ingest(store, write_tsv(tmp_path / "dump.tsv", movies(203)))
        assert report["name"] == "dump-5"
        all_names = [version["name"] for version in api.log(store)["versions"]]
        assert len(set(all_names)) == len(all_names) == 4

    def test_a_given_name_that_is_taken(self, tmp_path: Path, store: Path) -> None:
        source = write_tsv(tmp_path / "next.tsv", movies(201))
        before = listing(store)
        with pytest.raises(UsageError, match="the name 'base' is taken by version 1, which holds other triples"):
            api.ingest(store, source, name="base")
        assert listing(store) == before

    def test_a_given_name_makes_an_ingest_repeatable(self, tmp_path: Path, store: Path) -> None:
        monday = write_tsv(tmp_path / "monday.tsv", movies(202))
        api.ingest(store, monday, name="monday")
        api.ingest(store, write_tsv(tmp_path / "tuesday.tsv", movies(204)), name="tuesday")
        report = api.ingest(store, monday, name="monday")
        assert report["unchanged"] is True
        assert (report["version"], report["name"], report["triples"]) == (2, "monday", 202)
        assert (report["added"], report["deleted"]) == (0, 0)
        assert head(store).version == 3

    def test_a_new_name_for_the_same_triples_is_a_version(self, tmp_path: Path, store: Path) -> None:
        report = api.ingest(store, tmp_path / "base.tsv", name="again")
        assert (report["unchanged"], report["version"], report["added"], report["deleted"]) == (False, 2, 0, 0)
        assert everything(store, "again") == everything(store, "base")
        assert_sound(store)

    @pytest.mark.parametrize("name", ["", "new\nline", "\0", "x" * 201, "\udce9"])
    def test_names_that_cannot_be(self, tmp_path: Path, name: str) -> None:
        with pytest.raises(UsageError, match="a name has 1 to 200 printable characters"):
            api.ingest(tmp_path / "store", write_tsv(tmp_path / "base.tsv", movies(20)), name=name)
        assert not (tmp_path / "store").exists()

    @pytest.mark.parametrize("name", ["../../escape", "a/b", ".hidden", "nåme", "--x", "x" * 200])
    def test_a_name_is_no_path(self, tmp_path: Path, name: str) -> None:
        path = tmp_path / "deep" / "er" / "store"
        source = tmp_path / "base.tsv"
        source.write_text(lines(movies(20)) + "bad\n")
        report = api.ingest(path, source, name=name, max_bad_lines=1)
        assert report["name"] == head(path).snapshot.name == name
        assert Path(report["rejects"]).parent == path / "rejects"
        assert {entry.name for entry in tmp_path.iterdir()} == {"deep", "base.tsv"}
        assert everything(path, name) == set(movies(20))

    def test_a_name_that_is_a_number_is_a_name(self, tmp_path: Path, store: Path) -> None:
        api.ingest(store, write_tsv(tmp_path / "1.tsv", movies(201)))
        opened = Store.open(store)
        assert opened.find_snapshot("1").version == 2
        assert opened.find_snapshot("2").version == 2
        with pytest.raises(StoreError, match="no snapshot '3'; the newest are base, 1"):
            opened.find_snapshot("3")
