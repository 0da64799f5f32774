"""Names in RDF: which statements are names, which of several is the best, and their text without escapes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyoxigraph import Literal, NamedNode, Quad, RdfFormat, serialize

from dkge_dist.graph.sources.base import Rejects, SourceOptions
from dkge_dist.graph.sources.rdf import NAME_PROPERTIES, NTriplesSource
from dkge_dist.types import UsageError
from tests.graph.sources.reading import names, triples, written

LABEL, PREFERRED, NAME, SECURE_NAME = NAME_PROPERTIES
GOOD = "<x:a> <x:p> <x:b> .\n"


def source(folder: Path, *statements: str, literals: bool = True, language: str = "en") -> NTriplesSource:
    path = written(folder / "graph.nt", GOOD + "".join(f"{statement} .\n" for statement in statements))
    return NTriplesSource(path, SourceOptions(literals=literals, label_language=language))


@pytest.mark.parametrize("literals", [True, False])
@pytest.mark.parametrize("naming", NAME_PROPERTIES)
def test_statements_that_name_are_no_triples(tmp_path: Path, naming: str, literals: bool) -> None:
    made = source(tmp_path, f'<x:a> {naming} "A"@en', f'<x:p> {naming} "is p of"', literals=literals)
    assert triples(made) == [("<x:a>", "<x:p>", "<x:b>")]
    assert names(made) == {"<x:a>": "A", "<x:p>": "is p of"}
    assert made.counts == {}


def test_other_literals_and_names_that_are_no_literals_stay_triples(tmp_path: Path) -> None:
    made = source(tmp_path, '<x:a> <x:note> "A"@en', f"<x:a> {LABEL} <x:label>")
    assert len(triples(made)) == 3
    assert names(made) == {}


@pytest.mark.parametrize("order", [1, -1])
def test_the_language_decides_then_the_property(tmp_path: Path, order: int) -> None:
    ranked = [
        f'<x:a> {LABEL} "1"@en', f'<x:a> {PREFERRED} "2"@en', f'<x:a> {NAME} "3"@en', f'<x:a> {SECURE_NAME} "4"@en',
        f'<x:a> {LABEL} "5"@en-GB', f'<x:a> {NAME} "6"@en-us', f'<x:a> {LABEL} "7"', f'<x:a> {NAME} "8"',
    ]  # fmt: skip
    for best in range(len(ranked)):
        assert names(source(tmp_path, *ranked[best:][::order])) == {"<x:a>": str(best + 1)}


def test_other_languages_are_left_out_and_counted(tmp_path: Path) -> None:
    statements = [f'<x:a> {LABEL} "Brücke"@de', f'<x:a> {LABEL} "bridge"@en', f'<x:b> {LABEL} "Haus"@de']
    made = source(tmp_path, *statements)
    assert names(made) == {"<x:a>": "bridge"}
    assert made.counts == {"names in other languages left out (--label-language)": 2}
    assert names(source(tmp_path, *statements, language="DE")) == {"<x:a>": "Brücke", "<x:b>": "Haus"}
    assert names(source(tmp_path, f'<x:a> {LABEL} "x"@eng', f'<x:a> {LABEL} "y"@e')) == {}


@pytest.mark.parametrize("language", ["", "e n", "en-", "@en", "é"])
def test_languages_that_are_none(tmp_path: Path, language: str) -> None:
    with pytest.raises(UsageError, match="no language tag"):
        source(tmp_path, language=language)


def test_an_empty_name_is_none(tmp_path: Path) -> None:
    assert names(source(tmp_path, f'<x:a> {LABEL} ""', f'<x:b> {LABEL} ""@en')) == {}


def test_a_file_of_names_alone(tmp_path: Path) -> None:
    path = written(tmp_path / "names.nt", f'<x:a> {LABEL} "A" .\n')
    assert names(NTriplesSource(path)) == {"<x:a>": "A"}


@settings(max_examples=60)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), min_size=1), st.booleans())
def test_any_text_comes_back_without_escapes(texts: list[str], tagged: bool) -> None:
    """As another program writes it: quotes, backslashes, line ends and controls are escapes."""
    language = "en" if tagged else None
    quads = [
        Quad(NamedNode(f"x:{i}"), NamedNode(LABEL[1:-1]), Literal(text, language=language))
        for i, text in enumerate(texts)
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder) / "x.nt", serialize(quads, format=RdfFormat.N_TRIPLES) or b"")
        assert names(NTriplesSource(path), Rejects()) == {f"<x:{i}>": text for i, text in enumerate(texts)}
