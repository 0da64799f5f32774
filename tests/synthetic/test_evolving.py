"""The evolving graph: the same for a seed, valid night after night, with IMDB's labels and a heavy-tailed shape."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.synthetic import PERSON, RELATIONS, EvolvingGraph, SynthSpec, write_synth
from dkge_dist.synthetic import evolving as synth_files
from dkge_dist.types import Array, Triples, UsageError
from tests.synthetic.movies import DEMO, MEDIUM, TINY, entities_of, is_canonical, rows, simple_adjacency


def fingerprint(graph: EvolvingGraph) -> list[bytes]:
    """Every array the graph gives, base and nights, and all labels."""
    columns = list(graph.triples)
    for night in graph.nights():
        columns += [*night.added, *night.deleted]
    labels = graph.label_bytes(np.arange(graph.kinds.size))
    return [column.tobytes() for column in [*columns, labels]]


class TestSeed:
    @pytest.mark.parametrize("spec", [TINY, DEMO], ids=["tiny", "demo"])
    def test_same_seed_same_bytes(self, spec: SynthSpec) -> None:
        assert fingerprint(EvolvingGraph(spec)) == fingerprint(EvolvingGraph(spec))

    def test_another_seed_another_graph(self) -> None:
        first, second = (rows(EvolvingGraph(DEMO.resized(seed=seed)).triples) for seed in (1, 2))
        assert len(first & second) < 0.1 * len(first)

    def test_more_nights_start_with_the_same_ones(self) -> None:
        short, long = EvolvingGraph(DEMO.resized(nights=1)), EvolvingGraph(DEMO)
        assert rows(short.triples) == rows(long.triples)
        assert [rows(part) for part in short.advance()] == [rows(part) for part in long.advance()]


class TestLabels:
    def test_labels_are_those_of_imdb(self) -> None:
        graph = EvolvingGraph(DEMO)
        labels = list(graph.labels(np.arange(DEMO.entities)))
        assert len(set(labels)) == DEMO.entities
        for label, kind in zip(labels, graph.kinds.tolist(), strict=True):
            assert label[:2] == ("nm" if kind == PERSON else "tt")
            assert len(label) == 9 and label[2:].isdigit() and int(label[2:]) >= 1

    def test_labels_grow_to_eight_digits(self) -> None:
        graph = EvolvingGraph(TINY)
        graph._world.number[[0, 1, 2]] = 9_999_999, 10_000_000, 12_345_678
        assert list(graph.labels(np.arange(3))) == ["tt9999999", "tt10000000", "tt12345678"]
        assert list(graph.labels(np.arange(0))) == []


def check_nights(spec: SynthSpec) -> None:
    """Replay every night on a plain set."""
    graph = EvolvingGraph(spec)
    state = rows(graph.triples)
    for night in graph.nights():
        added, deleted = rows(night.added), rows(night.deleted)
        assert (len(added), len(deleted)) == (spec.added, spec.deleted)
        assert is_canonical(night.added) and is_canonical(night.deleted)
        assert not added & state and deleted <= state
        state = state - deleted | added
        assert rows(graph.triples) == state and is_canonical(graph.triples)
        assert set(np.flatnonzero(graph.alive).tolist()) == entities_of(graph.triples)
    assert graph.night == spec.nights


@st.composite
def specs(draw: st.DrawFn) -> SynthSpec:
    entities = draw(st.integers(200, 900))
    triples = draw(st.integers(max(500, int(1.2 * entities) + 1), 8 * entities))
    added, deleted = draw(st.integers(0, triples // 4)), draw(st.integers(0, triples // 4))
    nights = 2 if deleted > added else draw(st.integers(0, 4))
    return SynthSpec(entities, triples, nights, added, deleted, draw(st.integers(0, 2**40)))


class TestReplay:
    @pytest.mark.parametrize("spec", [TINY, DEMO, replace(MEDIUM, nights=3)], ids=["tiny", "demo", "medium"])
    def test_nights_are_valid_changes(self, spec: SynthSpec) -> None:
        check_nights(spec)

    @settings(max_examples=40, deadline=None)
    @given(specs())
    def test_nights_of_any_sizes_are_valid_changes(self, spec: SynthSpec) -> None:
        graph = EvolvingGraph(spec)
        assert graph.triples.count == spec.triples
        assert entities_of(graph.triples) == set(range(spec.entities))
        assert len(np.unique(graph.triples.relation)) == len(RELATIONS)
        check_nights(spec)


def mean_clustering(triples: Triples, entities: int) -> float:
    """Mean over all entities of the local clustering coefficient; 0 for those with fewer than two neighbours."""
    adjacency = simple_adjacency(triples, entities)
    degree = np.asarray(adjacency.sum(axis=1))
    twice_triangles = np.asarray((adjacency @ adjacency).multiply(adjacency).sum(axis=1))
    return float(np.mean(np.where(degree > 1, twice_triangles / np.maximum(degree * (degree - 1), 1), 0.0)))


# Measured over seeds 0 to 11 (demo) and 0 to 5 (30,000 entities), lowest and highest, then widened by about a third of
# the range on either side, but at least a tenth of the value:
#                          demo            30,000
#   share of the top 1%    .099 - .145     .154 - .183
#   largest degree         93 - 178        859 - 1,509
#   Hill exponent, top 1%  1.76 - 3.25     1.66 - 2.07
#   share of degree 1      .211 - .247     .237 - .249
#   clustering             .144 - .169     .149 - .159
# The tail grows with the graph, as the largest series and the busiest people do: the top 1% hold .20 at the size of
# imdb-30 and .21 at that of imdb-13 (measured once each). The generator was tuned by hand towards what we expect of
# IMDB: mean degree 4.9 (the published counts), median 2 to 3 and .20 to .35 for the top 1% (assumed, not counted in a
# dump); graphs of a few thousand entities stay below that. Of the seeds tested, 101 is not among those measured.
BANDS = {
    "demo": {
        "top_share": (0.08, 0.165),
        "largest": (60, 210),
        "hill": (1.3, 3.75),
        "degree_one": (0.19, 0.275),
        "clustering": (0.125, 0.19),
    },
    "medium": {
        "top_share": (0.135, 0.205),
        "largest": (600, 1_750),
        "hill": (1.45, 2.3),
        "degree_one": (0.21, 0.275),
        "clustering": (0.135, 0.175),
    },
}


class TestShape:
    @pytest.mark.parametrize("seed", [0, 1, 2, 101])
    @pytest.mark.parametrize(("name", "spec"), [("demo", DEMO), ("medium", MEDIUM)], ids=["demo", "medium"])
    def test_degrees_and_clustering(self, name: str, spec: SynthSpec, seed: int) -> None:
        triples = EvolvingGraph(spec.resized(seed=seed)).triples
        degree = np.bincount(np.concatenate([triples.head, triples.tail]), minlength=spec.entities)
        descending = np.sort(degree)[::-1]
        top = spec.entities // 100
        measured = {
            "top_share": descending[:top].sum() / descending.sum(),
            "largest": descending[0],
            "hill": 1 / np.mean(np.log(descending[:top] / descending[top])),
            "degree_one": np.mean(degree == 1),
            "clustering": mean_clustering(triples, spec.entities),
        }
        assert np.median(degree) == 3
        assert degree.mean() == pytest.approx(5.0)
        for key, (low, high) in BANDS[name].items():
            assert low <= measured[key] <= high, (key, measured[key])

    def test_nights_keep_the_shape(self) -> None:
        graph = EvolvingGraph(replace(MEDIUM, nights=12))
        for _ in graph.nights():
            pass
        triples = graph.triples
        degree = np.bincount(np.concatenate([triples.head, triples.tail]))[graph.alive]
        descending = np.sort(degree)[::-1]
        low, high = BANDS["medium"]["top_share"]
        assert np.median(degree) in (3, 4)
        assert low <= descending[: degree.size // 100].sum() / descending.sum() <= high
        low, high = BANDS["medium"]["clustering"]
        assert low <= mean_clustering(triples, graph.kinds.size) * graph.kinds.size / degree.size <= high


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entities": 199}, "entities=199"),
        ({"triples": 499, "entities": 200}, "triples=499"),
        ({"triples": 3_500}, "triples=3500"),
        ({"triples": 24_001}, "triples=24001"),
        ({"nights": -1}, "nights=-1"),
        ({"seed": -1}, "seed=-1"),
        ({"added": 1_876}, "added=1876"),
        ({"deleted": -1}, "deleted=-1"),
        ({"deleted": 1_500, "nights": 3}, "less than half"),
    ],
)
def test_impossible_sizes_are_refused_by_name(change: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(DEMO, **change)


def test_resizing_keeps_proportions() -> None:
    assert DEMO.resized(entities=6_000) == replace(DEMO, entities=6_000, triples=15_000, added=240, deleted=80)
    assert DEMO.resized(triples=15_000) == DEMO.resized(entities=6_000)
    assert DEMO.resized(nights=2, seed=9) == replace(DEMO, nights=2, seed=9)
    assert DEMO.resized(entities=200).triples == 500


def read_lines(path: Path, columns: int) -> list[tuple[str, ...]]:
    text = path.read_text()
    assert text.endswith("\n")
    lines = [tuple(line.split("\t")) for line in text.splitlines()]
    assert all(len(line) == columns for line in lines)
    assert len(set(lines)) == len(lines)
    return lines


def named(graph: EvolvingGraph, triples: Triples) -> set[tuple[str, ...]]:
    heads, tails = graph.labels(triples.head), graph.labels(triples.tail)
    return {(h, RELATIONS[r], t) for h, r, t in zip(heads, triples.relation.tolist(), tails, strict=True)}


def test_files_hold_what_the_arrays_hold(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(synth_files, "_CHUNK_LINES", 1_000)
    seen: list[tuple[float, str]] = []
    counts = write_synth(DEMO, tmp_path / "out", full=True, progress=lambda done, text: seen.append((done, text)))
    graph = EvolvingGraph(DEMO)
    assert set(read_lines(tmp_path / "out/snapshot-000.tsv", 3)) == named(graph, graph.triples)
    for night in graph.nights():
        lines = read_lines(tmp_path / f"out/night-{graph.night:03}.changes", 4)
        assert {line[1:] for line in lines if line[0] == "+"} == named(graph, night.added)
        assert {line[1:] for line in lines if line[0] == "-"} == named(graph, night.deleted)
        assert len(lines) == DEMO.added + DEMO.deleted
        snapshot = read_lines(tmp_path / f"out/snapshot-{graph.night:03}.tsv", 3)
        assert set(snapshot) == named(graph, graph.triples)
    assert json.loads(json.dumps(counts)) == {
        "entities": 3_000,
        "triples": 7_500,
        "relations": 14,
        "nights": 5,
        "added": 120,
        "deleted": 40,
        "seed": 0,
        "files": counts["files"],
    }
    assert sorted(counts["files"]) == sorted(path.name for path in (tmp_path / "out").iterdir())
    assert len(counts["files"]) == 12
    everybody = np.arange(graph.kinds.size)
    expected = set(zip(graph.labels(everybody), graph.names(everybody), strict=True))
    assert set(read_lines(tmp_path / "out/names.tsv", 2)) == expected
    fractions = [done for done, _ in seen]
    assert fractions == sorted(fractions) and fractions[0] == 0.0 and fractions[-1] == 1.0


def test_interrupted_run_leaves_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, calls = synth_files._lines, []

    def stop_late(*fields: Array | str) -> Array:
        calls.append(fields)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(*fields)

    monkeypatch.setattr(synth_files, "_CHUNK_LINES", 5_000)
    monkeypatch.setattr(synth_files, "_lines", stop_late)
    with pytest.raises(KeyboardInterrupt):
        write_synth(DEMO, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["snapshot-000.tsv"]


def test_second_run_replaces_files_but_mixes_none(tmp_path: Path) -> None:
    write_synth(DEMO, tmp_path)
    write_synth(DEMO.resized(seed=1), tmp_path)
    with pytest.raises(UsageError, match=r"night-003\.changes"):
        write_synth(DEMO.resized(nights=2), tmp_path)
