"""An update on real stores: what is frozen stays bit-identical, o* is fresh, every added triple is learnt."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import dkge_dist
from dkge_dist.ask.model import open_model
from dkge_dist.ask.ranks import metrics, rank
from dkge_dist.evidence.fit import fitting_half
from dkge_dist.evidence.fitting import EvidenceFitting
from dkge_dist.evidence.questions import Questions
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.labels import Labels
from dkge_dist.graph.training_graph import training_graph
from dkge_dist.measure.validation import Validation
from dkge_dist.records import Quality
from dkge_dist.settings import settings_of_model
from dkge_dist.store.models import load_arrays, publish_model
from dkge_dist.store.store import Store
from dkge_dist.types import ROW, DkgeError, Split, Triples, UsageError
from tests.jobs.building import (
    ADDED,
    SMALL,
    assert_joint_is_fresh,
    base_triples,
    ingest_night,
    some_train,
    write_lines,
)
from tests.models import ModelVectors, assert_same_bits, model_of, moved_rows, vectors_of

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(params=["default", "paper"])
def store(request: pytest.FixtureRequest, trained: Callable[[str], Path], tmp_path: Path) -> Path:
    """A trained store."""
    return Path(shutil.copytree(trained(request.param), tmp_path / "store"))


def test_kept_counts_of_paths_are_those_of_the_snapshot(store: Path, tmp_path: Path) -> None:
    """The graph is not counted again, and a model without them, as older programs wrote it, learns to the same bits."""
    for night in (1, 2):
        ingest_night(tmp_path / f"n{night}.changes", store, ADDED if night == 1 else [], some_train(store, 3 * night))
        older = Path(shutil.copytree(store, tmp_path / f"older{night}"))
        forget_paths(older)
        versions = [dkge_dist.update(some)["version"] for some in (store, older)]
        assert_same_bits(vectors_of(store, versions[0]), vectors_of(older, versions[1]))
        opened = Store.open(store)
        model = opened.find_model()
        names = opened.dictionaries(model)
        graph = training_graph(
            opened.snapshot(opened.snapshot_manifest(model.model.snapshot)),
            (names[0].digests, names[1].digests),
            settings_of_model(model.model.settings),
        )
        assert model.model.paths is not None
        kept, counted = load_arrays(opened, model.model.paths), graph.paths.to_arrays()
        assert kept.keys() == counted.keys()
        assert all(np.array_equal(kept[name], counted[name]) for name in kept)


def forget_paths(store: Path) -> None:
    """Make the current model one that keeps no counts of paths."""
    opened = Store.open(store)
    model = opened.find_model()
    entry = model.model.model_copy(update={"paths": None})
    publish_model(opened, entry, 0.0, model.version)


def test_only_the_write_set_is_written_and_o_star_is_fresh(store: Path, tmp_path: Path) -> None:
    before = vectors_of(store, 2)
    ingest_night(tmp_path / "n1.changes", store, ADDED, some_train(store, 6))
    plan = dkge_dist.update(store, plan=True, shards=4)
    report = dkge_dist.update(store)
    for key in ("emerging_entities", "affected_entities", "emerging_relations", "affected_relations"):
        assert report[key] == plan[key]
    assert (report["emerging_entities"], report["emerging_relations"]) == (2, 1)
    after = vectors_of(store, report["version"])
    assert all(np.array_equal(before.dense[name], after.dense[name]) for name in before.dense)
    moved = {}
    for kind in ("entities", "relations"):
        old, new = getattr(before, kind), getattr(after, kind)
        for field in old:
            moved[kind, field] = len(moved_rows(old[field], new[field]))
    assert moved["entities", "context"] <= report["emerging_entities"]
    assert moved["relations", "context"] <= report["emerging_relations"]
    for field in ("knowledge", "joint"):
        assert moved["entities", field] <= report["emerging_entities"] + report["affected_entities"]
        assert moved["relations", field] <= report["emerging_relations"] + report["affected_relations"]
    assert_joint_is_fresh(store)
    assert dkge_dist.check(store)["ok"]


LEARNT = ["model.dim=32", "train.max_epochs=120", "train.batch_size=100", "train.negatives=60", "train.eval_every=120"]
"""So much that train triples are known; nights as by default."""


def test_a_night_is_believed_and_its_deleted_triples_are_not(tmp_path: Path) -> None:
    """By vectors alone, with the settings of nights as they are by default; and what is not planned keeps its bits."""
    triples = base_triples(5)
    rng = np.random.default_rng(6)
    drawn = rng.integers(0, [[60], [4], [60]], (3, 10))
    added = sorted({(f"e{h}", f"r{r}", f"e{t}") for h, r, t in drawn.T} - set(triples))
    deleted = [triples[n] for n in rng.choice(len(triples), 8, replace=False)]
    store = tmp_path / "store"
    dkge_dist.ingest(store, write_lines(tmp_path / "base.tsv", ["\t".join(t) for t in triples]))
    dkge_dist.train(store, settings=LEARNT)
    ingest_night(tmp_path / "n.changes", store, ["\t".join(t) for t in added], ["\t".join(t) for t in deleted])
    report = dkge_dist.update(store)
    opened = open_model(Store.open(store))
    train = opened.snapshot.triples(Split.TRAIN)
    before, after = {}, {}
    for found, version in ((before, "2"), (after, str(report["version"]))):
        embedding = open_model(Store.open(store), version).embedding
        for name, some in (("added", added), ("deleted", deleted), ("train", sorted({*triples} - {*deleted}))):
            names = opened.names
            rows = Triples(
                *(kind.lookup(Labels.from_strings(list(column))).astype(ROW)
                  for kind, column in zip((names[0], names[1], names[0]), zip(*some, strict=True), strict=True))
            )  # fmt: skip
            found[name] = metrics(rank(embedding, rows, train).both)["mrr"]
    assert before["deleted"] > 0.5 > before["added"], "the model before knew its triples"
    assert after["added"] > before["added"] + 0.3
    assert after["deleted"] < before["deleted"] - 0.3
    assert after["train"] > 0.75 * before["train"], "and what it knew besides is mostly kept"
    assert report["fidelity"]["added_existing"]["vectors"]["mrr"] == pytest.approx(after["added"])
    assert report["fidelity"]["deleted"]["vectors"]["mrr"] == pytest.approx(after["deleted"])


def settled(store: Path, folder: Path, words: list[str]) -> tuple[ModelVectors, ModelVectors]:
    """The vectors before and after an update of a copy of the store that has a night to learn."""
    copy = Path(shutil.copytree(store, folder))
    version = dkge_dist.update(copy, settings=words)["version"]
    assert_joint_is_fresh(copy)
    return vectors_of(copy, 2), vectors_of(copy, version)


@pytest.mark.parametrize("word", ["true", "false"])
def test_relations_that_existed_are_held(store: Path, tmp_path: Path, word: str) -> None:
    ingest_night(tmp_path / "n.changes", store, ADDED, some_train(store, 9))
    words = [f"online.hold_relations={word}"]
    before, after = settled(store, tmp_path / "copy", words)
    old, new = before.relations["knowledge"], after.relations["knowledge"]
    assert np.array_equal(old, new[: old.shape[0]]) == (word == "true")
    assert new[old.shape[0] :].any(), "one that emerges is learnt"
    assert not np.array_equal(before.entities["knowledge"], after.entities["knowledge"][:-2])


def test_nights_of_every_kind(store: Path, tmp_path: Path) -> None:
    gone = [line for line in some_train(store, 400) if line.startswith("e11\t") or line.endswith("\te11")]
    nights = [(ADDED, []), ([], some_train(store, 5)), ([], gone), (["e11\tr1\te2", "new3\tr0\tnew4"], ADDED[:3])]
    for number, (added, deleted) in enumerate(nights):
        ingest_night(tmp_path / f"n{number}.changes", store, added, deleted)
        report = dkge_dist.update(store)
        assert np.isfinite(vectors_of(store, report["version"]).entities["joint"]).all()
        assert_joint_is_fresh(store)
        again = dkge_dist.update(store)
        assert again["unchanged"], "a night that was learnt is learnt"
        assert again["version"] == report["version"]
    kinds = [line["kind"] for line in dkge_dist.log(store)["versions"]]
    assert kinds == ["snapshot", "model", *["snapshot", "model"] * len(nights)]


def test_nights_in_which_nothing_is_to_be_learnt(store: Path, tmp_path: Path) -> None:
    """A night that changes nothing is no version; one that only gets another name is learnt at once."""
    versions = len(dkge_dist.log(store)["versions"])
    known = some_train(store, 2)
    source = write_lines(tmp_path / "n0.changes", [f"+\t{known[0]}", f"-\t{known[1]}", f"+\t{known[1]}"])
    assert dkge_dist.nightly(store, source)["unchanged"]
    assert len(dkge_dist.log(store)["versions"]) == versions
    before = vectors_of(store, 2)
    dkge_dist.ingest(store, source, name="another name for the same")
    report = dkge_dist.update(store)
    assert (report["added"], report["deleted"], report["trained_triples"]) == (0, 0, 0)
    assert_same_bits(before, vectors_of(store, report["version"]))
    assert dkge_dist.update(store)["unchanged"]
    assert dkge_dist.check(store)["ok"]


def test_several_nights_at_once_and_from_an_earlier_model(store: Path, tmp_path: Path) -> None:
    ingest_night(tmp_path / "n1.changes", store, ADDED[:2], [])
    dkge_dist.update(store)
    ingest_night(tmp_path / "n2.changes", store, ADDED[2:], some_train(store, 3))
    both = dkge_dist.update(store, since_version="2")
    assert both["from"] == "base"
    assert both["added"] >= len(ADDED)
    assert both["parent"] == 2
    assert_joint_is_fresh(store)


def test_an_update_that_was_overtaken_does_not_bring_an_older_model_back(store: Path, tmp_path: Path) -> None:
    ingest_night(tmp_path / "n1.changes", store, ADDED[:2], [])
    newer = []

    def overtaken(done: float, words: str) -> None:
        if not newer:
            newer.append(0)
            newer[0] = dkge_dist.update(store)["version"]
            ingest_night(tmp_path / "n2.changes", store, ADDED[2:], [])
            newer[0] = dkge_dist.update(store)["version"]

    with pytest.raises(DkgeError, match="became current while version 2 was being updated; nothing was changed"):
        dkge_dist.update(store, progress=overtaken)
    assert dkge_dist.log(store)["versions"][-1]["version"] == newer[0]


def test_every_added_triple_is_learnt_by_default(tmp_path: Path) -> None:
    """A second relation between neighbours changes no context; it is learnt all the same, unless the paper is meant."""
    triples = base_triples(2)
    path = tmp_path / "store"
    dkge_dist.ingest(path, write_lines(tmp_path / "base.tsv", ["\t".join(t) for t in triples]), valid=10)
    dkge_dist.train(path, settings=SMALL)
    known = {(h, t) for h, _, t in triples}
    parallel = next(f"{h}\tr{k}\t{t}" for h, t in sorted(known) for k in range(4) if (h, f"r{k}", t) not in triples)
    ingest_night(tmp_path / "n.changes", path, [parallel], [])
    plan = dkge_dist.update(path, plan=True)
    literal = dkge_dist.update(path, plan=True, settings=["online.affected_by=context"])
    assert plan["affected_entities"] >= 2
    assert literal["affected_entities"] == 0
    assert dkge_dist.update(path)["trained_triples"] >= 1


def test_no_validation_undoes_the_first_epoch(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validation may know nothing of tonight's triples: over affected objects the best epoch is kept, or the first."""
    before = vectors_of(store, 2).entities["knowledge"]
    falling = iter([0.5, 0.4, 0.3, 0.2])
    monkeypatch.setattr(Validation, "measure", lambda *_: {"mrr": next(falling)})
    ingest_night(tmp_path / "n.changes", store, ADDED, [])
    report = dkge_dist.update(
        store, settings=["online.epochs_over=affected", "online.max_epochs=5", "online.patience=2"]
    )
    assert report["epochs"] == 3
    after = vectors_of(store, report["version"]).entities["knowledge"]
    assert (after[: before.shape[0]] != before).any()
    assert_joint_is_fresh(store)


def test_what_belongs_to_the_model_may_not_change(store: Path, tmp_path: Path) -> None:
    ingest_night(tmp_path / "n.changes", store, ADDED, [])
    for word in ("context.cap=9", "model.dim=13", "seed=8", "evidence.offset=0.1", "evidence.max_neighbours=9"):
        with pytest.raises(UsageError, match="the model was learnt with"):
            dkge_dist.update(store, settings=[word])
    assert len(dkge_dist.log(store)["versions"]) == 3


def test_validation_of_an_update_is_that_of_training(store: Path, tmp_path: Path) -> None:
    ingest_night(tmp_path / "n.changes", store, ADDED, [])
    report = dkge_dist.update(store)
    opened = open_model(Store.open(store))
    evidence, valid = opened.evidence, opened.snapshot.triples(Split.VALID)
    if evidence is not None:
        valid = valid.take(~fitting_half(valid, (opened.names[0].digests, opened.names[1].digests)))
    ranks = rank(opened.embedding, valid, opened.snapshot.triples(Split.TRAIN), evidence)
    assert {name: report["valid"][name] for name in Quality.METRICS} == pytest.approx(metrics(ranks.both))
    assert report["valid"] == model_of(store).model.record.valid


def test_evidence_leaves_above_what_vectors_know_after_the_night(
    trained: Callable[[str], Path], tmp_path: Path
) -> None:
    """The distance below which evidence counts less is that of the new vectors, what the night added among them."""
    store = Path(shutil.copytree(trained("default"), tmp_path / "store"))
    ingest_night(tmp_path / "n.changes", store, ADDED, [])
    dkge_dist.update(store, settings=["online.learning_rate=1"])
    before, now = (open_model(Store.open(store), version) for version in ("2", None))
    evidence, old = now.evidence, before.evidence
    assert evidence is not None
    assert old is not None
    train = now.snapshot.triples(Split.TRAIN)
    opened = Store.open(store)
    added = opened.diff(opened.find_snapshot(before.snapshot_name), opened.find_snapshot(now.snapshot_name)).train.added
    embedding = now.embedding
    distance, new = (
        embedding.distances(Questions.of(triples, True), np.arange(triples.count + 1), triples.tail)
        for triples in (train, added)
    )
    near, farthest = (np.quantile(distance, share) for share in (0.9, 0.99))
    expected = min(max(near, np.quantile(new, 0.9)), farthest)
    assert (distance < evidence.weights.near).mean() == pytest.approx((distance < expected).mean(), abs=0.03)
    assert evidence.weights.near != old.weights.near


def test_weights_of_evidence_are_fitted_anew_once_much_changed(trained: Callable[[str], Path], tmp_path: Path) -> None:
    """What changed is counted over nights. The fit is the one that a training would make beside these vectors."""
    store = Path(shutil.copytree(trained("default"), tmp_path / "store"))
    ingest_night(tmp_path / "n1.changes", store, ADDED, some_train(store, 6))
    dkge_dist.update(store, settings=["online.refit_evidence=0"])
    first = night_evidence(store)
    assert first.weights.changed == len(ADDED) + 6
    assert_same_theta(first, night_evidence(store, "2"))
    ingest_night(tmp_path / "n2.changes", store, ["e2\tr0\tnew7"], [])
    dkge_dist.update(store, settings=["online.refit_evidence=0.9"])
    assert night_evidence(store).weights.changed == first.weights.changed + 1
    ingest_night(tmp_path / "n3.changes", store, ["e3\tr0\tnew8"], [])
    dkge_dist.update(store, settings=["online.refit_evidence=0.01"])
    opened, found = open_model(Store.open(store)), night_evidence(store)
    assert found.weights.changed == 0
    settings = settings_of_model(opened.entry.settings)
    graph = training_graph(opened.snapshot, (opened.names[0].digests, opened.names[1].digests), settings)
    embedding = opened.embedding
    expected = EvidenceFitting.of(graph, WalkLimits.of(settings)).fitted(embedding.distances)
    assert_same_theta(found, expected)
    assert found.weights.near == expected.weights.near
    assert not np.array_equal(found.weights.common_2J, first.weights.common_2J)


def night_evidence(store: Path, version: str | None = None) -> Evidence:
    found = open_model(Store.open(store), version).evidence
    assert found is not None
    return found


def assert_same_theta(one: Evidence, other: Evidence) -> None:
    assert np.array_equal(one.weights.relation_2RJ, other.weights.relation_2RJ)
    assert np.array_equal(one.weights.common_2J, other.weights.common_2J)


def test_many_deltas_are_folded_into_a_version_of_the_same_content(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ingest_night(tmp_path / "n1.changes", store, ADDED, [])
    monkeypatch.setattr("dkge_dist.store.models.COMPACT_FROM_ROWS", 0)
    report = dkge_dist.update(store)
    compact, before = report["version"], report["version"] - 1
    assert model_of(store, compact).model.record.origin == "compact"
    assert model_of(store, before).model.entities["joint"].deltas
    assert not model_of(store, compact).model.entities["joint"].deltas
    assert_same_bits(vectors_of(store, before), vectors_of(store, compact))
    assert model_of(store, before).model.evidence == model_of(store, compact).model.evidence
    assert dkge_dist.check(store)["ok"]
    ingest_night(tmp_path / "n2.changes", store, ["e2\tr0\tnew7"], [])
    assert dkge_dist.update(store)["emerging_entities"] == 1
    assert_joint_is_fresh(store)
