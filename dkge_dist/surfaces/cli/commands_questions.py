"""Commands that ask a model: metrics, answers, its evidence, and its vectors for other programs."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from dkge_dist.surfaces.cli.options import Address, Json, ModelVersion, NoEvidence, Quiet, Shards, StoreLocation, Wait
from dkge_dist.surfaces.cli.output import emit, progress_bar
from dkge_dist.surfaces.cli.render.model import render_evaluation, render_fidelity
from dkge_dist.surfaces.cli.render.questions import (
    render_answers,
    render_evidence,
    render_exported,
    render_scores,
    render_similar,
)
from dkge_dist.types import UsageError


def evaluate(
    store: StoreLocation,
    version: ModelVersion = None,
    split: Annotated[Literal["valid", "test"], typer.Option(help="Held-out triples to rank.")] = "test",
    triples: Annotated[
        Path | None, typer.Option(help="Rank the triples of a file instead: head<TAB>relation<TAB>tail lines.")
    ] = None,
    protocol: Annotated[
        Literal["paper", "filtered"], typer.Option(help="paper: train triples do not compete; filtered: no known one.")
    ] = "filtered",
    no_evidence: NoEvidence = False,
    ranks: Annotated[bool, typer.Option("--ranks", help="Also the ranks of every triple.")] = False,
    relations: Annotated[bool, typer.Option("--relations", help="Also a table by relation.")] = False,
    categories: Annotated[bool, typer.Option("--categories", help="Also by 1-1, 1-N, N-1, N-N.")] = False,
    threads: Annotated[int, typer.Option(min=0, help="Threads; 0 means all cores.")] = 0,
    shards: Shards = None,
    address: Address = None,
    wait: Wait = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Link prediction: how high do the true entities of held-out (or given) triples rank?"""
    from dkge_dist.surfaces import api

    with progress_bar("evaluate", quiet) as progress:
        report = api.evaluate(
            store, version=version, split=split, triples=triples, protocol=protocol, evidence=not no_evidence,
            relations=relations, categories=categories, ranks=ranks, threads=threads, shards=shards, address=address,
            wait_seconds=wait, progress=progress,
        )  # fmt: skip
    emit(report, as_json, render_evaluation)


def fidelity(
    store: StoreLocation,
    version: ModelVersion = None,
    began: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="V", help="The snapshot (or date) that the night began with; by default the last."
        ),
    ] = None,
    no_evidence: NoEvidence = False,
    shards: Shards = None,
    address: Address = None,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """What a night learnt: are its added triples believed, its deleted ones not, and the rest as before?"""
    from dkge_dist.surfaces import api

    report = api.fidelity(
        store, version=version, since=began, evidence=not no_evidence, shards=shards, address=address, wait_seconds=wait
    )
    emit(report, as_json, render_fidelity)


def answer(
    store: StoreLocation,
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="HEAD RELATION [TAIL]", help="`?` for what is asked; with --tail only RELATION."),
    ] = None,
    tail: Annotated[str | None, typer.Option(help="Ask for the head of this tail.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many predictions.")] = 10,
    new_only: Annotated[bool, typer.Option("--new-only", help="Leave out what the graph says already.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Tell the evidence of each answer.")] = False,
    no_evidence: NoEvidence = False,
    version: ModelVersion = None,
    batch: Annotated[
        Path | None, typer.Option(help="File of questions: head<TAB>relation<TAB>tail, `?` for what is asked.")
    ] = None,
    shards: Shards = None,
    address: Address = None,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """The best answers to (HEAD, RELATION, ?): known facts first, then predictions; higher scores are better.

    Also (?, RELATION, TAIL) for heads, and (HEAD, ?, TAIL) for relations.
    """
    given = words or []
    if batch is not None:
        is_question = not given and tail is None
    else:
        is_question = len(given) == 1 if tail is not None else len(given) == 2 or (len(given) == 3 and "?" in given)
    if not is_question:
        scored = "; `dkge score` tells how plausible a triple is" if len(given) == 3 else ""
        raise UsageError(f"ask with HEAD RELATION, RELATION --tail T, HEAD '?' TAIL, or --batch FILE{scored}")
    head, relation, end = [None, *given, tail] if tail is not None else [*given, None, None, None][:3]
    _hurry()
    from dkge_dist.surfaces import api

    report = api.answer(
        store, head, relation, tail=end, top=top, new_only=new_only, why=why, evidence=not no_evidence,
        version=version, batch=batch, shards=shards, address=address, wait_seconds=wait,
    )  # fmt: skip
    _emit_batch(report, "questions", batch, as_json, render_answers)


def score(
    store: StoreLocation,
    words: Annotated[list[str] | None, typer.Argument(metavar="HEAD RELATION TAIL", help="A triple.")] = None,
    no_ranks: Annotated[bool, typer.Option("--no-ranks", help="Save a pass over all entities.")] = False,
    no_evidence: NoEvidence = False,
    version: ModelVersion = None,
    batch: Annotated[Path | None, typer.Option(help="File of triples: head<TAB>relation<TAB>tail lines.")] = None,
    shards: Shards = None,
    address: Address = None,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """How plausible triples are: score, ranks among all alternatives, and a calibrated probability."""
    given = words or []
    if len(given) != (0 if batch else 3):
        raise UsageError("name HEAD RELATION TAIL, or --batch FILE")
    _hurry()
    from dkge_dist.surfaces import api

    report = api.score(
        store, *given, ranks=not no_ranks, evidence=not no_evidence, version=version, batch=batch, shards=shards,
        address=address, wait_seconds=wait,
    )  # fmt: skip
    _emit_batch(report, "triples", batch, as_json, render_scores)


def similar(
    store: StoreLocation,
    entity: Annotated[str | None, typer.Argument(metavar="ENTITY")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many entities.")] = 10,
    version: ModelVersion = None,
    batch: Annotated[Path | None, typer.Option(help="File of entities, one a line.")] = None,
    shards: Shards = None,
    address: Address = None,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """The entities whose vectors are nearest to that of ENTITY; higher scores are nearer."""
    if (entity is None) == (batch is None):
        raise UsageError("name an ENTITY, or --batch FILE")
    _hurry()
    from dkge_dist.surfaces import api

    report = api.similar(
        store, entity, top=top, version=version, batch=batch, shards=shards, address=address, wait_seconds=wait
    )
    _emit_batch(report, "entities", batch, as_json, render_similar)


def _hurry() -> None:
    """A question is answered sooner than Python and numba are ready for one; what it does not need is left out."""
    # Python looks for garbage among all that it imports, several times, and there is none. A batch may still make some.
    gc.set_threshold(1_000_000)
    from dkge_dist.kernels.jit import load_minimal

    load_minimal()


def _emit_batch(
    report: dict[str, Any], key: str, batch: Path | None, as_json: bool, show: Callable[[dict[str, Any]], None]
) -> None:
    """Print a report, and on stderr the lines that could not be answered. Failed if that is all of them."""
    failures = [item for item in report.get(key, []) if "error" in item] if batch is not None else []
    nothing = bool(failures) and len(failures) == len(report[key])
    if nothing:
        report = {**report, "error": f"{batch}: none of its {len(failures)} lines can be answered"}
    emit(report, as_json, show)
    for failure in failures:
        print(f"dkge: {batch}, line {failure['line']}: {failure['error']}", file=sys.stderr)
    if nothing:
        print(f"dkge: {report['error']}", file=sys.stderr)
        raise typer.Exit(1)


def evidence(
    store: StoreLocation,
    version: ModelVersion = None,
    relation: Annotated[str | None, typer.Option(help="Only this relation.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many relations and paths that support one.")] = 5,
    as_json: Json = False,
) -> None:
    """What the graph says for answers: what supports each relation, and how strongly each kind of evidence counts."""
    from dkge_dist.surfaces import api

    report = api.evidence_table(store, version=version, relation=relation, top=top)
    emit(report, as_json, render_evidence)


def export(
    store: StoreLocation,
    out: Annotated[Path, typer.Argument(metavar="OUT", help="New folder to write to.")],
    format: Annotated[
        Literal["parquet", "npy", "safetensors", "zarr"], typer.Option(help="Kind of files.")
    ] = "parquet",
    version: ModelVersion = None,
    changed_since: Annotated[
        str | None,
        typer.Option(
            "--since", metavar="V", help="Only what changed since the model of this version: to upsert, to delete."
        ),
    ] = None,
    what: Annotated[Literal["joint", "knowledge", "context"], typer.Option(help="Which vectors.")] = "joint",
    as_json: Json = False,
) -> None:
    """Write the vectors of a model, with their labels, for other programs."""
    from dkge_dist.surfaces import api

    report = api.export(store, out, format=format, version=version, since=changed_since, what=what)
    emit(report, as_json, lambda report: render_exported(report, out))
