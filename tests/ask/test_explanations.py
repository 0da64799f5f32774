"""Reasons: each names what is in the graph, and together they weigh what evidence adds to the score."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkge_dist.ask.explanations import EXAMPLES, explain
from dkge_dist.evidence.scores import Evidence
from dkge_dist.evidence.walks import WalkLimits
from dkge_dist.graph.dictionary import Dictionary
from dkge_dist.graph.labels import Labels
from dkge_dist.kernels.evidence.walks import COMPANY, LINK, PATH, SIMILAR
from tests.evidence.building import every_question, limits, questions_of, scored
from tests.strategies import RandomGraph, related_graphs

Names = tuple[Dictionary, Dictionary]


def names_of(rows: int, relations: int) -> Names:
    names = (Dictionary(noun="entity"), Dictionary(noun="relation"))
    names[0].encode(Labels.from_strings([f"e{row}" for row in range(rows)]))
    names[1].encode(Labels.from_strings([f"r{row}" for row in range(relations)]))
    return Dictionary(names[0].grown, "entity"), Dictionary(names[1].grown, "relation")


def reasons_of(evidence: Evidence, question: tuple[int, int, bool], candidate: int, names: Names) -> dict[str, str]:
    found = explain(evidence, questions_of([question]), candidate, names)
    return {reason["kind"]: reason["text"] for reason in found}


@settings(max_examples=50)
@given(graph=related_graphs(max_rows=9, max_triples=30), bounds=limits, seed=st.integers(0, 99))
def test_reasons_add_up_to_the_evidence(graph: RandomGraph, bounds: WalkLimits, seed: int) -> None:
    """And there is a reason of a kind if and only if there is evidence of it, known answers included."""
    evidence = scored(graph.triples, graph.rows, graph.relations, bounds, seed)
    names, rng = names_of(graph.rows, graph.relations), np.random.default_rng(seed)
    asked = every_question(graph)
    for number in rng.integers(0, len(asked), 5):
        question = questions_of([asked[number]])
        for candidate in range(graph.rows):
            found = explain(evidence, question, candidate, names)
            total = sum(reason["weight"] for reason in found)
            assert total == pytest.approx(float(evidence.of(question, np.array([candidate]))[0]), abs=1e-4)
            assert all(reason["text"] for reason in found)
            kinds = {reason["kind"] for reason in found}
            if candidate == asked[number][0]:
                assert kinds == {"self"}
                continue
            values = evidence.graph.of_pairs(question, np.array([candidate]))[0]
            columns = {"link": LINK, "company": COMPANY, "similar": SIMILAR, "path": PATH}
            expected = {kind for kind, column in columns.items() if values[column] > 0}
            assert kinds == ({*expected, "other"} if expected else {"vectors"})
            weights = [reason["weight"] for reason in found if reason["kind"] != "other"]
            assert weights == sorted(weights, reverse=True)


FAMILY = [
    (0, 1, 1), (2, 1, 3), (2, 0, 3), (4, 1, 5), (4, 0, 5), (6, 1, 1), (6, 0, 1),
]  # fmt: skip
"""Relation 0 goes along with relation 1: for two other pairs, and for one of the candidate's own."""


@pytest.mark.parametrize("known", [False, True])
def test_a_link_is_told_with_the_record_of_the_candidate(known: bool) -> None:
    triples = [*FAMILY, *([(0, 0, 1)] if known else [])]
    found = reasons_of(scored(triples, 7, 2), (0, 0, True), 1, names_of(7, 2))
    assert found["link"] == "e0 r1 e1, and of 1 other so linked to e1 1 has r0 with it too"
    found = reasons_of(scored(triples, 7, 2), (1, 0, False), 0, names_of(7, 2))
    assert found["link"] == "e0 r1 e1", "nobody else that it could be compared with"


def test_links_are_one_sentence_with_the_most_reliable_first() -> None:
    triples = [*FAMILY, (0, 2, 1), (2, 2, 1), (3, 2, 1), (1, 3, 0), (6, 2, 1), (4, 2, 5), (5, 3, 4)]
    found = reasons_of(scored(triples, 7, 4), (0, 0, True), 1, names_of(7, 4))
    assert found["link"] == "e0 r1 e1, and of 1 other so linked to e1 1 has r0 with it too; also e1 r3 e0 and e0 r2 e1"
    triples = [(0, 1, 1), (2, 1, 1), (3, 1, 1), (4, 1, 5), (4, 0, 5)]
    found = reasons_of(scored(triples, 6, 2), (0, 0, True), 1, names_of(6, 2))
    assert found["link"] == "e0 r1 e1, but of 2 others so linked to e1 none has r0 with it"


def test_company_similar_answers_and_paths_name_who_they_are() -> None:
    triples = [(0, 1, 1), (2, 1, 1), (2, 0, 3), (0, 0, 4), (4, 2, 5), (3, 2, 5), (6, 1, 7), (7, 2, 8), (6, 0, 8),
               (1, 2, 9)]  # fmt: skip
    evidence, names = scored(triples, 10, 3, WalkLimits(0, 9, 400)), names_of(10, 3)
    found = reasons_of(evidence, (0, 0, True), 3, names)
    assert found["company"] == "e2 shares e1 with e0 and has this answer"
    assert found["similar"] == "the known answer e4 shares e5 with e3"
    assert reasons_of(evidence, (0, 0, True), 9, names)["path"] == "e0 r1 e1, and e1 r2 e9"


WIDE = WalkLimits(0, 20, 400)


def test_companions_are_one_sentence_with_the_strongest_first() -> None:
    """The more others one is joined to, the less it says; who shares two neighbours says more."""
    triples = [(0, 1, 1), (0, 1, 12), (5, 1, 12)]
    triples += [triple for y in range(3, 9) for triple in ((y, 1, 1), (y, 0, 2))]
    triples += [(4, 1, other) for other in range(13, 20)]
    found = reasons_of(scored(triples, 20, 2, WIDE), (0, 0, True), 2, names_of(20, 2))
    named = found["company"].removesuffix(" and 3 more share e1 and e12 with e0 and have this answer").split(", ")
    assert len(named) == EXAMPLES
    assert named[0] == "e5" and "e4" not in named


def test_known_answers_are_one_sentence() -> None:
    triples = [(0, 0, 1), (0, 0, 2)] + [(y, 1, m) for y in (1, 2, 3) for m in range(4, 9)]
    found = reasons_of(scored(triples, 9, 2, WIDE), (0, 0, True), 3, names_of(9, 2))
    assert found["similar"] == "the known answers e1 and e2 share e4, e5, e6 and 2 more with e3"


def test_of_paths_the_most_reliable_is_told() -> None:
    """Relation 0 goes along with the path (1, 2) once and with (3, 4) twice; (5, 5) supports nothing."""
    triples = [(0, 1, 1), (1, 2, 9), (0, 3, 2), (2, 4, 9), (0, 5, 3), (3, 5, 9)]
    triples += [(10, 1, 11), (11, 2, 12), (10, 0, 12)]
    triples += [triple for e in (13, 16) for triple in ((e, 3, e + 1), (e + 1, 4, e + 2), (e, 0, e + 2))]
    found = reasons_of(scored(triples, 19, 6, WIDE), (0, 0, True), 9, names_of(19, 6))
    assert found["path"] == "e0 r3 e2, and e2 r4 e9 (and 1 more such way)"
    found = reasons_of(scored(triples, 19, 6, WIDE), (9, 0, False), 0, names_of(19, 6))
    assert found["path"] == "e2 r4 e9, and e0 r3 e2 (and 1 more such way)"


def test_an_own_loop_is_not_counted_for_itself() -> None:
    evidence, names = scored([(0, 0, 0), (1, 0, 1), (2, 0, 3)], 4, 1), names_of(4, 1)
    assert reasons_of(evidence, (0, 0, True), 0, names) == {"self": "1 entities have r0 to themselves"}
    assert reasons_of(evidence, (3, 0, True), 3, names) == {"self": "2 entities have r0 to themselves"}


def test_who_has_no_evidence_is_an_answer_by_its_vector() -> None:
    found = reasons_of(scored(FAMILY, 8, 2), (0, 0, True), 7, names_of(8, 2))
    assert found == {"vectors": "nothing in the graph says so: by its vector alone"}
