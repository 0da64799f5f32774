"""Tables that do not fit into memory are refused before anything of them is allocated."""

from __future__ import annotations

from pathlib import Path

import pytest

from dkge_dist.surfaces import api
from dkge_dist.tables import initializer as memory
from dkge_dist.tables.initializer import RowInitializer, available_memory, refuse_too_large
from dkge_dist.types import DkgeError
from tests.graphs import movies, write_tsv


def test_what_fits_is_decided_by_vectors_and_state() -> None:
    table = RowInitializer((1,), 1000, 10, 1.0)
    needed = 1000 * 4 * (3 * 10 + 2)
    refuse_too_large([table], needed)
    with pytest.raises(DkgeError, match=r"1,000 vectors of dimension 10 do not fit: .* take a smaller model\.dim"):
        refuse_too_large([table], needed - 1)


def test_it_says_how_much_is_needed_and_how_much_there_is() -> None:
    with pytest.raises(DkgeError, match=r"tables need 159\.5 GB, this machine has 16\.0 GB to give"):
        refuse_too_large([RowInitializer((1,), 3_244_455, 4096, 1.0)], 16 * 10**9)


def test_a_container_may_give_less(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = available_memory()
    assert whole > 1 << 20
    for told, expected in (("1048576\n", 1 << 20), ("max\n", None)):
        (tmp_path / "limit").write_text(told)
        monkeypatch.setattr(memory, "CGROUP", tmp_path / "limit")
        assert expected is None or available_memory() == expected


def test_a_training_that_cannot_fit_allocates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    api.ingest(tmp_path / "store", write_tsv(tmp_path / "base.tsv", movies(200)), valid=4, test=4)
    monkeypatch.setattr(memory, "available_memory", lambda: 1 << 20)
    with pytest.raises(DkgeError, match="vectors of dimension 4096 do not fit"):
        api.train(tmp_path / "store", settings=["model.dim=4096", "train.max_epochs=1"])
