"""OpenKE folders: ids are looked up and forgotten, and everything that does not fit is named with file and line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.sources import files
from dkge_dist.graph.sources import openke as openke_module
from dkge_dist.graph.sources.base import Rejects
from dkge_dist.graph.sources.openke import OpenKeSource
from dkge_dist.types import Split
from tests.graph.sources.reading import read, refusal, triples, written
from tests.graphs import Labelled

ENTITIES = "4\na\t0\nb\t1\nc\t2\nd\t3\n"
RELATIONS = "2\nr\t0\ns\t1\n"
TRAIN = "3\n0 1 0\n1 2 1\n3 0 0\n"
GOOD = [("a", "r", "b"), ("b", "s", "c"), ("d", "r", "a")]


def folder(path: Path, **content: str | bytes) -> OpenKeSource:
    """A sound folder, but for the files that are given."""
    sound = {"entity2id": ENTITIES, "relation2id": RELATIONS, "train2id": TRAIN}
    for name, text in {**sound, **content}.items():
        written(path / f"{name}.txt", text)
    return OpenKeSource(path)


def counted(lines: list[str]) -> str:
    return "\n".join([str(len(lines)), *lines]) + "\n"


def openke(path: Path, by_split: dict[Split, list[Labelled]]) -> OpenKeSource:
    """Labelled triples in OpenKE's form."""
    given_triples = [triple for triples in by_split.values() for triple in triples]
    entities = sorted({label for head, _, tail in given_triples for label in (head, tail)})
    relations = sorted({relation for _, relation, _ in given_triples})
    return folder(
        path,
        entity2id=counted([f"{label}\t{i}" for i, label in enumerate(entities)]),
        relation2id=counted([f"{label}\t{i}" for i, label in enumerate(relations)]),
        **{
            f"{split.label}2id": counted(
                [f"{entities.index(h)}\t{entities.index(t)}\t{relations.index(r)}" for h, r, t in triples]
            )
            for split, triples in by_split.items()
        },
    )


def test_columns_are_head_tail_relation(tmp_path: Path) -> None:
    assert triples(folder(tmp_path)) == GOOD


def test_labels_may_hold_tabs_and_end_in_blanks(tmp_path: Path) -> None:
    labels = ["tab\tin\tside", " ", "x ", "\ty"]
    entities = counted([f"{label}\t{i}" for i, label in enumerate(labels)])
    found = triples(folder(tmp_path, entity2id=entities, train2id="2\n0 1 0\n2 3 0\n"))
    assert found == [("tab\tin\tside", "r", " "), ("x ", "r", "\ty")]


def test_splits_are_those_of_the_folder(tmp_path: Path) -> None:
    whole = folder(tmp_path, valid2id="1\n1 0 1\n", test2id="1\n2 3 0\n")
    assert whole.brings_splits
    assert read(whole) == [
        *((Split.TRAIN, triple) for triple in GOOD),
        (Split.VALID, ("b", "s", "a")),
        (Split.TEST, ("c", "r", "d")),
    ]
    assert whole.bytes_read == whole.bytes_total


def test_entities_in_no_triple_are_counted(tmp_path: Path) -> None:
    lonely = folder(tmp_path, entity2id=ENTITIES.replace("4", "5") + "e\t4\n")
    read(lonely)
    assert lonely.counts == {"entities in no triple": 1}


@pytest.mark.parametrize("chunk", [1, 2, 5, 16, 1 << 20])
@pytest.mark.parametrize("end", ["\n", "\r\n"], ids=["lf", "crlf"])
def test_line_ends_and_chunk_borders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int, end: str) -> None:
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk)
    content = {"entity2id": ENTITIES, "relation2id": RELATIONS, "train2id": TRAIN}
    assert triples(folder(tmp_path, **{name: text.replace("\n", end) for name, text in content.items()})) == GOOD


@pytest.mark.parametrize(
    "train",
    ["\ufeff" + TRAIN, TRAIN.strip(), TRAIN + "\n \n", "3 \n0  1\t0\n\n 1 2 1 \n3\t0\t0", TRAIN.replace(" ", "\t")],
)
def test_blanks_around_ids_are_skipped(tmp_path: Path, train: str) -> None:
    assert triples(folder(tmp_path, train2id=train)) == GOOD


LABELS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r"), min_size=1, max_size=5)


@settings(max_examples=40)
@given(st.lists(st.tuples(LABELS, LABELS, LABELS), min_size=1, max_size=10), st.integers(3, 50))
def test_any_labels_at_any_chunk_border(
    tmp_path_factory: pytest.TempPathFactory, given_triples: list[Labelled], chunk: int
) -> None:
    source = openke(tmp_path_factory.getbasetemp() / "openke", {Split.TRAIN: given_triples})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "CHUNK_BYTES", chunk)
        assert triples(source) == given_triples


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("entity2id", "", "1: expected a count, the file is empty"),
        ("entity2id", "a\t0\n", "1: expected a count, found 'a\\t0'"),
        ("entity2id", "-4\na\t0\n", "1: expected a count, found '-4'"),
        ("entity2id", "\n4\n", "1: expected a count, found ''"),
        ("entity2id", ENTITIES.replace("4", "5"), "1: the header says 5 labels, the file has 4"),
        ("entity2id", ENTITIES.replace("4", "3"), "1: the header says 3 labels, the file has 4"),
        ("entity2id", ENTITIES.replace("c\t2", "c\t4"), "4: id 4 is out of range, there are 4"),
        ("entity2id", ENTITIES.replace("c\t2", "c\t1"), "4: id 1 is given a second time"),
        ("entity2id", ENTITIES.replace("c\t2", "a\t2"), "4: label 'a' is given a second time"),
        ("entity2id", ENTITIES.replace("c\t2", "\t2"), "4: expected `label<TAB>id`, found '\\t2'"),
        ("entity2id", ENTITIES.replace("c\t2", "c 2"), "4: expected `label<TAB>id`, found 'c 2'"),
        ("entity2id", ENTITIES.replace("c\t2", "c\tx"), "4: expected `label<TAB>id`, found 'c\\tx'"),
        ("entity2id", ENTITIES.replace("c\t2", "c\t-2"), "4: expected `label<TAB>id`, found 'c\\t-2'"),
        ("entity2id", ENTITIES.replace("c\t2", "c\t" + "9" * 30), "4: expected `label<TAB>id`, found"),
        ("relation2id", RELATIONS.replace("s\t1", "s\t2"), "3: id 2 is out of range, there are 2"),
        ("train2id", TRAIN.replace("3\n", "4\n", 1), "1: the header says 4 triples, the file has 3"),
        ("train2id", TRAIN.replace("3\n", "2\n", 1), "1: the header says 2 triples, the file has 3"),
        ("train2id", "0 1 0\n", "1: expected a count, found '0 1 0'"),
        ("train2id", TRAIN.replace("1 2 1", "1 2"), "3: expected three ids: head tail relation: '1 2'"),
        ("train2id", TRAIN.replace("1 2 1", "1 2 1 0"), "3: expected three ids: head tail relation: '1 2 1 0'"),
        ("train2id", TRAIN.replace("1 2 1", "1 -2 1"), "3: expected three ids: head tail relation: '1 -2 1'"),
        ("train2id", TRAIN.replace("1 2 1", "a s c"), "3: expected three ids: head tail relation: 'a s c'"),
        ("train2id", TRAIN.replace("1 2 1", "1 " + "9" * 30 + " 1"), "3: expected three ids: head tail relation"),
        ("train2id", TRAIN.replace("1 2 1", "4 2 1"), "3: head id 4 is out of range, there are 4: '4 2 1'"),
        ("train2id", TRAIN.replace("1 2 1", "1 9 1"), "3: tail id 9 is out of range, there are 4: '1 9 1'"),
        ("train2id", TRAIN.replace("1 2 1", "1 2 2"), "3: relation id 2 is out of range, there are 2: '1 2 2'"),
        ("valid2id", "1\n0 0 7\n", "2: relation id 7 is out of range, there are 2: '0 0 7'"),
        ("test2id", "", "1: expected a count, the file is empty"),
    ],
)
def test_inconsistent_files_are_refused(tmp_path: Path, name: str, content: str, problem: str) -> None:
    message = refusal(folder(tmp_path, **{name: content}))
    assert message.startswith(f"{tmp_path}/{name}.txt:{problem}")


def test_swapped_columns_get_a_hint(tmp_path: Path) -> None:
    swapped = folder(tmp_path, train2id="3\n0 0 1\n1 1 2\n3 0 3\n")
    expected = "relation id 2 is out of range, there are 2; the columns look like head relation tail: '1 1 2'"
    assert refusal(swapped) == f"{tmp_path}/train2id.txt:3: {expected}"


def test_bad_triples_are_set_aside_and_still_counted_by_the_header(tmp_path: Path) -> None:
    train = b"6\n0 1 0\nrubbish\n1 2 1\n\xff 1 2\n1 99 0\n3 0 0\n"
    rejects = Rejects(limit=3)
    assert triples(folder(tmp_path, train2id=train), rejects) == GOOD
    assert sorted(line.split("\t")[0] for line in rejects.lines) == [f"{tmp_path}/train2id.txt:{n}" for n in (3, 5, 6)]


def test_bad_labels_are_never_set_aside(tmp_path: Path) -> None:
    broken = folder(tmp_path, entity2id=ENTITIES.encode().replace(b"c", b"\xff"))
    message = refusal(broken, Rejects(limit=10))
    assert message.startswith(f"{tmp_path}/entity2id.txt:4: broken UTF-8 at byte 1 of the line")
    nameless = folder(tmp_path, entity2id=ENTITIES.replace("c\t2", "rubbish"))
    assert refusal(nameless, Rejects(limit=10)).startswith(f"{tmp_path}/entity2id.txt:4: expected `label<TAB>id`")


def test_labels_with_equal_digests_are_told_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def constant(data, start, stop):  # type: ignore[no-untyped-def]
        return start * 0

    monkeypatch.setattr(openke_module, "digests", constant)
    assert triples(folder(tmp_path)) == GOOD


def test_repeated_label_is_found_in_linear_time(tmp_path: Path) -> None:
    labels = [f"label{i}" for i in range(200_000)]
    labels[-1] = labels[-2]
    content = counted([f"{label}\t{i}" for i, label in enumerate(labels)])
    message = refusal(folder(tmp_path, entity2id=content))
    assert message == f"{tmp_path}/entity2id.txt:200001: label 'label199998' is given a second time"


@pytest.mark.parametrize("odd", ["\x1c", "\x1f", "\x85", "\u2003"])
def test_what_python_takes_for_blanks_belongs_to_no_id(tmp_path: Path, odd: str) -> None:
    """`\\x1c` before an id ended in a traceback; between two ids it separated them."""
    for name, content, line in (
        ("entity2id", ENTITIES.replace("\t2", f"\t{odd}2"), 4),
        ("relation2id", f"{RELATIONS}{odd}\n", 4),
        ("train2id", TRAIN.replace("1 2 1", f"1{odd}2 1"), 3),
        ("train2id", TRAIN.replace("1 2 1", f"1 2 {odd}1"), 3),
        ("train2id", f"{odd}{TRAIN}", 1),
    ):
        assert refusal(folder(tmp_path, **{name: content})).startswith(f"{tmp_path}/{name}.txt:{line}: expected ")
        folder(tmp_path)
