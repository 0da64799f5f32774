"""The reader for whatever a user gives as a source: a path, a pattern, several of them, or an object in memory.

A format is recognised by the content of a file and not only by its name. Readers and kernels are imported only then: a
source that is refused needs nothing compiled.
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import chain
from pathlib import Path, PurePath
from typing import Any

from dkge_dist.graph.sources import FORMATS
from dkge_dist.graph.sources.base import Rejects, Source, SourceError, SourceOptions, TripleBatch, name_of
from dkge_dist.graph.sources.columns import DELIMITERS, csv_records, usual_ends
from dkge_dist.graph.sources.files import STDIN, only_file, read_start, whole_lines
from dkge_dist.types import Split, UsageError

APT_LISTS = Path("/var/lib/apt/lists")
SPLIT_STEMS = {
    Split.TRAIN: ("train",),
    Split.VALID: ("valid", "validation", "dev"),
    Split.TEST: ("test",),
}

CONVERSIONS = (
    (b"PK\x03\x04", "a zip archive or an Excel workbook: unpack it, or save the sheet as CSV (UTF-8)"),
    (b"\xff\xfe", "UTF-16: `iconv -f UTF-16 -t UTF-8` converts it"),
    (b"\xfe\xff", "UTF-16: `iconv -f UTF-16 -t UTF-8` converts it"),
    (b"BZh", "bzip2: `bunzip2` unpacks it"),
    (b"\x28\xb5\x2f\xfd", "zstd: `zstd -d` unpacks it"),
    (b"<", "XML or HTML that is not RDF/XML"),
    (b"{", "a JSON document, not JSON lines: `jq -c` writes one object a line"),
    (b"[", "a JSON document, not JSON lines: `jq -c '.[]'` writes one item a line"),
)
"""What a file of no known format may begin with, and how it may be converted."""
NO_TEXT = tuple(magic for magic, _ in CONVERSIONS if not magic.isalpha() and len(magic) > 1)
ANY_FORMAT = "triples as lines of head, relation and tail, with tabs between, can be read whatever they are"

# Subject and predicate, then whatever the object is, up to the graph and the dot. Between them blanks or tabs. What was
# matched is never given up again (`*+`): otherwise a crafted line would take time that grows with its length squared.
_ENDS = rb"\s*+(?:<[^>]*+>|_:[^\s<]++)\s*+<[^>]*+>\s*+"
_OBJECT = rb"(?:<[^>]*+>|_:[^\s.]++(?:\.++[^\s.]++)*+|\"(?:[^\"\\]|\\.)*+\"(?:@[\w-]++|\^\^<[^>]*+>)?+)\s*+"
_GRAPH = rb"(?:<[^>]*+>|_:[^\s.]++(?:\.++[^\s.]++)*+)\s*+"
_DOT = rb"\.\s*+(?:#.*+)?+"
_TRIPLE, _QUAD = re.compile(_ENDS + _OBJECT + _DOT), re.compile(_ENDS + _OBJECT + _GRAPH + _DOT)
_DIRECTIVE = re.compile(rb"\s*+(?:@prefix|@base|prefix|base)\s", re.IGNORECASE)
_GRAPH_BLOCK = re.compile(rb"(?:GRAPH\s+)?(?:<[^>]*+>|_:\S++|[\w.-]*+:[\w.-]*+)?\s*+\{", re.IGNORECASE)


def open_given(
    given: Any,
    format: str = "auto",
    options: SourceOptions | None = None,
    nodelist: Sequence[Any] | None = None,
    relation: str | None = None,
) -> Source:
    """The reader for a path, a pattern (`dumps/*.tsv`), several of them, or an object in memory."""
    options = options or SourceOptions()
    if not isinstance(given, str | os.PathLike) and isinstance(given, Iterable) and not hasattr(given, "columns"):
        given = _peeked(given)
    words = [given] if isinstance(given, str | os.PathLike) else given
    if isinstance(words, list) and words and isinstance(words[0], str | os.PathLike):
        if nodelist is not None or relation is not None:
            raise UsageError("nodelist and relation are for graphs and matrices in memory, not for files")
        return open_paths(words, format, options)
    if format != "auto" or replace(options, columns=None) != SourceOptions():
        raise UsageError("format, released_after, key and literals are for files")
    from dkge_dist.graph.sources.rows import open_object

    return open_object(given, options.columns, nodelist, relation)


def _peeked(given: Any) -> Any:
    """A list if the items are paths; an iterator is otherwise put together again."""
    if isinstance(given, list | tuple):
        return list(given)
    if not isinstance(given, Iterator):
        return given
    first = next(given, None)
    if isinstance(first, str | os.PathLike):
        return [first, *given]
    return chain([first] if first is not None else [], given)


def open_paths(words: Sequence[str | os.PathLike[str]], format: str, options: SourceOptions) -> Source:
    """The reader for the files that the words name, in their order; those of a pattern in alphabetical order."""
    for word in words:
        if not isinstance(word, str | os.PathLike):
            raise UsageError(f"{word!r} is no path, but {words[0]!r} is: give paths, or triples")
    paths = [path for word in words for path in _matching(os.fspath(word))]
    if len(paths) == 1:
        return open_source(paths[0], format, options)
    splits = _by_split(paths)
    folder = next((path for path in paths if path.is_dir()), None)
    if folder is not None:
        raise SourceError(f"{folder}: a folder is read by itself, not among several sources")
    sources = [open_source(path, format, options) for path in paths]
    for source in sources:
        if source.format != sources[0].format:
            raise SourceError(
                f"{source.path}: is {source.format}, but {sources[0].path} is {sources[0].format}: "
                "several files are of one format"
            )
        source.continue_from(sources[0])
    if splits and FORMATS[sources[0].format].has_splits:
        return type(sources[0])(paths[0].parent, options, splits)
    return SeveralFiles(sources)


def _matching(word: str) -> list[Path]:
    path = Path(word)
    if path == STDIN or path.exists() or not glob.has_magic(word):
        return [path]
    found = sorted(Path(name) for name in glob.glob(word, recursive=True))
    if not found:
        raise SourceError(f"{word}: no file matches")
    return found


def _by_split(paths: list[Path]) -> dict[Split, Path]:
    """The files by split, if they are the train, valid and test files of one folder; otherwise none."""
    found: dict[Split, Path] = {}
    for path in paths:
        stem = name_of(Path(path.name))
        split = next((split for split, stems in SPLIT_STEMS.items() if stem in stems), None)
        if split is None or split in found or path.parent != paths[0].parent:
            return {}
        found[split] = path
    return {split: found[split] for split in Split if split in found} if Split.TRAIN in found else {}


class SeveralFiles(Source):
    """Files of one format, read one after the other as one snapshot, or as one change."""

    format = "several"

    def __init__(self, sources: list[Source]) -> None:
        paths = [source.path for source in sources]
        super().__init__(Path(f"{paths[0]} and {len(paths) - 1} more"))
        self.sources = sources
        self.format = sources[0].format  # type: ignore[misc]
        self.is_change = sources[0].is_change
        self.bytes_total = sum(source.bytes_total for source in sources)

    @property
    def name(self) -> str:
        """That of the folder, if all are in one."""
        folders = {source.path.parent for source in self.sources}
        return name_of(folders.pop()) if len(folders) == 1 else self.sources[0].name

    def batches(self, rejects: Rejects) -> Iterator[TripleBatch]:
        counts: Counter[str] = Counter()
        done = 0
        for source in self.sources:
            for batch in source.batches(rejects):
                self.bytes_read = done + source.bytes_read
                yield batch
            done += source.bytes_total
            counts += source.counts
        self.bytes_read = done
        self.counts = counts


def open_label_files(paths: Iterable[Path]) -> list[Source]:
    """The readers of files of display names, to be read beside a source."""
    files = list(paths)
    for path in files:
        if not path.is_file():
            # Before the source is read, which may take minutes.
            raise SourceError(f"{path}: no such file")
    return [open_source(path, "labels") for path in files]


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
    module, name = FORMATS[format].reader.split(":")
    reader: type[Source] = getattr(import_module(f"{__package__}.{module}"), name)
    if not (FORMATS[format].has_splits and path.is_dir()):
        return reader(path, options)
    files = split_files(path, format)
    if not files:
        wanted = ", ".join(f"train{ending}" for ending in _split_endings(format))
        raise SourceError(f"{path}: no train file in it (looked for {wanted})")
    return reader(path, options, files)


def _refuse_foreign(options: SourceOptions, format: str) -> None:
    """Refuse an option of another format: it would have no effect."""
    for name, value in vars(options).items():
        if value != getattr(SourceOptions, name) and name not in FORMATS[format].options:
            owners = ", ".join(owner for owner, known in FORMATS.items() if name in known.options)
            option = "--no-literals" if name == "literals" else f"--{name.replace('_', '-')}"
            raise UsageError(f"{option} is for {owners} sources, this one is {format}")


def _split_endings(format: str) -> list[str]:
    return [ending + packed for packed in ("", ".gz") for ending in FORMATS[format].endings]


def split_files(folder: Path, format: str) -> dict[Split, Path]:
    """The train, valid and test files of a folder; empty if it has no train file."""
    found = {}
    for split, stems in SPLIT_STEMS.items():
        file = only_file([folder / f"{stem}{ending}" for stem in stems for ending in _split_endings(format)])
        if file is not None:
            found[split] = file
    return found if Split.TRAIN in found else {}


def detect(path: Path, columns_said: bool = False) -> str:
    """The format of `path`, or an error that names the formats that were tried."""
    return _detect_folder(path) if path.is_dir() else _detect_file(path, columns_said)


def _detect_folder(path: Path) -> str:
    names = sorted(entry.name for entry in path.iterdir())
    for format, known in FORMATS.items():
        if known.marker and any(name.startswith(known.marker) for name in names):
            return format
    found = {format: split_files(path, format) for format, known in FORMATS.items() if known.has_splits}
    found = {format: files for format, files in found.items() if files}
    if len(found) > 1:
        both = " and ".join(files[Split.TRAIN].name for files in found.values())
        raise SourceError(f"{path}: holds both {both}: say which with --format {' or --format '.join(found)}")
    if found:
        return next(iter(found))
    for name in names:
        if by_name := _by_name(name):
            return by_name
    markers = [f"{known.marker} ({format})" for format, known in FORMATS.items() if known.marker]
    trains = [f"train{known.endings[0]}" for known in FORMATS.values() if known.has_splits]
    raise SourceError(
        f"{path}: not a folder this program knows: looked for {', '.join(markers + trains)} or Packages (debian); "
        f"several files are given as such, or as a pattern: '{path}/*.ttl'"
    )


def _by_name(name: str) -> str | None:
    """The format of which all files have names like this, whatever their ending."""
    named = ((format, known.name) for format, known in FORMATS.items() if known.name)
    return next((format for format, pattern in named if re.fullmatch(rf"{pattern}(\..*)?", name)), None)


def _detect_file(path: Path, columns_said: bool) -> str:
    head = read_start(path)
    lines = [line for line in head.split(b"\n") if line.strip()]
    if not lines:
        raise SourceError(f"{path}: empty, no triples in it")
    format = _sniff(head, lines, path.name, columns_said)
    if format in ("tsv", None) and {line[:1] for line in lines} == {b"+", b"-"}:
        raise SourceError(
            f"{path}: every line opens with + or -: give --format changes, or tsv if they belong to labels"
        )
    if format is None:
        shown = lines[0][:80].decode("utf-8", "replace")
        opening = head.lstrip(b" \t\r\n")
        hint = next((hint for magic, hint in CONVERSIONS if opening.startswith(magic)), ANY_FORMAT)
        raise SourceError(
            f"{path}:1: no format this program knows (give --format): {shown!r}; {hint}. Known are {', '.join(FORMATS)}"
        )
    return format


def _sniff(head: bytes, lines: list[bytes], name: str, columns_said: bool) -> str | None:
    """The format of a file that opens with `head`, its `lines` that are not blank; None if it is not known."""
    endings = {ending: format for format, known in FORMATS.items() for ending in known.endings}
    suffixes = (suffix.lower() for suffix in reversed(PurePath(name).suffixes))
    by_ending = next((endings[suffix] for suffix in suffixes if suffix in endings), None)
    if by_ending is not None and FORMATS[by_ending].magic:
        return by_ending
    for format, known in FORMATS.items():
        if known.magic and (head.startswith(known.magic) or lines[0].startswith(known.magic)):
            return format
    if head.startswith(NO_TEXT):
        return None
    by_name = _by_name(name)
    if by_name is not None or by_ending not in ("tsv", "csv", "turtle", None):
        return by_name or by_ending
    statements = [line for line in lines if not line.startswith(b"#")]
    rdf = _sniff_rdf(statements)
    # Dumps of N-Triples lines are often named as Turtle, and the reader of lines forgives more.
    if by_ending == "turtle":
        return rdf if rdf == "ntriples" and all(map(_TRIPLE.fullmatch, statements[:-1])) else "turtle"
    if rdf is not None:
        return rdf
    if lines[0][:2] in (b"+\t", b"-\t") and lines[0].count(b"\t") == 3:
        return "changes"
    if _is_json_row(lines[0]):
        return "jsonl"
    return _sniff_delimited(head, lines, columns_said) or by_ending


def _sniff_rdf(statements: list[bytes]) -> str | None:
    first = statements[0] if statements else b""
    if _QUAD.fullmatch(first):
        return "nquads"
    if _TRIPLE.fullmatch(first):
        return "nquads" if any(map(_QUAD.fullmatch, statements)) else "ntriples"
    if _DIRECTIVE.match(first):
        return "trig" if any(map(_GRAPH_BLOCK.match, statements)) else "turtle"
    if first.lstrip().startswith((b"<?xml", b"<!DOCTYPE", b"<rdf:RDF")):
        return "rdfxml" if any(b"<rdf:RDF" in line for line in statements) else None
    return None


def _is_json_row(line: bytes) -> bool:
    """An object, or an array that is more than the beginning of one."""
    if line[:1] not in (b"{", b"["):
        return False
    try:
        return len(json.loads(line)) > 0
    except (ValueError, RecursionError):
        return False


def _sniff_delimited(head: bytes, lines: list[bytes], columns_said: bool) -> str | None:
    """TSV or CSV if all rows have three fields, or as many as a header that says which are meant."""
    fields = lines[0].rstrip(b"\r").decode("utf-8", "replace").split("\t")
    tables = [("tsv", [fields])]
    if len(fields) == 1:
        tables = [("csv", csv_records(whole_lines(head), delimiter)) for delimiter in DELIMITERS]
    for format, rows in tables:
        widths = {len(row) for row in rows}
        if len(widths) == 1 and (
            widths == {3} or (min(widths) > 3 and (columns_said or usual_ends(rows[0]) is not None))
        ):
            return format
    return None
