"""A store whose labels and names are hostile, and a browser to look at its pages with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dkge_dist.surfaces import api
from tests.browser import Page, open_browser
from tests.jobs.building import SMALL, base_triples, write_lines, write_night

HOSTILE = "<img src=x onerror=\"document.title='hacked'\"><script>document.title='hacked'</script>"
"""A label that does something if it is taken for markup."""


@pytest.fixture(scope="session")
def hostile_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and two nights with a hostile entity, all names hostile: models are versions 2, 4 and 6."""
    folder = tmp_path_factory.mktemp("hostile")
    store = folder / "store"
    base = ["\t".join(triple) for triple in base_triples()]
    api.ingest(store, write_lines(folder / "base.tsv", base), valid=20, test=20)
    api.train(store, settings=SMALL)
    for number in (1, 2):
        added = [f"{HOSTILE}\tr{number}\te{n}" for n in range(8)] + [f"e{n}\tr0\te{n + number}" for n in range(20)]
        night = write_night(
            folder / f"night{number}.changes", sorted(set(added) - set(base)), base[number : number + 3]
        )
        api.nightly(store, night, name=f"night{number} {HOSTILE}")
    names = [f"e{n}\tEntity {n} {HOSTILE}" for n in range(60)]
    api.ingest(store, write_lines(folder / "names.tsv", names), format="labels")
    return store


@pytest.fixture
def page(tmp_path: Path) -> Iterator[Page]:
    with open_browser(tmp_path / "profile") as opened:
        yield opened
