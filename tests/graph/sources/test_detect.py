"""Which reader a source gets, by what is in it; and what is said of sources that no reader is for."""

from __future__ import annotations

import gzip
import lzma
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dkge_dist.graph.sources.base import FORMATS, SourceError, SourceOptions
from dkge_dist.graph.sources.debian import DebianSource
from dkge_dist.graph.sources.detect import APT_LISTS, detect, open_source
from dkge_dist.graph.sources.imdb import ImdbSource
from dkge_dist.graph.sources.rdf import NTriplesSource
from dkge_dist.types import Split, UsageError
from tests.graph.sources.reading import refusal, triples, written

TSV = "a\tr\tb\nb\tr\tc\n"
NTRIPLES = "<urn:a> <urn:r> <urn:b> .\n"
CHANGES = "+\ta\tr\tb\n"
PACKAGES = "Package: a\nDepends: b\n"


def parquet(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"h": ["a"], "r": ["r"], "t": ["b"]}), path)
    return path


@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("graph.tsv", TSV, "tsv"),
        ("graph", TSV, "tsv"),
        ("graph.csv", TSV, "tsv"),
        ("graph.tsv", "\ufeff" + TSV, "tsv"),
        ("graph.tsv", "\n\r\n" + TSV, "tsv"),
        ("graph.tsv", "not a triple\n", "tsv"),
        ("graph.txt", "a\tr\tb\tc\n", "tsv"),
        ("graph.tsv", "<a>\t<r>\t<b>\n", "tsv"),
        ("graph", "<http://x/a>\t<http://x/r>\t<http://x/b.>\n", "tsv"),
        ("graph", "<a>\tr\tb.\n", "tsv"),
        ("graph", "_:a\tr\tb\n", "tsv"),
        ("graph", "#tag\tr\tb\n", "tsv"),
        ("graph", "#tag\tr\tb\na\tr\t#tag\n", "tsv"),
        ("graph", "+\tr\tb\n", "tsv"),
        ("graph", "+a\tr\tb\nc\tr\td\n", "tsv"),
        ("graph", "+49\tr\tb\n+50\tr\tb\n", "tsv"),
        ("graph", "-\tr\tb\n", "tsv"),
        ("graph", "Package\tr\tb\n", "tsv"),
        ("graph", "PAR\tr\tb\n", "tsv"),
        ("graph", "x" * 100_000 + "\tr\tb\n", None),
        ("graph.tsv", "x" * 100_000 + "\tr\tb\n", "tsv"),
        ("graph.nt", NTRIPLES, "ntriples"),
        ("graph", NTRIPLES, "ntriples"),
        ("graph.txt", NTRIPLES, "ntriples"),
        ("graph", "# comment\n\n" + NTRIPLES, "ntriples"),
        ("graph", "\ufeff" + NTRIPLES, "ntriples"),
        ("graph", '_:a <urn:r> "text with <b> ."@en .\r\n', "ntriples"),
        ("graph", "<urn:a>\t<urn:r>\t<urn:b>\t.\n", "ntriples"),
        ("graph", "<urn:a>\t<urn:r>\t<urn:b> .\n", "ntriples"),
        ("graph", '<urn:a> <urn:r> "1"^^<urn:int> . # one\n', "ntriples"),
        ("graph.nt", TSV, "ntriples"),
        ("night.changes", CHANGES, "changes"),
        ("night", CHANGES, "changes"),
        ("night.txt", "-\ta\tr\tb\n", "changes"),
        ("night", "\ufeff" + CHANGES, "changes"),
        ("night.changes", "+a\tr\tb\n", "changes"),
        ("night.changes", "rubbish\n", "changes"),
        ("Packages", PACKAGES, "debian"),
        ("mirror_dists_sid_main_binary-amd64_Packages", PACKAGES, "debian"),
        ("metadata.txt", PACKAGES, "debian"),
        ("graph", "note\thead\trelation\ttail\nx\ta\tr\tb\n", "tsv"),
        ("graph.csv", "not a triple\n", "csv"),
        ("graph", "a,r,b\nb,r,c\n", "csv"),
        ("graph.txt", "a,r,b\nb,r,c\n", "csv"),
        ("graph", "\ufeffSubject;Predicate;Object\r\na;r;b\r\n", "csv"),
        ("graph", 'from,to,type,note\na,b,r,"x,\ny"\n', "csv"),
        ("graph", '"a,b",r,"two\nlines"\nb,r,c\n', "csv"),
        ("graph", "a;r;b,c\nb;r;c\n", "csv"),
        ("graph", "a;r;b,c\nb;r\n", None),
        ("graph", '{"h": "a", "r": "r", "t": "b"}\n', "jsonl"),
        ("graph", '["a", "r", "b"]\n', "jsonl"),
        ("graph.ndjson", "nonsense\n", "jsonl"),
        ("graph", "@prefix x: <urn:x> .\nx:a x:p x:b .\n", "turtle"),
        ("graph", "# comment\nPREFIX x: <urn:x>\nx:a x:p x:b .\n", "turtle"),
        ("graph.ttl", "<urn:a> <urn:p> <urn:b>, <urn:c> .\n", "turtle"),
        ("graph.ttl", NTRIPLES * 3, "ntriples"),
        ("graph.ttl", NTRIPLES + "@prefix x: <urn:x> .\n" + NTRIPLES, "turtle"),
        ("graph", "@prefix x: <urn:x> .\nx:g {\n x:a x:p x:b }\n", "trig"),
        ("graph.trig", "<urn:a> <urn:p> <urn:b> .\n", "trig"),
        ("graph", "<urn:a> <urn:r> <urn:b> <urn:g> .\n", "nquads"),
        ("graph", NTRIPLES + '<urn:a> <urn:r> "x y"@en <urn:g> .\n', "nquads"),
        ("graph.nq", NTRIPLES, "nquads"),
        ("graph", '<?xml version="1.0"?>\n<rdf:RDF xmlns:rdf="urn:x"/>\n', "rdfxml"),
        ("graph", "<rdf:RDF/>", "rdfxml"),
        ("graph.owl", "<x/>", "rdfxml"),
        ("graph", '<?xml version="1.0"?>\n<graphml/>\n', None),
    ],
)
def test_format_of_files(tmp_path: Path, name: str, content: str, format: str | None) -> None:
    path = written(tmp_path / name, content)
    if format is None:
        with pytest.raises(SourceError, match="no format this program knows"):
            detect(path)
        return
    assert detect(path) == format
    assert open_source(path).format == format


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
@pytest.mark.parametrize(
    ("name", "content", "format"),
    [
        ("graph.tsv", TSV, "tsv"),
        ("graph.nt", NTRIPLES, "ntriples"),
        ("graph", NTRIPLES, "ntriples"),
        ("night", CHANGES, "changes"),
        ("night.changes", "+a\tr\tb\n", "changes"),
        ("Packages", PACKAGES, "debian"),
    ],
)
def test_format_of_compressed_files(tmp_path: Path, compress: object, name: str, content: str, format: str) -> None:
    for ending in ("", ".gz", ".xz"):
        path = written(tmp_path / f"{name}{ending}", compress(content.encode()))  # type: ignore[operator]
        assert detect(path) == format


def test_format_of_parquet_files(tmp_path: Path) -> None:
    assert detect(parquet(tmp_path / "graph.parquet")) == "parquet"
    assert detect(parquet(tmp_path / "graph")) == "parquet"


@pytest.mark.parametrize(
    ("names", "format"),
    [
        (["entity2id.txt", "train2id.txt"], "openke"),
        (["entity2id.txt", "train.tsv"], "openke"),
        (["title.basics.tsv.gz"], "imdb"),
        (["title.basics.tsv"], "imdb"),
        (["train.tsv"], "tsv"),
        (["train.txt", "valid.txt", "test.txt"], "tsv"),
        (["train.tsv.gz", "dev.tsv.gz", "notes.md"], "tsv"),
        (["train.parquet", "test.parquet"], "parquet"),
        (["train.csv", "valid.csv"], "csv"),
        (["train.jsonl.gz"], "jsonl"),
        (["Packages"], "debian"),
        (["Packages.xz", "Release"], "debian"),
        (["deb.example_dists_sid_main_binary-amd64_Packages.lz4"], "debian"),
    ],
)
def test_format_of_folders(tmp_path: Path, names: list[str], format: str) -> None:
    for name in names:
        written(tmp_path / name, "")
    assert detect(tmp_path) == format


@pytest.mark.parametrize("names", [[], ["valid.tsv", "test.tsv"], ["train2id.txt"], ["graph.tsv"], ["train"]])
def test_unknown_folders_are_refused(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        written(tmp_path / name, TSV)
    with pytest.raises(SourceError) as caught:
        open_source(tmp_path)
    assert str(caught.value).startswith(f"{tmp_path}: not a folder this program knows: looked for ")
    for wanted in ("entity2id.txt", "title.basics.tsv", "train.tsv", "train.parquet", "Packages"):
        assert wanted in str(caught.value)


def test_split_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("train.txt", "validation.tsv", "test.txt.gz"):
        content = TSV.encode()
        written(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    source = open_source(tmp_path)
    assert source.brings_splits
    assert source.files == {  # type: ignore[attr-defined]
        Split.TRAIN: tmp_path / "train.txt",
        Split.VALID: tmp_path / "validation.tsv",
        Split.TEST: tmp_path / "test.txt.gz",
    }
    assert len(triples(source)) == 6


@pytest.mark.parametrize(
    ("first", "second"), [("train.tsv", "train.txt"), ("train.txt", "train.txt.gz"), ("valid.tsv", "dev.tsv")]
)
def test_split_in_two_files_is_refused(tmp_path: Path, first: str, second: str) -> None:
    for name in ("train.tsv", first, second):
        written(tmp_path / name, TSV)
    if first == "train.txt":
        (tmp_path / "train.tsv").unlink()
    with pytest.raises(SourceError, match="keep the one that is meant") as caught:
        open_source(tmp_path)
    assert str(caught.value) == f"{tmp_path / first}: is there as {second} too; keep the one that is meant"


def test_folder_of_another_format_is_refused(tmp_path: Path) -> None:
    written(tmp_path / "graph.tsv", TSV)
    for format, wanted in (("tsv", "train.tsv"), ("parquet", "train.parquet")):
        with pytest.raises(SourceError, match="no train file in it") as caught:
            open_source(tmp_path, format)
        assert wanted in str(caught.value)
    assert refusal(open_source(tmp_path, "openke")) == f"{tmp_path}/entity2id.txt: no such file"
    assert refusal(open_source(tmp_path, "ntriples")) == f"{tmp_path}: Is a directory"
    assert refusal(open_source(tmp_path, "changes")) == f"{tmp_path}: Is a directory"


def test_file_of_another_format_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "graph.tsv", TSV)
    assert refusal(open_source(path, "changes")).startswith(f"{path}:1: ")
    assert refusal(open_source(path, "ntriples")).startswith(f"{path}:1: ")
    assert refusal(open_source(path, "parquet")).startswith(f"{path}: not a Parquet file")
    assert refusal(open_source(path, "openke")) == f"{path}/entity2id.txt: Not a directory"
    with pytest.raises(SourceError, match="not a folder"):
        open_source(path, "imdb")


@pytest.mark.parametrize("content", ["", "\n", " \n\t\n\r\n", "\ufeff", "\ufeff\n"])
@pytest.mark.parametrize("name", ["graph.tsv", "graph", "night.changes"])
def test_empty_files_are_refused(tmp_path: Path, name: str, content: str) -> None:
    path = written(tmp_path / name, content)
    with pytest.raises(SourceError) as caught:
        open_source(path)
    assert str(caught.value) == f"{path}: empty, no triples in it"


def test_empty_gzip_file_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path / "graph.tsv.gz", gzip.compress(b""))
    with pytest.raises(SourceError, match="empty, no triples in it"):
        open_source(path)


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("just words\n", "'just words'"),
        ("a,r,b\nc,d\n", "'a,r,b'"),
        ("a\tb\n", "'a\\tb'"),
        ('[\n{"head": "a"}\n]\n', "'['"),
        (b"\xff\xfea\x00\n\x00", "a\\x00"),
        (b"BZh91AY&SY", "BZh91AY&SY"),
    ],
)
def test_unknown_content_is_shown(tmp_path: Path, content: str | bytes, shown: str) -> None:
    path = written(tmp_path / "graph", content)
    with pytest.raises(SourceError) as caught:
        open_source(path)
    assert str(caught.value).startswith(f"{path}:1: no format this program knows (give --format): ")
    assert shown in str(caught.value)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        ("just words\n", "with tabs between, can be read whatever they are"),
        (b"PK\x03\x04xl/workbook.xml", "save the sheet as CSV (UTF-8)"),
        ("a\tr\tb\n".encode("utf-16"), "`iconv -f UTF-16 -t UTF-8` converts it"),
        (b"BZh91AY&SY", "`bunzip2` unpacks it"),
        (b"\x28\xb5\x2f\xfd...", "`zstd -d` unpacks it"),
        ('[\n{"head": "a"}\n]\n', "`jq -c '.[]'` writes one item a line"),
        ('{\n"head": "a"\n}\n', "`jq -c` writes one object a line"),
        ("<html>\n", "XML or HTML that is not RDF/XML"),
    ],
)
def test_unknown_content_says_how_to_convert_it(tmp_path: Path, content: str | bytes, hint: str) -> None:
    path = written(tmp_path / "graph", content)
    with pytest.raises(SourceError) as caught:
        open_source(path)
    assert hint in str(caught.value)
    assert str(caught.value).endswith(f"Known are {', '.join(FORMATS)}")
    assert "\n" not in str(caught.value)


def test_columns_that_the_user_says_make_a_table(tmp_path: Path) -> None:
    for content in ("x\ta\tr\tb\ny\ta\tr\tc\n", "x,a,r,b\ny,a,r,c\n"):
        path = written(tmp_path / "graph", content)
        with pytest.raises(SourceError, match="no format this program knows"):
            open_source(path)
        source = open_source(path, options=SourceOptions(columns=(2, 3, 4)))
        assert triples(source) == [("a", "r", "b"), ("a", "r", "c")]


def test_glued_signs_need_an_explicit_format(tmp_path: Path) -> None:
    path = written(tmp_path / "night.txt", "+a\tr\tb\n-b\tr\tc\n")
    with pytest.raises(SourceError, match="give --format changes, or tsv"):
        open_source(path)
    assert open_source(path, "changes").is_change
    assert triples(open_source(path, "tsv")) == [("+a", "r", "b"), ("-b", "r", "c")]


def test_damaged_compressed_files_are_refused(tmp_path: Path) -> None:
    content = gzip.compress(TSV.encode() * 100)
    broken = bytearray(content)
    broken[12] ^= 0xFF
    for damaged in (content[:20], bytes(broken), content[:3]):
        path = written(tmp_path / "graph.tsv.gz", damaged)
        with pytest.raises(SourceError, match=f"^{path}: damaged or truncated"):
            open_source(path)
        assert refusal(open_source(path, "changes")).startswith(f"{path}: damaged or truncated")


def test_missing_sources_are_refused(tmp_path: Path) -> None:
    for format in ("auto", *FORMATS):
        with pytest.raises(SourceError) as caught:
            open_source(tmp_path / "absent", format)
        assert str(caught.value) == f"{tmp_path}/absent: no such file or folder"


def test_pipe_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    keep_open = os.open(path, os.O_RDWR)
    try:
        with pytest.raises(SourceError, match="a pipe cannot be read, give a file"):
            open_source(path)
    finally:
        os.close(keep_open)


def test_unknown_format_is_wrong_usage() -> None:
    with pytest.raises(UsageError) as caught:
        open_source(Path("absent"), "xml")
    assert str(caught.value) == f"unknown format 'xml': one of auto, {', '.join(FORMATS)}"


def test_apt_means_the_lists_of_apt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if APT_LISTS.exists():
        source = open_source(Path("apt"), "debian")
        assert isinstance(source, DebianSource)
        assert source.path == APT_LISTS
    else:
        with pytest.raises(SourceError, match=str(APT_LISTS)):
            open_source(Path("apt"), "debian")


def test_options_reach_their_readers(tmp_path: Path) -> None:
    written(tmp_path / "imdb" / "title.basics.tsv", "")
    imdb = open_source(tmp_path / "imdb", options=SourceOptions(released_after=2013, key="name"))
    assert isinstance(imdb, ImdbSource)
    assert (imdb.options.released_after, imdb.options.key) == (2013, "name")
    ntriples = open_source(written(tmp_path / "graph.nt", NTRIPLES), options=SourceOptions(literals=False))
    assert isinstance(ntriples, NTriplesSource)
    assert ntriples.options.literals is False


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (SourceOptions(released_after=2013), "--released-after is for imdb sources, this one is tsv"),
        (SourceOptions(key="name"), "--key is for imdb sources, this one is tsv"),
        (
            SourceOptions(literals=False),
            "--no-literals is for ntriples, nquads, turtle, trig, rdfxml sources, this one is tsv",
        ),
    ],
)
def test_options_of_other_formats_are_refused(tmp_path: Path, options: SourceOptions, problem: str) -> None:
    path = written(tmp_path / "graph.tsv", TSV)
    with pytest.raises(UsageError) as caught:
        open_source(path, options=options)
    assert str(caught.value) == problem


def test_folder_with_two_kinds_of_train_files_is_refused(tmp_path: Path) -> None:
    for name in ("train.parquet", "train.tsv"):
        (tmp_path / name).write_text("a\tr\tb\n")
    with pytest.raises(SourceError, match=r"holds both train.tsv and train.parquet: say which with --format"):
        detect(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        "<a> <b> " + '"' * 60_000,
        "<a> <b> " + '" ' * 30_000,
        "_:" + "a" * 60_000,
        "_:" + "<" * 60_000,
        "_:" + "a<" * 30_000,
        "<a>" + " " * 60_000,
        "<a> <b> _:" + "." * 60_000,
        "<a> <b> _:" + "a." * 30_000 + " x",
        "<a> <b> " + '"\\' * 30_000,
        " " * 30_000 + "<" + " " * 30_000,
    ],
)
def test_crafted_lines_take_linear_time(tmp_path: Path, line: str) -> None:
    """Some took half a minute: how often a pattern tries again must not grow with the line."""
    path = written(tmp_path / "crafted", line)
    for _ in range(50):
        with pytest.raises(SourceError, match="no format this program knows"):
            detect(path)


@pytest.mark.parametrize(
    "line",
    [
        "<a><b><c>.",
        "_:a<b>_:c .",
        "_:a.b <p> _:c.d.",
        '\t<a>\t<b>\t"x \\" y"@en-GB . # comment',
        '<a> <b> "1"^^<int>.',
        '<a> <b> "".',
    ],
)
def test_ways_to_write_a_statement(tmp_path: Path, line: str) -> None:
    assert detect(written(tmp_path / "some", line + "\n")) == "ntriples"
