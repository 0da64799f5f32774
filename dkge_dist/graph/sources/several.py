"""Several files as one source, and whatever else a user may give as a source. In: paths, patterns or an object."""

from __future__ import annotations

import glob
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from dkge_dist.graph.sources.base import Rejects, Source, SourceError, SplitFilesSource, TripleBatch, name_of
from dkge_dist.graph.sources.detect import SPLIT_ENDINGS, SPLIT_STEMS, SourceOptions, open_source
from dkge_dist.graph.sources.files import STDIN
from dkge_dist.types import Split, UsageError


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
    from dkge_dist.graph.sources.memory import open_object

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
    if sources[0].format in ("turtle", "trig", "rdfxml"):
        _share_numbers(sources)
    if splits and isinstance(sources[0], SplitFilesSource):
        return type(sources[0])(paths[0].parent, splits, options.columns)  # type: ignore[call-arg]
    return SeveralFiles(sources)


def _share_numbers(sources: list[Source]) -> None:
    """Nodes without a name are different ones in every file."""
    from dkge_dist.graph.sources.rdf import RdfDocumentSource

    documents = [source for source in sources if isinstance(source, RdfDocumentSource)]
    for document in documents:
        document.numbered = documents[0].numbered


def _matching(word: str) -> list[Path]:
    path = Path(word)
    if path == STDIN or path.exists() or not glob.has_magic(word):
        return [path]
    found = sorted(Path(name) for name in glob.glob(word, recursive=True))
    if not found:
        raise SourceError(f"{word}: no file matches")
    return found


def _by_split(paths: list[Path]) -> dict[Split, Path]:
    """The files by split, if they are the train, valid and test files of one folder: nobody means to train on all."""
    endings = sorted(chain(*SPLIT_ENDINGS.values()), key=len, reverse=True)
    found: dict[Split, Path] = {}
    for path in paths:
        ending = next((ending for ending in endings if path.name.endswith(ending)), "")
        stem = path.name.removesuffix(ending)
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
