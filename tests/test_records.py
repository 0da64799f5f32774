"""Records: one value that JSON, the log, HTTP and Prometheus are views of."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest
from pydantic import ValidationError

from dkge_dist.records import (
    RECORD_TYPES,
    Drift,
    Fidelity,
    FidelityGroup,
    NightRecord,
    Quality,
    TrainingRecord,
)
from dkge_dist.store.models import ModelMetadata, publish_model
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.surfaces.cli.output import print_json
from dkge_dist.surfaces.http.service import Limits, Service
from dkge_dist.surfaces.metrics import exposition, version_families
from tests.graphs import movies, write_tsv
from tests.store.small_models import saved, some_weights


class Measured(Quality):
    """A nested record with one figure more."""

    surprise: float | None = None


class LongerNight(NightRecord):
    """A night with two figures more."""

    woken_entities: int | None = None
    """Entities that the night woke."""
    calm: Measured | None = None


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A model whose night has these figures."""
    monkeypatch.setitem(RECORD_TYPES, "online", LongerNight)
    api.ingest(tmp_path / "store", write_tsv(tmp_path / "base.tsv", movies(30)))
    record = LongerNight(added=4, valid=Quality(mrr=0.25), woken_entities=7, calm=Measured(mrr=0.5, surprise=0.125))
    opened = Store.open(tmp_path / "store")
    publish_model(opened, saved(opened, some_weights(opened), about=ModelMetadata({}, record, [])), 1.5)
    return Store.open(tmp_path / "store")


def test_a_new_figure_is_in_the_json_of_the_log(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    print_json(api.log(store.storage.location))
    line = json.loads(capsys.readouterr().out)["versions"][-1]
    assert (line["woken_entities"], line["calm"]) == (7, {"mrr": 0.5, "surprise": 0.125})
    assert (line["version"], line["kind"], line["metrics"]) == (2, "model", {"mrr": 0.25})


def test_a_new_figure_is_in_the_answers_of_http(store: Store) -> None:
    served = SimpleNamespace(store=store, current=SimpleNamespace(model=SimpleNamespace(version=2)))
    answered = Service.versions_list(SimpleNamespace(limits=Limits(), versions=served), 10)  # type: ignore[arg-type]
    line = json.loads(answered.model_dump_json())["versions"][-1]
    assert (line["woken_entities"], line["calm"]["surprise"], line["snapshot"]) == (7, 0.125, "base")


def test_a_new_figure_is_in_the_metrics(store: Store) -> None:
    text = exposition(version_families(store, store.find_model()))
    assert 'dkge_model_woken_entities{snapshot="base"} 7\n' in text
    assert "# HELP dkge_model_woken_entities Entities that the night woke.\n" in text
    assert 'dkge_model_calm{snapshot="base",figure="surprise"} 0.125\n' in text


def test_a_record_is_a_mapping_by_the_names_of_its_json() -> None:
    quality = Quality.model_validate({"mrr": 0.5, "hits@1": 0.25})
    assert quality == {"mrr": 0.5, "hits@1": 0.25} and quality["hits@1"] == quality.hits_at_1
    assert {**quality} == json.loads(quality.model_dump_json()) == quality.model_dump()
    assert "hits@10" not in quality and quality.get("hits@10") is None
    with pytest.raises(KeyError):
        quality["hits_at_1"]


def test_what_was_not_set_is_absent_and_what_cannot_be_measured_is_null() -> None:
    drift = Drift(since=2, mrr_drop=None, added_mrr=None)
    assert json.loads(drift.model_dump_json()) == {"since": 2, "mrr_drop": None, "added_mrr": None}
    assert drift.with_(due="every 2 nights")["due"] == "every 2 nights"


@pytest.mark.parametrize("wrong", [{"origin": "online", "epochs": "three"}, {"origin": "online", "whatever": 1}])
def test_what_is_no_record_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        NightRecord.model_validate(wrong)


def test_fidelity_is_of_what_answers_are_given_by() -> None:
    def group(mrr: float, of: int | None = None) -> FidelityGroup:
        return FidelityGroup(triples=40, vectors=Quality(mrr=mrr, mrr_error=0.01), **({} if of is None else {"of": of}))

    found = Fidelity(added_existing=group(0.5, 300), added_emerging=group(1.0, 100), deleted=group(0.25))
    added = found.mrr(*Fidelity.ADDED)
    assert added is not None and added.mean == pytest.approx(0.625)
    assert found.mrr("kept_near") is None and [*found.groups] == ["added_existing", "added_emerging", "deleted"]
    by_both = group(0.5).with_(with_evidence=Quality(mrr=0.75, mrr_error=0.01))
    assert by_both.answered.mrr == 0.75


def test_a_record_comes_back_as_the_type_that_its_origin_says(store: Store) -> None:
    assert isinstance(store.find_model().model.record, LongerNight)
    assert RECORD_TYPES["refresh"] is TrainingRecord
