"""IMDB dumps: relations, filters, dangling keys and bad lines, and random dumps against a slow reader."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import Rejects, SourceError, SourceOptions
from dkge_dist.graph.sources.imdb import ImdbSource
from dkge_dist.types import UsageError
from tests.graph.sources.imdb_dumps import (
    ALL_NAMES,
    ALL_TRIPLES,
    DUMPS,
    NULL,
    Rows,
    person,
    principal,
    slow_triples,
    small_dump,
    title,
    write,
)
from tests.graph.sources.reading import names, triples


def test_all_relations_are_read(tmp_path: Path) -> None:
    source = ImdbSource(write(tmp_path, small_dump()))
    found = triples(source)
    assert sorted(found) == sorted(ALL_TRIPLES)
    assert source.counts == {}
    assert source.bytes_read == source.bytes_total == sum(file.stat().st_size for file in tmp_path.iterdir())


def test_crew_and_episodes_are_optional(tmp_path: Path) -> None:
    dumps = small_dump()
    del dumps["title.crew"], dumps["title.episode"]
    assert sorted(triples(ImdbSource(write(tmp_path, dumps)))) == sorted(ALL_TRIPLES[:6])


def test_titles_released_after_a_year(tmp_path: Path) -> None:
    source = ImdbSource(write(tmp_path, small_dump()), SourceOptions(released_after=2013))
    dropped = {"tt0000002", "tt0000003"}
    assert sorted(triples(source)) == sorted(triple for triple in ALL_TRIPLES if not dropped & set(triple))
    assert source.counts == {
        "titles without a year left out": 1,
        "titles released too early left out": 1,
        "triples of titles left out": 4,
    }


def test_labels_by_name_merge_namesakes(tmp_path: Path) -> None:
    found = triples(ImdbSource(write(tmp_path, small_dump()), SourceOptions(key="name")))
    assert sorted(found) == sorted((ALL_NAMES[head], relation, ALL_NAMES[tail]) for head, relation, tail in ALL_TRIPLES)


def test_missing_name_is_replaced_by_the_key(tmp_path: Path) -> None:
    dumps = small_dump()
    dumps["title.basics"][0][2] = NULL
    dumps["name.basics"][1][1] = ""
    source = ImdbSource(write(tmp_path, dumps), SourceOptions(key="name"))
    assert ("tt0000001", "director", "nm0000002") in triples(source)
    assert source.counts == {
        "entities without a primaryTitle called by their key": 1,
        "entities without a primaryName called by their key": 1,
    }


def test_dangling_keys_are_counted(tmp_path: Path) -> None:
    dumps = small_dump()
    dumps["title.principals"] += [
        principal("tt0000009", "nm0000001"),
        principal("tt0000001", "nm0000009"),
        principal("tt0000009", "nm0000009"),
        principal("tt999999999", "nm0000001"),
        principal("tt1", "nm0000001"),
    ]
    dumps["title.crew"].append(["tt0000001", "nm0000008,nm0000001", NULL])
    dumps["title.episode"].append(["tt0000001", "tt0000009", "1", "2"])
    dumps["title.episode"].append(["tt0000001", NULL, "1", "2"])
    source = ImdbSource(write(tmp_path, dumps))
    assert sorted(triples(source)) == sorted([*ALL_TRIPLES, ("tt0000001", "director", "nm0000001")])
    assert source.counts == {
        "triples with an unknown title dropped": 5,
        "triples with an unknown person dropped": 2,
        "episodes without a series skipped": 1,
    }


def test_keys_of_other_lengths_are_other_keys(tmp_path: Path) -> None:
    dumps = {
        "title.basics": [title("tt1"), title("tt0000001"), title("tt01")],
        "name.basics": [person("nm5")],
        "title.principals": [principal("tt1", "nm5"), principal("tt0000001", "nm5"), principal("tt001", "nm5")],
    }
    source = ImdbSource(write(tmp_path, dumps))
    assert triples(source) == [("tt1", "actor", "nm5"), ("tt0000001", "actor", "nm5")]
    assert source.counts == {"triples with an unknown title dropped": 1}


def test_last_of_repeated_rows_counts(tmp_path: Path) -> None:
    dumps = small_dump()
    dumps["title.basics"].append(title("tt0000001", "The Paper Lighthouse, Restored"))
    dumps["title.principals"] *= 2
    heads = Counter(
        head
        for head, relation, _ in triples(ImdbSource(write(tmp_path, dumps), SourceOptions(key="name")))
        if relation == "actress"
    )
    assert heads == {"The Paper Lighthouse, Restored": 2}


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    """In another order, among others, and without columns that are not read."""
    write(tmp_path, small_dump())
    (tmp_path / "title.principals.tsv").write_text("category\tnew\tnconst\ttconst\nactress\tx\tnm0000001\ttt0000001\n")
    (tmp_path / "title.basics.tsv").write_text("new\ttconst\nx\ttt0000001\n")
    found = triples(ImdbSource(tmp_path))
    assert ("tt0000001", "actress", "nm0000001") in found
    assert {head for head, relation, _ in found if relation != "knownFor"} == {"tt0000001"}


def test_byte_order_mark_and_crlf_are_dropped(tmp_path: Path) -> None:
    write(tmp_path, small_dump())
    for file in tmp_path.iterdir():
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert sorted(triples(ImdbSource(tmp_path))) == sorted(ALL_TRIPLES)


MISSING_COLUMNS = [
    ("title.basics", "tconst", {}),
    ("title.basics", "startYear", {"released_after": 2013}),
    ("title.basics", "primaryTitle", {"key": "name"}),
    ("name.basics", "nconst", {}),
    ("name.basics", "knownForTitles", {}),
    ("name.basics", "primaryName", {"key": "name"}),
    ("title.principals", "category", {}),
    ("title.crew", "writers", {}),
    ("title.episode", "parentTconst", {}),
]


@pytest.mark.parametrize(("dump", "column", "options"), MISSING_COLUMNS, ids=lambda value: str(value))
def test_missing_column_is_named(tmp_path: Path, dump: str, column: str, options: dict[str, str]) -> None:
    path = write(tmp_path, small_dump()) / f"{dump}.tsv"
    path.write_text(path.read_text().replace(column, "renamed", 1))
    with pytest.raises(SourceError, match=f"^{path}:1: no column '{column}'; the columns are: .*renamed"):
        triples(ImdbSource(tmp_path, SourceOptions(**options)))  # type: ignore[arg-type]


def test_missing_dumps_are_named(tmp_path: Path) -> None:
    dumps = small_dump()
    del dumps["name.basics"], dumps["title.principals"]
    source = ImdbSource(write(tmp_path, dumps))
    with pytest.raises(SourceError, match=f"^{tmp_path}: no name.basics and no title.principals"):
        triples(source)


def test_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="absent: not a folder"):
        ImdbSource(tmp_path / "absent")


def test_unknown_kind_of_key_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="'title' is neither 'id' nor 'name'"):
        ImdbSource(tmp_path, SourceOptions(key="title"))  # type: ignore[arg-type]


BAD_ROWS: dict[str, tuple[str, list[str], str]] = {
    "title key": ("title.basics", title("xx0000001"), "tconst is no key like tt0000001: 'xx0000001'"),
    "null title key": ("title.basics", title(NULL), "tconst is no key like tt0000001"),
    "endless title key": ("title.basics", title("tt1234567890"), "tconst is no key like tt0000001"),
    "year": ("title.basics", title("tt0000009", year="20x4"), "startYear is no year: '20x4'"),
    "columns": ("title.basics", ["tt0000009", "movie"], "2 columns instead of 9"),
    "person key": ("name.basics", person("nm"), "nconst is no key like nm0000001: 'nm'"),
    "known title": ("name.basics", person("nm0000009", "X", "tt0000001,tt00x"), "knownForTitles is no list of keys"),
    "principal's title": ("title.principals", principal("", "nm0000001"), "tconst is no key like"),
    "principal": ("title.principals", principal("tt0000001", "tt0000001"), "nconst is no key like nm0000001"),
    "both keys": ("title.principals", principal("tt", "nm"), "tconst is no key like"),
    "null category": ("title.principals", principal("tt0000001", "nm0000001", NULL), "no category"),
    "empty category": ("title.principals", principal("tt0000001", "nm0000001", ""), "no category"),
    "director": ("title.crew", ["tt0000001", "nm0000001,", NULL], "directors is no list of keys like nm0000001"),
    "writer": ("title.crew", ["tt0000001", NULL, "nm0000001,Ada,nm0000002,Bo"], "writers is no list of keys"),
    "episode": ("title.episode", ["1", "tt0000001", "1", "1"], "tconst is no key like"),
    "series": ("title.episode", ["tt0000001", "none", "1", "1"], "parentTconst is no key like tt0000001: 'none'"),
}


def with_bad_row(folder: Path, kind: str) -> tuple[Path, int]:
    """A dump with a bad row before the last one; its file and line."""
    dump, row, _ = BAD_ROWS[kind]
    dumps = small_dump()
    dumps[dump].insert(-1, row)
    return write(folder, dumps) / f"{dump}.tsv", len(dumps[dump])


@pytest.mark.parametrize("kind", BAD_ROWS)
@pytest.mark.parametrize("chunk_bytes", [11, 16 << 20])
def test_bad_line_is_named_or_set_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, chunk_bytes: int
) -> None:
    """Before the last row of its dump; the titles are those with a year."""
    dump, row, reason = BAD_ROWS[kind]
    dumps = small_dump()
    dumps[dump].insert(-1, row)
    place = f"{write(tmp_path, dumps) / dump}.tsv:{len(dumps[dump])}"
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk_bytes)
    with pytest.raises(SourceError, match=f"^{place}: {reason}"):
        triples(ImdbSource(tmp_path, SourceOptions(released_after=0)))
    rejects = Rejects(limit=1)
    found = triples(ImdbSource(tmp_path, SourceOptions(released_after=0)), rejects)
    assert sorted(found) == sorted(triple for triple in ALL_TRIPLES if "tt0000003" not in triple)
    assert [reject.split("\t")[0] for reject in rejects.lines] == [place]


@settings(max_examples=60, deadline=None)
@given(DUMPS, st.one_of(st.none(), st.just(2013)), st.sampled_from(["id", "name"]), st.integers(1, 500))
def test_random_dumps_equal_the_slow_reader(
    dumps: dict[str, Rows], released_after: int | None, key: Literal["id", "name"], chunk: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK_BYTES", chunk)
        path = write(Path(folder), dumps)
        found = triples(ImdbSource(path, SourceOptions(released_after, key)))
        assert sorted(found) == sorted(slow_triples(path, released_after, key == "name"))


def test_titles_and_people_have_display_names(tmp_path: Path) -> None:
    dumps = small_dump()
    dumps["name.basics"].append(person("nm0000009", NULL))
    source = ImdbSource(write(tmp_path, dumps))
    assert names(source) == ALL_NAMES


def test_titles_that_are_left_out_have_no_display_names(tmp_path: Path) -> None:
    found = names(ImdbSource(write(tmp_path, small_dump()), SourceOptions(released_after=2015)))
    assert {key for key in found if key.startswith("tt")} == {"tt10000004", "tt10000005"}


def test_labels_that_are_names_have_no_display_names(tmp_path: Path) -> None:
    assert names(ImdbSource(write(tmp_path, small_dump()), SourceOptions(key="name"))) == {}


@pytest.mark.parametrize("column", ["primaryTitle", "primaryName"])
def test_dumps_without_names_are_read_by_their_keys(tmp_path: Path, column: str) -> None:
    write(tmp_path, small_dump())
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes().replace(column.encode(), b"other"))
    source = ImdbSource(tmp_path)
    assert sorted(triples(source)) == sorted(ALL_TRIPLES)
    prefix = "tt" if column == "primaryName" else "nm"
    assert {key[:2] for key in names(ImdbSource(tmp_path))} == {prefix}


def test_title_with_a_bad_year_is_unknown(tmp_path: Path) -> None:
    dumps = small_dump()
    dumps["title.basics"][0][5] = "MMXIV"
    source = ImdbSource(write(tmp_path, dumps), SourceOptions(released_after=0))
    assert all("tt0000001" not in triple for triple in triples(source, Rejects(limit=1)))
    assert source.counts["triples with an unknown title dropped"] == 5
