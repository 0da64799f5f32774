"""The synthetic movie graph: exact sizes, valid nights, faithful files, and the shape that makes it worth learning."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.synthetic import EPISODE, PERSON, PRESETS, RELATIONS, SERIES, EvolvingGraph, SynthSpec, write_synth
from dkge_dist.synthetic import files as synth_files
from dkge_dist.synthetic.evolving import ABSENCE
from dkge_dist.synthetic.keys import collect, contains, count_before, pack, unpack
from dkge_dist.types import Array, Triples, UsageError

DEMO = PRESETS["demo"]
MEDIUM = DEMO.resized(entities=30_000)
TINY = SynthSpec(entities=200, triples=500, nights=6, added=25, deleted=20, seed=3)


def rows(triples: Triples) -> set[tuple[int, int, int]]:
    return set(zip(*(column.tolist() for column in triples), strict=True))


def entities_of(triples: Triples) -> set[int]:
    return set(triples.head.tolist()) | set(triples.tail.tolist())


def is_canonical(triples: Triples) -> bool:
    keys = pack(triples.head, triples.relation, triples.tail)
    return bool((keys[1:] > keys[:-1]).all())


def fingerprint(graph: EvolvingGraph) -> list[bytes]:
    """Every array the graph gives, base and nights, and all labels."""
    columns = list(graph.triples)
    for night in graph.nights():
        columns += [*night.added, *night.deleted]
    labels = graph.label_bytes(np.arange(graph.kinds.size))
    return [column.tobytes() for column in [*columns, labels]]


class TestSpec:
    def test_presets_have_the_published_sizes(self) -> None:
        assert (PRESETS["imdb-13"].entities, PRESETS["imdb-13"].triples) == (3_244_455, 7_923_773)
        assert (PRESETS["imdb-13"].added, PRESETS["imdb-13"].deleted) == (17_472, 18_405)
        assert (PRESETS["imdb-30"].entities, PRESETS["imdb-30"].triples) == (243_000, 627_000)
        assert (PRESETS["imdb-30"].nights, PRESETS["imdb-30"].added, PRESETS["imdb-30"].deleted) == (30, 9_400, 2_400)

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
    def test_what_cannot_be_made_is_refused_by_name(self, change: dict[str, int], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            replace(DEMO, **change)

    def test_resizing_keeps_proportions(self) -> None:
        assert DEMO.resized(entities=6_000) == replace(DEMO, entities=6_000, triples=15_000, added=240, deleted=80)
        assert DEMO.resized(triples=15_000) == DEMO.resized(entities=6_000)
        assert DEMO.resized(nights=2, seed=9) == replace(DEMO, nights=2, seed=9)
        assert DEMO.resized(entities=200).triples == 500


class TestBase:
    @pytest.mark.parametrize("spec", [TINY, DEMO, MEDIUM], ids=["tiny", "demo", "medium"])
    def test_sizes_are_exact_and_everything_is_touched(self, spec: SynthSpec) -> None:
        graph = EvolvingGraph(spec)
        triples = graph.triples
        assert triples.count == spec.triples
        assert is_canonical(triples)
        assert entities_of(triples) == set(range(spec.entities))
        assert set(triples.relation.tolist()) == set(range(len(RELATIONS)))
        assert len(RELATIONS) == 14

    def test_relations_join_the_right_kinds(self) -> None:
        graph = EvolvingGraph(DEMO)
        for _ in graph.nights():
            pass
        triples, kinds = graph.triples, graph.kinds
        for relation, name in enumerate(RELATIONS):
            head = kinds[triples.head[triples.relation == relation]]
            tail = kinds[triples.tail[triples.relation == relation]]
            if name == "parent":
                assert (head == EPISODE).all() and (tail == SERIES).all()
            elif name == "knownFor":
                # Nobody is known for a single episode: it counts as its series.
                assert (head == PERSON).all() and ((tail != PERSON) & (tail != EPISODE)).all()
            else:
                assert (head != PERSON).all() and (tail == PERSON).all()
        parents = triples.head[triples.relation == RELATIONS.index("parent")]
        assert np.unique(parents).size == parents.size, "an episode has one series"

    def test_people_are_known_for_four_titles_at_most(self) -> None:
        triples = EvolvingGraph(DEMO).triples
        known = Counter(triples.head[triples.relation == RELATIONS.index("knownFor")].tolist())
        assert set(known.values()) == {1, 2, 3, 4}

    def test_people_keep_to_their_profession(self) -> None:
        triples = EvolvingGraph(DEMO).triples
        credits = triples.take(triples.relation < RELATIONS.index("knownFor"))
        count = np.zeros((DEMO.entities, len(RELATIONS)), np.int64)
        np.add.at(count, (credits.tail, credits.relation), 1)
        busy = count[count.sum(axis=1) >= 3]
        assert np.mean(busy.max(axis=1) / busy.sum(axis=1)) > 0.75

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


class TestNights:
    @pytest.mark.parametrize("spec", [TINY, DEMO, replace(MEDIUM, nights=3)], ids=["tiny", "demo", "medium"])
    def test_replay(self, spec: SynthSpec) -> None:
        check_nights(spec)

    @settings(max_examples=40, deadline=None)
    @given(specs())
    def test_replay_of_any_sizes(self, spec: SynthSpec) -> None:
        graph = EvolvingGraph(spec)
        assert graph.triples.count == spec.triples
        assert entities_of(graph.triples) == set(range(spec.entities))
        assert len(np.unique(graph.triples.relation)) == len(RELATIONS)
        check_nights(spec)

    def test_most_additions_come_with_new_titles(self) -> None:
        graph = EvolvingGraph(MEDIUM)
        known = graph.kinds.size
        night = graph.advance()
        new_titles = (night.added.head >= known) & (graph.kinds[night.added.head] != PERSON)
        new_people = (night.added.tail >= known) & (graph.kinds[night.added.tail] == PERSON)
        assert 0.55 < np.mean(new_titles) < 0.75
        assert np.unique(night.added.head[new_titles]).size > 100
        assert np.unique(night.added.tail[new_people]).size > 50

    def test_deletions_strand_hardly_anybody(self) -> None:
        """Who vanishes was removed: the triples of the vanished are about the share that removals may take (20%)."""
        graph = EvolvingGraph(MEDIUM)
        for night in graph.nights():
            gone = ~graph.alive
            share = np.mean(gone[night.deleted.head] | gone[night.deleted.tail])
            assert 0.1 < share < 0.25

    def test_some_of_the_removed_return_and_most_do_not(self) -> None:
        graph = EvolvingGraph(replace(MEDIUM, nights=8))
        alive = graph.alive.copy()
        vanished: dict[int, int] = {}
        absences: list[int] = []
        for _ in graph.nights():
            before = np.zeros(graph.alive.size, np.bool_)
            before[: alive.size] = alive
            alive = graph.alive.copy()
            absences += [graph.night - vanished[e] for e in np.flatnonzero(alive & ~before).tolist() if e in vanished]
            vanished |= dict.fromkeys(np.flatnonzero(before & ~alive).tolist(), graph.night)
        assert 0.05 * len(vanished) < len(absences) < 0.3 * len(vanished)
        assert set(absences) == {ABSENCE}, "nobody else who is gone is ever cast again"

    def test_the_demo_has_a_returning_entity(self) -> None:
        graph = EvolvingGraph(DEMO)
        seen_alive = [graph.alive.copy()]
        for _ in graph.nights():
            seen_alive.append(graph.alive.copy())
        history = np.zeros((len(seen_alive), graph.alive.size), np.int8)
        for night, alive in enumerate(seen_alive):
            history[night, : alive.size] = alive
        comes = (np.diff(history, axis=0) > 0).sum(axis=0) + history[0]
        assert (comes >= 2).any()


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


class TestFiles:
    def test_files_hold_what_the_arrays_hold(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
        assert len(counts["files"]) == 11
        fractions = [done for done, _ in seen]
        assert fractions == sorted(fractions) and fractions[0] == 0.0 and fractions[-1] == 1.0

    def test_same_seed_same_files(self, tmp_path: Path) -> None:
        for name in ("first", "second"):
            write_synth(DEMO, tmp_path / name)
        names = sorted(path.name for path in (tmp_path / "first").iterdir())
        assert names == [*(f"night-{night:03}.changes" for night in range(1, 6)), "snapshot-000.tsv"]
        for name in names:
            assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()

    def test_an_interrupted_run_leaves_no_half_file(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        whole, calls = synth_files._format, []

        def stop_late(graph: EvolvingGraph, triples: Triples, sign: str = "") -> Array:
            calls.append(sign)
            if len(calls) == 3:
                raise KeyboardInterrupt
            return whole(graph, triples, sign)

        monkeypatch.setattr(synth_files, "_CHUNK_LINES", 5_000)
        monkeypatch.setattr(synth_files, "_format", stop_late)
        with pytest.raises(KeyboardInterrupt):
            write_synth(DEMO, tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["snapshot-000.tsv"]

    def test_a_second_run_may_replace_but_not_mix(self, tmp_path: Path) -> None:
        write_synth(DEMO, tmp_path)
        write_synth(DEMO.resized(seed=1), tmp_path)
        with pytest.raises(UsageError, match=r"night-003\.changes"):
            write_synth(DEMO.resized(nights=2), tmp_path)


def simple_adjacency(triples: Triples, entities: int) -> sparse.csr_array:
    """The undirected graph without parallel edges."""
    ends = (np.concatenate([triples.head, triples.tail]), np.concatenate([triples.tail, triples.head]))
    adjacency = sparse.csr_array((np.ones(ends[0].size), ends), shape=(entities, entities))
    adjacency.sum_duplicates()
    adjacency.data[:] = 1.0
    return adjacency


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


def tail_percentiles(graph: EvolvingGraph, held: Array) -> tuple[Array, Array]:
    """Where the true tail of each held-out credit stands among all people with that relation, 0 first and 1 last.

    First for a predictor that counts short walks from the title, then for one that knows how busy everybody is.
    """
    triples, entities = graph.triples, graph.kinds.size
    rest, asked = triples.take(np.delete(np.arange(triples.count), held)), triples.take(held)
    adjacency = simple_adjacency(rest, entities)
    two_steps = adjacency[asked.head] @ adjacency
    walks = (two_steps + 1e-3 * (two_steps @ adjacency)).toarray()
    busyness = np.bincount(rest.tail, minlength=entities).astype(float)
    places = np.empty((2, asked.count))
    for i, (head, relation, tail) in enumerate(zip(*asked, strict=True)):
        same_relation = rest.relation == relation
        others = np.setdiff1d(rest.tail[same_relation], rest.tail[same_relation & (rest.head == head)])
        others = others[others != tail]
        for row, score in enumerate((walks[i], busyness)):
            better, equal = np.sum(score[others] > score[tail]), np.sum(score[others] == score[tail])
            places[row, i] = (better + equal / 2) / others.size
    return places[0], places[1]


class TestPredictability:
    """Measured over the seeds above: the median place of the true person is .009 to .013 of the candidates in the demo
    and .0014 to .0018 with 30,000 entities, by short walks alone; by busyness it is .13 to .23 and .08 to .14."""

    @pytest.mark.parametrize(("spec", "limit"), [(DEMO, 0.02), (MEDIUM, 0.004)], ids=["demo", "medium"])
    def test_held_out_credits_follow_from_the_rest(self, spec: SynthSpec, limit: float) -> None:
        graph = EvolvingGraph(spec)
        triples = graph.triples
        degree = np.bincount(np.concatenate([triples.head, triples.tail]))
        credits = triples.relation < RELATIONS.index("knownFor")
        covered = np.flatnonzero(credits & (degree[triples.head] > 1) & (degree[triples.tail] > 1))
        held = np.random.default_rng(7).choice(covered, 300, replace=False)
        walks, busyness = tail_percentiles(graph, held)
        assert np.median(walks) < limit
        assert np.mean(walks) < 0.1, "chance is 0.5"
        assert np.median(busyness) > 5 * np.median(walks), "hubs alone do not explain it"


class TestKeys:
    @given(st.lists(st.tuples(st.integers(0, 2**28 - 1), st.integers(0, 13), st.integers(0, 2**28 - 1))))
    def test_pack_round_trips_and_sorts_canonically(self, triples: list[tuple[int, int, int]]) -> None:
        head, relation, tail = np.array(triples, np.int64).reshape(-1, 3).T
        keys = pack(head, relation, tail)
        assert list(zip(*(column.tolist() for column in unpack(keys)), strict=True)) == triples
        in_order = [triples[i] for i in np.argsort(keys, kind="stable")]
        assert in_order == sorted(triples, key=lambda triple: (triple[0], triple[2], triple[1]))

    @given(st.lists(st.integers(0, 5)))
    def test_count_before(self, groups: list[int]) -> None:
        expected = [groups[:i].count(group) for i, group in enumerate(groups)]
        assert count_before(np.array(groups, np.int64)).tolist() == expected

    @given(st.lists(st.integers(0, 30)), st.lists(st.integers(0, 30)))
    def test_contains(self, keys: list[int], wanted: list[int]) -> None:
        found = contains(np.array(sorted(keys), np.int64), np.array(wanted, np.int64))
        assert found.tolist() == [key in keys for key in wanted]

    def test_collect_gives_up_when_there_are_not_enough(self) -> None:
        rng = np.random.default_rng(0)
        taken = np.arange(5)
        draw = lambda count: rng.integers(0, 20, count)  # noqa: E731
        assert collect(rng, 15, draw, taken).tolist() == list(range(5, 20))
        with pytest.raises(ValueError, match="only 15 of 16"):
            collect(rng, 16, draw, taken)
