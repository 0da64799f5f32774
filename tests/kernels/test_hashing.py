"""Digests are XXH64 to the bit; priorities are the hash that the reference spells out."""

import numpy as np
import xxhash
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.labels import Labels
from dkge_dist.kernels.hashing import combine, digests, triple_hashes
from tests import reference

words = st.integers(0, 2**64 - 1)


@given(st.lists(st.text(max_size=90)))
def test_digests_are_xxh64_of_the_utf8_bytes(texts: list[str]) -> None:
    labels = Labels.from_strings(text.encode("utf-8", "replace").decode() for text in texts)
    expected = [xxhash.xxh64_intdigest(text.encode("utf-8", "replace")) for text in texts]
    assert digests(labels.data, labels.start, labels.stop).tolist() == expected


def test_digests_cover_every_length_around_the_stripes() -> None:
    labels = Labels.from_strings("é" * (n // 2) + "x" * (n % 2) for n in range(140))
    expected = [xxhash.xxh64_intdigest(label.encode()) for label in labels]
    assert digests(labels.data, labels.start, labels.stop).tolist() == expected


@given(words, words)
def test_combine_equals_the_reference(left: int, right: int) -> None:
    assert int(combine(np.uint64(left), np.uint64(right))) == reference.combine(left, right)


@given(st.lists(st.tuples(words, words, words)), st.integers(0, 2**63 - 1))
def test_triple_hashes_combine_the_three_digests(triples: list[tuple[int, int, int]], seed: int) -> None:
    columns = np.array(triples, np.uint64).reshape(-1, 3).T
    expected = [reference.combine(reference.combine(reference.combine(seed, h), r), t) for h, r, t in triples]
    assert triple_hashes(seed, *columns).tolist() == expected
