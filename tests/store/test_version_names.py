"""Versions by date: what a date covers, the search against a slow twin, and a store asked as of a date."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dkge_dist.graph.sources.base import SourceOptions
from dkge_dist.graph.sources.detect import open_source
from dkge_dist.store.history import rollback
from dkge_dist.store.ingest import IngestOptions, ingest
from dkge_dist.store.models import publish_model
from dkge_dist.store.storage import StoreError
from dkge_dist.store.store import Store, moment_of, newest_by
from dkge_dist.surfaces import api
from dkge_dist.types import UsageError
from tests.graphs import movies, write_changes, write_tsv
from tests.store.small_models import publish, saved, some_weights

NOON = datetime(2026, 11, 17, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("2026-11-17", "2026-11-17T23:59:59+00:00"),
        ("2026-11-17T03:00", "2026-11-17T03:00:59+00:00"),
        ("2026-11-17 03:00", "2026-11-17T03:00:59+00:00"),
        ("2026-11-17T03:00:07", "2026-11-17T03:00:07+00:00"),
        ("2026-11-17T03:00Z", "2026-11-17T03:00:59+00:00"),
        ("2026-11-17T03:00+02:00", "2026-11-17T01:00:59+00:00"),
    ],
)
def test_a_date_covers_all_of_what_it_names(text: str, last: str) -> None:
    assert moment_of(text) == datetime.fromisoformat(last)


@pytest.mark.parametrize(
    "text", ["", "night-001", "20261117", "2026-11", "17.11.2026", "2026-11-17T3", "２０２６-11-17"]
)
def test_other_words_are_no_dates(text: str) -> None:
    assert moment_of(text) is None


@pytest.mark.parametrize("text", ["2026-13-01", "2026-02-30", "2026-11-17T25:00"])
def test_impossible_dates_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match=f"'{text}' is no date"):
        moment_of(text)


def test_the_last_day_there_is() -> None:
    assert moment_of("9999-12-31") == datetime.max.replace(microsecond=0, tzinfo=UTC)


@given(st.lists(st.integers(0, 50), max_size=200).map(sorted), st.integers(-1, 51))
def test_search_finds_the_newest_with_few_questions(times: list[int], wanted: int) -> None:
    asked: list[int] = []

    def time_of_version(number: int) -> datetime:
        asked.append(number)
        return NOON + timedelta(hours=times[number - 1])

    slow = max((number for number, hour in enumerate(times, 1) if hour <= wanted), default=0)
    assert newest_by(NOON + timedelta(hours=wanted), len(times), time_of_version) == slow
    assert len(asked) <= len(times).bit_length()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A day each from 2026-11-01 at noon: snapshot, model, night, its model, and a model that did not take over."""
    path, moment = tmp_path / "store", [datetime(2026, 11, 1, 12, 0, 30, tzinfo=UTC)]
    made = Store(path, lambda: moment[0].timestamp())

    def next_day() -> None:
        moment[0] += timedelta(days=1)

    def take(source: Path) -> None:
        ingest(made, open_source(source, "auto", SourceOptions()), IngestOptions())
        next_day()

    take(write_tsv(tmp_path / "base.tsv", movies(60)))
    for number, promoted in ((1, True), (3, True), (3, False)):
        if number == 3 and promoted:
            take(write_changes(tmp_path / "night.changes", movies(4, first=60)))
        publish_model(made, saved(made, some_weights(made), number), 1.0, promoted=promoted)
        next_day()
    return path


class TestStore:
    def test_by_a_date_it_is_what_was_current_then(self, store: Path) -> None:
        opened = Store.open(store)
        days = [f"2026-11-0{day}" for day in range(1, 8)]
        assert [opened.find_snapshot(day).version for day in days] == [1, 1, 3, 3, 3, 3, 3]
        # The model that did not take over was never current.
        assert [opened.find_model(day).version for day in days[1:]] == [2, 2, 4, 4, 4, 4]
        assert [opened.find_version(day) for day in days] == [1, 2, 3, 4, 4, 4, 4]

    def test_a_minute_finds_what_the_log_shows_for_it(self, store: Path) -> None:
        opened = Store.open(store)
        assert opened.find_model("2026-11-04T12:00").version == 4
        assert opened.find_model("2026-11-04 11:59").version == 2
        assert opened.find_model("2026-11-04T14:00+02:00").version == 4

    def test_too_early_a_date_is_an_error_that_names_the_first(self, store: Path) -> None:
        opened = Store.open(store)
        for find in (opened.find_snapshot, opened.find_model, opened.find_version):
            with pytest.raises(
                StoreError, match="nothing was published by 2026-10-31; version 1 is of 2026-11-01 12:00:30"
            ):
                find("2026-10-31")
        with pytest.raises(StoreError, match="no model at '2026-11-01' yet"):
            opened.find_model("2026-11-01")
        with pytest.raises(UsageError, match="'x': a version number or a date is expected"):
            opened.find_version("x")

    def test_a_snapshot_named_by_a_date_goes_first(self, store: Path, tmp_path: Path) -> None:
        source = write_changes(tmp_path / "2026-11-01.changes", movies(4, first=64))
        opened = Store.open(store)
        ingest(opened, open_source(source, "auto", SourceOptions()), IngestOptions())
        assert opened.find_snapshot("2026-11-01").version == 6
        assert opened.find_model("2026-11-01").version == 4

    def test_a_night_follows_no_date(self, store: Path, tmp_path: Path) -> None:
        """A night that is missing, and would have been named by its date, must not be taken for the current one."""
        source = write_changes(tmp_path / "next.changes", movies(4, first=64))
        with pytest.raises(StoreError, match="no snapshot '2026-11-04'"):
            ingest(Store.open(store), open_source(source, "auto", SourceOptions()), IngestOptions(onto="2026-11-04"))

    def test_rollback_to_a_date(self, store: Path) -> None:
        opened = Store.open(store)
        manifest = rollback(opened, opened.find_version("2026-11-02"))
        assert (manifest.to, manifest.current.snapshot, manifest.current.model) == (2, 1, 2)


def test_set_moved_listed_and_removed(model: Path) -> None:
    assert api.alias(model) == {"aliases": {}}
    assert api.alias(model, "production", 2) == {"aliases": {"production": 2}}
    assert api.alias(model, "first-ever", "first") == {"aliases": {"first-ever": 2, "production": 2}}
    assert api.alias(model, "production", 1)["aliases"]["production"] == 1
    assert api.alias(model, "production", remove=True) == {"aliases": {"first-ever": 2}}
    with pytest.raises(UsageError, match="no alias 'production'; first-ever"):
        api.alias(model, "production", remove=True)
    assert api.check(model)["ok"]


def test_it_stands_wherever_a_version_may(model: Path) -> None:
    api.alias(model, "production", 2)
    store = Store.open(model)
    assert store.find_model("production").version == 2
    assert store.find_snapshot("production").version == 1
    assert store.find_version("production") == 2
    assert api.rollback(model, "production")["to"] == 2
    assert api.diff(model, "first", "production")["added"] == 0


@pytest.mark.parametrize("name", ["", "2", "2030-01-31", "../x", "a/b", ".hidden", "a.json", "ä", "a" * 65, "a\n"])
def test_names_that_are_refused(model: Path, name: str) -> None:
    with pytest.raises(UsageError, match="alias"):
        api.alias(model, name, 2)
    assert api.alias(model) == {"aliases": {}}


def test_versions_that_are_refused(model: Path) -> None:
    with pytest.raises(StoreError, match="no version 3"):
        api.alias(model, "production", 3)
    with pytest.raises(StoreError, match="no snapshot 'none'"):
        api.alias(model, "production", "none")
    with pytest.raises(UsageError, match="a snapshot has this name"):
        api.alias(model, "first", 2)
    with pytest.raises(UsageError, match="name an alias"):
        api.alias(model, "production")
    with pytest.raises(UsageError, match="name an alias"):
        api.alias(model, remove=True)


def test_a_snapshot_gets_no_name_of_an_alias(model: Path, tmp_path: Path) -> None:
    api.alias(model, "production", 2)
    night = write_changes(tmp_path / "production.changes", [("new", "r", "other")], [])
    with pytest.raises(UsageError, match="'production' is taken by an alias"):
        api.ingest(model, night, name="production")
    assert api.ingest(model, night)["name"] == "production-3"


def test_a_damaged_one_is_told(model: Path) -> None:
    api.alias(model, "production", 2)
    (model / "aliases" / "production.json").write_text('{"version": "2"}')
    with pytest.raises(StoreError, match=r"production.json: damaged"):
        Store.open(model).find_model("production")
    assert "production.json: damaged" in api.check(model)["problems"][0]["problem"]
    api.alias(model, "production", 2)
    assert api.check(model)["ok"]
    (model / "aliases" / "production.json").write_text('{"version": 9}')
    assert "pins version 9, which there is not" in api.check(model)["problems"][0]["problem"]


def test_gc_keeps_what_is_pinned(model: Path, tmp_path: Path) -> None:
    for number in range(4):
        new = [(f"new{number}", "r", f"other{number}")]
        api.ingest(model, write_changes(tmp_path / f"night{number}.changes", new, []))
        publish(model)
    api.alias(model, "production", 2)
    cleared = api.gc(model, keep=1, grace_hours=0)["cleared_versions"]
    assert cleared and 2 not in cleared and 1 not in cleared
    assert Store.open(model).find_model("production").version == 2
    assert api.check(model)["ok"]
    api.alias(model, "production", remove=True)
    assert 2 in api.gc(model, keep=1, grace_hours=0)["cleared_versions"]
    with pytest.raises(StoreError, match="cleared away"):
        api.alias(model, "production", 2)


def test_no_alias_while_gc_is_at_work(model: Path) -> None:
    with Store.open(model).storage.lease("gc"), pytest.raises(StoreError, match="gc` is at work"):
        api.alias(model, "production", 2)


def test_readers_see_the_old_or_the_new(model: Path) -> None:
    api.alias(model, "production", 1)

    def read(_: int) -> set[int]:
        return {Store.open(model).aliases()["production"] for _ in range(50)}

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(read, number) for number in range(3)]
        for number in range(60):
            api.alias(model, "production", 1 + number % 2)
        assert set().union(*(one.result() for one in found)) <= {1, 2}


def test_in_a_bucket(bucket: str, tmp_path: Path) -> None:
    api.ingest(bucket, write_tsv(tmp_path / "base.tsv", movies(60)), name="first")
    assert api.alias(bucket, "production", "first") == {"aliases": {"production": 1}}
    assert Store.open(bucket).find_snapshot("production").version == 1
    assert api.check(bucket)["ok"]
    assert api.alias(bucket, "production", remove=True) == {"aliases": {}}
