"""IMDB dumps in which all titles and people are invented: a small one, random ones, and a slow reader of them."""

from __future__ import annotations

import csv
from pathlib import Path

from hypothesis import strategies as st

Triple = tuple[str, str, str]
Rows = list[list[str]]

COLUMNS = {
    "title.basics": "tconst titleType primaryTitle originalTitle isAdult startYear endYear runtimeMinutes genres",
    "name.basics": "nconst primaryName birthYear deathYear primaryProfession knownForTitles",
    "title.principals": "tconst ordering nconst category job characters",
    "title.crew": "tconst directors writers",
    "title.episode": "tconst parentTconst seasonNumber episodeNumber",
}
NULL = "\\N"


def title(key: str, name: str = "Untold", year: str = "2020") -> list[str]:
    return [key, "movie", name, name, "0", year, NULL, "90", "Drama"]


def person(key: str, name: str = "Nobody", known_for: str = NULL) -> list[str]:
    return [key, name, "1970", NULL, "actor", known_for]


def principal(title_key: str, person_key: str, category: str = "actor") -> list[str]:
    return [title_key, "1", person_key, category, NULL, '["Someone"]']


def small_dump() -> dict[str, Rows]:
    return {
        "title.basics": [
            title("tt0000001", "The Paper Lighthouse", "2014"),
            title("tt0000002", "Moss", "2013"),
            title("tt0000003", "Moss", NULL),
            title("tt10000004", "Series of Rain", "2016"),
            title("tt10000005", "Rain, Part One", "2016"),
        ],
        "name.basics": [
            person("nm0000001", "Ada Quill", "tt0000001,tt0000002"),
            person("nm0000002", "Bo Tern", "tt10000004"),
            person("nm12345678", "Ada Quill"),
        ],
        "title.principals": [
            principal("tt0000001", "nm0000001", "actress"),
            principal("tt0000002", "nm0000002", "self"),
            principal("tt0000003", "nm12345678", "casting_director"),
        ],
        "title.crew": [
            ["tt0000001", "nm0000002", "nm0000001,nm12345678"],
            ["tt0000002", NULL, "nm0000002"],
            ["tt0000003", NULL, NULL],
        ],
        "title.episode": [["tt10000005", "tt10000004", "1", "1"]],
    }


ALL_NAMES = {
    "tt0000001": "The Paper Lighthouse",
    "tt0000002": "Moss",
    "tt0000003": "Moss",
    "tt10000004": "Series of Rain",
    "tt10000005": "Rain, Part One",
    "nm0000001": "Ada Quill",
    "nm0000002": "Bo Tern",
    "nm12345678": "Ada Quill",
}
"""Of all titles and people of the small dump."""
ALL_TRIPLES = [
    ("nm0000001", "knownFor", "tt0000001"),
    ("nm0000001", "knownFor", "tt0000002"),
    ("nm0000002", "knownFor", "tt10000004"),
    ("tt0000001", "actress", "nm0000001"),
    ("tt0000002", "self", "nm0000002"),
    ("tt0000003", "casting_director", "nm12345678"),
    ("tt0000001", "director", "nm0000002"),
    ("tt0000001", "writer", "nm0000001"),
    ("tt0000001", "writer", "nm12345678"),
    ("tt0000002", "writer", "nm0000002"),
    ("tt10000005", "parent", "tt10000004"),
]


def text_of(dump: str, rows: Rows) -> str:
    return "".join("\t".join(row) + "\n" for row in [COLUMNS[dump].split(), *rows])


def write(folder: Path, dumps: dict[str, Rows]) -> Path:
    for dump, rows in dumps.items():
        (folder / f"{dump}.tsv").write_bytes(text_of(dump, rows).encode())
    return folder


def slow_triples(folder: Path, released_after: int | None, by_name: bool) -> list[Triple]:
    """The triples of a dump, by dictionaries of strings."""

    def rows(dump: str) -> list[dict[str, str]]:
        with (folder / f"{dump}.tsv").open(encoding="utf-8", newline="\n") as lines:
            return list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))

    def items(field: str) -> list[str]:
        return [] if field == NULL else field.split(",")

    titles, people = {}, {}
    for row in rows("title.basics"):
        titles.pop(row["tconst"], None)
        year = row["startYear"]
        if released_after is None or (year != NULL and int(year) > released_after):
            titles[row["tconst"]] = row["primaryTitle"] if by_name else row["tconst"]
    for row in rows("name.basics"):
        people[row["nconst"]] = row["primaryName"] if by_name else row["nconst"]
    names = {**titles, **people}
    found = [(row["nconst"], "knownFor", key) for row in rows("name.basics") for key in items(row["knownForTitles"])]
    found += [(row["tconst"], row["category"], row["nconst"]) for row in rows("title.principals")]
    found += [(row["tconst"], "director", key) for row in rows("title.crew") for key in items(row["directors"])]
    found += [(row["tconst"], "writer", key) for row in rows("title.crew") for key in items(row["writers"])]
    found += [(row["tconst"], "parent", row["parentTconst"]) for row in rows("title.episode")]
    return [(names[head], relation, names[tail]) for head, relation, tail in found if head in names and tail in names]


TITLES = st.integers(1, 6).map(lambda number: f"tt{number:07d}")
PEOPLE = st.integers(1, 6).map(lambda number: f"nm{number:07d}")
YEARS = st.one_of(st.just(NULL), st.integers(2010, 2016).map(str))
NAMES = st.text(st.characters(exclude_characters="\t\r\n\0", exclude_categories=["Cs"]), min_size=1, max_size=5)
NAMES = NAMES.filter(lambda name: name != NULL)


def lists(keys: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.lists(keys, max_size=4).map(lambda items: ",".join(items) or NULL)


DUMPS = st.fixed_dictionaries(
    {
        "title.basics": st.lists(st.builds(title, TITLES, NAMES, YEARS), max_size=6),
        # Each person once: while reading people, those of earlier rows are already named in triples.
        "name.basics": st.lists(
            st.builds(person, PEOPLE, NAMES, lists(TITLES)), max_size=6, unique_by=lambda row: row[0]
        ),
        "title.principals": st.lists(st.builds(principal, TITLES, PEOPLE, st.sampled_from(["actor", "self", "x_y"]))),
        "title.crew": st.lists(st.tuples(TITLES, lists(PEOPLE), lists(PEOPLE)).map(list), max_size=6),
        "title.episode": st.lists(st.tuples(TITLES, TITLES, st.just("1"), st.just("2")).map(list), max_size=6),
    }
)
