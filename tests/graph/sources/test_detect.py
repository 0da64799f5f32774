"""Which reader a source gets, by what is in it; several files as one; sources that no reader is for."""

from __future__ import annotations

import gzip
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources import FORMATS, Format
from dkge_dist.graph.sources.base import Rejects, Source, SourceError, SourceOptions, TripleBatch
from dkge_dist.graph.sources.debian import DebianSource
from dkge_dist.graph.sources.delimited import TsvSource
from dkge_dist.graph.sources.detect import APT_LISTS, detect, open_given, open_source
from dkge_dist.graph.sources.imdb import ImdbSource
from dkge_dist.graph.sources.rdf import NTriplesSource
from dkge_dist.types import Split, UsageError
from tests.graph.sources.reading import GOOD, read, refusal, signed, triples, written
from tests.graphs import lines

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
        ("graph.tsv", "\ufeff" + TSV, "tsv"),
        ("graph.tsv", "not a triple\n", "tsv"),
        ("graph.txt", "a\tr\tb\tc\n", "tsv"),
        ("graph.tsv", "<a>\t<r>\t<b>\n", "tsv"),
        ("graph", "<http://x/a>\t<http://x/r>\t<http://x/b.>\n", "tsv"),
        ("graph", "#tag\tr\tb\n", "tsv"),
        ("graph", "+\tr\tb\n", "tsv"),
        ("graph", "+49\tr\tb\n+50\tr\tb\n", "tsv"),
        ("graph", "PAR\tr\tb\n", "tsv"),
        ("graph", "x" * 100_000 + "\tr\tb\n", None),
        ("graph.tsv", "x" * 100_000 + "\tr\tb\n", "tsv"),
        ("graph.nt", NTRIPLES, "ntriples"),
        ("graph", NTRIPLES, "ntriples"),
        ("graph", "# comment\n\n" + NTRIPLES, "ntriples"),
        ("graph", '_:a <urn:r> "text with <b> ."@en .\r\n', "ntriples"),
        ("graph", "<urn:a>\t<urn:r>\t<urn:b>\t.\n", "ntriples"),
        ("graph", '<urn:a> <urn:r> "1"^^<urn:int> . # one\n', "ntriples"),
        ("graph.nt", TSV, "ntriples"),
        ("night.changes", CHANGES, "changes"),
        ("night", CHANGES, "changes"),
        ("night.txt", "-\ta\tr\tb\n", "changes"),
        ("night.changes", "rubbish\n", "changes"),
        ("Packages", PACKAGES, "debian"),
        ("mirror_dists_sid_main_binary-amd64_Packages", PACKAGES, "debian"),
        ("metadata.txt", PACKAGES, "debian"),
        ("graph", "note\thead\trelation\ttail\nx\ta\tr\tb\n", "tsv"),
        ("graph.csv", "not a triple\n", "csv"),
        ("graph", "a,r,b\nb,r,c\n", "csv"),
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


@pytest.mark.parametrize("content", ["", "\n", " \n\t\n\r\n", "\ufeff", "\ufeff\n"])
@pytest.mark.parametrize("name", ["graph.tsv", "graph", "night.changes"])
def test_empty_files_are_refused(tmp_path: Path, name: str, content: str) -> None:
    path = written(tmp_path / name, content)
    with pytest.raises(SourceError) as caught:
        open_source(path)
    assert str(caught.value) == f"{path}: empty, no triples in it"


@pytest.mark.parametrize(
    ("content", "shown", "hint"),
    [
        ("just words\n", "'just words'", "with tabs between, can be read whatever they are"),
        ("a,r,b\nc,d\n", "'a,r,b'", "with tabs between"),
        ("a\tb\n", "'a\\tb'", "with tabs between"),
        (b"PK\x03\x04xl/workbook.xml", "PK", "save the sheet as CSV (UTF-8)"),
        ("a\tr\tb\n".encode("utf-16"), "a\\x00", "`iconv -f UTF-16 -t UTF-8` converts it"),
        (b"BZh91AY&SY", "BZh91AY&SY", "`bunzip2` unpacks it"),
        (b"\x28\xb5\x2f\xfd...", "...", "`zstd -d` unpacks it"),
        ('[\n{"head": "a"}\n]\n', "'['", "`jq -c '.[]'` writes one item a line"),
        ('{\n"head": "a"\n}\n', "'{'", "`jq -c` writes one object a line"),
        ("<html>\n", "'<html>'", "XML or HTML that is not RDF/XML"),
    ],
)
def test_unknown_content_is_shown_and_how_to_convert_it(
    tmp_path: Path, content: str | bytes, shown: str, hint: str
) -> None:
    path = written(tmp_path / "graph", content)
    with pytest.raises(SourceError) as caught:
        open_source(path)
    message = str(caught.value)
    assert message.startswith(f"{path}:1: no format this program knows (give --format): ")
    assert shown in message and hint in message and "\n" not in message
    assert message.endswith(f"Known are {', '.join(FORMATS)}")


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


@pytest.fixture
def dumps(tmp_path: Path) -> Path:
    written(tmp_path / "dumps" / "1.tsv", "h\tr\tt\n" + lines(GOOD[:1]))
    written(tmp_path / "dumps" / "2.tsv.gz", gzip.compress(lines(GOOD[1:2]).encode()))
    written(tmp_path / "dumps" / "3.tsv", lines(GOOD[2:]))
    return tmp_path / "dumps"


def test_a_pattern_is_read_in_the_order_of_names(dumps: Path) -> None:
    source = open_given(f"{dumps}/*.tsv*")
    assert triples(source) == GOOD
    assert (source.format, source.name, source.brings_splits) == ("tsv", "dumps", False)
    assert source.bytes_read == source.bytes_total == sum(file.stat().st_size for file in dumps.iterdir())
    assert source.counts == {"header lines (head = 'h', relation = 'r', tail = 't')": 1}


def test_several_paths_are_read_in_their_order(dumps: Path) -> None:
    words = [dumps / "3.tsv", str(dumps / "1.tsv")]
    for given in (words, tuple(words), iter(words)):
        assert triples(open_given(given)) == [GOOD[2], GOOD[0]]
    assert open_given([dumps / "3.tsv"]).name == "3"


def test_changes_are_one_change(tmp_path: Path) -> None:
    one, two = written(tmp_path / "1.changes", "+\ta\tr\tb\n"), written(tmp_path / "2.changes", "-\tb\ts\tc\n")
    source = open_given([one, two])
    assert source.is_change
    assert signed(source) == [("+", GOOD[0]), ("-", GOOD[1])]


def test_errors_name_the_file(dumps: Path) -> None:
    bad = written(dumps / "4.tsv", "a\tb\n")
    assert refusal(open_given(f"{dumps}/*.tsv")) == f"{bad}:1: 2 columns instead of 3: 'a\\tb'"


def test_nodes_without_a_name_are_others_in_every_file(tmp_path: Path) -> None:
    for number in range(2):
        written(tmp_path / f"{number}.ttl", f"<x:{number}> <x:p> [], [] .\n")
    tails = [tail for _, _, tail in triples(open_given(f"{tmp_path}/*.ttl"))]
    assert tails == [f"_:anonymous{number}" for number in range(1, 5)]


def test_train_valid_and_test_stay_splits(tmp_path: Path) -> None:
    """They match a pattern, but a test split is not to be trained on."""
    for split in Split:
        written(tmp_path / f"{split.label}.txt", lines([GOOD[split]]))
    source = open_given(f"{tmp_path}/*.txt")
    assert source.brings_splits
    assert read(source) == list(zip(Split, GOOD, strict=True))


def test_what_does_not_go_together_is_refused(dumps: Path) -> None:
    other = written(dumps / "x.nt", "<a:b> <c:d> <e:f> .\n")
    with pytest.raises(SourceError) as caught:
        open_given([dumps / "1.tsv", other])
    assert str(caught.value) == (f"{other}: is ntriples, but {dumps / '1.tsv'} is tsv: several files are of one format")
    with pytest.raises(SourceError, match="a folder is read by itself"):
        open_given([dumps, dumps / "1.tsv"])
    with pytest.raises(SourceError, match=r"none/\*: no file matches$"):
        open_given(f"{dumps}/none/*")
    with pytest.raises(UsageError, match="is no path, but"):
        open_given([dumps / "1.tsv", 7])
    with pytest.raises(UsageError, match="for graphs and matrices in memory"):
        open_given(dumps / "1.tsv", relation="r")
    for options in ({"format": "tsv"}, {"options": SourceOptions(literals=False)}):
        with pytest.raises(UsageError, match="format, released_after, key and literals are for files"):
            open_given(GOOD, **options)  # type: ignore[arg-type]


def test_a_name_with_brackets_is_a_name_if_there_is_such_a_file(tmp_path: Path) -> None:
    assert triples(open_given(written(tmp_path / "a[1].tsv", lines(GOOD)))) == GOOD


def test_objects_are_read_as_such() -> None:
    assert triples(open_given(GOOD)) == GOOD
    assert triples(open_given(row for row in GOOD)) == GOOD
    assert triples(open_given(pandas.DataFrame(GOOD, columns=list("hrt")))) == GOOD
    assert open_given(GOOD).name == "snapshot"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("dump.tsv", "dump"),
        ("dump.tsv.gz", "dump"),
        ("dump-2.1.txt.xz", "dump-2.1"),
        ("2024.01.31", "2024.01.31"),
        ("folder/", "folder"),
        ("folder/.", "folder"),
        ("folder/sub/..", "folder"),
        (".tsv", ".tsv"),
        ("NIGHT.TSV", "NIGHT"),
        ("new\nline.tsv", "new_line"),
        (os.fsdecode(b"caf\xe9.tsv"), "caf_"),
    ],
)
def test_name_of_a_snapshot_is_that_of_the_path(tmp_path: Path, path: str, name: str) -> None:
    assert TsvSource(tmp_path / path if not path.endswith("..") else Path(f"{tmp_path}/{path}")).name == name


class TestRejects:
    def test_bad_lines_up_to_the_limit_are_kept(self) -> None:
        rejects = Rejects(limit=2)
        rejects.add(Path("f"), 3, "no tail", "a\tb")
        rejects.add(Path("f"), 7, "nothing")
        assert rejects.lines == ["f:3\tno tail\t'a\\tb'", "f:7\tnothing\t''"]
        with pytest.raises(SourceError, match=r"^f:9: no tail \(2 bad lines were allowed\): 'x'$"):
            rejects.add(Path("f"), 9, "no tail", "x")
        assert len(rejects.lines) == 2

    def test_long_lines_are_cut(self) -> None:
        rejects = Rejects(limit=1)
        rejects.add(Path("f"), 1, "long", "y" * 500)
        assert rejects.lines == ["f:1\tlong\t'" + "y" * 200 + "…'"]


class PairsSource(Source):
    """A format of its own: lines of two words that are linked."""

    format = "pairs"

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        words = [line.split() for line in self.path.read_text().splitlines()]
        head, tail = (Labels.from_strings(word) for word in zip(*words, strict=True))
        yield TripleBatch(head, Labels.constant("linked", len(head)), tail)


def test_a_new_format_is_a_reader_and_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "dkge_dist.graph.sources.pairs", sys.modules[__name__])
    monkeypatch.setitem(FORMATS, "pairs", Format("pairs:PairsSource", (".pairs",)))
    path = written(tmp_path / "graph.pairs", "a b\nb c\n")
    for source in (open_given(path), open_given(path, "pairs"), open_given(f"{tmp_path}/*.pairs")):
        assert (source.format, source.name) == ("pairs", "graph")
        assert triples(source) == [("a", "linked", "b"), ("b", "linked", "c")]
    with pytest.raises(UsageError, match="--columns is for tsv, csv, jsonl, parquet sources, this one is pairs"):
        open_given(path, options=SourceOptions(columns=(1, 2, 3)))
