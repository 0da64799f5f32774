"""Which reader a source needs: by what is in it, not only by what it is called."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from dkge_dist.graph.sources.base import Source, SourceError
from dkge_dist.graph.sources.files import decompressed, open_raw
from dkge_dist.types import Split, UsageError

FORMATS = ("tsv", "openke", "ntriples", "parquet", "imdb", "debian", "changes")
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
    """What only some formats ask for."""

    released_after: int | None = None
    key: Literal["id", "name"] = "id"
    literals: bool = True


def open_source(path: Path, format: str = "auto", options: SourceOptions | None = None) -> Source:
    """The reader for `path`. `auto` recognises every format; a wrong explicit format is told by its reader."""
    if format not in ("auto", *FORMATS):
        raise UsageError(f"unknown format {format!r}: one of auto, {', '.join(FORMATS)}")
    if format == "debian" and str(path) == "apt":
        path = APT_LISTS
    if not path.exists():
        raise SourceError(f"{path}: no such file or folder")
    if format == "auto":
        format = detect(path)
    return _READERS[format](path, options or SourceOptions())


def detect(path: Path) -> str:
    """The format of `path`, or an error that says what was looked for."""
    return _detect_folder(path) if path.is_dir() else _detect_file(path)


def _detect_folder(path: Path) -> str:
    names = sorted(entry.name for entry in path.iterdir())
    if "entity2id.txt" in names:
        return "openke"
    if any(name.startswith("title.basics.tsv") for name in names):
        return "imdb"
    if split_files(path, PARQUET_ENDINGS):
        return "parquet"
    if split_files(path, TSV_ENDINGS):
        return "tsv"
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
    with open_raw(path) as raw:
        try:
            head = decompressed(raw).read(SNIFF_BYTES)
        except (EOFError, OSError, ValueError) as error:
            raise SourceError(f"{path}: damaged or truncated: {error}") from None
    name = path.name.lower()
    if head.startswith(b"PAR1") or name.endswith(PARQUET_ENDINGS):
        return "parquet"
    if not head.strip():
        raise SourceError(f"{path}: empty, no triples in it")
    if _is_packages(path.name) or head.startswith(b"Package: "):
        return "debian"
    lines = [line for line in head.split(b"\n") if line.strip()]
    first = lines[0].removeprefix(b"\xef\xbb\xbf")
    if ".nt" in path.suffixes or (first.startswith((b"<", b"_:", b"#")) and _looks_like_ntriples(lines)):
        return "ntriples"
    if ".changes" in path.suffixes or (first[:2] in (b"+\t", b"-\t") and first.count(b"\t") == 3):
        return "changes"
    if first.count(b"\t") == 2 or path.name.lower().endswith(TSV_ENDINGS):
        return "tsv"
    shown = first[:80].decode("utf-8", "replace")
    raise SourceError(f"{path}:1: no format this program knows (give --format): {shown!r}")


def _looks_like_ntriples(lines: list[bytes]) -> bool:
    statements = [line for line in lines if not line.startswith(b"#")]
    return bool(statements) and statements[0].rstrip().endswith(b".") and b"\t" not in statements[0].strip()


def split_files(folder: Path, endings: tuple[str, ...]) -> dict[Split, Path]:
    """The train, valid and test files of a folder; empty if it has no train file."""
    found = {}
    for split, stems in SPLIT_STEMS.items():
        for stem in stems:
            for ending in endings:
                if split not in found and (folder / f"{stem}{ending}").is_file():
                    found[split] = folder / f"{stem}{ending}"
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

    return NTriplesSource(path, options.literals)


def _imdb(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.imdb import ImdbSource

    return ImdbSource(path, options.released_after, options.key)


def _debian(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.debian import DebianSource

    return DebianSource(path)


def _changes(path: Path, options: SourceOptions) -> Source:
    from dkge_dist.graph.sources.changes import ChangeSource

    with open_raw(path) as raw:
        first = decompressed(raw).read(SNIFF_BYTES).split(b"\n")[0]
    return ChangeSource(path, glued=first.count(b"\t") == 2)


_READERS: dict[str, Callable[[Path, SourceOptions], Source]] = {
    "tsv": _tsv,
    "openke": _openke,
    "ntriples": _ntriples,
    "parquet": _parquet,
    "imdb": _imdb,
    "debian": _debian,
    "changes": _changes,
}
