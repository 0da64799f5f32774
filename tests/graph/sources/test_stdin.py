"""Standard input is read as a file is, though it can be read once; the command reads it in `tests/cli`."""

from __future__ import annotations

import gzip
import lzma
import os
import threading
from collections.abc import Callable, Iterator

import pytest

from dkge_dist.graph.sources import files
from dkge_dist.graph.sources.base import SourceError
from dkge_dist.graph.sources.detect import open_source
from dkge_dist.graph.sources.files import STDIN
from tests.graph.sources.reading import GOOD, refusal, triples
from tests.graphs import Labelled, lines

MANY: list[Labelled] = [(f"head{i * 7919}", "r", f"tail{i * 104729}") for i in range(20_000)]


@pytest.fixture
def piped(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[bytes], None]]:
    """Whatever is given comes through a pipe, in small pieces."""
    read, write = os.pipe()
    threads = []

    def feed(content: bytes) -> None:
        def run() -> None:
            with os.fdopen(write, "wb", buffering=0) as pipe:
                for start in range(0, len(content), 1000):
                    pipe.write(content[start : start + 1000])

        kept = [bytearray()]
        monkeypatch.setattr(files, "open_stdin", lambda: files.BufferedReader(files.StandardInput(kept, read)))
        threads.append(threading.Thread(target=run))
        threads[0].start()

    yield feed
    threads[0].join()
    os.close(read)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress], ids=["plain", "gzip", "xz"])
def test_a_pipe_is_detected_and_read_whole(piped: Callable[[bytes], None], pack: Callable[[bytes], bytes]) -> None:
    piped(pack(("h\tr\tt\n" + lines(MANY)).encode()))
    source = open_source(STDIN)
    assert (source.format, source.name) == ("tsv", "stdin")
    assert triples(source) == MANY


def test_what_was_let_go_cannot_be_read_again(piped: Callable[[bytes], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "STDIN_KEPT_BYTES", 100_000)
    piped(lines(MANY).encode())
    source = open_source(STDIN)
    assert triples(source) == MANY
    with pytest.raises(SourceError, match="was read already"):
        triples(source)


def test_errors_name_the_line(piped: Callable[[bytes], None]) -> None:
    piped((lines(GOOD) + "a\tb\n").encode())
    assert refusal(open_source(STDIN)) == "-:4: 2 columns instead of 3: 'a\\tb'"


def test_nothing_is_refused(piped: Callable[[bytes], None]) -> None:
    piped(b"")
    with pytest.raises(SourceError, match=r"^-: empty, no triples in it$"):
        open_source(STDIN)


def test_parquet_needs_a_file(piped: Callable[[bytes], None]) -> None:
    piped(b"PAR1 and so on")
    assert refusal(open_source(STDIN)) == "-: Parquet is not read from a pipe; give the file"
