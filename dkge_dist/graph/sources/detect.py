"""The reader for a source, chosen by its content and not only by its name."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dkge_dist.graph.sources.base import Source, SourceError
from dkge_dist.graph.sources.files import UTF8_MARK, only_file, read_start
from dkge_dist.types import Split, UsageError

FORMATS = ("tsv", "openke", "ntriples", "parquet", "imdb", "debian", "changes", "labels")
APT_LISTS = Path("/var/lib/apt/lists")
SNIFF_BYTES = 1 << 16
SPLIT_STEMS = {
    Split.TRAIN: ("train",),
    Split.VALID: ("valid", "validation", "dev"),
    Split.TEST: ("test",),
}
TSV_ENDINGS = (".tsv", ".txt", ".tsv.gz", ".txt.gz")
PARQUET_ENDINGS = (".parquet",)


@dataclass(frozen=True)
class SourceOptions:
    """Options that belong to single formats."""

    released_after: int | None = None
    key: Literal["id", "name"] = "id"
    literals: bool = True
    label_language: str = "en"


_OWNERS = {
    "released_after": ("imdb", "--released-after"),
    "key": ("imdb", "--key"),
    "literals": ("ntriples", "--no-literals"),
    "label_language": ("ntriples", "--label-language"),
}


def open_source(path: Path, format: str = "auto", options: SourceOptions | None = None) -> Source:
    """The reader for `path`. `auto` recognises every format; a wrong explicit format is an error of its reader."""
    if format not in ("auto", *FORMATS):
        raise UsageError(f"unknown format {format!r}: one of auto, {', '.join(FORMATS)}")
    if format == "debian" and str(path) == "apt":
        path = APT_LISTS
    if not path.exists():
        raise SourceError(f"{path}: no such file or folder")
    if format == "auto":
        format = detect(path)
    options = options or SourceOptions()
    _refuse_foreign(options, format)
    return _READERS[format](path, options)


def _refuse_foreign(options: SourceOptions, format: str) -> None:
    """Refuse an option of another format: it would have no effect."""
    for name, (owner, option) in _OWNERS.items():
        if format != owner and getattr(options, name) != getattr(SourceOptions, name):
            raise UsageError(f"{option} is for {owner} sources, this one is {format}")


def detect(path: Path) -> str:
    """The format of `path`, or an error that names the formats that were tried."""
    return _detect_folder(path) if path.is_dir() else _detect_file(path)


def _detect_folder(path: Path) -> str:
    names = sorted(entry.name for entry in path.iterdir())
    if "entity2id.txt" in names:
        return "openke"
    if any(name.startswith("title.basics.tsv") for name in names):
        return "imdb"
    parquet, tsv = split_files(path, PARQUET_ENDINGS), split_files(path, TSV_ENDINGS)
    if parquet and tsv:
        both = f"{parquet[Split.TRAIN].name} and {tsv[Split.TRAIN].name}"
        raise SourceError(f"{path}: holds both {both}: say which with --format parquet or --format tsv")
    if parquet or tsv:
        return "parquet" if parquet else "tsv"
    if any(_is_packages(name) for name in names):
        return "debian"
    raise SourceError(
        f"{path}: not a folder this program knows: looked for entity2id.txt (openke), title.basics.tsv (imdb), "
        "train.tsv or train.parquet, Packages (debian)"
    )


def _is_packages(name: str) -> bool:
    stem = name.split(".")[0] if name.startswith("Packages") else name.rsplit("_", 1)[-1].split(".")[0]
    return stem == "Packages"


def _detect_file(path: Path) -> str:
    head = read_start(path, SNIFF_BYTES).removeprefix(UTF8_MARK)
    name = path.name.lower()
    if head.startswith(b"PAR1") or name.endswith(PARQUET_ENDINGS):
        return "parquet"
    lines = _content_lines(head)
    if not lines:
        raise SourceError(f"{path}: empty, no triples in it")
    if _is_packages(path.name) or lines[0].startswith(b"Package: "):
        return "debian"
    if ".nt" in path.suffixes or _looks_like_ntriples(lines):
        return "ntriples"
    if ".changes" in path.suffixes or (lines[0][:2] in (b"+\t", b"-\t") and lines[0].count(b"\t") == 3):
        return "changes"
    if {line[:1] for line in lines} == {b"+", b"-"}:
        raise SourceError(
            f"{path}: every line opens with + or -: give --format changes, or tsv if they belong to labels"
        )
    if lines[0].count(b"\t") == 2 or name.endswith(TSV_ENDINGS):
        return "tsv"
    shown = lines[0][:80].decode("utf-8", "replace")
    raise SourceError(f"{path}:1: no format this program knows (give --format): {shown!r}")


def _content_lines(head: bytes) -> list[bytes]:
    """The lines of the beginning of a file that are not blank; the last one may be cut."""
    return [line for line in head.split(b"\n") if line.strip()]


# Subject and predicate, then whatever the object is, up to the dot. Between them blanks or tabs. What was matched is
# never given up again (`*+`): otherwise a crafted line would take time that grows with the square of its length.
_STATEMENT = re.compile(
    rb"\s*+(?:<[^>]*+>|_:[^\s<]++)\s*+<[^>]*+>\s*+"
    rb"(?:<[^>]*+>|_:[^\s.]++(?:\.++[^\s.]++)*+|\"(?:[^\"\\]|\\.)*+\"(?:@[\w-]++|\^\^<[^>]*+>)?+)\s*+\.\s*+(?:#.*+)?+"
)


def _looks_like_ntriples(lines: list[bytes]) -> bool:
    statement = next((line for line in lines if not line.startswith(b"#")), b"")
    return _STATEMENT.fullmatch(statement) is not None


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

    return TsvSource(path, _splits_of(path, TSV_ENDINGS))


def _parquet(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.parquet import ParquetSource

    return ParquetSource(path, _splits_of(path, PARQUET_ENDINGS))


def _splits_of(path: Path, endings: tuple[str, ...]) -> dict[Split, Path] | None:
    if not path.is_dir():
        return None
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


def _imdb(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.imdb import ImdbSource

    return ImdbSource(path, options.released_after, options.key)


def _debian(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.debian import DebianSource

    return DebianSource(path)


def _changes(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.changes import ChangeSource

    first = (_content_lines(read_start(path, SNIFF_BYTES).removeprefix(UTF8_MARK)) or [b""])[0]
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
    "openke": _openke,
    "ntriples": _ntriples,
    "parquet": _parquet,
    "imdb": _imdb,
    "debian": _debian,
    "changes": _changes,
    "labels": _labels,
}
