"""Link prediction of models learnt from scratch: the default preset over several seeds, and the published method.

Test figures are reported, never chosen by: settings were tuned on validation alone.
"""

from __future__ import annotations

import statistics
import sys
from typing import Any

from benchmarks.published import TIME_LIMIT, add_source, published_store, trained
from benchmarks.report import options, publish
from dkge_dist import api

METRICS = ("mrr", "hits@1", "hits@3", "hits@10", "mr")
ASKED = {"mrr": ">= 0.460 (aim 0.50)", "hits@10": ">= 0.545", "hits@1": ">= 0.411", "hits@3": "", "mr": ""}


def learnt(store: Any, preset: str, settings: list[str]) -> dict[str, Any]:
    """Train one model and evaluate it."""
    done = trained(store, "snapshot1", preset, settings)
    version = str(done["version"])
    test = api.evaluate(store, version=version, relations=True, categories=True)
    kept = {name: done[name] for name in ("epochs", "seconds", "triples_per_second", "valid")}
    filtered = api.evaluate(store, version=version, protocol="filtered")
    return {
        "settings": settings,
        **kept,
        "test": {name: test[name] for name in METRICS},
        "test_without_train": test["without_train"],
        "test_filtered": {name: filtered[name] for name in METRICS},
        "leaked": test["leaked"],
        "categories": test["categories"],
        "relations": test["relations"][:5],
    }


def main() -> None:
    parser = options(__doc__ or "")
    add_source(parser)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--no-paper", action="store_true", help="leave the published method out")
    parser.add_argument("settings", nargs="*", metavar="key=value", help="settings of the default preset's runs")
    arguments = parser.parse_args()
    store = published_store(arguments)
    runs = []
    for seed in range(1, arguments.seeds + 1):
        runs.append(learnt(store, "default", [f"seed={seed}", TIME_LIMIT, *arguments.settings]))
        print(f"seed {seed}: {runs[-1]['test']} in {runs[-1]['seconds']:.0f} s", file=sys.stderr, flush=True)
    result: dict[str, Any] = {"default": runs}
    figures = {f"{m} (mean of seeds)": (statistics.mean(r["test"][m] for r in runs), ASKED[m]) for m in METRICS}
    figures |= {f"{m} (worst seed)": (min(r["test"][m] for r in runs), ASKED[m]) for m in ("mrr", "hits@1", "hits@10")}
    figures |= {
        f"{m}, protocol filtered (mean of seeds)": (statistics.mean(r["test_filtered"][m] for r in runs), "")
        for m in METRICS
    }
    figures["seconds (slowest)"] = (max(r["seconds"] for r in runs), "<= 1800")
    if not arguments.no_paper:
        same = f"train.max_seconds={round(max(r['seconds'] for r in runs))}"
        result["paper"] = learnt(store, "paper", ["seed=1", same])
        figures["mrr of the paper preset in the same time"] = (result["paper"]["test"]["mrr"], "reported")
    publish("bench_quality", result, arguments, figures)


if __name__ == "__main__":
    main()
