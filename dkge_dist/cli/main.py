"""The `dkge` command: the list of commands, and what errors become. In: `sys.argv`. Out: an exit code of 0, 1 or 2.

Heavy modules are imported when a command runs, so that `--help` answers at once.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from dkge_dist.cli.commands_graph import diff, ingest, synth
from dkge_dist.cli.commands_history import check, gc, log, rollback
from dkge_dist.cli.commands_model import nightly, train, update
from dkge_dist.cli.commands_questions import answer, evaluate, evidence, export, fidelity
from dkge_dist.cli.options import Json
from dkge_dist.cli.output import emit, print_json
from dkge_dist.types import DkgeError, UsageError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Embeddings of knowledge graphs that change every night.",
)

# Click's UsageError, by a name that exists whether typer depends on click or bundles it.
WRONG_USAGE: Any = typer.BadParameter.__base__
INTERRUPTED = 130
"""The code that newer versions of typer return for an interrupt; older ones raise Abort."""


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from dkge_dist import __version__

        print(__version__)
        raise typer.Exit


def demo(
    folder: Annotated[Path | None, typer.Option(help="Keep the data here instead of a temporary folder.")] = None,
    as_json: Json = False,
) -> None:
    """The whole story on a small evolving movie graph."""
    from dkge_dist.cli.demo import run_demo

    emit(run_demo(folder, quiet=as_json), as_json, lambda report: None)


# In this order in `dkge --help`.
for _command in (
    synth, ingest, log, diff, check, train, update, nightly, rollback, gc, evaluate, fidelity, answer, evidence, export,
    demo,
):  # fmt: skip
    app.command()(_command)


def main() -> None:
    """Run the command; what a user can act on becomes one line on stderr (and in the JSON) and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        # Paths may hold bytes that are not text, and a terminal may lack characters: no reason to fail.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(prog_name="dkge", standalone_mode=False)
        if code == INTERRUPTED:
            raise KeyboardInterrupt
        sys.stdout.flush()
        sys.exit(code)
    except WRONG_USAGE as error:
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
    if "--json" in sys.argv:
        print_json({"error": message})
    if not shown:
        print(f"dkge: {message}", file=sys.stderr)
    sys.exit(code)
