"""Names that people can read, for synthetic titles and people. In: kinds and numbers. Out: bytes, one name each. Pure.

A name is a *pattern* (words and gaps that word lists fill) and a place in it; the number of a key is the place, moved
around by the seed. So a name costs a few divisions, two numbers never share one, and nothing is stored. Patterns of a
kind follow each other: small graphs have the short names, and after the last pattern names get a numeral.

All words are ours: lists of plain English words, and invented people and places put together from syllables.
"""

from __future__ import annotations

from functools import cache
from itertools import product
from math import gcd, prod

import numpy as np

from dkge_dist.synthetic.world import EPISODE, MOVIE, PERSON, SERIES
from dkge_dist.types import Array

_ADJECTIVES = (
    "Amber", "Borrowed", "Brass", "Chalk", "Clockwork", "Copper", "Crooked", "Drowsy", "Dusty", "Feathered",
    "Foggy", "Folded", "Forgetful", "Frosted", "Gilded", "Gravel", "Hollow", "Indigo", "Ivory", "Jagged",
    "Lopsided", "Marble", "Mossy", "Muted", "Nimble", "Paper", "Patient", "Pewter", "Porcelain", "Quilted",
    "Rusty", "Saffron", "Salted", "Sleepless", "Slanted", "Stubborn", "Tangled", "Tidal", "Timid", "Tin",
    "Twofold", "Unpaid", "Upstairs", "Velvet", "Wandering", "Whispered", "Wicker", "Woollen",
)  # fmt: skip
_JOBS = (
    "Archivist", "Beekeeper", "Cartographer", "Cellist", "Chandler", "Cooper", "Fiddler", "Ferryman", "Gardener",
    "Glazier", "Juggler", "Lamplighter", "Locksmith", "Miller", "Notary", "Pilot", "Quarryman", "Saddler", "Signalman",
    "Stonecutter", "Surveyor", "Tinker", "Typesetter", "Watchmaker",
)  # fmt: skip
_THINGS = (
    "Abacus", "Almanac", "Anvil", "Apiary", "Barometer", "Bellows", "Causeway", "Compass", "Customs House", "Dovecote",
    "Estuary", "Foundry", "Gazetteer", "Granary", "Hammock", "Haystack", "Inkwell", "Isthmus", "Kettle", "Kiln",
    "Ladder", "Lighthouse", "Loom", "Mailbag", "Marionette", "Moth", "Needle", "Oboe", "Orchard", "Oxcart", "Pantry",
    "Parasol", "Pendulum", "Pepper Mill", "Quarry", "Quill", "Rain Gauge", "Rooftop", "Sextant", "Spinning Top",
    "Stairwell", "Sundial", "Teapot", "Thimble", "Turnstile", "Umbrella", "Weathercock", "Windmill",
)  # fmt: skip
_NOUNS = (*_JOBS, *_THINGS)
_FORMATS = (
    "Almanac", "Chronicles", "Crossing", "Diaries", "Dispatch", "Exchange", "Ferry", "Files", "Gardens", "Ledger",
    "Letters", "Lodgers", "Nights", "Orchestra", "Parade", "Railway", "Registry", "Rooms", "School", "Stories",
    "Street", "Tales", "Terrace", "Workshop",
)  # fmt: skip
_LINKS = (" and the ", " or the ", " versus the ", " without the ")


def _joined(*syllables: tuple[str, ...]) -> tuple[str, ...]:
    """Every distinct word that some syllables make: two ways to one word count once."""
    return tuple(sorted({"".join(parts).capitalize() for parts in product(*syllables)}))


_STARTS = (
    "bel", "cor", "dav", "el", "fen", "gar", "hal", "ist", "jor", "kel", "lun", "mar", "nev", "or", "pel", "quin",
    "ras", "sol", "tam", "ul", "ver", "wen", "yar", "zel",
)  # fmt: skip
_MIDDLES = ("a", "e", "i", "o", "an", "er", "il", "on", "ar", "ov", "im", "et", "ud", "en", "ol", "ab")
_ENDS = (
    "bek", "caro", "dran", "fei", "gard", "kova", "lund", "mont", "nai", "pesh", "quist", "rell", "sami", "tso", "vik",
    "wold", "yama", "zeni",
)  # fmt: skip
_GIVEN_NAMES = _joined(_STARTS, ("a", "an", "en", "ia", "ik", "in", "io", "is", "o", "or", "una", "yn"))
_SURNAMES = _joined(_STARTS, _ENDS)
_LONG_SURNAMES = tuple(sorted({*_joined(_STARTS, _MIDDLES, _ENDS)} - {*_SURNAMES}))
_PLACES = _joined(_STARTS, _MIDDLES, ("bourne", "dal", "mere", "mora", "port", "vale", "wick", "zund"))
_INITIALS = tuple(f"{letter}. " for letter in "ABCDEFGHIJKLMNOPRSTVWYZ")

Pattern = tuple[tuple[str, ...], ...]
"""What follows what; a single word is a fixed one."""

_THE: tuple[str, ...] = ("The ",)
_GAP: tuple[str, ...] = (" ",)
_OF: tuple[str, ...] = (" of ",)
# Two kinds have no pattern in common, and no pattern makes a name that another one of its kind makes.
PATTERNS: dict[int, tuple[Pattern, ...]] = {
    MOVIE: (
        (_THE, _ADJECTIVES, _GAP, _NOUNS),
        (_THE, _ADJECTIVES, _GAP, _NOUNS, _OF, _PLACES),
    ),
    SERIES: (
        (_PLACES, _GAP, _FORMATS),
        (_THE, _ADJECTIVES, _GAP, _PLACES, _GAP, _FORMATS),
    ),
    EPISODE: (
        (_THE, _JOBS, _LINKS, _THINGS),
        (_THE, _JOBS, _LINKS, _ADJECTIVES, _GAP, _THINGS),
        (_THE, _ADJECTIVES, _GAP, _JOBS, _LINKS, _ADJECTIVES, _GAP, _THINGS),
    ),
    PERSON: (
        (_GIVEN_NAMES, _GAP, _SURNAMES),
        (_GIVEN_NAMES, _GAP, _LONG_SURNAMES),
        (_GIVEN_NAMES, _GAP, _INITIALS, _LONG_SURNAMES),
    ),
}


def _size(pattern: Pattern) -> int:
    """How many names a pattern makes."""
    return prod(len(words) for words in pattern)


@cache
def _columns(words: tuple[str, ...]) -> Array:
    """Words as rows of bytes of one width, zeros at the end."""
    encoded = np.array([word.encode("ascii") for word in words])
    return np.asarray(encoded.view(np.uint8).reshape(len(words), -1))


NUMERAL_WIDTH = 9
NAME_WIDTH = NUMERAL_WIDTH + max(
    sum(_columns(words).shape[1] for words in pattern) for patterns in PATTERNS.values() for pattern in patterns
)
"""Bytes of a name at most."""


def name_bytes(kinds: Array, numbers: Array, seed: int) -> Array:
    """The names of entities by what they are and the number of their key: uint8 rows with zeros to skip."""
    text = np.zeros((kinds.shape[0], NAME_WIDTH), np.uint8)
    for kind, patterns in PATTERNS.items():
        mine = np.flatnonzero(kinds == kind)
        # Numbers begin with 1.
        lap, place = np.divmod(numbers[mine].astype(np.int64) - 1, sum(map(_size, patterns)))
        for order, pattern in enumerate(patterns):
            here = place < _size(pattern)
            where = mine[here]
            _fill(text, where, pattern, _moved(place[here], _size(pattern), (seed, kind, order)))
            _append_numeral(text, where, lap[here])
            mine, lap, place = mine[~here], lap[~here], place[~here] - _size(pattern)
    return text


def _moved(place: Array, size: int, stream: tuple[int, ...]) -> Array:
    """Places of `size` in another order: multiplied by a number that has no factor in common with it, and shifted.

    Near the golden ratio of the size, so that neighbours come apart in every word.
    """
    jitter, shift = np.random.default_rng(stream).random(2)
    factor = int(size * (0.618 + 0.01 * jitter))
    while gcd(factor, size) != 1:
        factor += 1
    return np.asarray((place * factor + int(size * shift)) % size)


def _fill(text: Array, where: Array, pattern: Pattern, place: Array) -> None:
    """Write the names at some places of a pattern into rows of text."""
    begin = 0
    for words in pattern:
        place, word = np.divmod(place, len(words))
        columns = _columns(words)
        text[where, begin : begin + columns.shape[1]] = columns[word]
        begin += columns.shape[1]


def _append_numeral(text: Array, where: Array, lap: Array) -> None:
    """In the second lap through all patterns a name gets the numeral 2, and so on."""
    later, number = where[lap > 0], lap[lap > 0] + 1
    for column in range(NAME_WIDTH - 1, NAME_WIDTH - NUMERAL_WIDTH, -1):
        number, digit = np.divmod(number, 10)
        text[later, column] = np.where((number > 0) | (digit > 0), digit + ord("0"), 0)
    text[later, NAME_WIDTH - NUMERAL_WIDTH] = ord(" ")
