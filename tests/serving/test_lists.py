"""Neighbour lists of a base, kept as a file: those of the graph, whatever a night changed, and mapped."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.graph.diff import Change, Diff
from dkge_dist.graph.snapshot import Snapshot
from dkge_dist.graph.topology import Topology
from dkge_dist.kernels.triples import canonical
from dkge_dist.surfaces.http.lists import load_lists
from dkge_dist.types import Triples
from tests.graph.test_topology import assert_topology
from tests.serving.test_kept import is_mapped
from tests.strategies import Evolution, evolutions, to_triples

NONE = Triples.empty()


@settings(max_examples=30)
@given(st.lists(evolutions(), min_size=1, max_size=2))
def test_mapped_and_patched_they_are_those_of_the_graph(nights: list[Evolution]) -> None:
    before = nights[0].before
    rows = max(night.before.rows for night in nights)
    base = canonical(to_triples(before.triples))
    snapshot = Snapshot.full((base, NONE, NONE), before.rows, 9)
    with TemporaryDirectory() as folder:
        for night in nights:
            lists = load_lists(Path(folder), "d" * 64, snapshot.base)
            assert_topology(lists, before.triples, rows)
            change = Change.between(base, canonical(to_triples(night.after)))
            after = Snapshot(snapshot.base, Diff.of([change, Change.none(), Change.none()]), rows, 9)
            assert_topology(Topology.of_snapshot(after, lists), night.after, rows)
            assert_topology(Topology.of_snapshot(after), night.after, rows)


def test_all_lists_are_mapped(tmp_path: Path) -> None:
    train = canonical(to_triples([(0, 0, 1), (1, 0, 2), (2, 1, 0), (2, 0, 2)]))
    snapshot = Snapshot.full((train, NONE, NONE), 4, 2)
    for _ in range(2):
        lists = load_lists(tmp_path, "d" * 64, snapshot.base)
        for some in (lists.outgoing, lists.incoming, lists.neighbours):
            assert is_mapped(some.indptr) and is_mapped(some.entries)


def test_lists_of_another_graph_are_not_taken(tmp_path: Path) -> None:
    """Of the same name, with other numbers of triples: they are made anew."""
    one, other = ([(0, 0, 1), (1, 0, 2)], [(0, 0, 1), (1, 0, 2), (2, 1, 0)])
    for triples in (one, other, one):
        snapshot = Snapshot.full((canonical(to_triples(triples)), NONE, NONE), 4, 2)
        assert_topology(load_lists(tmp_path, "d" * 64, snapshot.base), triples, 4)
