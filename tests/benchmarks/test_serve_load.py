"""The judge of a load: what failed, and what is not what the version that it names says."""

from __future__ import annotations

import io
import json
from collections import Counter
from http.client import HTTPConnection
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.bench_serve_load import FAILED, Asked, Seen, _judged, _question

QUESTIONS = [_question(kind, "h", "r", "t") for kind in ("answer", "batch", "search")]


class Said(HTTPConnection):
    """A connection to a server whose answers are their question and their version."""

    def __init__(self, current: str, notice: str = "", spoils: bool = False) -> None:
        self.current, self.notice, self.spoils = current, notice, spoils

    def request(self, method: str, url: str, body: Any = None, headers: Any = None, **_: Any) -> None:  # type: ignore[override]
        path, _, version = url.partition("&version=")
        posted = json.loads(body) if body is not None else {}
        self.version = version or posted.pop("version", self.current)
        self.text = json.dumps([path, posted, "old" if self.spoils else self.version], separators=(",", ":"))

    def getresponse(self) -> Any:
        body = io.BytesIO(self.text.encode() + self.notice.encode())
        status = 503 if self.version == "0" else 200
        return SimpleNamespace(status=status, headers={"x-dkge-version": self.version}, read=body.read)


def seen_by(*connections: Said) -> Seen:
    return Counter((number, *asked.send(some)) for some in connections for number, asked in enumerate(QUESTIONS))


def judged(seen: Seen) -> tuple[int, int]:
    told = _judged(seen, Said("9"), QUESTIONS)
    assert told["requests"] == seen.total()
    return told["failed"], told["answers that mix versions"]


def test_versions_one_after_the_other_are_sound() -> None:
    seen = seen_by(Said("5"), Said("7", notice=',"notice":"a newer one"'))
    assert judged(seen) == (0, 0)
    told = _judged(seen, Said("9"), QUESTIONS)
    assert told["versions that answered"] == 2 and told["different answers"] == 6


def test_what_another_version_says_is_noticed() -> None:
    assert judged(seen_by(Said("5"), Said("7", spoils=True))) == (0, 3)


def test_failures_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert judged(seen_by(Said("5"), Said("0"))) == (3, 0)
    assert "status 503" in capsys.readouterr().err
    assert Asked("/x").send(Said("0")) == (FAILED, 503)
