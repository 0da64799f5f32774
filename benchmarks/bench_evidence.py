"""What evidence costs in a large graph: questions, a night, memory, and a whole `dkge answer`.

Vectors are random unless --train-seconds says otherwise. Random ones are given up late while ranking, which takes
longer then; evidence does not depend on them.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.movies import store_of
from benchmarks.random_model import publish_random_model
from benchmarks.report import median_seconds, options, publish
from dkge_dist.ask.model import open_model
from dkge_dist.ask.ranks import filter_known, find_evidence, rank_filtered
from dkge_dist.evidence.counts import PathShares, RelationCounts
from dkge_dist.evidence.thinning import ThinnedGraph
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.training_graph import training_graph
from dkge_dist.jobs.update import load_change
from dkge_dist.kernels.csr import incoming, outgoing
from dkge_dist.settings import settings_of_model
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import Split, Triples

IN_ITS_OWN_PROCESS = """
import json, sys
from pathlib import Path
from dkge_dist.surfaces import api
report = api.evaluate(sys.argv[1], version=sys.argv[2], triples=sys.argv[3], evidence=sys.argv[4] == "with")
status = Path("/proc/self/status").read_text().splitlines()
peak = next(line.split()[1] for line in status if line.startswith("VmHWM"))
print(json.dumps({"seconds": report["seconds"], "peak_gb": 1024 * int(peak) / 1e9}))
"""
"""Prints the peak memory of an evaluation alone."""


def model_of(path: Path, dim: int, seconds: float, settings: list[str]) -> str:
    """The version of a model of the first snapshot: the one that is there, or a random or briefly trained one."""
    for line in api.log(path)["versions"]:
        if line["kind"] == "model":
            return str(line["version"])
    words = [f"model.dim={dim}", *settings]
    if not seconds:
        return str(publish_random_model(Store.open(path), 1, words))
    words += [f"train.max_seconds={seconds}", "train.batch_size=4000"]
    return str(api.train(path, snapshot="1", settings=words)["version"])


def of_questions(path: Path, version: str, triples: Triples, times: int) -> dict[str, float]:
    """Seconds to open evidence, to look for it, and to rank without and with it."""
    opened = open_model(Store.open(path), version)
    began = time.perf_counter()
    evidence = opened.evidence
    opening = time.perf_counter() - began
    assert evidence is not None, "this model was learnt with evidence"
    train, rows = opened.snapshot.triples(Split.TRAIN), opened.names[0].digests.shape[0]
    filtered = filter_known(triples, outgoing(train, rows), incoming(train, rows))
    found = find_evidence(evidence, triples)  # loads the compiled kernels
    embedding = opened.embedding
    rank_filtered(embedding, triples, filtered, found)
    return {
        "opening": opening,
        "evidence": median_seconds(lambda: find_evidence(evidence, triples), times),
        "ranking": median_seconds(lambda: rank_filtered(embedding, triples, filtered), times),
        "ranking_with_evidence": median_seconds(lambda: rank_filtered(embedding, triples, filtered, found), times),
        "candidates": sum(side.candidates.rows.shape[0] for side in found) / (2 * triples.count),
        "truth_has_evidence": sum(float((side.truth != 0).mean()) for side in found) / 2,
    }


def of_a_night(path: Path, version: str, times: int) -> dict[str, float]:
    """Seconds to bring counts and the thinned graph over a night, and to make them from nothing."""
    store = Store.open(path)
    target = store.current_snapshot()
    assert target is not None, "it was ingested"
    change = load_change(store, store.find_model(version), target)
    settings = settings_of_model(change.parent.model.settings)
    limits = WalkLimits.of(settings)
    before = training_graph(change.base, change.digests, settings)
    graph, _, _ = before.after(change.diff, change.target)
    night, digest, relations = change.diff.train, change.digests[0], before.relation_rows
    thinned = (digest, limits.seed, limits.max_neighbours + 1)
    counts, thin = (
        RelationCounts.of(before.topology, before.train, relations),
        ThinnedGraph.of(before.topology, *thinned),
    )
    counts.after(before.topology, graph.topology, night, relations), thin.after(graph.topology, night, digest)
    return {
        "added": night.added.count,
        "deleted": night.deleted.count,
        "hubs": int(thin.hubs.rows.shape[0]),
        "counts_after": median_seconds(
            lambda: counts.after(before.topology, graph.topology, night, relations), times
        ),
        "thinned_after": median_seconds(lambda: thin.after(graph.topology, night, digest), times),
        "paths_after": median_seconds(lambda: PathShares.of(graph.paths), times),
        "counts_from_nothing": median_seconds(lambda: RelationCounts.of(before.topology, before.train, relations), 1),
        "thinned_from_nothing": median_seconds(lambda: ThinnedGraph.of(before.topology, *thinned), 1),
    }  # fmt: skip


def labels_of(path: Path, version: str, triples: Triples) -> list[list[str]]:
    """Triples by labels."""
    entities, relations = open_model(Store.open(path), version).names
    columns = entities.labels(triples.head), relations.labels(triples.relation), entities.labels(triples.tail)
    return [list(row) for row in zip(*columns, strict=True)]


def in_own_process(path: Path, version: str, file: Path, evidence: bool) -> dict[str, float]:
    """Seconds and peak memory of an evaluation."""
    command = [
        sys.executable,
        "-c",
        IN_ITS_OWN_PROCESS,
        str(path),
        version,
        str(file),
        "with" if evidence else "without",
    ]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def answer_seconds(path: Path, version: str, question: list[str], words: list[str], times: int) -> float:
    """A whole `dkge answer`, its start included."""
    command = [
        sys.executable,
        "-m",
        "dkge_dist.surfaces.cli",
        "answer",
        str(path),
        *question,
        "--version",
        version,
        "--json",
        *words,
    ]
    seconds = []
    for _ in range(times):
        began = time.perf_counter()
        subprocess.run(command, check=True, capture_output=True)
        seconds.append(time.perf_counter() - began)
    return median(seconds)


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--preset", default="imdb-13")
    parser.add_argument("--entities", type=int, help="another size of the graph; the preset's by default")
    parser.add_argument("--questions", type=int, default=1000, help="half of them ask for tails, half for heads")
    parser.add_argument("--dim", type=int, default=100)
    parser.add_argument("--train-seconds", type=float, default=0, help="of a short training; 0: random vectors")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--set", dest="settings", nargs="*", default=[], metavar="key=value")
    arguments = parser.parse_args()
    began = time.perf_counter()
    path = store_of(arguments.work, arguments.preset, 1, arguments.entities, max(1, arguments.questions))
    version = model_of(path, arguments.dim, arguments.train_seconds, arguments.settings)
    opened = open_model(Store.open(path), version)
    triples = opened.snapshot.triples(Split.TEST)
    triples = triples.take(slice(0, max(1, arguments.questions // 2)))
    entities = int(opened.snapshot.alive_entities.shape[0])
    questions = of_questions(path, version, triples, arguments.times)
    night = of_a_night(path, version, arguments.times)
    rows = labels_of(path, version, triples)
    file = arguments.work / "bench_evidence.tsv"
    file.write_text("".join("\t".join(row) + "\n" for row in rows), encoding="utf-8")
    processes = {name: in_own_process(path, version, file, name == "with") for name in ("without", "with")}
    asked = rows[0][:2]
    answer_seconds(path, version, asked, ["--why"], 1)  # loads files and compiled kernels
    answers = {
        "with evidence": answer_seconds(path, version, asked, [], arguments.times),
        "with --why": answer_seconds(path, version, asked, ["--why"], arguments.times),
        "vectors alone": answer_seconds(path, version, asked, ["--no-evidence"], arguments.times),
    }
    added = processes["with"]["peak_gb"] - processes["without"]["peak_gb"]
    figures: dict[str, tuple[Any, Any]] = {
        "entities": (entities, ""),
        f"evidence of {2 * triples.count} questions, s": (questions["evidence"], ""),
        "  ranking them by vectors alone, s": (questions["ranking"], ""),
        "  ranking them with evidence that is found, s": (questions["ranking_with_evidence"], ""),
        "  evidence / ranking": (questions["evidence"] / questions["ranking"], ""),
        "  candidates with evidence a question": (questions["candidates"], ""),
        "opening evidence, s": (questions["opening"], ""),
        f"a night of +{night['added']:,} -{night['deleted']:,}: counts, s": (night["counts_after"], ""),
        "  thinned graph, s": (night["thinned_after"], ""),
        "  counts from nothing, s": (night["counts_from_nothing"], ""),
        "  thinned graph from nothing, s": (night["thinned_from_nothing"], ""),
        "peak GB that evidence adds to an evaluation": (added, ""),
        **{f"`dkge answer`, {name}, s": (seconds, "") for name, seconds in answers.items()},
        "seconds of all this": (time.perf_counter() - began, ""),
    }
    result = {"questions": questions, "night": night, "processes": processes, "answers": answers}
    publish("bench_evidence", result, arguments, figures)


if __name__ == "__main__":
    main()
