"""Display names in RDF: which statements name their subject, and the best name where there are several.

Statements with `rdfs:label`, `skos:prefLabel` or `schema:name` and a literal are names and no triples: a literal that
nothing else has tells a model nothing. Of several names of a subject the language decides first (the wanted one, then a
variant of it such as `en-gb`, then none), then the property. Names in other languages are counted and left out.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import NamedTuple

import numpy as np

from dkge_dist.graph.labels import Labels
from dkge_dist.graph.sources.base import NameBatch
from dkge_dist.kernels.text import any_byte, equal_to, last_byte
from dkge_dist.types import OFFSET, Array, UsageError

PROPERTIES = (
    "<http://www.w3.org/2000/01/rdf-schema#label>",
    "<http://www.w3.org/2004/02/skos/core#prefLabel>",
    "<http://schema.org/name>",
    "<https://schema.org/name>",
)
"""Best first."""

LANGUAGE = re.compile(r"[A-Za-z]{1,8}(?:-[A-Za-z0-9]{1,8})*", re.ASCII)
QUOTE, BACKSLASH, AT = ord('"'), ord("\\"), ord("@")
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))")
_PLAIN = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}


class Statements(NamedTuple):
    """Some statements as columns of canonical terms."""

    subject: Labels
    predicate: Labels
    term: Labels

    def take(self, where: Array) -> Statements:
        """Those at `where`."""
        return Statements(*(column.take(where) for column in self))


def checked_language(language: str) -> str:
    """A language tag as canonical terms have it."""
    if not LANGUAGE.fullmatch(language):
        raise UsageError(f"--label-language {language!r}: no language tag such as en or pt-br")
    return language.lower()


def split_names(statements: Statements, language: str, counts: Counter[str]) -> tuple[Statements, NameBatch | None]:
    """The statements that are triples, and the names that the others give."""
    term = statements.term
    property_rank = np.full(len(term), len(PROPERTIES), np.uint8)
    for rank, iri in enumerate(PROPERTIES):
        predicate = statements.predicate
        property_rank[equal_to(predicate.data, predicate.start, predicate.stop, iri)] = rank
    naming = (property_rank < len(PROPERTIES)) & (term.data[term.start] == QUOTE)
    if not naming.any():
        return statements, None
    named = statements.take(naming)
    names = _names(named, property_rank[naming], language, counts)
    return statements.take(~naming), names


def _names(statements: Statements, property_rank: Array, language: str, counts: Counter[str]) -> NameBatch:
    term = statements.term
    end = last_byte(term.data, term.start, term.stop, QUOTE)
    language_rank = _language_ranks(Labels(term.data, end + 1, term.stop), language)
    foreign = language_rank == FOREIGN
    if foreign.any():
        counts["names in other languages left out (--label-language)"] += int(foreign.sum())
    kept = ~foreign & (end > term.start + 1)
    rank = (language_rank * len(PROPERTIES) + property_rank)[kept]
    text = Labels(term.data, term.start[kept] + 1, end[kept])
    return NameBatch(statements.subject.take(kept), _unescaped(text), rank.astype(np.uint8))


WANTED, VARIANT, UNTAGGED, FOREIGN = range(4)


def _language_ranks(suffix: Labels, language: str) -> Array:
    """How well what follows each text (`@en`, a datatype or nothing) fits the wanted language."""
    size = suffix.stop - suffix.start
    tagged = np.zeros(len(suffix), bool)
    some = size > 0
    tagged[some] = suffix.data[suffix.start[some]] == AT
    rank = np.where(tagged, FOREIGN, UNTAGGED)
    wanted, variant = f"@{language}", f"@{language}-"
    rank[equal_to(suffix.data, suffix.start, suffix.stop, wanted)] = WANTED
    begin = np.minimum(suffix.start + len(variant), suffix.stop)
    rank[equal_to(suffix.data, suffix.start, begin, variant)] = VARIANT
    return rank


def _unescaped(text: Labels) -> Labels:
    """Without the escapes of N-Triples. Few texts have any, so these are Python strings."""
    escaped = np.flatnonzero(any_byte(text.data, text.start, text.stop, BACKSLASH, BACKSLASH))
    if not escaped.shape[0]:
        return text
    plain = Labels.from_strings(_ESCAPE.sub(_character, text[int(i)]) for i in escaped)
    start, stop = text.start.astype(OFFSET), text.stop.astype(OFFSET)
    start[escaped], stop[escaped] = plain.start + text.data.shape[0], plain.stop + text.data.shape[0]
    return Labels(np.concatenate([text.data, plain.data]), start, stop)


def _character(escape: re.Match[str]) -> str:
    digits = escape[1] or escape[2]
    return chr(int(digits, 16)) if digits else _PLAIN.get(escape[3], escape[3])
