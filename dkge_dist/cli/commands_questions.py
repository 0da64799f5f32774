"""Commands that ask a model: metrics, answers, its evidence, and its vectors for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from dkge_dist.cli.options import Address, Json, ModelVersion, NoEvidence, Quiet, Shards, StoreLocation, Wait
from dkge_dist.cli.output import emit, progress_bar
from dkge_dist.cli.render import render_answers, render_evaluation, render_evidence, render_exported, render_fidelity
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
    ranks: Annotated[bool, typer.Option("--ranks", help="Also the ranks of every triple (in the JSON).")] = False,
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
    from dkge_dist import api

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
    from dkge_dist import api

    report = api.fidelity(
        store, version=version, since=began, evidence=not no_evidence, shards=shards, address=address, wait_seconds=wait
    )
    emit(report, as_json, render_fidelity)


def answer(
    store: StoreLocation,
    words: Annotated[
        list[str] | None, typer.Argument(metavar="HEAD RELATION", help="With --tail only RELATION.")
    ] = None,
    tail: Annotated[str | None, typer.Option(help="Ask for the head of this tail.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many predictions.")] = 10,
    new_only: Annotated[bool, typer.Option("--new-only", help="Leave out what the graph says already.")] = False,
    why: Annotated[bool, typer.Option("--why", help="Tell the evidence of each answer.")] = False,
    no_evidence: NoEvidence = False,
    version: ModelVersion = None,
    batch: Annotated[Path | None, typer.Option(help="File of questions, `?` for what is asked.")] = None,
    shards: Shards = None,
    address: Address = None,
    wait: Wait = None,
    as_json: Json = False,
) -> None:
    """The best answers to (HEAD, RELATION, ?): known facts first, then predictions; higher scores are better."""
    from dkge_dist import api
    from dkge_dist.kernels.jit import load_without_blas

    given = words or []
    if len(given) != (0 if batch else 1 if tail is not None else 2):
        raise UsageError("ask with HEAD RELATION, with RELATION --tail T, or with --batch FILE")
    head, relation = (None, None) if batch else (None, given[0]) if tail is not None else (given[0], given[1])
    load_without_blas()
    report = api.answer(
        store, head, relation, tail=tail, top=top, new_only=new_only, why=why, evidence=not no_evidence,
        version=version, batch=batch, shards=shards, address=address, wait_seconds=wait,
    )  # fmt: skip
    emit(report, as_json, render_answers)


def evidence(
    store: StoreLocation,
    version: ModelVersion = None,
    relation: Annotated[str | None, typer.Option(help="Only this relation.")] = None,
    top: Annotated[int, typer.Option(min=1, help="How many relations and paths that support one.")] = 5,
    as_json: Json = False,
) -> None:
    """What the graph says for answers: what supports each relation, and how strongly each kind of evidence counts."""
    from dkge_dist import api

    report = api.evidence_table(store, version=version, relation=relation, top=top)
    emit(report, as_json, render_evidence)


def export(
    store: StoreLocation,
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
    emit(report, as_json, lambda report: render_exported(report, out))
