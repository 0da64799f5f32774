"""Are probabilities right? Of held-out triples that they were not fitted on, against triples with another end.

Those of the half of validation that the weights of evidence were fitted on, and test triples, which nothing saw.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.movies import store_of
from benchmarks.report import options, publish
from dkge_dist.ask.calibration import corrupt, expected_error
from dkge_dist.ask.model import Model, open_model
from dkge_dist.ask.scores import score_triples
from dkge_dist.evidence.fit import fitting_half
from dkge_dist.kernels.triples import canonical
from dkge_dist.store.store import Store
from dkge_dist.surfaces import api
from dkge_dist.types import Array, Split, Triples

SEED = 1


def quality(chance: Array, is_true: Array, weight: Array) -> dict[str, float]:
    """Weighted, so that half of the triples are true."""
    safe = np.clip(chance, 1e-9, 1 - 1e-9)
    loss = -np.where(is_true, np.log(safe), np.log(1 - safe))
    # Bins need whole triples: as many corrupted ones as there are true ones.
    count = int(is_true.sum())
    some = np.concatenate([np.flatnonzero(is_true), np.flatnonzero(~is_true)[:count]])
    return {
        "brier": float(np.average((chance - is_true) ** 2, weights=weight)),
        "log_loss": float(np.average(loss, weights=weight)),
        "accuracy": float(np.average((chance > 0.5) == is_true, weights=weight)),
        "expected_calibration_error": expected_error(chance[some], is_true[some]),
    }


def measure(model: Model, triples: Triples, with_evidence: bool) -> dict[str, float]:
    """The quality of probabilities by relation, and of one curve for all of them."""
    snapshot = model.snapshot
    known = canonical(Triples.concat([snapshot.triples(split) for split in Split]))
    rng = np.random.default_rng(SEED)
    wrong, _ = corrupt(triples, snapshot.triples(Split.TRAIN), known, rng)
    wrong = wrong.take(rng.permutation(wrong.count))
    evidence = model.evidence if with_evidence else None
    scores = np.concatenate([score_triples(model.embedding, some, evidence) for some in (triples, wrong)])
    relation = np.concatenate([triples.relation, wrong.relation])
    is_true = np.arange(scores.shape[0]) < triples.count
    weight = np.where(is_true, 1.0, triples.count / wrong.count)
    calibration = model.calibration(with_evidence)
    assert calibration is not None, "the training had validation triples"
    common = calibration.probability(np.full(relation.shape[0], calibration.relation_R2.shape[0]), scores)
    found = quality(calibration.probability(relation, scores), is_true, weight)
    return {**found, **{f"{name}, one curve": value for name, value in quality(common, is_true, weight).items()}}


def main() -> None:
    parser = options(__doc__ or "")
    parser.add_argument("--entities", type=int, default=20_000)
    parser.add_argument("--held-out", type=int, default=2000)
    parser.add_argument("--settings", nargs="*", default=["train.max_epochs=20", "model.dim=64"])
    arguments = parser.parse_args()
    path = store_of(arguments.work, "imdb-13", entities=arguments.entities, held_out=arguments.held_out)
    if not any(line["kind"] == "model" for line in api.log(path)["versions"]):
        api.train(path, snapshot=1, settings=arguments.settings)
    result: dict[str, Any] = {}
    model = open_model(Store.open(path))
    valid = model.snapshot.triples(Split.VALID)
    digests = (model.names[0].digests, model.names[1].digests)
    other_half = valid.take(np.flatnonzero(fitting_half(valid, digests)))
    for name, triples in (("other half", other_half), ("test", model.snapshot.triples(Split.TEST))):
        for way, with_evidence in (("with evidence", True), ("by vectors", False)):
            result[f"{name}, {way}"] = measure(model, triples, with_evidence)
    figures = {
        f"{name}, {way}: {metric}": (result[f"{name}, {way}"][metric], "")
        for name in ("other half", "test")
        for way in ("with evidence", "by vectors")
        for metric in ("accuracy", "brier", "expected_calibration_error", "expected_calibration_error, one curve")
    }
    publish("bench_calibration", result, arguments, figures)


if __name__ == "__main__":
    main()
