"""Synthetic graphs as files: what the arrays hold, the same for a seed, and never a partial file."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from dkge_dist.synthetic import RELATIONS, EvolvingGraph, write_synth
from dkge_dist.synthetic import files as synth_files
from dkge_dist.types import Array, Triples, UsageError
from tests.synthetic.movies import DEMO


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


def test_same_seed_same_files(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_synth(DEMO, tmp_path / name)
    names = sorted(path.name for path in (tmp_path / "first").iterdir())
    assert names == ["names.tsv", *(f"night-{night:03}.changes" for night in range(1, 6)), "snapshot-000.tsv"]
    for name in names:
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_interrupted_run_leaves_no_partial_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_second_run_replaces_files_but_mixes_none(tmp_path: Path) -> None:
    write_synth(DEMO, tmp_path)
    write_synth(DEMO.resized(seed=1), tmp_path)
    with pytest.raises(UsageError, match=r"night-003\.changes"):
        write_synth(DEMO.resized(nights=2), tmp_path)


def test_names_have_every_label_of_all_files(tmp_path: Path) -> None:
    write_synth(DEMO, tmp_path)
    named = {label for label, _ in read_lines(tmp_path / "names.tsv", 2)}
    triples = read_lines(tmp_path / "snapshot-000.tsv", 3)
    for path in tmp_path.glob("night-*.changes"):
        triples += [line[1:] for line in read_lines(path, 4)]
    assert named == {label for head, _, tail in triples for label in (head, tail)}
