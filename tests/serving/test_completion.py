"""Search by prefix: as looking at every label and name would find it, from orders that are kept and verified."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.dictionary import Dictionary, Segment, fold
from dkge_dist.graph.labels import Labels
from dkge_dist.surfaces.http.completion import Completion, _Run, load_order
from dkge_dist.types import ROW
from tests.graphs import ODD_LABELS

TEXTS = st.text(st.sampled_from("abAB ßÄäé\0\u0130ſ😀"), max_size=4) | st.sampled_from(ODD_LABELS[:-1])


def completion_of(
    labels: list[str], split: int, names: list[dict[int, str]], alive: list[bool], facts: list[int], folder: Path
) -> Completion:
    """Two segments, and runs of names, the oldest first."""
    dictionary = Dictionary()
    dictionary.encode(Labels.from_strings(labels[:split]))
    first = dictionary.grown
    more = Dictionary(first)
    more.encode(Labels.from_strings(labels[split:]))
    segments = more.grown
    runs = [_run(folder, f"{number}", segment) for number, segment in enumerate(segments)]
    named = []
    for number, run in enumerate(reversed(names)):
        texts = Labels.from_strings([run[row] for row in sorted(run)])
        named.append(_Run(texts, load_order(folder, f"n{number}", texts), np.array(sorted(run), ROW)))
    return Completion(Dictionary(segments), np.array(alive), np.array(facts), runs, named)


def _run(folder: Path, digest: str, segment: Segment) -> _Run:
    return _Run(segment.labels, load_order(folder, digest, segment.labels), segment.first_row)


def naive(labels: list[str], names: list[dict[int, str]], alive: list[bool], facts: list[int], text: str) -> list[int]:
    """Every row that begins so: exact ones first, then by facts, then by label."""
    latest: dict[int, str] = {}
    for run in names:
        latest |= run
    found = []
    for row, label in enumerate(labels):
        texts = [fold(label), *([fold(latest[row])] if row in latest else [])]
        if alive[row] and any(some.startswith(fold(text)) for some in texts):
            found.append((fold(text) not in texts, -facts[row], label, row))
    return [row for *_, row in sorted(found)]


@settings(max_examples=30)
@given(st.data())
def test_it_finds_what_looking_at_everything_finds(data: st.DataObject) -> None:
    labels = data.draw(st.lists(TEXTS, min_size=1, max_size=12, unique=True))
    rows = st.integers(0, len(labels) - 1)
    names = data.draw(st.lists(st.dictionaries(rows, TEXTS, max_size=6), max_size=2))
    alive = [data.draw(st.booleans()) for _ in labels]
    facts = [data.draw(st.integers(0, 3)) for _ in labels]
    with TemporaryDirectory() as folder:
        split = data.draw(st.integers(0, len(labels)))
        found = completion_of(labels, split, names, alive, facts, Path(folder))
        for text in [data.draw(TEXTS), labels[0][:1], labels[-1], ""]:
            expected = naive(labels, names, alive, facts, text)
            assert found.search(text, len(labels)) == expected
            # Of more than are wanted, those with most facts: which of equal ones is not told.
            few = found.search(text, 2)
            assert [facts[row] for row in few] == [facts[row] for row in expected[:2]]
            assert set(few) <= set(expected)


def test_orders_are_kept_and_verified(tmp_path: Path) -> None:
    texts = Labels.from_strings(["b", "A", "c"])
    folder = tmp_path / "made" / "completion"
    assert load_order(folder, "d" * 64, texts).tolist() == [1, 0, 2]
    (kept,) = folder.glob("*.order")
    data = kept.read_bytes()
    kept.write_bytes(data[:4] + b"\x02" + data[5:])
    assert load_order(folder, "d" * 64, texts).tolist() == [1, 0, 2]
    assert kept.read_bytes() == data, "a damaged one is made anew"
    kept.write_bytes(b"")
    assert load_order(folder, "d" * 64, texts).tolist() == [1, 0, 2]
    assert (folder.stat().st_mode & 0o777) == 0o700


def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    texts = Labels.from_strings(["b", "A"])
    assert load_order(tmp_path / "file" / "completion", "d" * 64, texts).tolist() == [1, 0]


def test_no_labels(tmp_path: Path) -> None:
    assert load_order(tmp_path, "d" * 64, Labels.from_strings([])).tolist() == []
