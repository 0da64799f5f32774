"""The commands. Heavy modules are imported when a command runs, so that `--help` answers at once."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dkge_dist.cli.output import emit, print_json, progress_bar, stop_requested
from dkge_dist.cli.render import (
    in_words,
    render_answers,
    render_diff,
    render_evaluation,
    render_ingested,
    render_log,
    render_night,
    render_trained,
    render_update,
)
from dkge_dist.types import DkgeError, UsageError

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Embeddings of knowledge graphs that change every night.",
)

# Click's UsageError, by a name that is there whether typer stands on click or has it inside.
WRONG_USAGE: Any = typer.BadParameter.__base__
INTERRUPTED = 130
"""What newer typers make of an interrupt; older ones abort."""

StorePath = Annotated[Path, typer.Argument(metavar="STORE", help="The store: a folder.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Onto = Annotated[
    str | None, typer.Option(metavar="V", help="Refuse unless this snapshot (name or version) is the one in force.")
]
Since = Annotated[
    str | None, typer.Option(metavar="V", help="Start from the model of this version: several nights at once.")
]


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False) -> None:
    if version:
        from dkge_dist import __version__

        print(__version__)
        raise typer.Exit


@app.command()
def synth(
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write to.")],
    preset: Annotated[str, typer.Option(help="demo, imdb-30 or imdb-13.")] = "demo",
    entities: Annotated[int | None, typer.Option(help="Entities instead of the preset's.")] = None,
    triples: Annotated[int | None, typer.Option(help="Triples instead of the preset's.")] = None,
    nights: Annotated[int | None, typer.Option(help="Nights instead of the preset's.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another seed gives another graph.")] = None,
    full: Annotated[bool, typer.Option("--full", help="Write every night as a whole snapshot too.")] = False,
    as_json: Json = False,
) -> None:
    """Write a synthetic evolving movie graph: a snapshot, and nights of changes."""
    from dkge_dist import api

    with progress_bar("synth", as_json) as progress:
        report = api.synth(
            out, preset, entities=entities, triples=triples, nights=nights, seed=seed, full=full, progress=progress
        )
    emit(report, as_json, lambda r: print(f"{out}: {in_words(r)}"))


@app.command()
def ingest(
    store: StorePath,
    source: Annotated[
        Path, typer.Argument(metavar="SOURCE", help="File or folder to read; `apt` with --format debian.")
    ],
    format: Annotated[
        str, typer.Option(help="auto, tsv, openke, ntriples, parquet, imdb, debian or changes.")
    ] = "auto",
    name: Annotated[str | None, typer.Option(help="Name of the snapshot; the source's by default.")] = None,
    valid: Annotated[int | None, typer.Option(help="Triples to hold out for validation.")] = None,
    test: Annotated[int | None, typer.Option(help="Triples to hold out for test.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Take a source that looks wrong.")] = False,
    max_bad_lines: Annotated[int, typer.Option(min=0, help="Bad lines to set aside before giving up.")] = 0,
    onto: Onto = None,
    released_after: Annotated[int | None, typer.Option(help="imdb: only titles released after this year.")] = None,
    key: Annotated[Literal["id", "name"], typer.Option(help="imdb: what identifies titles and people.")] = "id",
    literals: Annotated[bool, typer.Option(help="ntriples: take literals as entities.")] = True,
    as_json: Json = False,
) -> None:
    """Read a source into the next snapshot of STORE (made if it does not exist)."""
    from dkge_dist import api

    with progress_bar("ingest", as_json) as progress:
        report = api.ingest(
            store, source, format=format, name=name, valid=valid, test=test, force=force, max_bad_lines=max_bad_lines,
            onto=onto, released_after=released_after, key=key, literals=literals, progress=progress,
        )  # fmt: skip
    emit(report, as_json, render_ingested)


@app.command()
def log(store: StorePath, as_json: Json = False) -> None:
    """Show the versions of STORE."""
    from dkge_dist import api

    emit(api.log(store), as_json, render_log)


@app.command()
def diff(
    store: StorePath,
    old: Annotated[str, typer.Argument(metavar="A", help="Snapshot: its name or version number.")],
    new: Annotated[str, typer.Argument(metavar="B", help="Snapshot: its name or version number.")],
    settings: Annotated[list[str] | None, typer.Argument(metavar="key=value", help="With --affected.")] = None,
    examples: Annotated[int, typer.Option(min=0, help="Changed triples to show on each side.")] = 5,
    affected: Annotated[bool, typer.Option("--affected", help="Also tell who is affected.")] = False,
    config: Annotated[Path | None, typer.Option(help="YAML file of settings.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the train triples as a change file.")] = None,
    as_json: Json = False,
) -> None:
    """What changed from snapshot A to snapshot B."""
    from dkge_dist import api

    report = api.diff(
        store, old, new, out=out, examples=examples, affected=affected, config=config, settings=settings or ()
    )
    emit(report, as_json, render_diff)


@app.command()
def check(store: StorePath, as_json: Json = False) -> None:
    """Verify every checksum of STORE and that its parts fit together."""
    from dkge_dist import api

    with progress_bar("check", as_json) as progress:
        report = api.check(store, progress=progress)

    def show(report: dict[str, Any]) -> None:
        for problem in report["problems"]:
            print(f"version {problem['version']}: {problem['problem']}")
        state = "all is well" if report["ok"] else f"{len(report['problems'])} problems"
        print(f"{state}: {report['versions']} versions, {report['parts']} parts, {report['bytes']:,} bytes")

    emit(report, as_json, show)
    if not report["ok"]:
        raise typer.Exit(1)


SettingWords = Annotated[list[str] | None, typer.Argument(metavar="key=value", help="Settings, as in configs/.")]
Config = Annotated[Path | None, typer.Option(help="YAML file of settings.")]
Preset = Annotated[str, typer.Option(help="Start values of the settings: default or paper.")]
Shards = Annotated[
    int | None, typer.Option(min=1, help="Run on Ray, with the entities in so many shards; without it, no Ray is used.")
]
Workers = Annotated[int, typer.Option(min=1, help="With --shards: data-parallel workers that train.")]
Address = Annotated[str | None, typer.Option(help="With --shards: the Ray cluster; one of our own by default.")]
Wait = Annotated[float | None, typer.Option(min=0, metavar="SECONDS", help="With --shards: for room on the cluster.")]
ModelVersion = Annotated[
    str | None, typer.Option("--version", "--as-of", metavar="V", help="The model in force at a version or snapshot.")
]


@app.command()
def train(
    store: StorePath,
    settings: SettingWords = None,
    snapshot: Annotated[str | None, typer.Option(help="Name or version number; the one in force by default.")] = None,
    preset: Preset = "default",
    config: Config = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Do not resume an interrupted training.")] = False,
    tensorboard: Annotated[Path | None, typer.Option(help="Also write metrics for TensorBoard here.")] = None,
    shards: Shards = None,
    workers: Workers = 1,
    address: Address = None,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """Learn a snapshot from scratch. Ctrl-C leaves a checkpoint; the same command goes on from it."""
    from dkge_dist import api

    with progress_bar("train", as_json) as progress, stop_requested() as stop:
        report = api.train(
            store, snapshot=snapshot, preset=preset, config=config, settings=settings or (), fresh=fresh,
            tensorboard=tensorboard, shards=shards, workers=workers, address=address, wait_seconds=wait,
            progress=progress, stop=stop,
        )  # fmt: skip
    emit(report, as_json, render_trained)


@app.command()
def update(
    store: StorePath,
    settings: SettingWords = None,
    to: Annotated[str | None, typer.Option(help="Snapshot to bring the model to; the one in force by default.")] = None,
    since: Since = None,
    plan: Annotated[bool, typer.Option("--plan", help="Show what would be done, and do nothing.")] = False,
    config: Config = None,
    shards: Shards = None,
    address: Address = None,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """Learn online what changed since the snapshot that the model was learnt from."""
    from dkge_dist import api

    with progress_bar("update", as_json) as progress, stop_requested() as stop:
        report = api.update(
            store, to=to, since_version=since, plan=plan, config=config, settings=settings or (), shards=shards,
            address=address, wait_seconds=wait, progress=progress, stop=stop,
        )  # fmt: skip
    emit(report, as_json, render_update)


@app.command()
def nightly(
    store: StorePath,
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="The night: a snapshot or a change file.")],
    settings: SettingWords = None,
    format: Annotated[str, typer.Option(help="As for `dkge ingest`.")] = "auto",
    name: Annotated[str | None, typer.Option(help="Name of the snapshot; the source's by default.")] = None,
    valid: Annotated[int | None, typer.Option(help="Triples to hold out for validation.")] = None,
    test: Annotated[int | None, typer.Option(help="Triples to hold out for test.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Take a source that looks wrong.")] = False,
    max_bad_lines: Annotated[int, typer.Option(min=0, help="Bad lines to set aside before giving up.")] = 0,
    onto: Onto = None,
    since: Since = None,
    config: Config = None,
    shards: Shards = None,
    workers: Workers = 1,
    address: Address = None,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """Ingest, update (or train anew, if the drift policy says so) and evaluate. Run twice, it does nothing twice."""
    from dkge_dist import api

    with progress_bar("nightly", as_json) as progress, stop_requested() as stop:
        report = api.nightly(
            store, source, format=format, name=name, valid=valid, test=test, force=force, max_bad_lines=max_bad_lines,
            onto=onto, since_version=since, config=config, settings=settings or (), shards=shards, workers=workers,
            address=address, wait_seconds=wait, progress=progress, stop=stop,
        )  # fmt: skip
    emit(report, as_json, render_night)


@app.command()
def rollback(
    store: StorePath,
    version: Annotated[int, typer.Argument(metavar="V", help="Version number, as in `dkge log`.")],
    as_json: Json = False,
) -> None:
    """Bring back what was in force at version V. Nothing is lost; this can be rolled back too."""
    from dkge_dist import api

    def show(report: dict[str, Any]) -> None:
        model = f"model {report['model']}" if report["model"] else "no model"
        print(f"version {report['version']}: snapshot {report['snapshot']!r} and {model} are in force again")

    emit(api.rollback(store, version), as_json, show)


@app.command()
def gc(
    store: StorePath,
    keep: Annotated[int, typer.Option(min=1, help="Newest versions to keep, with all that they need.")],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would go.")] = False,
    grace_hours: Annotated[float, typer.Option(min=0, help="Leave younger files alone: a writer may be at work.")] = 24,
    as_json: Json = False,
) -> None:
    """Clear away old versions, and whatever killed writers left behind."""
    from dkge_dist import api

    def show(report: dict[str, Any]) -> None:
        verb = "would free" if dry_run else "freed"
        cleared = ", ".join(str(number) for number in report["cleared_versions"]) or "none"
        print(f"versions cleared: {cleared}")
        print(
            f"  {verb} {report['bytes']:,} bytes in {report['parts']:,} parts, {report['folders']} unfinished folders"
        )

    emit(api.gc(store, keep=keep, dry_run=dry_run, grace_hours=grace_hours), as_json, show)


@app.command()
def evaluate(
    store: StorePath,
    version: ModelVersion = None,
    split: Annotated[Literal["valid", "test"], typer.Option(help="Held-out triples to rank.")] = "test",
    protocol: Annotated[
        Literal["paper", "filtered"], typer.Option(help="paper: train triples do not compete; filtered: no known one.")
    ] = "paper",
    relations: Annotated[bool, typer.Option("--relations", help="Also a table by relation.")] = False,
    categories: Annotated[bool, typer.Option("--categories", help="Also by 1-1, 1-N, N-1, N-N.")] = False,
    threads: Annotated[int, typer.Option(min=0, help="Threads; 0 means all cores.")] = 0,
    shards: Shards = None,
    address: Address = None,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """Link prediction: how high do the true entities of held-out triples rank?"""
    from dkge_dist import api

    report = api.evaluate(
        store, version=version, split=split, protocol=protocol, relations=relations, categories=categories,
        threads=threads, shards=shards, address=address, wait_seconds=wait,
    )  # fmt: skip
    emit(report, as_json, render_evaluation)


@app.command()
def answer(
    store: StorePath,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="HEAD RELATION", help="With --tail only RELATION.")
    ] = None,
    tail: Annotated[str | None, typer.Option(help="Ask for the head of this tail.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many answers.")] = 10,
    version: ModelVersion = None,
    batch: Annotated[Path | None, typer.Option(help="File of questions, `?` for what is asked.")] = None,
    shards: Shards = None,
    address: Address = None,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """The best answers to (HEAD, RELATION, ?), nearest first; `known` ones stand in the graph already."""
    from dkge_dist import api

    given = words or []
    if len(given) != (0 if batch else 1 if tail is not None else 2):
        raise UsageError("ask with HEAD RELATION, with RELATION --tail T, or with --batch FILE")
    head, relation = (None, None) if batch else (None, given[0]) if tail is not None else (given[0], given[1])
    report = api.answer(
        store, head, relation, tail=tail, top=top, version=version, batch=batch, shards=shards, address=address,
        wait_seconds=wait,
    )  # fmt: skip
    emit(report, as_json, render_answers)


@app.command()
def export(
    store: StorePath,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="New folder to write to.")],
    format: Annotated[
        Literal["parquet", "npy", "safetensors", "zarr"], typer.Option(help="Kind of files.")
    ] = "parquet",
    version: ModelVersion = None,
    what: Annotated[Literal["joint", "knowledge", "context"], typer.Option(help="Which vectors.")] = "joint",
    as_json: Json = False,
) -> None:
    """Write the vectors of a model, with their labels, for other programs."""
    from dkge_dist import api

    report = api.export(store, out, format=format, version=version, what=what)
    emit(report, as_json, lambda r: print(f"{out}: {r['what']} vectors of {in_words({k: r[k] for k in _COUNTED})}"))


_COUNTED = ("entities", "relations", "dim")


@app.command()
def demo(
    folder: Annotated[Path | None, typer.Option(help="Keep the data here instead of a temporary folder.")] = None,
    as_json: Json = False,
) -> None:
    """The whole story on a small evolving movie graph."""
    from dkge_dist.cli.demo import run_demo

    emit(run_demo(folder, quiet=as_json), as_json, lambda report: None)


def main() -> None:
    """Run the command; what a user can act on becomes one line on stderr (and in the JSON) and an exit code."""
    for stream in (sys.stdout, sys.stderr):
        # Paths may hold bytes that are no text, and a terminal may lack letters: nothing to fail for.
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
        _fail(error.format_message(), error.exit_code, told=True)
    except DkgeError as error:
        _fail(str(error), 2 if isinstance(error, UsageError) else 1)
    except (typer.Abort, KeyboardInterrupt):
        _fail("interrupted", 1)
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python must not try to flush the rest on its way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error), 1)


def _fail(message: str, code: int, told: bool = False) -> None:
    if "--json" in sys.argv:
        print_json({"error": message})
    if not told:
        print(f"dkge: {message}", file=sys.stderr)
    sys.exit(code)
