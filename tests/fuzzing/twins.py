"""Slow, obvious readers: what comes of an input, or None if it has to be refused."""

from __future__ import annotations

import json

from dkge_dist.graph.sources.columns import first_record, layout_of
from dkge_dist.graph.sources.files import START_BYTES
from dkge_dist.graph.sources.openke import BLANKS
from dkge_dist.kernels.text import MAX_DECIMAL_DIGITS
from tests.fuzzing.mutation import Triple
from tests.reference import quoted_records


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


def slow_csv(data: bytes) -> list[Triple] | None:
    """Which columns are read is told by the first record; `test_columns` and `test_csv` check that."""
    try:
        text = data.removeprefix(b"\xef\xbb\xbf").decode("utf-8")
    except UnicodeDecodeError:
        return None
    delimiter, first = first_record(data[:START_BYTES].removeprefix(b"\xef\xbb\xbf"))
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
