"""Figures for Prometheus: read back by Prometheus' own parser, whatever is in a label; written all at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dkge_dist.store.store import Store
from dkge_dist.surfaces.metrics import Family, exposition, version_families, write_metrics
from dkge_dist.types import DkgeError

ODD = 'a "quoted" \\ name\nof two lines, {with} = signs'


def test_labels_are_read_back() -> None:
    family = Family("dkge_some", "gauge", "Some.").add(1.5, snapshot=ODD).add(2, snapshot="plain")
    (found,) = text_string_to_metric_families(exposition([family, Family("dkge_none", "counter", "None.")]))
    assert [(sample.labels["snapshot"], sample.value) for sample in found.samples] == [(ODD, 1.5), ("plain", 2)]


def test_a_version_that_was_trained(store: Path) -> None:
    opened = Store.open(store)
    text = exposition(version_families(opened, opened.find_model()))
    families = {one.name: one.samples for one in text_string_to_metric_families(text)}
    assert families["dkge_model_version"][0].value == 2 and families["dkge_nights"][0].value == 0
    splits = {sample.labels["split"]: sample.value for sample in families["dkge_graph_triples"]}
    assert splits["valid"] == splits["test"] == 20
    assert "dkge_night_fidelity_mrr" not in families, "there was no night"


def test_files_are_replaced_all_at_once(tmp_path: Path) -> None:
    path = tmp_path / "night.prom"
    for value in (1, 2):
        write_metrics(path, [Family("dkge_some", "gauge", "Some.").add(value)])
        assert path.read_text().endswith(f"dkge_some {value}\n")
    assert [one.name for one in tmp_path.iterdir()] == ["night.prom"]
    (tmp_path / "file").write_text("")
    with pytest.raises(DkgeError, match=r"night\.prom"):
        write_metrics(tmp_path / "file" / "night.prom", [])
