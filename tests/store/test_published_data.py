"""The published snapshots, where they are at hand: sizes, diffs and leaks are those that their authors' files have."""

from __future__ import annotations

from pathlib import Path

import pytest

from dkge_dist.surfaces import api
from tests.graphs import assert_sound

# By snapshot: entities, relations, train, added, deleted, valid and test triples that are in train too.
PUBLISHED = {
    "YAGO-3SP": [
        (26_897, 36, 123_974, 123_974, 0, 0, 0),
        (27_033, 37, 124_724, 900, 150, 52, 53),
        (27_097, 37, 125_574, 1000, 150, 172, 194),
    ],
    "DBpedia-3SP": [
        (66_308, 942, 102_308, 102_308, 0, 0, 0),
        (67_044, 959, 103_212, 1010, 106, 41, 0),
        (67_548, 1002, 104_112, 999, 99, 63, 0),
    ],
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_snapshots_and_their_diffs(tmp_path: Path, published_data: Path, name: str) -> None:
    store = tmp_path / "store"
    for number, expected in enumerate(PUBLISHED[name], 1):
        report = api.ingest(store, published_data / name / f"snapshot{number}")
        leaks = (report["counts"].get("valid_in_train", 0), report["counts"].get("test_in_train", 0))
        keys = ("entities", "relations", "train", "added", "deleted")
        assert (*(report[key] for key in keys), *leaks) == expected
        assert (report["format"], report["name"], report["version"]) == ("openke", f"snapshot{number}", number)
    assert_sound(store)
    # One duplicate triple is in these files.
    assert sum(version["counts"].get("duplicates", 0) for version in api.log(store)["versions"]) == (name != "YAGO-3SP")
