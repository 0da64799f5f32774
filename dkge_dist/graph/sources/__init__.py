"""Readers, one module for formats that are alike, and the list of formats. Imports no reader: commands list formats."""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """How sources of one format are recognised and read."""

    reader: str
    """`module:class` in this package. Imported when it is needed, because readers load kernels."""
    endings: tuple[str, ...] = ()
    """Of file names. They decide where the content does not."""
    options: tuple[str, ...] = ()
    """The fields of `SourceOptions` that the reader knows; others are refused."""
    has_splits: bool = False
    """A folder with train, valid and test files of this format is a source."""
    magic: bytes = b""
    """What every file of this format begins with."""
    name: str = ""
    """A pattern that names of files match, with any ending; a folder with such a file is a source."""
    marker: str = ""
    """A file that marks a folder of this format; its own ending may follow."""


_TABLE, _RDF = ("columns",), ("literals", "label_language")
FORMATS = {
    "tsv": Format("delimited:TsvSource", (".tsv", ".txt"), _TABLE, has_splits=True),
    "csv": Format("delimited:CsvSource", (".csv",), _TABLE, has_splits=True),
    "jsonl": Format("rows:JsonLinesSource", (".jsonl", ".ndjson"), _TABLE, has_splits=True),
    "openke": Format("openke:OpenKeSource", marker="entity2id.txt"),
    "ntriples": Format("rdf:NTriplesSource", (".nt",), _RDF),
    "nquads": Format("rdf:NQuadsSource", (".nq",), _RDF),
    "turtle": Format("rdf:TurtleSource", (".ttl",), _RDF),
    "trig": Format("rdf:TrigSource", (".trig",), _RDF),
    "rdfxml": Format("rdf:RdfXmlSource", (".rdf", ".owl"), _RDF),
    "parquet": Format("arrow:ParquetSource", (".parquet",), _TABLE, has_splits=True, magic=b"PAR1"),
    "imdb": Format("imdb:ImdbSource", options=("released_after", "key"), marker="title.basics.tsv"),
    "debian": Format("debian:DebianSource", magic=b"Package: ", name=r"(.*_)?Packages"),
    "changes": Format("delimited:ChangeSource", (".changes",)),
    "labels": Format("delimited:LabelFileSource"),
}
"""A new format is a line here and a module with its reader."""
