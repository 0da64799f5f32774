"""Cases of everything that reads files: refused with a message, or read as its slow twin reads it."""

from __future__ import annotations

import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyoxigraph import Literal, RdfFormat, parse

from dkge_dist.ask.batches import lines_in
from dkge_dist.graph.sources.arrow import ParquetSource
from dkge_dist.graph.sources.base import Rejects, Source, SourceOptions
from dkge_dist.graph.sources.debian import DebianSource
from dkge_dist.graph.sources.delimited import ChangeSource, CsvSource, LabelFileSource, TsvSource
from dkge_dist.graph.sources.detect import open_source
from dkge_dist.graph.sources.imdb import ImdbSource
from dkge_dist.graph.sources.openke import OpenKeSource
from dkge_dist.graph.sources.rdf import NQuadsSource, NTriplesSource, RdfXmlSource, TrigSource, TurtleSource
from dkge_dist.graph.sources.rows import JsonLinesSource, open_object
from dkge_dist.learn.checkpoints import Checkpoints
from dkge_dist.settings import load_settings
from tests.fuzzing.inputs import (
    CHANGES,
    CSV,
    JSON_LINES,
    LABELS,
    NAMED,
    NQUADS,
    NTRIPLES,
    OPENKE,
    PACKAGES,
    RDF_XML,
    TRIG,
    TSV,
    TURTLE,
)
from tests.fuzzing.mutation import STRANGE, Rng, SilentError, Triple, compare, mutated, written
from tests.fuzzing.twins import slow_csv, slow_fields, slow_json_lines, slow_openke
from tests.graph.sources.imdb_dumps import small_dump
from tests.graph.sources.imdb_dumps import write as write_dump
from tests.graph.sources.reading import names as source_names


def labelled(source: Source) -> list[Triple]:
    """What a reader gives; every label has to be one."""
    found: list[Triple] = []
    for batch in source.batches(Rejects()):
        signs = ["-" if gone else "+" for gone in batch.deleted] if batch.deleted is not None else None
        columns = [[*column] for column in (batch.head, batch.relation, batch.tail)]
        found += zip(*([signs] if signs else []), *columns, strict=True)
    if any(not label for triple in found for label in triple):
        raise SilentError("an empty label")
    return found


def named(source: Source) -> dict[str, str]:
    """The display names that a reader gives, by labels that are some."""
    found = source_names(source)
    if not all(found):
        raise SilentError("an empty label")
    return found


def case_tsv(rng: Rng, folder: Path) -> None:
    data = mutated(rng, TSV)
    compare(labelled(TsvSource(written(folder / "x.tsv", data))), slow_fields(data, 3))


def case_changes(rng: Rng, folder: Path) -> None:
    data = mutated(rng, CHANGES)
    compare(labelled(ChangeSource(written(folder / "x.changes", data))), slow_fields(data, 4))


def case_openke(rng: Rng, folder: Path) -> None:
    files = dict(OPENKE)
    name = str(rng.choice([*files]))
    files[name] = mutated(rng, files[name])
    for each, data in files.items():
        written(folder / each, data)
    compare(labelled(OpenKeSource(folder)), slow_openke(files))


def case_ntriples(rng: Rng, folder: Path) -> None:
    for _, predicate, _ in labelled(NTriplesSource(written(folder / "x.nt", mutated(rng, NTRIPLES)))):
        if not predicate.startswith("<"):
            raise SilentError(f"the predicate {predicate[:50]!r}")


def case_rdf_names(rng: Rng, folder: Path) -> None:
    """Against another reader of literals, where that reads the file at all."""
    data = mutated(rng, NAMED)
    path = written(folder / "x.nt", data)
    found = named(NTriplesSource(path))
    try:
        quads = list(parse(data, format=RdfFormat.N_TRIPLES))
    except SyntaxError:
        return
    given = {(str(quad.subject), quad.object.value) for quad in quads if isinstance(quad.object, Literal)}
    if not all(found.values()):
        raise SilentError("an empty name")
    if not found.items() <= given:
        raise SilentError(f"names that nobody gave: {sorted(found.items() - given)[:3]}")


def case_labels(rng: Rng, folder: Path) -> None:
    data = mutated(rng, LABELS)
    found = named(LabelFileSource(written(folder / "names.tsv", data)))
    expected = slow_fields(data, 2)
    if expected is None:
        raise SilentError(f"accepted, {len(found)} names")
    if found != dict(expected):  # type: ignore[arg-type]
        raise SilentError(f"{len(found)} names instead of {len(expected)}")


def case_debian(rng: Rng, folder: Path) -> None:
    labelled(DebianSource(written(folder / "Packages", mutated(rng, PACKAGES))))


def case_imdb(rng: Rng, folder: Path) -> None:
    write_dump(folder, small_dump())
    path = sorted(folder.iterdir())[int(rng.integers(5))]
    written(path, mutated(rng, path.read_bytes()))
    labelled(ImdbSource(folder, SourceOptions(key="name" if rng.random() < 0.5 else "id")))


def case_parquet(rng: Rng, folder: Path) -> None:
    columns = {name: pa.array(["a", "b", "ccc", "d"] * 5) for name in "hrt"}
    compression = str(rng.choice(["none", "snappy", "zstd"]))
    pq.write_table(pa.table(columns), folder / "x.parquet", compression=compression, row_group_size=7)
    labelled(ParquetSource(written(folder / "x.parquet", mutated(rng, (folder / "x.parquet").read_bytes()))))


def case_csv(rng: Rng, folder: Path) -> None:
    data = mutated(rng, CSV if rng.random() < 0.8 else CSV.replace(b",", b";"))
    compare(labelled(CsvSource(written(folder / "x.csv", data))), slow_csv(data))


def case_jsonl(rng: Rng, folder: Path) -> None:
    data = mutated(rng, JSON_LINES)
    compare(labelled(JsonLinesSource(written(folder / "x.jsonl", data))), slow_json_lines(data))


def case_rdf(rng: Rng, folder: Path) -> None:
    """Documents: terms are terms, and the same at a second reading."""
    documents = {TurtleSource: TURTLE, TrigSource: TRIG, RdfXmlSource: RDF_XML, NQuadsSource: NQUADS}
    reader = [*documents][int(rng.integers(len(documents)))]
    path = written(folder / "x", mutated(rng, documents[reader]))
    found = labelled(reader(path))
    for head, predicate, _ in found:
        if not predicate.startswith("<") or head[0] not in "<_":
            raise SilentError(f"the triple {head[:50]!r} {predicate[:50]!r}")
    compare(labelled(reader(path)), found)


def case_memory(rng: Rng, folder: Path) -> None:
    """Rows with strange values: read as they are, or refused."""
    rows: list[Any] = [["a", "r", "b"], {"h": "a", "r": "s", "t": 7}, ("b", "r", "c")] * 2
    strange = [*STRANGE, "\ud800", "a\nb", b"bytes", ("a", "r"), {"h": "a"}, np.float64("nan"), object()]
    for _ in range(int(rng.integers(1, 3))):
        at, value = int(rng.integers(len(rows))), strange[int(rng.integers(len(strange)))]
        rows[at] = value if rng.random() < 0.5 else ["a", value, "b"]
    good = all(isinstance(row, list | tuple | dict) and len(row) == 3 for row in rows)
    expected = [tuple(map(str, row.values() if isinstance(row, dict) else row)) for row in rows] if good else None
    compare(labelled(open_object(rows)), expected)


def case_compressed(rng: Rng, folder: Path) -> None:
    """Whatever is hit: the content comes out as it was, or an error does."""
    kind = int(rng.integers(2))
    data = mutated(rng, gzip.compress(TSV, mtime=0) if kind else lzma.compress(TSV))
    found = labelled(TsvSource(written(folder / "x.tsv", data)))
    whole = slow_fields(TSV, 3)
    if data[:2] in (b"\x1f\x8b", b"\xfd7"):
        # Repeated whole, a stream is one more.
        assert whole is not None
        if found not in (whole, 2 * whole):
            raise SilentError("damaged content of a compressed file")
    else:
        compare(found, slow_fields(data, 3))


def case_detect(rng: Rng, folder: Path) -> None:
    some = [TSV, CHANGES, NTRIPLES, PACKAGES, rng.bytes(500), b"", b"PAR1" + rng.bytes(200), gzip.compress(TSV), CSV,
            JSON_LINES, TURTLE, TRIG, RDF_XML, NQUADS]  # fmt: skip
    names = ["x", "x.tsv", "x.nt", "x.changes", "Packages", "x.parquet", "x.csv", "x.jsonl", "x.ttl", "x.trig", "x.rdf"]
    path = folder / str(rng.choice(names))
    labelled(open_source(written(path, mutated(rng, some[int(rng.integers(len(some)))]))))


def case_settings(rng: Rng, folder: Path) -> None:
    sound = (Path(__file__).parents[2] / "configs" / str(rng.choice(["default.yaml", "paper.yaml"]))).read_bytes()
    # Comments take all the hits otherwise.
    dense_lines = [line.split(b"#")[0].rstrip() for line in sound.splitlines()]
    data = mutated(rng, b"\n".join(line for line in dense_lines if line) + b"\n")
    load_settings(written(folder / "x.yaml", data), ["seed=" + repr(data[:20])] if rng.random() < 0.1 else [])


def case_questions(rng: Rng, folder: Path) -> None:
    data = mutated(rng, b"a\tr\t?\n?\ts\tb\nc\tr\t?\n")
    path = written(folder / "x", data)
    # A line of a batch may have any number of fields: it is told in its place.
    batch = [(number, *fields) for number, fields in lines_in(path, "question")]
    lines = enumerate(data.decode("utf-8").split("\n"), 1)
    expected = [(number, *line.removesuffix("\r").split("\t")) for number, line in lines]
    compare(batch, [line for line in expected if line[1:] != ("",)])


def case_checkpoint(rng: Rng, folder: Path) -> None:
    checkpoints, progress = Checkpoints(folder), {"epoch": 3, "loss": [0.5, 0.25]}
    checkpoints.save("last", lambda _: None, progress)
    (path,) = folder.glob("*/progress.json")
    written(path, mutated(rng, path.read_bytes()))
    loaded = checkpoints.load("last")
    if loaded is None or loaded[1] != progress:
        raise SilentError("another progress")


READERS: dict[str, Callable[[Rng, Path], None]] = {
    "tsv": case_tsv,
    "changes": case_changes,
    "openke": case_openke,
    "ntriples": case_ntriples,
    "rdf names": case_rdf_names,
    "labels": case_labels,
    "csv": case_csv,
    "jsonl": case_jsonl,
    "rdf": case_rdf,
    "memory": case_memory,
    "debian": case_debian,
    "imdb": case_imdb,
    "parquet": case_parquet,
    "compressed": case_compressed,
    "detect": case_detect,
    "settings": case_settings,
    "questions": case_questions,
    "checkpoint": case_checkpoint,
}
