"""Debian package lists: fields to triples, stanzas across chunks, bad lines named."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pyarrow as pa
import pytest

from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import Rejects, SourceError
from dkge_dist.graph.sources.debian import RELATIONS, DebianSource
from tests.graph.sources.reading import triples

Triple = tuple[str, str, str]

FULL = """\
Package: frob
Source: frobnicate (1.2-3)
Version: 1.2-3+b1
Installed-Size: 120
Maintainer: Fröb Team <frob@example.org>
Architecture: amd64
Pre-Depends: dpkg (>= 1.15.6~)
Depends: libc6 (>= 2.34), default-mta | mail-transport-agent, python3:any (<< 3.12), perl:native
Recommends: frob-doc
Suggests: frob-data [amd64] <!nocheck>,
 frob-extra
Enhances: editor
Breaks: old-frob (<< 1.0)
Conflicts: frab
Provides: frobber (= 1.2), libfrob++1
Replaces: old-frob (<< 1.0)
Description: frobs things: a lot
 Depends: not-a-dependency
 .
 More text.
Homepage: https://example.org/
Tag: interface::commandline, role::program,
 use::editing
Section: contrib/utils
Priority: optional
Filename: pool/f/frob.deb
"""

FULL_TRIPLES = {
    ("frob", "source", "source:frobnicate"),
    ("frob", "maintainer", "maintainer:Fröb Team <frob@example.org>"),
    ("frob", "architecture", "architecture:amd64"),
    ("frob", "pre-depends", "dpkg"),
    ("frob", "depends", "libc6"),
    ("frob", "depends", "default-mta"),
    ("frob", "depends", "mail-transport-agent"),
    ("frob", "depends", "python3"),
    ("frob", "depends", "perl"),
    ("frob", "recommends", "frob-doc"),
    ("frob", "suggests", "frob-data"),
    ("frob", "suggests", "frob-extra"),
    ("frob", "enhances", "editor"),
    ("frob", "breaks", "old-frob"),
    ("frob", "conflicts", "frab"),
    ("frob", "provides", "frobber"),
    ("frob", "provides", "libfrob++1"),
    ("frob", "replaces", "old-frob"),
    ("frob", "tag", "tag:interface::commandline"),
    ("frob", "tag", "tag:role::program"),
    ("frob", "tag", "tag:use::editing"),
    ("frob", "section", "section:contrib/utils"),
    ("frob", "priority", "priority:optional"),
}


def write(folder: Path, text: str | bytes, name: str = "Packages") -> Path:
    path = folder / name
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def read(folder: Path, text: str | bytes, rejects: Rejects | None = None) -> list[Triple]:
    return triples(DebianSource(write(folder, text)), rejects)


def stanza(package: str, **fields: str) -> str:
    return f"Package: {package}\n" + "".join(f"{name}: {value}\n" for name, value in fields.items()) + "\n"


def test_all_fields_become_triples(tmp_path: Path) -> None:
    found = read(tmp_path, FULL)
    assert set(found) == FULL_TRIPLES
    assert len(found) == len(FULL_TRIPLES)
    assert {relation for _, relation, _ in found} == set(RELATIONS)
    assert len(RELATIONS) == 15


def test_several_stanzas_with_any_number_of_empty_lines(tmp_path: Path) -> None:
    text = "\n\n" + stanza("a", Depends="b") + "\n \t\n" + stanza("b", Section="libs").rstrip("\n")
    assert read(tmp_path, text) == [("a", "depends", "b"), ("b", "section", "section:libs")]


def test_package_may_come_last_and_names_of_fields_in_any_case(tmp_path: Path) -> None:
    assert read(tmp_path, "DEPENDS: b\nsection:libs\nPACKAGE: a\n") == [
        ("a", "depends", "b"),
        ("a", "section", "section:libs"),
    ]


def test_values_of_different_kinds_are_different_entities(tmp_path: Path) -> None:
    text = stanza("libs", Section="libs", Source="libs", Tag="libs", Priority="libs", Maintainer="libs", Depends="libs")
    assert {tail for _, _, tail in read(tmp_path, text)} == {
        "section:libs",
        "source:libs",
        "tag:libs",
        "priority:libs",
        "maintainer:libs",
        "libs",
    }


def test_empty_values_and_trailing_commas_make_no_triples(tmp_path: Path) -> None:
    text = "Package: a\nSection:\nTag: , x::y,\nDepends: b, ,\nRecommends:\nSource: (1.0)\n"
    assert read(tmp_path, text) == [("a", "tag", "tag:x::y"), ("a", "depends", "b")]


def test_crlf_line_ends(tmp_path: Path) -> None:
    text = (stanza("a", Depends="b,\n c", Section="libs") + stanza("d", Section="net")).replace("\n", "\r\n")
    assert read(tmp_path, text) == [
        ("a", "depends", "b"),
        ("a", "depends", "c"),
        ("a", "section", "section:libs"),
        ("d", "section", "section:net"),
    ]


@pytest.mark.parametrize("chunk_bytes", [5, 64, 1000])
def test_stanzas_that_straddle_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    text = "".join(FULL.replace("frob", f"frob{i}") + "\n" for i in range(20)) + "bad\n" + stanza("z", Section="libs")
    path = write(tmp_path, text)
    whole, cut = Rejects(limit=2), Rejects(limit=2)
    expected = triples(DebianSource(path), whole)
    monkeypatch.setattr(files, "CHUNK_BYTES", chunk_bytes)
    assert triples(DebianSource(path), cut) == expected
    assert len(expected) == 20 * len(FULL_TRIPLES) + 1
    assert cut.lines == whole.lines
    assert len(cut.lines) == 1


GOOD = stanza("good", Section="libs")
GOOD_TRIPLE = ("good", "section", "section:libs")

BAD_LINES: dict[str, tuple[bytes, int, str]] = {
    "no Package": (b"Section: net\nDepends: x\n\n", 4, "a stanza without Package"),
    "empty Package": (b"Package: \nSection: net\n\n", 4, "a stanza without Package"),
    "not a name": (b"Section: net\nPackage: a b\n\n", 5, "not a package name: 'a b'"),
    "a colon in the name": (b"Package: section:libs\nSection: net\n\n", 4, "not a package name: 'section:libs'"),
    "a second Package": (b"Package: a\nPackage: b\n\n", 5, "a second field 'Package' in the stanza .* line 4"),
    "a second Depends": (b"Package: a\nDepends: b\ndepends: c\n\n", 6, "a second field 'depends'"),
    "no field": (b"Package: a\nno field at all\n\n", 5, "neither a field nor the continuation"),
    "blank in a field name": (b"Package: a\nno field: x\n\n", 5, "neither a field nor the continuation"),
    "no field name": (b"Package: a\n: x\n\n", 5, "neither a field nor the continuation"),
    "nothing to continue": (b" continued\nPackage: a\n\n", 4, "a continuation line, but no field"),
    "no name in an item": (b"Package: a\nDepends: b, (>= 2)\n\n", 5, r"no package name in 'depends': '\(>= 2\)'"),
    "broken UTF-8": (b"Package: a\nMaintainer: \xff\xfe\n\n", 5, "broken UTF-8 at byte 13 of the line"),
}


@pytest.mark.parametrize("kind", BAD_LINES)
def test_bad_line_is_named_or_set_aside(tmp_path: Path, kind: str) -> None:
    text, line, reason = BAD_LINES[kind]
    path = write(tmp_path, GOOD.encode() + text + GOOD.encode())
    with pytest.raises(SourceError, match=f"^{path}:{line}: {reason}"):
        triples(DebianSource(path))
    rejects = Rejects(limit=1)
    found = triples(DebianSource(path), rejects)
    assert found[0] == found[-1] == GOOD_TRIPLE
    assert found[1:-1] == ([("a", "depends", "b")] if b"Depends: b" in text else [])
    assert [reject.split("\t")[0] for reject in rejects.lines] == [f"{path}:{line}"]


def test_invalid_line_does_not_end_its_stanza(tmp_path: Path) -> None:
    """The line goes, with what continues it; the fields around it stay."""
    text = b"Package: a\nSection: libs\nTag: x::\xff,\n y::z\nDepends: b\n"
    rejects = Rejects(limit=1)
    assert read(tmp_path, text, rejects) == [("a", "section", "section:libs"), ("a", "depends", "b")]
    assert len(rejects.lines) == 1


def test_invalid_first_line_belongs_to_the_stanza_after_it(tmp_path: Path) -> None:
    rejects = Rejects(limit=2)
    assert read(tmp_path, b"Package: \xff\nSection: libs\n\n" + GOOD.encode(), rejects) == [GOOD_TRIPLE]
    assert [line.split("\t")[1] for line in rejects.lines] == [
        "broken UTF-8 at byte 10 of the line",
        "a stanza without Package",
    ]
    assert rejects.lines[1].startswith(f"{tmp_path / 'Packages'}:1\t")


def compressed(path: Path, text: bytes) -> Path:
    if path.suffix == ".lz4":
        with pa.output_stream(path, compression="lz4") as stream:
            stream.write(text)
    else:
        path.write_bytes({".gz": gzip.compress, ".xz": lzma.compress}[path.suffix](text))
    return path


def test_all_lists_of_a_folder_are_read(tmp_path: Path) -> None:
    """As apt keeps them: the lists by their address, among files of other kinds."""
    write(tmp_path, stanza("a", Section="main"), "deb.example.org_dists_sid_main_binary-amd64_Packages")
    compressed(
        tmp_path / "deb.example.org_dists_sid_contrib_binary-amd64_Packages.lz4",
        stanza("b", Section="contrib").encode(),
    )
    write(tmp_path, stanza("c", Section="local"), "Packages-local")
    for other in ("deb.example.org_dists_sid_InRelease", "x_Packages.IndexDiff", "Packages.bz2", "lock", "x_Sources"):
        write(tmp_path, "not a list\n", other)
    (tmp_path / "partial_Packages").mkdir()
    source = DebianSource(tmp_path)
    assert sorted(triples(source)) == [
        ("a", "section", "section:main"),
        ("b", "section", "section:contrib"),
        ("c", "section", "section:local"),
    ]
    assert source.bytes_read == source.bytes_total


def test_each_list_is_read_in_one_compression(tmp_path: Path) -> None:
    text = stanza("a", Section="main").encode()
    for suffix in (".xz", ".gz", ".lz4"):
        compressed(tmp_path / f"Packages{suffix}", text)
        assert triples(DebianSource(tmp_path)) == [("a", "section", "section:main")]
        assert [path.name for path in DebianSource(tmp_path).used_files()] == [f"Packages{suffix}"]
    write(tmp_path, text)
    assert [path.name for path in DebianSource(tmp_path).used_files()] == ["Packages"]


def test_folder_without_lists_and_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=f"^{tmp_path}: no Packages file"):
        triples(DebianSource(tmp_path))
    with pytest.raises(SourceError, match="absent: no such file"):
        triples(DebianSource(tmp_path / "absent"))
