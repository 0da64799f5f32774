"""The commands of `dkge`. Heavy modules are imported when one of them runs, so that `--help` answers at once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dkge_dist.surfaces.cli.commands_graph import diff, ingest, synth
from dkge_dist.surfaces.cli.commands_history import alias, check, gc, log, report, rollback
from dkge_dist.surfaces.cli.commands_model import nightly, train, update
from dkge_dist.surfaces.cli.commands_questions import answer, evaluate, evidence, export, fidelity, score, similar
from dkge_dist.surfaces.cli.commands_serving import serve
from dkge_dist.surfaces.cli.options import Json, Quiet
from dkge_dist.surfaces.cli.output import emit

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Embeddings of knowledge graphs that change every night.",
)


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from dkge_dist import __version__

        print(__version__)
        raise typer.Exit


def demo(
    folder: Annotated[
        Path | None, typer.Option(help="Where its data stay; .demo by default. An earlier demo is replaced.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """The whole story on a small evolving movie graph, in about two minutes."""
    from dkge_dist.surfaces.cli.demo import run_demo

    emit(run_demo(folder, tell=not as_json, quiet=quiet), as_json, lambda report: None)


# In this order in `dkge --help`.
for _command in (
    synth, ingest, log, diff, check, train, update, nightly, report, rollback, alias, gc, evaluate, fidelity, answer,
    score, similar, evidence, export, serve, demo,
):  # fmt: skip
    app.command()(_command)
