"""The reader for a source, chosen by its content and not only by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dkge_dist.graph.sources.base import Source, SourceError
from dkge_dist.graph.sources.columns import Columns
from dkge_dist.graph.sources.files import START_BYTES, STDIN, UTF8_MARK, only_file, read_start
from dkge_dist.graph.sources.sniff import content_lines, hint_for, is_packages, sniff
from dkge_dist.types import Split, UsageError

FORMATS = (
    "tsv", "csv", "jsonl", "openke", "ntriples", "nquads", "turtle", "trig", "rdfxml", "parquet", "imdb", "debian",
    "changes", "labels",
)  # fmt: skip
RDF = ("ntriples", "nquads", "turtle", "trig", "rdfxml")
APT_LISTS = Path("/var/lib/apt/lists")
SPLIT_STEMS = {
    Split.TRAIN: ("train",),
    Split.VALID: ("valid", "validation", "dev"),
    Split.TEST: ("test",),
}
SPLIT_ENDINGS = {
    "parquet": (".parquet",),
    "tsv": (".tsv", ".txt", ".tsv.gz", ".txt.gz"),
    "csv": (".csv", ".csv.gz"),
    "jsonl": (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz"),
}
"""Formats of folders with files by split, and the endings of these."""


@dataclass(frozen=True)
class SourceOptions:
    """Options that belong to single formats."""

    released_after: int | None = None
    key: Literal["id", "name"] = "id"
    literals: bool = True
    label_language: str = "en"
    columns: Columns | None = None


_OWNERS = {
    "released_after": (("imdb",), "--released-after"),
    "key": (("imdb",), "--key"),
    "literals": (RDF, "--no-literals"),
    "label_language": (RDF, "--label-language"),
    "columns": (("tsv", "csv", "jsonl", "parquet"), "--columns"),
}


def open_source(path: Path, format: str = "auto", options: SourceOptions | None = None) -> Source:
    """The reader for `path`. `auto` recognises every format; a wrong explicit format is an error of its reader."""
    if format not in ("auto", *FORMATS):
        raise UsageError(f"unknown format {format!r}: one of auto, {', '.join(FORMATS)}")
    if format == "debian" and str(path) == "apt":
        path = APT_LISTS
    if path != STDIN and not path.exists():
        raise SourceError(f"{path}: no such file or folder")
    options = options or SourceOptions()
    if format == "auto":
        format = detect(path, options.columns is not None)
    _refuse_foreign(options, format)
    return _READERS[format](path, options)


def _refuse_foreign(options: SourceOptions, format: str) -> None:
    """Refuse an option of another format: it would have no effect."""
    for name, (owners, option) in _OWNERS.items():
        if format not in owners and getattr(options, name) != getattr(SourceOptions, name):
            raise UsageError(f"{option} is for {', '.join(owners)} sources, this one is {format}")


def detect(path: Path, columns_said: bool = False) -> str:
    """The format of `path`, or an error that names the formats that were tried."""
    return _detect_folder(path) if path.is_dir() else _detect_file(path, columns_said)


def _detect_folder(path: Path) -> str:
    names = sorted(entry.name for entry in path.iterdir())
    if "entity2id.txt" in names:
        return "openke"
    if any(name.startswith("title.basics.tsv") for name in names):
        return "imdb"
    found = {format: files for format, endings in SPLIT_ENDINGS.items() if (files := split_files(path, endings))}
    if len(found) > 1:
        both = " and ".join(files[Split.TRAIN].name for files in found.values())
        raise SourceError(f"{path}: holds both {both}: say which with --format {' or --format '.join(found)}")
    if found:
        return next(iter(found))
    if any(is_packages(name) for name in names):
        return "debian"
    raise SourceError(
        f"{path}: not a folder this program knows: looked for entity2id.txt (openke), title.basics.tsv (imdb), "
        "train.tsv, train.csv, train.jsonl or train.parquet, Packages (debian); several files are given as such, or as "
        f"a pattern: '{path}/*.ttl'"
    )


def _detect_file(path: Path, columns_said: bool) -> str:
    head = read_start(path, START_BYTES).removeprefix(UTF8_MARK)
    lines = content_lines(head)
    if not lines:
        raise SourceError(f"{path}: empty, no triples in it")
    format = sniff(head, path.name, columns_said)
    if format in ("tsv", None) and {line[:1] for line in lines} == {b"+", b"-"}:
        raise SourceError(
            f"{path}: every line opens with + or -: give --format changes, or tsv if they belong to labels"
        )
    if format is None:
        shown = lines[0][:80].decode("utf-8", "replace")
        raise SourceError(
            f"{path}:1: no format this program knows (give --format): {shown!r}; {hint_for(head)}. "
            f"Known are {', '.join(FORMATS)}"
        )
    return format


def split_files(folder: Path, endings: tuple[str, ...]) -> dict[Split, Path]:
    """The train, valid and test files of a folder; empty if it has no train file."""
    found = {}
    for split, stems in SPLIT_STEMS.items():
        names = [folder / f"{stem}{ending}" for stem in stems for ending in endings]
        file = only_file(names)
        if file is not None:
            found[split] = file
    return found if Split.TRAIN in found else {}


def _tsv(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.tsv import TsvSource

    return TsvSource(path, _splits_of(path, "tsv"), options.columns)


def _csv(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.csv import CsvSource

    return CsvSource(path, _splits_of(path, "csv"), options.columns)


def _jsonl(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.jsonl import JsonLinesSource

    return JsonLinesSource(path, _splits_of(path, "jsonl"), options.columns)


def _parquet(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.parquet import ParquetSource

    return ParquetSource(path, _splits_of(path, "parquet"), options.columns)


def _splits_of(path: Path, format: str) -> dict[Split, Path] | None:
    if not path.is_dir():
        return None
    endings = SPLIT_ENDINGS[format]
    files = split_files(path, endings)
    if not files:
        raise SourceError(f"{path}: no train file in it (looked for {', '.join('train' + e for e in endings)})")
    return files


def _openke(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.openke import OpenKeSource

    return OpenKeSource(path)


def _ntriples(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.ntriples import NTriplesSource

    return NTriplesSource(path, options.literals, options.label_language)


def _nquads(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.ntriples import NQuadsSource

    return NQuadsSource(path, options.literals, options.label_language)


def _turtle(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.rdf import TurtleSource

    return TurtleSource(path, options.literals, options.label_language)


def _trig(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.rdf import TrigSource

    return TrigSource(path, options.literals, options.label_language)


def _rdfxml(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.rdf import RdfXmlSource

    return RdfXmlSource(path, options.literals, options.label_language)


def _imdb(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.imdb import ImdbSource

    return ImdbSource(path, options.released_after, options.key)


def _debian(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.debian import DebianSource

    return DebianSource(path)


def _changes(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.changes import ChangeSource

    first = (content_lines(read_start(path, START_BYTES).removeprefix(UTF8_MARK)) or [b""])[0]
    return ChangeSource(path, glued=first.count(b"\t") == 2 and first[1:2] != b"\t")


def open_label_files(paths: Iterable[Path]) -> list[Source]:
    """The readers of files of display names, to be read beside a source."""
    from dkge_dist.graph.sources.label_file import LabelFileSource

    files = list(paths)
    for path in files:
        if not path.is_file():
            # Before the source is read, which may take minutes.
            raise SourceError(f"{path}: no such file")
    return [LabelFileSource(path) for path in files]


def _labels(path: Path, options: SourceOptions) -> Source:
    (source,) = open_label_files([path])
    return source


_READERS: dict[str, Callable[[Path, SourceOptions], Source]] = {
    "tsv": _tsv,
    "csv": _csv,
    "jsonl": _jsonl,
    "openke": _openke,
    "ntriples": _ntriples,
    "nquads": _nquads,
    "turtle": _turtle,
    "trig": _trig,
    "rdfxml": _rdfxml,
    "parquet": _parquet,
    "imdb": _imdb,
    "debian": _debian,
    "changes": _changes,
    "labels": _labels,
}
