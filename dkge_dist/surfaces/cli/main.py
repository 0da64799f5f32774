"""The `dkge` command, and what errors become. In: `sys.argv`. Out: an exit code of 0, 1 or 2."""

from __future__ import annotations

import atexit
import gc
import io
import os
import signal
import sys
from typing import Any

INTERRUPTED = 130
"""The code that newer versions of typer return for an interrupt; older ones raise Abort."""


def main() -> None:
    """Run the command; what a user can act on becomes one line on stderr (and in the JSON) and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        # Paths may hold bytes that are not text, and a terminal may lack characters: no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    # Until the commands are there nothing can be left unfinished; an exception amid imports may come out as another.
    handler = signal.getsignal(signal.SIGINT)
    if handler is not signal.SIG_IGN:  # As it is for a command in the background.
        signal.signal(signal.SIGINT, _end_now)
    # Else pydantic looks through all packages that are installed for some that would watch it.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    # At its end Python looks for garbage among all that there is; the memory is free in a moment anyway.
    atexit.register(gc.freeze)
    import typer

    from dkge_dist.surfaces.cli.app import app
    from dkge_dist.types import DkgeError, UsageError

    signal.signal(signal.SIGINT, handler)
    # Click's UsageError, by a name that exists whether typer depends on click or bundles it.
    wrong_usage: Any = typer.BadParameter.__base__
    try:
        code = app(prog_name="dkge", standalone_mode=False)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        sys.stdout.flush()
        sys.exit(code)
    except wrong_usage as error:
        error.show()
        _fail(error.format_message(), error.exit_code, shown=True)
    except DkgeError as error:
        _fail(str(error), 2 if isinstance(error, UsageError) else 1)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", 1)
    except BrokenPipeError:
        # The reader of our output has closed it; Python must not try to flush the rest at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)


def _fail(message: str, code: int, shown: bool = False) -> None:
    from dkge_dist.surfaces.cli.output import print_json

    if "--json" in sys.argv:
        print_json({"error": message})
    if not shown:
        print(f"dkge: {message}", file=sys.stderr)
    sys.exit(code)


def _end_now(number: int, frame: Any) -> None:
    print("dkge: interrupted", file=sys.stderr, flush=True)
    os._exit(1)
