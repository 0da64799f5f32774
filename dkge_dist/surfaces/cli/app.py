"""The commands of `dkge`, each made of its request. Heavy modules are imported when one runs: `--help` answers at once.

In: the words of a command line. Out: a report, as JSON or as text, and how the command ends.
"""

from __future__ import annotations

import gc
import inspect
import os
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import MISSING, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from dkge_dist.surfaces.cli.output import emit, progress_bar, stop_requested
from dkge_dist.surfaces.cli.render import graph, history, model, questions, settings
from dkge_dist.surfaces.http.options import Serve
from dkge_dist.surfaces.requests import graphs as ask_graphs
from dkge_dist.surfaces.requests import history as ask_history
from dkge_dist.surfaces.requests import learning as ask_learning
from dkge_dist.surfaces.requests import questions as ask_questions
from dkge_dist.surfaces.requests import settings as ask_settings
from dkge_dist.surfaces.requests.fields import Option, Request, options_of

Report = dict[str, Any]

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


def _nothing(report: Report) -> None:
    """For commands that tell while they run."""


@dataclass(frozen=True)
class Command:
    """How the report of a request is shown.

    `also` are fields that `show` takes beside it. `batch` is the key of what a batch of questions gives. `is_failure`
    says whether the command failed all the same.
    """

    request: type[Request[Any]]
    show: Callable[..., None]
    also: tuple[str, ...] = ()
    batch: str | None = None
    is_failure: Callable[[Report], bool] = lambda report: False


COMMANDS = {
    "synth": Command(ask_graphs.Synth, graph.render_synthesised, ("out",)),
    "ingest": Command(ask_graphs.Ingest, graph.render_ingested),
    "log": Command(ask_history.VersionLog, history.render_log),
    "diff": Command(ask_graphs.Diff, graph.render_diff),
    "check": Command(ask_history.Check, history.render_checked, is_failure=lambda report: not report["ok"]),
    "train": Command(ask_learning.Train, model.render_trained),
    "update": Command(ask_learning.Update, model.render_update),
    "nightly": Command(ask_learning.Nightly, model.render_night),
    "report": Command(ask_history.NightReport, history.render_reported),
    "rollback": Command(ask_history.Rollback, history.render_rolled_back),
    "alias": Command(ask_history.Alias, history.render_aliases),
    "gc": Command(ask_history.Collect, history.render_cleared),
    "evaluate": Command(ask_questions.Evaluate, model.render_evaluation),
    "fidelity": Command(ask_questions.Fidelity, model.render_fidelity),
    "answer": Command(ask_questions.Answer, questions.render_answers, batch="questions"),
    "score": Command(ask_questions.Score, questions.render_scores, batch="triples"),
    "similar": Command(ask_questions.Similar, questions.render_similar, batch="entities"),
    "evidence": Command(ask_questions.EvidenceTable, questions.render_evidence),
    "export": Command(ask_questions.Export, questions.render_exported, ("out",)),
    "settings": Command(ask_settings.ExplainSettings, settings.render_settings),
    "serve": Command(Serve, _nothing),
}
"""In this order in `dkge --help`."""


def _run(name: str, command: Command, given: dict[str, Any]) -> None:
    """Run a command with what the command line says."""
    as_json, quiet, words = given.pop("as_json"), given.pop("quiet", False), given.pop("words", None)
    known = {field.name for field in fields(command.request)}
    values = {key: value for key, value in given.items() if value is not None}
    for key, option in options_of(command.request).items():
        if option.off is not None:
            values[key] = not values[key]
    if command.request.positional is not None:
        values = command.request.from_words(words or [], values)
    if command.batch is not None:
        _hurry()
    if "listens" in known:
        values["listens"] = partial(_listens, as_json)
    with ExitStack() as during:
        if "progress" in known:
            values["progress"] = during.enter_context(progress_bar(name, quiet))
        if "stop" in known:
            values["stop"] = during.enter_context(stop_requested())
        report = command.request(**values).run()
    if command.batch is not None and "batch" in values:
        _emit_batch(report, command, values["batch"], as_json)
    elif report is not None:
        emit(report, as_json, lambda report: command.show(report, *(values[key] for key in command.also)))
        if command.is_failure(report):
            raise typer.Exit(1)


def _hurry() -> None:
    """A question is answered sooner than Python and numba are ready for one; what it does not need is left out."""
    # Python looks for garbage among all that it imports, several times, and there is none. A batch may still make some.
    gc.set_threshold(1_000_000)
    from dkge_dist.kernels.jit import load_minimal

    load_minimal()


def _listens(as_json: bool, report: Report) -> None:
    emit(report, as_json, _nothing)
    sys.stdout.flush()  # A pipe is told at once where to ask.
    print(f"dkge serve: {report['url']} (Ctrl-C ends it)", file=sys.stderr, flush=True)


def _emit_batch(report: Report, command: Command, batch: Path, as_json: bool) -> None:
    """Print a report, and on stderr the lines that could not be answered. Failed if that is all of them."""
    results = report.get(str(command.batch), [])
    failures = [item for item in results if "error" in item]
    nothing = bool(failures) and len(failures) == len(results)
    if nothing:
        report = {**report, "error": f"{batch}: none of its {len(failures)} lines can be answered"}
    emit(report, as_json, command.show)
    for failure in failures:
        print(f"dkge: {batch}, line {failure['line']}: {failure['error']}", file=sys.stderr)
    if nothing:
        print(f"dkge: {report['error']}", file=sys.stderr)
        raise typer.Exit(1)


def _parameter(name: str, option: Option, default: Any, kind: Any) -> inspect.Parameter:
    """A field of a request as typer takes it."""
    default = default if option.default is ... else option.default
    default = inspect.Parameter.empty if default is MISSING else None if default == () else default
    if option.words is not None:
        kind = option.words
    elif os.PathLike[str] in get_args(kind):
        kind = Path | None if type(None) in get_args(kind) else Path
    elif {str, int} <= set(get_args(kind)):
        kind = str | None if type(None) in get_args(kind) else str
    shared: dict[str, Any] = {
        "help": option.help or None,
        "metavar": option.metavar,
        "min": option.at_least,
        "max": option.at_most,
    }
    if option.argument:
        told: Any = typer.Argument(**shared)
    elif option.off is not None:
        flag, shared["help"] = option.off
        told, default = typer.Option(flag, **shared), False
    else:
        flag = f"--{name.replace('_', '-')}"
        # Without names of its own typer would give a flag that is off a second one to turn it off.
        told = typer.Option(*(option.flags or (() if default is True else (flag,))), **shared)
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[kind, told])


def typer_function(name: str, command: Command) -> Callable[..., None]:
    """A function with the parameters of a command, as typer reads them."""
    request = command.request
    kinds = get_type_hints(request)
    parts = {field.name: field for field in fields(request)}
    # Settings are all words that are left when the others have their places.
    options = sorted(options_of(request).items(), key=lambda pair: pair[0] == "settings")
    parameters = [_parameter(key, option, parts[key].default, kinds[key]) for key, option in options]
    if request.positional is not None:
        parameters.insert(1, _parameter("words", request.positional, None, list[str] | None))
    if "progress" in parts:
        parameters.append(_parameter("quiet", Option("Show no progress.", ("--quiet", "-q")), False, bool))
    parameters.append(_parameter("as_json", Option("Print one JSON object.", ("--json",)), False, bool))

    def run(**given: Any) -> None:
        _run(name, command, given)

    run.__doc__ = (request.__doc__ or "").partition("\n\n")[0]
    run.__annotations__ = {}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run


for _name, _command in COMMANDS.items():
    app.command(_name)(typer_function(_name, _command))


@app.command()
def demo(
    folder: Annotated[
        Path | None, typer.Option(help="Where its data stay; .demo by default. An earlier demo is replaced.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """The whole story on a small evolving movie graph, in about two minutes."""
    from dkge_dist.surfaces.cli.demo import run_demo

    emit(run_demo(folder, tell=not as_json, quiet=quiet), as_json, _nothing)
