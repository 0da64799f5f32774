"""The table of a model's evidence: counts as a plain walk over the train triples gives them, and the fitted weights."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dkge_dist
from dkge_dist.ask.evidence_table import MEANING, evidence_table
from dkge_dist.evidence.features import FEATURES
from dkge_dist.evidence.stored import weights_of
from dkge_dist.kernels.evidence.paths import PATH_PRIOR
from dkge_dist.store.models import load_arrays
from dkge_dist.store.store import Store
from dkge_dist.types import DkgeError, Split, UsageError
from tests.jobs.building import ADDED, ingest_night, some_train
from tests.jobs.reads import counted_reads

pytestmark = pytest.mark.usefixtures("one_thread")

ALL = 10**6


def train_labels(store: Path) -> set[tuple[str, str, str]]:
    """The train triples of the current model's snapshot."""
    opened = Store.open(store)
    manifest = opened.snapshot_manifest(opened.find_model().model.snapshot)
    entities, relations = opened.dictionaries(manifest)
    train = opened.snapshot(manifest).triples(Split.TRAIN)
    columns = entities.labels(train.head), relations.labels(train.relation), entities.labels(train.tail)
    return set(zip(*columns, strict=True))


def counted(triples: set[tuple[str, str, str]]) -> dict[str, dict[Any, tuple[int, int]]]:
    """By relation: (pairs of both, pairs of the other) of each link; (support, total) of each path."""
    pairs = Counter(r for h, r, t in triples if h != t)
    relations = sorted({r for _, r, _ in triples})
    by_head: dict[str, list[tuple[str, str]]] = {}
    for h, r, t in triples:
        by_head.setdefault(h, []).append((r, t))
    links: Counter[tuple[str, str, str]] = Counter()
    support: Counter[tuple[str, str, str]] = Counter()
    for h, r, t in triples:
        if h != t:
            for other in relations:
                links[r, other, "same"] += other != r and (h, other, t) in triples
                links[r, other, "opposite"] += (t, other, h) in triples
        for path in {(one, two) for one, m in by_head[h] for two, end in by_head.get(m, ()) if end == t}:
            support[r, *path] += 1
    total: Counter[tuple[str, str]] = Counter()
    for (_, one, two), count in support.items():
        total[one, two] += count
    found: dict[str, dict[Any, tuple[int, int]]] = {r: {} for r in relations}
    for (r, other, direction), count in links.items():
        if count:
            found[r][other, direction] = count, pairs[other]
    for (r, one, two), count in support.items():
        found[r]["path", one, two] = count, total[one, two]
    return found


def shown(line: dict[str, Any]) -> dict[Any, tuple[int, int]]:
    """The same of a line of the table."""
    return {
        **{(link["relation"], link["direction"]): (link["pairs"], link["of"]) for link in line["links"]},
        **{("path", path["first"], path["second"]): (path["pairs"], path["of"]) for path in line["paths"]},
    }


def test_counts_are_those_of_the_train_triples(store: Path) -> None:
    report = dkge_dist.evidence_table(store, top=ALL)
    expected = counted(train_labels(store))
    assert {line["relation"]: shown(line) for line in report["relations"]} == expected
    assert (report["version"], report["snapshot"], report["fitted_on"]) == (2, "base", "valid")
    for line in report["relations"]:
        assert line["found"] == {"links": len(line["links"]), "paths": len(line["paths"])}
        for link in line["links"]:
            assert link["confidence"] == pytest.approx(link["pairs"] / link["of"], abs=1e-6)
        for path in line["paths"]:
            assert path["confidence"] == pytest.approx(path["pairs"] / (path["of"] + PATH_PRIOR), abs=1e-6)
    assert [line["pairs"] for line in report["relations"]] == sorted(
        (line["pairs"] for line in report["relations"]), reverse=True
    )


def test_a_night_changes_the_counts_and_keeps_the_weights(store: Path, tmp_path: Path) -> None:
    before = dkge_dist.evidence_table(store)
    ingest_night(tmp_path / "night.changes", store, ADDED, some_train(store, 20))
    dkge_dist.update(store)
    after = dkge_dist.evidence_table(store, top=ALL)
    assert {line["relation"]: shown(line) for line in after["relations"]} == counted(train_labels(store))
    weights = {line["relation"]: line["weights"] for line in after["relations"]}
    for line in before["relations"]:
        assert weights[line["relation"]] == line["weights"]
    assert dkge_dist.evidence_table(store, version="2")["relations"] == before["relations"]
    # A relation that was not there yet has the weights common to all.
    opened = Store.open(store)
    part = opened.find_model().model.evidence
    assert part is not None
    common = weights_of(load_arrays(opened, part)).common_2J
    for side, values in zip(("tail", "head"), common.tolist(), strict=True):
        assert list(weights["r9"][side].values()) == pytest.approx(values, abs=1e-6)


def test_one_relation_and_the_strongest(store: Path) -> None:
    every = {line["relation"]: line for line in dkge_dist.evidence_table(store, top=ALL)["relations"]}
    (line,) = dkge_dist.evidence_table(store, relation="r2", top=2)["relations"]
    assert line == {**every["r2"], "links": every["r2"]["links"][:2], "paths": every["r2"]["paths"][:2]}


def test_every_feature_is_said_in_words(store: Path) -> None:
    assert tuple(MEANING) == FEATURES
    report = dkge_dist.evidence_table(store)
    assert report["features"] == MEANING
    for line in report["relations"]:
        assert set(line["weights"]) == {"tail", "head"}
        assert all(tuple(values) == FEATURES for values in line["weights"].values())
        assert line["own_entity"] < 0


def test_neither_vectors_nor_triples_are_read(store: Path) -> None:
    model = Store.open(store).find_model()
    assert model.model.evidence is not None
    with counted_reads(store) as reads:
        dkge_dist.evidence_table(store)
    labels = {
        part.part.digest
        for segment in [*model.entity_segments, *model.relation_segments]
        for part in (segment.labels, segment.slots)
    }
    assert reads.stores == 1
    assert set(reads.parts) <= {model.model.evidence.part.digest, *labels}


def test_models_without_evidence_and_relations_that_there_are_not(
    store: Path, trained: Callable[[str], Path], tmp_path: Path
) -> None:
    paper = Path(shutil.copytree(trained("paper"), tmp_path / "paper"))
    with pytest.raises(DkgeError, match="the model of version 2 has no evidence: it was learnt with evidence=false or"):
        evidence_table(Store.open(paper), None, None, 5)
    with pytest.raises(DkgeError, match="no relation 'r7'"):
        dkge_dist.evidence_table(store, relation="r7")
    with pytest.raises(UsageError, match="--top 0"):
        dkge_dist.evidence_table(store, top=0)
    ingest_night(tmp_path / "n1.changes", store, ADDED, [])
    ingest_night(tmp_path / "n2.changes", store, [], ADDED)
    dkge_dist.update(store)
    with pytest.raises(DkgeError, match="'r9' has no train triple in snapshot 'n2'"):
        dkge_dist.evidence_table(store, relation="r9")
