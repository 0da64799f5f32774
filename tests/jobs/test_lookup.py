"""Questions by display names: exactly, but for case, among namesakes, and with a typo."""

from __future__ import annotations

from pathlib import Path

import pytest

import dkge_dist
from dkge_dist.ask.lookup import look_up, row_of
from dkge_dist.ask.model import open_model
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError
from tests.jobs.building import ADDED, ingest_night, write_lines

pytestmark = pytest.mark.usefixtures("one_thread")

NAMES = [
    "e1\tThe Matrix", "e2\tHamlet", "e3\tHamlet", "e4\thamlet", "e5\te6", "e7\tSpeed", "e8\tSPEED", "r1\tcast member",
    "r2\tThe Matrix",
]  # fmt: skip


def give(store: Path, lines: list[str]) -> Path:
    dkge_dist.ingest(store, write_lines(store.parent / "names.tsv", lines), format="labels")
    return store


@pytest.fixture
def named(store: Path) -> Path:
    return give(store, NAMES)


def label(store: Path, name: str, relation: bool = False) -> str:
    """What is meant by a name."""
    opened = open_model(Store.open(store))
    names = opened.names[relation]
    return names.label(row_of(names, name, opened))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("The Matrix", "e1"), ("the matrix", "e1"), ("THE MATRIX", "e1"), ("hamlet", "e4"), ("Speed", "e7"), ("e6", "e6")],
)
def test_a_label_then_the_exact_name_then_any_case(named: Path, name: str, expected: str) -> None:
    assert label(named, name) == expected


def test_entities_and_relations_are_named_apart(named: Path) -> None:
    assert label(named, "The Matrix", relation=True) == "r2"
    assert label(named, "Cast Member", relation=True) == "r1"
    with pytest.raises(DkgeError, match=r"^no entity 'cast member'"):
        label(named, "cast member")


@pytest.mark.parametrize(("name", "labels"), [("Hamlet", ["e2", "e3"]), ("HAMLET", ["e2", "e3", "e4"])])
def test_namesakes_are_listed_with_what_tells_them_apart(named: Path, name: str, labels: list[str]) -> None:
    opened = open_model(Store.open(named))
    with pytest.raises(DkgeError) as caught:
        row_of(opened.names[0], name, opened)
    text = str(caught.value)
    assert text.startswith(f"{len(labels)} entities are named {name!r}: ")
    assert text.endswith("; ask by label")
    told = text.split(": ", 1)[1].removesuffix("; ask by label").split(", ")
    assert sorted(one.split(" (")[0] for one in told) == labels
    facts = {one.split(" (", 1)[1].removesuffix(")") for one in told}
    assert len(facts) == len(labels)
    with pytest.raises(DkgeError, match=r"entities are named '.amlet': e\d+, e\d+"):
        row_of(opened.names[0], "Hamlet")


def test_many_namesakes_are_cut(store: Path) -> None:
    give(store, [f"e{number}\tJohn Smith" for number in range(20)])
    with pytest.raises(DkgeError, match=r"^20 entities are named 'john smith': .* and 12 more; ask by label$"):
        label(store, "john smith")


def test_namesakes_that_are_gone_are_left_out(store: Path, tmp_path: Path) -> None:
    ingest_night(tmp_path / "n1.changes", store, ADDED, [])
    give(store, ["new1\tTwin", "e7\tTwin", "new2\tGone"])
    ingest_night(tmp_path / "n2.changes", store, [], ADDED)
    dkge_dist.update(store)
    assert label(store, "Twin") == "e7"
    with pytest.raises(DkgeError, match=r"'Gone' is not in snapshot 'n2' \(it was in another one\)"):
        dkge_dist.answer(store, "Gone", "r1")


def test_names_of_what_came_later_are_unknown_to_an_older_version(store: Path, tmp_path: Path) -> None:
    ingest_night(tmp_path / "n1.changes", store, ADDED, [])
    dkge_dist.update(store)
    give(store, ["new1\tNewcomer"])
    assert dkge_dist.answer(store, "newcomer", "r1")["head"] == "new1"
    with pytest.raises(DkgeError, match="no entity 'newcomer'"):
        dkge_dist.answer(store, "newcomer", "r1", version="2")


def test_a_typo_is_answered_with_names_and_labels(named: Path) -> None:
    with pytest.raises(DkgeError, match=r"^no entity 'The Matirx'; nearest: The Matrix \(e1\)"):
        label(named, "The Matirx")
    with pytest.raises(DkgeError, match=r"no entity 'e77'; nearest: e7, "):
        label(named, "e77")


def test_a_relation_in_the_place_of_an_entity_is_told(named: Path) -> None:
    with pytest.raises(DkgeError, match=r"^no entity 'r1': it is a relation \(the order is HEAD RELATION TAIL\)$"):
        dkge_dist.answer(named, "r1", "e1")
    with pytest.raises(DkgeError, match=r"^no relation 'e2': it is an entity "):
        dkge_dist.answer(named, "e1", "e2")


def test_answers_carry_names_beside_labels(named: Path) -> None:
    by_name = dkge_dist.answer(named, "the matrix", "cast member", top=60, why=True)
    by_label = dkge_dist.answer(named, "e1", "r1", top=60, why=True)
    assert {key: by_name[key] for key in ("head", "head_name", "relation", "relation_name")} == {
        "head": "e1", "head_name": "The Matrix", "relation": "r1", "relation_name": "cast member",
    }  # fmt: skip
    assert by_name["answers"] == by_label["answers"]
    found = {line["entity"]: line.get("name") for line in by_name["answers"]}
    given = dict(line.split("\t") for line in NAMES)
    assert found == {entity: given.get(entity) for entity in found}
    assert all("name" not in line or line["name"] for line in by_name["answers"])
    sentences = " ".join(reason["text"] for line in by_name["answers"] for reason in line["why"])
    assert "The Matrix" in sentences
    assert " e1 " not in sentences
    tails = dkge_dist.answer(named, None, "r1", tail="Speed")
    assert (tails["tail"], tails["tail_name"], "head" in tails) == ("e7", "Speed", False)


def test_tables_have_columns_of_names_where_there_are_some(named: Path) -> None:
    with dkge_dist.open(named) as store:
        answers, near = store.answer("e1", "r1", top=60).to_pandas(), store.similar("e1", top=60).to_pandas()
        relations = store.answer("e1", "?", "e7").to_pandas()
    given = dict(line.split("\t") for line in NAMES)
    assert set(answers["head_name"]) == {"The Matrix"} and set(answers["relation_name"]) == {"cast member"}
    assert answers["tail_name"].dropna().tolist() == [given[tail] for tail in answers["tail"] if tail in given] != []
    assert set(near["entity_name"]) == {"The Matrix"}
    assert near["similar_name"].dropna().tolist() == [given[other] for other in near["similar"] if other in given] != []
    assert set(relations["tail_name"]) == {"Speed"} and "cast member" in set(relations["relation_name"])


def test_other_questions_take_names_too(named: Path) -> None:
    triples = write_lines(named.parent / "t.tsv", ["the matrix\tcast member\tSpeed"])
    report = dkge_dist.evaluate(named, triples=triples, relations=True)
    assert (report["triples"], report["relations"][0]["relation"], report["relations"][0]["name"]) == (
        1, "r1", "cast member",
    )  # fmt: skip
    (found,) = dkge_dist.evidence_table(named, relation="Cast Member")["relations"]
    assert (found["relation"], found["name"]) == ("r1", "cast member")
    every = {link["relation"]: link.get("name") for link in found["links"]}
    assert every.get("r2", "The Matrix") == "The Matrix"


def test_rows_of_labels_in_their_order_and_what_is_wrong_with_others(store: Path) -> None:
    names = open_model(Store.open(store)).names
    rows, problems = look_up(names[0], ["e7", "e1", "e77", "e7"])
    assert names[0].labels(rows[[0, 1, 3]]) == ["e7", "e1", "e7"] and list(problems) == [2]
    assert problems[2].startswith("no entity 'e77'; nearest: e7, ") and problems[2].count(", ") == 4, "five at most"
    with pytest.raises(DkgeError, match=r"^no relation '中'$"):
        row_of(names[1], "中")
