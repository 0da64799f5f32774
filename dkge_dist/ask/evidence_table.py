"""What the evidence of a model says, as a table by relation. In: the arrays of a version. Out: a report.

Everything asked for is kept with the version: neither vectors nor triples are read.
"""

from __future__ import annotations

import time

import numpy as np

from dkge_dist.ask.lookup import labelled, row_of
from dkge_dist.evidence.counts import PathShares, RelationCounts
from dkge_dist.evidence.features import FEATURES
from dkge_dist.evidence.stored import counts_of, paths_of, weights_of
from dkge_dist.evidence.weights import EvidenceWeights
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.kernels.evidence.counts import SAME, split_joint_codes
from dkge_dist.kernels.evidence.lists import LINK_PRIOR
from dkge_dist.kernels.evidence.paths import PATH_PRIOR, split_path_codes
from dkge_dist.settings import settings_of_model
from dkge_dist.store.models import load_arrays
from dkge_dist.store.store import Store
from dkge_dist.types import Array, DkgeError, Report, seconds_since

MEANING = {
    "evidence": "the candidate has any evidence at all",
    "link": "another relation joins the candidate to the entity asked about",
    "confidence": "how reliable that link is (log odds)",
    "company": "others that share a neighbour with the entity have this answer (log)",
    "company_linked": "the same, where there is a link too",
    "similar": "a known answer shares a neighbour with the candidate (log)",
    "similar_linked": "the same, where there is a link too",
    "path": "a two-step path leads to the candidate (log)",
    "unused": "no other pair of the relation has the candidate",
}
"""The features in words, in their order."""

OWN_ENTITY = "score of the entity itself as its answer, by how many of the relation's pairs are self loops; not fitted"


def evidence_table(store: Store, version: str | None, relation: str | None, top: int) -> Report:
    """What supports each relation (or one), at most `top` links and paths, the strongest first; and its weights."""
    began = time.monotonic()
    manifest = store.find_model(version)
    if manifest.model.evidence is None:
        raise DkgeError(
            f"{store}: the model of version {manifest.version} has no evidence: it was learnt with evidence=false or "
            "with the preset `paper`"
        )
    snapshot = store.snapshot_manifest(manifest.model.snapshot)
    names = store.dictionaries(snapshot)[1]
    arrays = load_arrays(store, manifest.model.evidence)
    settings = settings_of_model(manifest.model.settings).evidence
    table = _Table(counts_of(arrays), paths_of(arrays), weights_of(arrays), names, top, settings.self_weight)
    used = table.counts.pairs + table.counts.loops
    if relation is not None:
        rows = [row_of(names, relation)]
        if not used[rows[0]]:
            raise DkgeError(f"{relation!r} has no train triple in snapshot {snapshot.snapshot.name!r}")
    else:
        rows = [row for row in np.argsort(-used, kind="stable").tolist() if used[row]]
    return {
        "version": manifest.version,
        "snapshot": snapshot.snapshot.name,
        "fitted_on": manifest.model.record.evidence_fitted_on,
        "scale": table.weights.scale,
        "relations": [table.of(row) for row in rows],
        "features": MEANING,
        "own_entity": OWN_ENTITY,
        "seconds": seconds_since(began),
    }


class _Table:
    """Counts and weights by relation, with labels."""

    def __init__(
        self,
        counts: RelationCounts,
        paths: PathShares,
        weights: EvidenceWeights,
        names: Dictionary,
        top: int,
        self_weight: float,
    ) -> None:
        self.counts, self.paths, self.weights, self.names, self.top = counts, paths, weights, names, top
        self._self_weight = self_weight
        self._links, self._paths = split_joint_codes(counts.codes), split_path_codes(paths.codes)

    def of(self, relation: int) -> Report:
        """One relation."""
        pairs, loops = (int(column[relation]) for column in (self.counts.pairs, self.counts.loops))
        asked = np.array([relation, relation])
        theta = self.weights.of(asked, np.array([True, False])).tolist()
        return {
            **self._named(relation),
            "pairs": pairs,
            "loops": loops,
            **self._supported_by(relation),
            "weights": {
                side: {feature: round(value, 6) for feature, value in zip(FEATURES, values, strict=True)}
                for side, values in zip(("tail", "head"), theta, strict=True)
            },
            "own_entity": round(self._self_weight * float(np.log((loops + 1) / (pairs + loops + 2))), 6),
        }

    def _supported_by(self, relation: int) -> Report:
        """The relations and the paths that join pairs of this one."""
        at = _run(self._links[0], relation)
        other, direction, joint = self._links[1][at], self._links[2][at], self.counts.joint[at]
        total = self.counts.pairs[other]
        confidence = joint / np.maximum(total, 1)
        links = [
            {
                **self._named(int(other[i])),
                "direction": "same" if direction[i] == SAME else "opposite",
                "confidence": round(float(confidence[i]), 6),
                "pairs": int(joint[i]),
                "of": int(total[i]),
            }
            for i in self._best(joint / (total + LINK_PRIOR), joint)
        ]
        by_path = _run(self._paths[0], relation)
        first, second = self._paths[1][by_path], self._paths[2][by_path]
        support, of = self.paths.support[by_path], self.paths.total[by_path]
        share = support / (of + PATH_PRIOR)
        paths = [
            {
                **self._named(int(first[i]), "first", "first_name"),
                **self._named(int(second[i]), "second", "second_name"),
                "confidence": round(float(share[i]), 6),
                "pairs": int(support[i]),
                "of": int(of[i]),
            }
            for i in self._best(share, support)
        ]
        found = {"links": int(joint.shape[0]), "paths": int(support.shape[0])}
        return {"links": links, "paths": paths, "found": found}

    def _named(self, relation: int, key: str = "relation", name_key: str = "name") -> Report:
        (named,) = labelled(self.names, np.array([relation]), key, name_key)
        return named

    def _best(self, strength: Array, pairs: Array) -> list[int]:
        """Places of the strongest, shrunk where pairs are few; of equally strong ones those with more pairs first."""
        order: list[int] = np.lexsort((-pairs, -strength))[: self.top].tolist()
        return order


def _run(relations: Array, relation: int) -> slice:
    """Where a relation stands in an ascending column."""
    first, last = np.searchsorted(relations, [relation, relation + 1]).tolist()
    return slice(first, last)
