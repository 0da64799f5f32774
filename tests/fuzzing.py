"""Malformed inputs of every kind, made of sound ones by chance, and what has to come of them.

    python -m tests.fuzzing --count 10000 --seed 1

An input has to be refused with a message, or read as its slow twin reads it; a damaged store has to say so, or answer
as the sound one. Cases run in another process, so that a signal or a hang is noticed and told with its number: the seed
and that number give the case again (`--only NUMBER`).
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import json
import lzma
import multiprocessing
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyoxigraph import Literal, RdfFormat, parse

from dkge_dist import api
from dkge_dist.config import load_settings
from dkge_dist.graph.sources.base import Rejects, Source
from dkge_dist.graph.sources.changes import ChangeSource
from dkge_dist.graph.sources.columns import layout_of
from dkge_dist.graph.sources.csv import CsvSource
from dkge_dist.graph.sources.debian import DebianSource
from dkge_dist.graph.sources.detect import open_source
from dkge_dist.graph.sources.files import START_BYTES
from dkge_dist.graph.sources.imdb import ImdbSource
from dkge_dist.graph.sources.jsonl import JsonLinesSource
from dkge_dist.graph.sources.label_file import LabelFileSource
from dkge_dist.graph.sources.memory import open_object
from dkge_dist.graph.sources.ntriples import NQuadsSource, NTriplesSource
from dkge_dist.graph.sources.openke import BLANKS, OpenKeSource
from dkge_dist.graph.sources.parquet import ParquetSource
from dkge_dist.graph.sources.rdf import RdfXmlSource, TrigSource, TurtleSource
from dkge_dist.graph.sources.sniff import first_record
from dkge_dist.graph.sources.tsv import TsvSource
from dkge_dist.jobs.batches import lines_in
from dkge_dist.jobs.opened import lines_of_three
from dkge_dist.kernels.text import MAX_DECIMAL_DIGITS
from dkge_dist.store.manifest import sealed
from dkge_dist.store.store import Store
from dkge_dist.store.tables import load_table
from dkge_dist.training.checkpoints import Checkpoints
from dkge_dist.types import DkgeError
from tests.graph.sources.imdb_dumps import small_dump
from tests.graph.sources.imdb_dumps import write as write_dump
from tests.graph.sources.reading import names as source_names
from tests.graphs import LEARN, dense, fresh_labels, lines, write_changes, write_tsv
from tests.reference import quoted_records

SECONDS = 10.0
Rng = np.random.Generator
Triple = tuple[str, ...]


class SilentError(AssertionError):
    """Something malformed was taken for something else, and nobody said so."""


ODD = [
    b"\x00", b"\x1c", b"\x85", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b"\t", b"\t\t", b" ", b'"', b"\\", b"<",
    b">", b"_:", b"#", b"-1", b"999999999999999999999", b"1e400", b"NaN", b"\\N", b"\xed\xa0\x80", b"\xf4\x90\x80\x80",
    b"\xe2\x80\xa8", b"[" * 5000, b"{" * 5000, b'{"a":' * 2000, b"- " * 3000, b"&a [*a]", b"!!python/object:os.system",
    b"x" * 70_000, b"\x1f\x8b", b"\xfd7zXZ\x00", b"\x04\x22\x4d\x18", b"PAR1", b"ARROW1\x00\x00",
]  # fmt: skip


def mutated(rng: Rng, data: bytes) -> bytes:
    """Some bits, bytes, runs or lines of `data` changed; never the same bytes."""
    made = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        at = int(rng.integers(len(made) + 1))
        run = int(rng.choice([1, 2, 8, 64, 1000]))
        match int(rng.integers(8)):
            case 0 if made:
                made[at % len(made)] ^= 1 << int(rng.integers(8))
            case 1:
                del made[at : at + run]
            case 2:
                made[at:at] = ODD[int(rng.integers(len(ODD)))]
            case 3:
                made[at:at] = rng.bytes(run)
            case 4:
                del made[at:]
            case 5:
                made[at:at] = made[max(0, at - run) : at]
            case 6 if made:
                made[at : at + run] = bytes(len(made[at : at + run]))
            case _:
                some = bytes(made).split(b"\n")
                some.insert(int(rng.integers(len(some))), some[int(rng.integers(len(some)))])
                made = bytearray(b"\n".join(some))
    return bytes(made) if made != data else bytes(made) + b"\x01"


TSV = lines([("a", "r", "b"), ("b", "s", "é"), ("c c", "r", "a"), ('"q"', "s", "NA")] * 3).encode()
CHANGES = b"+\ta\tr\tb\n-\tb\ts\tc\n+\tx\ty\tz\n" * 3
NTRIPLES = b'<http://a> <http://p> <http://b> .\n_:x <http://p> "text \\u00e9"@en .\n<a:b> <p:q> "1"^^<x:int> .\n' * 2
NAMED = b"""<x:a> <x:p> <x:b> .
<x:a> <http://www.w3.org/2000/01/rdf-schema#label> "The \\"A\\" \\u00e9"@en .
<x:p> <http://schema.org/name> "is p of"@en-GB .
<x:b> <http://www.w3.org/2004/02/skos/core#prefLabel> "B\\\\n" .
"""
LABELS = b'tt1\tThe Matrix\nP161\tcast member\n<x>\t\xc3\xa9 "x"\n' * 3
CSV = b'h,r,t\r\na,r,b\r\n"b,c",s,"two\nlines"\r\n"say ""hi""",r,NA\r\n\r\nc,"r","\xc3\xa9"\r\n' * 2
JSON_LINES = b'{"head": "a", "relation": "r", "tail": "b", "x": [1]}\n["b", "s", 7]\n\n["c", "r", "\\u00e9"]\n' * 2
TURTLE = b'@prefix x: <http://x/> .\nx:a x:p x:b , "text"@en ; x:q [ x:r 1 ] .\n_:n x:p ( x:a x:b ) .\n' * 2
TRIG = b"@prefix x: <http://x/> .\nx:g { x:a x:p x:b . }\nGRAPH _:g { x:a x:p [] }\nx:a x:p x:c .\n" * 2
NQUADS = NTRIPLES.replace(b" .\n", b" <g:1> .\n", 2)
RDF_XML = (
    b'<?xml version="1.0"?>\n<!DOCTYPE rdf:RDF [ <!ENTITY y "http://y/" > ]>\n<rdf:RDF xmlns:x="http://x/" '
    b'xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">\n<rdf:Description rdf:about="&y;a"><x:p rdf:resource='
    b'"http://x/b"/><x:q>text</x:q><x:s rdf:parseType="Resource"><x:t>v</x:t></x:s></rdf:Description>\n</rdf:RDF>\n'
)
PACKAGES = (
    b"Package: a\nVersion: 1\nDepends: b (>= 1), c | d\nSection: libs\nTag: x::y,\n z::w\n\n"
    b"Package: b\nPriority: low\n\n"
)
OPENKE = {
    "entity2id.txt": b"4\na\t0\nb\t1\nc\t2\nd\t3\n",
    "relation2id.txt": b"2\nr\t0\ns\t1\n",
    "train2id.txt": b"3\n0 1 0\n1 2 1\n3 0 0\n",
    "valid2id.txt": b"1\n0 2 1\n",
}


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


def compare(found: list[Triple], expected: list[Triple] | None) -> None:
    """`expected`: what the slow twin reads; None if it refuses."""
    if expected is None:
        raise SilentError(f"accepted, {len(found)} triples")
    if found != expected:
        raise SilentError(f"{len(found)} triples instead of {len(expected)}")


def slow_fields(data: bytes, columns: int) -> list[Triple] | None:
    """Lines of so many fields; None if one is anything else."""
    found: list[list[str]] = []
    crlf = None
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        try:
            fields = line.decode("utf-8").split("\t")
        except UnicodeDecodeError:
            return None
        if line in (b"", b"\r"):
            continue
        if len(fields) != columns:
            return None
        ends = fields[-1].endswith("\r")
        crlf = ends if crlf is None else crlf
        if crlf and ends:
            fields[-1] = fields[-1][:-1]
        # Of display names only the label: an empty name takes the one before away.
        if not all(fields[-3:] if columns > 2 else fields[:1]) or (columns == 4 and fields[0] not in ("+", "-")):
            return None
        found.append(fields)
    return [tuple(fields) for fields in found]


def slow_number(text: str) -> int | None:
    is_number = 0 < len(text) <= MAX_DECIMAL_DIGITS and all(digit in "0123456789" for digit in text)
    return int(text) if is_number else None


def slow_body(data: bytes) -> list[str] | None:
    """The lines below a count that is right."""
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError:
        return None
    first, *rest = text.split("\n")
    body = [line for line in rest if line.strip(BLANKS)]
    return body if slow_number(first.strip(BLANKS)) == len(body) and data else None


def slow_openke(files: dict[str, bytes]) -> list[Triple] | None:
    labels: list[dict[int, str]] = []
    for name in ("entity2id.txt", "relation2id.txt"):
        body = slow_body(files[name])
        if body is None:
            return None
        pairs = [line.removesuffix("\r").rpartition("\t") for line in body]
        ids = [slow_number(key.strip(BLANKS)) for _, _, key in pairs]
        if sorted(-1 if i is None else i for i in ids) != [*range(len(ids))] or not all(label for label, _, _ in pairs):
            return None
        if len({label for label, _, _ in pairs}) < len(pairs):
            return None
        labels.append({i: label for i, (label, _, _) in zip(ids, pairs, strict=True) if i is not None})
    entities, relations = labels
    found: list[Triple] = []
    for name in ("train2id.txt", "valid2id.txt"):
        body = slow_body(files[name])
        for line in [] if body is None else body:
            for blank in BLANKS:
                line = line.replace(blank, " ")
            keys = [slow_number(key) for key in line.split(" ") if key]
            if len(keys) != 3 or keys[0] not in entities or keys[1] not in entities or keys[2] not in relations:
                return None
            found.append((entities[keys[0]], relations[keys[2]], entities[keys[1]]))
        if body is None:
            return None
    return found


def written(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


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
    labelled(ImdbSource(folder, key="name" if rng.random() < 0.5 else "id"))


def case_parquet(rng: Rng, folder: Path) -> None:
    columns = {name: pa.array(["a", "b", "ccc", "d"] * 5) for name in "hrt"}
    compression = str(rng.choice(["none", "snappy", "zstd"]))
    pq.write_table(pa.table(columns), folder / "x.parquet", compression=compression, row_group_size=7)
    labelled(ParquetSource(written(folder / "x.parquet", mutated(rng, (folder / "x.parquet").read_bytes()))))


def slow_csv(data: bytes) -> list[Triple] | None:
    """Which columns are read is told by the first record; `test_columns` and `test_csv` check that."""
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError:
        return None
    delimiter, first = first_record(data[:START_BYTES])
    layout = layout_of(first, None, "x")
    records = quoted_records(text if text.endswith("\n") else text + "\n", delimiter)
    if records is None or any(len(record) != layout.width for record in records):
        return None
    found = [tuple(record[place] for place in layout.places) for record in records[1 if layout.header else 0 :]]
    return found if all(all(triple) for triple in found) else None


def slow_json_lines(data: bytes) -> list[Triple] | None:
    found: list[Triple] = []
    try:
        for line in data.removeprefix(b"\xef\xbb\xbf").decode("utf-8").split("\n"):
            if line.strip():
                row = json.loads(line)
                found.append(tuple(str(row[key]) for key in ("head", "relation", "tail")) if isinstance(row, dict) else
                             tuple(map(str, row)))  # fmt: skip
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return found if all(len(triple) == 3 for triple in found) else None


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
    sound = (Path(__file__).parents[1] / "configs" / str(rng.choice(["default.yaml", "paper.yaml"]))).read_bytes()
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
    found = [tuple(fields) for _, fields in lines_of_three(path, "a question")]
    compare(found, [line[1:] for line in expected if line[1:] != ("",)])


def case_checkpoint(rng: Rng, folder: Path) -> None:
    checkpoints, progress = Checkpoints(folder), {"epoch": 3, "loss": [0.5, 0.25]}
    checkpoints.save("last", lambda _: None, progress)
    (path,) = folder.glob("*/progress.json")
    written(path, mutated(rng, path.read_bytes()))
    loaded = checkpoints.load("last")
    if loaded is None or loaded[1] != progress:
        raise SilentError("another progress")


class SoundStore:
    """A store with two models and a night, and what it answers."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store"
        words = [*LEARN, "model.dim=4", "train.max_epochs=1"]
        base = dense(300, entities=60)  # Nearly as many as a block has rows: hardly a bit is padding.
        names = written(folder / "names.tsv", "".join(f"e{n}\tName of {n}\n" for n in range(60)).encode())
        api.ingest(self.path, write_tsv(folder / "base.tsv", base), valid=8, test=8, labels=names)
        api.train(self.path, settings=words)
        renamed = written(folder / "renamed.tsv", b"e1\tAnother\nr1\trelation one\n")
        api.ingest(self.path, write_changes(folder / "night.changes", fresh_labels(1), base[5:6]), labels=renamed)
        api.update(self.path)
        self.questions = folder / "questions.tsv"
        entities, relations = ["another", *(f"e{number}" for number in range(1, 60, 9))], ["relation one", "r2"]
        asked = [line for e in entities for r in relations for line in (f"{e}\t{r}\t?", f"?\t{r}\t{e}")]
        self.questions.write_text("\n".join(asked))
        self.answers = self.asked(self.path)

    def asked(self, path: Path) -> Any:
        """Answers to many questions, and all vectors."""
        found = api.answer(path, batch=self.questions)
        model = Store.open(path).find_model().model
        storage = Store.open(path).storage
        tables = [table for kind in (model.entities, model.relations) for table in kind.values()]
        return found["questions"], [load_table(storage, table).tobytes() for table in tables]

    def copied(self, folder: Path) -> Path:
        return Path(shutil.copytree(self.path, folder / "store"))

    def compare(self, path: Path) -> None:
        if self.asked(path) != self.answers:
            raise SilentError("another answer")


def case_parts(rng: Rng, folder: Path, sound: SoundStore) -> None:
    path = sound.copied(folder)
    parts = sorted(path.glob("parts/*/*"))
    part = parts[int(rng.integers(len(parts)))]
    data = bytearray(part.read_bytes())
    if data and rng.random() < 0.7:
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    written(part, bytes(data) if data != part.read_bytes() else mutated(rng, bytes(data)))
    sound.compare(path)


def case_manifests(rng: Rng, folder: Path, sound: SoundStore) -> None:
    path = sound.copied(folder)
    names = [*sorted(path.glob("versions/*")), path / "store.json"]
    name = names[int(rng.integers(len(names)))]
    written(name, mutated(rng, name.read_bytes()))
    sound.compare(path)


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found.append((value, key))
        places(item, found)
    return found


STRANGE: list[Any] = [
    None, True, -1, 0, 1, 2, 3, 4, 5, 7, 2**31, 2**63, 2**80, 1.5, float("inf"), "", "x", "../../etc", "0" * 64, [], {},
    [[]], "1" * 16, [1, 2],
]  # fmt: skip


def case_resealed(rng: Rng, folder: Path, sound: SoundStore) -> None:
    """Manifests of somebody who can compute seals: no promise what is answered, but how it ends."""
    path = sound.copied(folder)
    names = sorted(path.glob("versions/*"))
    hit, parent = int(rng.integers(len(names))), None
    for number, name in enumerate(names):
        content = json.loads(name.read_bytes())
        del content["sha256"]
        content["parent"] = parent
        if number == hit:
            for _ in range(int(rng.integers(1, 3))):
                found = places(content, [])
                container, key = found[int(rng.integers(len(found)))]
                others = [other[place] for other, place in found]
                pool = others if rng.random() < 0.4 else STRANGE
                container[key] = json.loads(json.dumps(pool[int(rng.integers(len(pool)))]))
        written(name, sealed(json.dumps(content, indent=1)))
        parent = hashlib.sha256(name.read_bytes()).hexdigest()
    sound.asked(path)


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
STORES: dict[str, Callable[[Rng, Path, SoundStore], None]] = {
    "parts": case_parts,
    "manifests": case_manifests,
    "resealed": case_resealed,
}
KINDS = [*READERS, *STORES]


class Outcome(NamedTuple):
    """How a case ended: `refused`, `read`, or what must not be: `silent`, `traceback`, `signal`, `hang`."""

    number: int
    kind: str
    ending: str
    told: str = ""


WRONG = ("silent", "traceback", "signal", "hang")


def run_case(seed: int, number: int, work: Path, sound: SoundStore) -> Outcome:
    """One case: seed and number say which."""
    kind = KINDS[number % len(KINDS)]
    folder = Path(tempfile.mkdtemp(dir=work))
    rng = np.random.default_rng((seed, number))
    try:
        if kind in READERS:
            READERS[kind](rng, folder)
        else:
            STORES[kind](rng, folder, sound)
        return Outcome(number, kind, "read")
    except DkgeError as error:
        return Outcome(number, kind, "refused" if str(error) else "silent", str(error)[:300])
    except SilentError as error:
        return Outcome(number, kind, "silent", str(error))
    except Exception:
        return Outcome(number, kind, "traceback", traceback.format_exc()[-1500:])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _work(pipe: Connection, seed: int, work: Path) -> None:
    sound = SoundStore(Path(tempfile.mkdtemp(dir=work)))
    pipe.send(None)
    while (number := pipe.recv()) is not None:
        pipe.send(run_case(seed, number, work, sound))


class Worker:
    """A process that runs cases, and is replaced when one of them ends it or does not end."""

    def __init__(self, seed: int, work: Path) -> None:
        self.pipe, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        self.process = context.Process(target=_work, args=(theirs, seed, work), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.recv()

    def run(self, number: int) -> Outcome:
        kind = KINDS[number % len(KINDS)]
        try:
            self.pipe.send(number)
            if not self.pipe.poll(SECONDS):
                return Outcome(number, kind, "hang")
            outcome: Outcome = self.pipe.recv()
            return outcome
        except (EOFError, OSError):
            self.process.join()
            return Outcome(number, kind, "signal", str(self.process.exitcode))

    def close(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run(seed: int, numbers: range) -> Iterator[Outcome]:
    """The outcomes of some cases."""
    with tempfile.TemporaryDirectory() as work:
        worker = Worker(seed, Path(work))
        try:
            for number in numbers:
                outcome = worker.run(number)
                yield outcome
                if outcome.ending in ("signal", "hang"):
                    worker.close()
                    worker = Worker(seed, Path(work))
        finally:
            worker.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="run this case alone")
    arguments = parser.parse_args()
    numbers = range(arguments.count) if arguments.only is None else range(arguments.only, arguments.only + 1)
    began = time.monotonic()
    endings: Counter[tuple[str, str]] = Counter()
    for outcome in run(arguments.seed, numbers):
        endings[outcome.kind, outcome.ending] += 1
        if outcome.number % 1000 == 999:
            print(f"{outcome.number + 1:,} cases, {time.monotonic() - began:.0f} s", flush=True)
        if outcome.ending in WRONG or arguments.only is not None:
            print(f"case {outcome.number} ({outcome.kind}): {outcome.ending}: {outcome.told}", flush=True)
    for kind in KINDS:
        print(f"{kind:12}", {ending: count for (k, ending), count in sorted(endings.items()) if k == kind})
    wrong = {ending: sum(count for (_, e), count in endings.items() if e == ending) for ending in WRONG}
    print(f"{sum(endings.values()):,} cases, seed {arguments.seed}, {time.monotonic() - began:.0f} s: {wrong}")
    raise SystemExit(1 if any(wrong.values()) else 0)


if __name__ == "__main__":
    main()
