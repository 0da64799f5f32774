"""The figures of the nights and the page made of them, on stores of all kinds."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import pytest

import dkge_dist
from dkge_dist.store.manifest import tables_of
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.surfaces import nightly_summary as job
from dkge_dist.surfaces.open_store import OpenStore
from dkge_dist.surfaces.pages.report import render_page
from dkge_dist.types import DkgeError, Field, UsageError
from tests.jobs.building import ADDED, SMALL, base_triples, ring_night, some_train, write_lines, write_night
from tests.jobs.reads import counted_reads

pytestmark = pytest.mark.usefixtures("one_thread")

HOSTILE = "<script>document.title='hacked'</script>\"'&<img src=x onerror=alert(1)>"


class _Reader(HTMLParser):
    """Elements and text of a page; an element that is not closed, or closed by another, is an error."""

    VOID = ("meta", "link", "br")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    @property
    def words(self) -> str:
        return " ".join(self.text)


def assert_self_contained(page: str) -> _Reader:
    """Well-formed, without scripts, and nothing in it would be loaded."""
    found = _Reader(page)
    for tag, attributes in found.tags:
        assert tag not in ("script", "iframe", "object", "embed", "img", "base", "form")
        assert not any(name.startswith("on") for name in attributes)
        assert all(name not in attributes for name in ("src", "srcset", "action"))
        assert attributes.get("href", "data:,") == "data:,"
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style and "@import" not in style
    return found


@pytest.fixture(scope="module")
def two_nights(trained: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nights")
    store = Path(shutil.copytree(trained("default"), folder / "store"))
    for number in (1, 2):
        added = [*ADDED, "e1\tr1\te2"] if number == 1 else [f"e{n}\tr0\te{n + 7}" for n in range(40)]
        api.nightly(store, write_night(folder / f"night{number}.changes", added, some_train(store, 5)))
    return store


@pytest.fixture
def nights(two_nights: Path, tmp_path: Path) -> Path:
    """Two nights were learnt: versions 4 and 6."""
    return Path(shutil.copytree(two_nights, tmp_path / "nights"))


def test_figures_are_those_of_the_versions(nights: Path, tmp_path: Path) -> None:
    figures = api.report(nights, tmp_path / "out.html")
    log = {line["version"]: line for line in api.log(nights)["versions"]}
    first, *others = figures["nights"]
    assert (first["is_first"], first["models"][0]["record"]["origin"]) == (True, "scratch")
    assert [night["snapshot"] for night in others] == ["night1", "night2"]
    for night in others:
        (model,) = night["models"]
        said = log[model["version"]]
        assert (night["added"], night["deleted"]) == (said["added"], said["deleted"])
        assert set(model.record.items()) <= set(said.items())
        assert model["record"]["valid"] == said["metrics"]
        assert model["parent"] == said["parent"]
        assert sum(model.phases.values()) == pytest.approx(said["seconds"], abs=0.01)
        assert set(model.phases) == {"open", "plan", "learn", "measure", "write"}
        assert "due" not in model
    assert [night["models"][-1]["is_current"] for night in figures["nights"]] == [False, False, True]
    assert figures["model"] == 6
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert figures["page_bytes"] == len(page.encode()) < 200_000
    json.dumps(figures, default=dict)


def test_bytes_written_are_those_that_came_into_the_store(nights: Path, tmp_path: Path) -> None:
    def stored() -> int:
        return sum(path.stat().st_size for path in (nights / "parts").rglob("*") if path.is_file())

    before = stored()
    assert api.report(nights)["storage"]["bytes"] == before
    night = write_night(tmp_path / "night3.changes", ["e3\tr1\te40"], [])
    api.nightly(nights, night)
    last = api.report(nights, answers=False)["nights"][-1]
    assert last["bytes_written"] + last["models"][0]["bytes_written"] == pytest.approx(stored() - before, rel=0.1)


def test_the_page_is_well_formed_and_loads_nothing(nights: Path, tmp_path: Path) -> None:
    api.report(nights, tmp_path / "out.html")
    found = assert_self_contained((tmp_path / "out.html").read_text(encoding="utf-8"))
    assert sum(tag == "svg" for tag, _ in found.tags) == sum(tag == "details" for tag, _ in found.tags) >= 8
    for word in ("night2", "What came and went", "Quality", "Was the night learnt?", "Drift", "Every night", "Storage"):
        assert word in found.words
    assert [path.name for path in tmp_path.glob(".*")] == [], "no half-written file is left"


def test_changed_answers_are_those_of_diff(nights: Path) -> None:
    found = api.report(nights)["answers"]
    asked = api.diff(nights, "night1", "night2", answers=True, examples=100)["answers"]
    assert found["models"] == asked["models"] == [4, 6]
    assert found["questions"] == asked["questions"] > found["asked"] == 40
    every = [(line.get("head"), line["relation"], line.get("tail")) for line in asked["examples"]]
    assert {(line.get("head"), line["relation"], line.get("tail")) for line in found["examples"]} <= set(every)
    firsts = [line["before"][0]["entity"] == line["after"][0]["entity"] for line in found["examples"]]
    assert firsts == sorted(firsts), "another best answer comes first"


def test_larger_graphs_are_asked_less(nights: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entities = api.report(nights, answers=False)["entities"]
    monkeypatch.setattr(job, "COMPARED_ROWS", 5 * entities)
    assert api.report(nights)["answers"]["asked"] == 5


def test_a_store_of_one_snapshot_has_a_page(tmp_path: Path) -> None:
    api.ingest(tmp_path / "store", write_lines(tmp_path / "base.tsv", ["a\tr\tb"]))
    figures = api.report(tmp_path / "store", tmp_path / "out.html")
    assert figures["model"] is None and figures["nights"][0]["models"] == []
    words = assert_self_contained((tmp_path / "out.html").read_text(encoding="utf-8")).words
    assert "Nothing is learnt yet" in words and "No night has come yet" in words


def test_a_trained_store_without_nights_has_a_page(store: Path, tmp_path: Path) -> None:
    figures = api.report(store, tmp_path / "out.html")
    assert figures["answers"].notice == "no night was learnt online since the last training"
    assert figures["nights"][0]["models"][0]["is_current"]
    assert_self_contained((tmp_path / "out.html").read_text(encoding="utf-8"))


def test_nothing_held_out_is_said(tmp_path: Path) -> None:
    path = tmp_path / "store"
    api.ingest(path, write_lines(tmp_path / "base.tsv", ["\t".join(t) for t in base_triples()]), valid=0, test=0)
    api.train(path, settings=SMALL)
    api.nightly(path, write_night(tmp_path / "night1.changes", ADDED, []))
    figures = api.report(path, tmp_path / "out.html")
    assert figures["nights"][-1]["models"][0]["record"]["valid"] == {}
    words = assert_self_contained((tmp_path / "out.html").read_text(encoding="utf-8")).words
    assert "the quality is unknown" in words and "Too few held-out triples to measure any drift" in words


def test_labels_and_names_that_are_markup_stay_text(store: Path, tmp_path: Path) -> None:
    night = tmp_path / "night1.changes"
    write_night(night, [f"{HOSTILE}\tr0\te{n}" for n in range(5)] + ["e1\tr0\te3"], ["\t".join(base_triples()[0])])
    api.nightly(store, night, name=HOSTILE)
    more = [f"{HOSTILE}\tr1\te{n}" for n in range(30)]
    api.nightly(store, write_night(tmp_path / "night2.changes", more, []), name=f"{HOSTILE} & 2")
    names = write_lines(tmp_path / "names.tsv", [f"e{n}\t<b>{HOSTILE}" for n in range(60)])
    api.ingest(store, names, format="labels")
    figures = api.report(store, tmp_path / "out.html")
    assert figures["answers"]["examples"], "labels are shown"
    found = assert_self_contained((tmp_path / "out.html").read_text(encoding="utf-8"))
    assert HOSTILE in found.words and f"<b>{HOSTILE}" in found.words


def test_drift_and_what_was_decided(drifted: Path, tmp_path: Path) -> None:
    figures = api.report(drifted, tmp_path / "out.html")
    first, second = (night["models"][0] for night in figures["nights"][1:])
    assert "due" not in first, "one night alone decides nothing"
    assert "validation MRR fell by" in second["due"]
    words = assert_self_contained((tmp_path / "out.html").read_text(encoding="utf-8")).words
    assert "Training is due." in words
    told = api.nightly(drifted, ring_night(tmp_path, 2), settings=["online.on_drift=train", "train.max_epochs=2"])
    last = api.report(drifted)["nights"][-1]["models"][-1]
    assert (last["record"]["origin"], last["promoted"]) == ("scratch", told["train"]["comparison"]["promoted"])
    assert "validation MRR fell by" in last["record"]["why"]


def test_rolled_back_nights_are_marked_and_other_versions_are_told(nights: Path, tmp_path: Path) -> None:
    api.rollback(nights, 4)
    figures = api.report(nights, tmp_path / "out.html")
    assert [night["rolled_back"] for night in figures["nights"]] == [False, False, True]
    assert figures["others"] == [api.log(nights)["versions"][-1]]
    words = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert "night2 (rolled back)" in words and "version 7 went back to version 4" in words


def test_what_gc_frees_is_what_was_said(nights: Path) -> None:
    storage = api.report(nights, answers=False)["storage"]
    (said,) = [line for line in storage["gc"] if line["keep"] == 2]
    done = api.gc(nights, keep=2, grace_hours=0)
    assert (done["bytes"], done["parts"]) == (said["bytes"], said["parts"])
    assert len(done["cleared_versions"]) == said["versions"]
    figures = api.report(nights)
    marked = [some for night in figures["nights"] for some in (night, *night["models"]) if some["cleared"]]
    assert [some["version"] for some in marked] == done["cleared_versions"]
    assert figures["nights"][-1]["models"][0]["record"]["valid"]["triples"] > 0


def test_only_the_newest_nights_are_shown(nights: Path) -> None:
    figures = api.report(nights, nights=1)
    assert [night["snapshot"] for night in figures["nights"]] == ["night2"]
    assert figures["versions_left_out"] == 4
    assert "4 older versions are left out" in render_page(figures)


def test_a_year_of_nights_is_a_page_of_bounded_size(nights: Path) -> None:
    figures = api.report(nights)
    later = [figures.nights[-1].with_(snapshot=f"2026-{n:03}") for n in range(job.NIGHTS)]
    page = render_page(figures.with_(nights=[figures.nights[0], *later]))
    assert len(page) < 3_000_000
    found = assert_self_contained(page)
    assert found.words.count("2026-364") > 5


def test_the_open_store_has_the_same_figures(nights: Path) -> None:
    with dkge_dist.open(nights) as opened:
        assert isinstance(opened, OpenStore)
        one, other = opened.report(answers=False), dkge_dist.report(nights, answers=False)
    for key in one.keys() - {"made", "seconds"}:
        assert one[key] == other[key], key


def test_unless_models_are_asked_nothing_is_read_that_follows_the_graph(nights: Path) -> None:
    """Neither triples nor labels nor vectors: manifests and lists of blocks."""
    store = Store.open(nights)
    models = [store.model_manifest(number).model for number in (2, 4, 6)]
    small = [table.base for model in models for table in tables_of(model)]
    with counted_reads(nights) as reads:
        assert len(api.report(nights, answers=False)["nights"]) == 3
    assert set(reads.parts) <= {part.digest for part in small}
    assert reads.stores == 1


def test_what_cannot_be_told_is_said_in_its_place(nights: Path, tmp_path: Path) -> None:
    entry = Store.open(nights).find_model().model
    digest = entry.entities[Field.JOINT].base.digest
    shutil.move(nights / "parts" / digest[:2] / digest, tmp_path / "away")
    figures = api.report(nights, tmp_path / "out.html")
    assert digest in figures["answers"]["notice"]
    assert digest in (tmp_path / "out.html").read_text(encoding="utf-8")


def test_wrong_calls_are_refused(nights: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--nights 0: at least one is shown"):
        api.report(nights, nights=0)
    with pytest.raises(StoreError, match="no store here yet"):
        api.report(tmp_path / "nowhere")
    with pytest.raises(DkgeError, match="No such file or directory"):
        api.report(nights, tmp_path / "no" / "folder.html", answers=False)


def test_a_night_writes_its_report_and_stands_if_it_cannot(store: Path, tmp_path: Path) -> None:
    night = write_night(tmp_path / "night1.changes", ADDED, [])
    done = api.nightly(store, night, report=tmp_path / "no" / "folder.html")
    assert (done["version"], done["unchanged"]) == (4, False)
    assert re.match(r"the night is done, its report is not: .*folder\.html: No such file", done["report_problem"])
    again = api.nightly(store, night, report=tmp_path / "out.html")
    assert again["unchanged"] is True and again["report"] == str(tmp_path / "out.html")
    assert_self_contained((tmp_path / "out.html").read_text(encoding="utf-8"))


def test_a_store_in_a_bucket_has_a_page(bucket: str, tmp_path: Path) -> None:
    api.ingest(bucket, write_lines(tmp_path / "base.tsv", ["\t".join(t) for t in base_triples()]), valid=20, test=20)
    api.train(bucket, settings=SMALL)
    api.nightly(bucket, write_night(tmp_path / "night1.changes", ADDED, []))
    figures = api.report(bucket, tmp_path / "out.html")
    assert figures["storage"]["bytes"] > 0 and "notice" not in figures["storage"]
    assert figures["nights"][-1]["models"][0]["record"]["valid"]["triples"] > 0
    assert figures["answers"]["asked"] > 0
    assert_self_contained((tmp_path / "out.html").read_text(encoding="utf-8"))
