"""`dkge export`: what it writes, and how it fails."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import safetensors.numpy
import zarr

from dkge_dist.store.store import Store
from tests.cli.running import Ended, Run, dkge, error_of
from tests.graphs import vectors


class TestExport:
    @pytest.fixture(params=["joint", "knowledge", "context"])
    def what(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def expected(self, store: Path, what: str) -> dict[str, tuple[list[str], np.ndarray]]:
        opened = Store.open(store)
        snapshot = opened.snapshot(opened.current_snapshot())
        found = {}
        for kind, names, flags in zip(
            ("entities", "relations"),
            opened.dictionaries(opened.head()),
            (snapshot.entities_alive, snapshot.relations_alive),
            strict=True,
        ):
            rows = np.flatnonzero(flags)
            found[kind] = (names.labels(rows), vectors(store, 4)[f"{kind}/{what}"][rows])
        return found

    @pytest.mark.parametrize("format", ["parquet", "npy", "safetensors", "zarr"])
    def test_exported_vectors_read_back(
        self, updated: tuple[Path, Ended], tmp_path: Path, run: Run, format: str, what: str
    ) -> None:
        out = tmp_path / "new" / "out"
        ended = run("export", updated[0], out, "--format", format, "--what", what, "--json")
        assert (ended.code, ended.stderr) == (0, "")
        assert (ended.json["entities"], ended.json["relations"], ended.json["dim"]) == (62, 5, 8)
        assert sorted(path.name for path in out.iterdir()) == ended.json["files"]
        assert list(out.parent.iterdir()) == [out]
        for kind, (labels, values) in self.expected(updated[0], what).items():
            if format == "parquet":
                table = pq.read_table(out / f"{kind}.parquet")
                found_labels = table["label"].to_pylist()
                found = np.array(table["vector"].to_pylist(), np.float32)
            else:
                found_labels = json.loads((out / f"{kind}.json").read_text(encoding="utf-8"))
                if format == "npy":
                    found = np.load(out / f"{kind}.npy", allow_pickle=False)
                elif format == "safetensors":
                    found = safetensors.numpy.load_file(out / "vectors.safetensors")[kind]
                else:
                    found = zarr.open_array(out / kind, mode="r")[:]
            assert found_labels == labels
            assert found.dtype == np.float32
            assert np.array_equal(found, values)

    def test_version_and_report_as_text(self, updated: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
        ended = run("export", updated[0], tmp_path / "out", "--version", "2")
        assert (ended.code, ended.stderr) == (0, "")
        assert ended.stdout == f"{tmp_path}/out: joint vectors of entities 60, relations 4, dim 8\n"

    def test_only_what_changed_since_a_version(self, updated: tuple[Path, Ended], tmp_path: Path) -> None:
        ended = dkge("export", updated[0], tmp_path / "out", "--since", "2", "--json")
        assert (ended.code, ended.stderr) == (0, "")
        assert (ended.json["since"], ended.json["version"]) == (2, 4)
        for kind, (labels, values) in self.expected(updated[0], "joint").items():
            table = pq.read_table(tmp_path / "out" / f"{kind}.parquet")
            found = dict(zip(table["label"].to_pylist(), table["vector"].to_pylist(), strict=True))
            assert ended.json[f"upserted_{kind}"] == len(found) > 0
            assert ended.json[f"deleted_{kind}"] == 0
            expected = dict(zip(labels, values.tolist(), strict=True))
            assert found == {label: expected[label] for label in found}
        assert len(pq.read_table(tmp_path / "out" / "deleted_entities.parquet")) == 0

    def test_back_to_an_earlier_version_as_text(self, updated: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
        ended = run("export", updated[0], tmp_path / "out", "--since", "4", "--version", "2")
        assert (ended.code, ended.stderr) == (0, "")
        first, entities, relations = ended.stdout.splitlines()
        assert first == f"{tmp_path}/out: joint vectors from version 4 to 2"
        assert re.fullmatch(r"  entities: [0-9]+ to upsert, 2 to delete", entities)
        assert re.fullmatch(r"  relations: [0-9]+ to upsert, 1 to delete", relations)

    def test_changes_since_a_version_that_is_not_there(
        self, updated: tuple[Path, Ended], tmp_path: Path, run: Run
    ) -> None:
        message = error_of(run("export", updated[0], tmp_path / "out", "--since", "9", "--json"), 1)
        assert "no snapshot '9'" in message
        assert not (tmp_path / "out").exists()

    def test_existing_files_are_not_overwritten(self, updated: tuple[Path, Ended], tmp_path: Path, run: Run) -> None:
        (tmp_path / "kept").write_text("x")
        for out in (tmp_path, tmp_path / "kept"):
            message = error_of(run("export", updated[0], out, "--json"), 2)
            assert message == f"{out}: exists already; name a new or empty folder"
        assert [path.name for path in tmp_path.iterdir()] == ["kept"]
        assert run("export", updated[0], tmp_path / "x", "--format", "csv", "--json").code == 2
