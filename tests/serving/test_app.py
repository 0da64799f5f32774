"""The routes, over loopback: what they say is what the same questions give in Python."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dkge_dist
from dkge_dist.surfaces.http import app
from dkge_dist.surfaces.open_store import OpenStore
from tests.serving.running import Reply, Server

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def opened(served_store: Path) -> Iterator[OpenStore]:
    with dkge_dist.open(served_store) as store:
        yield store


def found(reply: Reply) -> dict[str, Any]:
    assert reply.status == 200, reply.body
    told = reply.json
    assert (told["version"], told["snapshot"]) == (5, "night1")
    assert reply.headers["x-dkge-version"] == "5"
    return told


def test_answers(server: Server, opened: OpenStore) -> None:
    for head, relation, tail in (("e4", "r2", None), (None, "r0", "e9"), ("e4", None, "e9")):
        given = {key: label for key, label in (("head", head), ("relation", relation), ("tail", tail)) if label}
        told = found(server.get("/api/answer", **given, k=3, why="true"))
        expected = opened.answer(head, relation, tail, top=3, why=True)
        assert {key: value for key, value in told["question"].items() if not key.endswith("_name")} == given
        assert [one["label"] for one in told["answers"]] == [one.entity or one.relation for one in expected]
        assert [one["score"] for one in told["answers"]] == [one.score for one in expected]
        assert [one["known"] for one in told["answers"]] == [one.known for one in expected]
        assert [one["rank"] for one in told["answers"]] == [*range(1, len(expected) + 1)]
        assert [one["why"] for one in told["answers"]] == [one.why for one in expected]
        assert told["known_total"] == sum(one.known for one in expected)


def test_what_is_asked_for_may_be_left_blank(server: Server) -> None:
    plain = found(server.get("/api/answer", head="e4", relation="r2"))
    assert found(server.get("/api/answer", head="e4", relation="r2", tail="?")) == plain
    assert found(server.get("/api/answer", head="e4", relation="r2", tail="", new_only="", version="")) == plain
    assert found(server.get("/api/answer", head="The Harbour", relation="Directed By")) == plain


def test_known_facts_may_be_few_or_none(server: Server) -> None:
    every = found(server.get("/api/answer", head="e4", relation="r2"))
    known = [one for one in every["answers"] if one["known"]]
    assert len(known) == every["known_total"] > 1
    one = found(server.get("/api/answer", head="e4", relation="r2", known=1))
    assert [some["known"] for some in one["answers"]][:2] == [True, False]
    assert one["answers"][0] == known[0] and one["known_total"] == every["known_total"]
    new = found(server.get("/api/answer", head="e4", relation="r2", new_only="true"))
    assert not any(some["known"] for some in new["answers"])


def test_probabilities_are_those_of_scores(server: Server) -> None:
    told = found(server.get("/api/answer", head="e4", relation="r2", k=3, probability="true"))
    for one in told["answers"]:
        scored = found(server.get("/api/score", head="e4", relation="r2", tail=one["label"]))
        assert one["probability"] == pytest.approx(scored["probability"], abs=1e-6)


def test_scores_and_similar(server: Server, opened: OpenStore) -> None:
    told = found(server.get("/api/score", head="e4", relation="r2", tail="e9", ranks="true"))
    expected = opened.score("e4", "r2", "e9").to_dict()
    assert {key: told[key] for key in expected} == expected
    near = found(server.get("/api/similar", entity="e4", k=4))
    assert near["similar"] == [
        {"label": one.entity, "score": one.score} | ({"name": one.name} if one.name else {})
        for one in opened.similar("e4", top=4)
    ]


def test_vectors(server: Server, opened: OpenStore) -> None:
    for kind, label in (("entities", "e4"), ("relations", "r2")):
        labels, values = opened.vectors(kind)
        told = found(server.get("/api/vectors", label=label, kind="entity" if kind == "entities" else "relation"))
        assert told["vector"] == pytest.approx(values[labels.index(label)].tolist())


def test_facts_of_an_entity(server: Server, served_store: Path) -> None:
    told = found(server.get("/api/entity", label="e5", limit=1000))
    facts = {(one["head"], one["relation"], one["tail"]) for one in told["facts"]}
    assert told["name"] == "The Harbour Master" and told["total"] == len(told["facts"]) == len(facts)
    assert ("e5", "r9", "e9") in facts and all("e5" in (head, tail) for head, _, tail in facts)
    page = found(server.get("/api/entity", label="e5", limit=2, offset=3))
    assert page["facts"] == told["facts"][3:5] and page["total"] == told["total"]
    before = server.get("/api/entity", label="e5", version=2, limit=1000).json
    assert before["snapshot"] == "base" and ("e5", "r9", "e9") not in {
        tuple(one.values())[:3] for one in before["facts"]
    }


def test_versions_diff_and_fidelity(server: Server, served_store: Path) -> None:
    told = server.get("/api/versions").json
    assert [one["version"] for one in told["versions"]] == [1, 2, 3, 4, 5]
    assert [one["kind"] for one in told["versions"]] == ["snapshot", "model", "names", "snapshot", "model"]
    assert told["current"] == 5 and told["aliases"] == {} and told["total"] == 5
    assert all({"version", "kind", "snapshot", "date"} <= one.keys() for one in told["versions"])
    assert [one["version"] for one in server.get("/api/versions", limit=2).json["versions"]] == [4, 5]
    diff = found(server.get("/api/diff", from_="base", to="night1", limit=2))
    assert (diff["from"], diff["to"], diff["added_total"], diff["deleted_total"]) == ("base", "night1", 6, 3)
    assert len(diff["added"]) == len(diff["deleted"]) == 2
    back = found(server.get("/api/diff", from_=4, to=1))
    assert len(back["deleted"]) == 6 and len(back["added"]) == 3
    some = found(server.request("GET", "/api/diff?from=base&to=night1&about=new1&about=e8&limit=2"))
    assert (some["added_total"], some["deleted_total"], len(some["added"])) == (4, 0, 2)
    assert some["counts"] == diff["counts"]
    few = found(server.get("/api/diff", from_="base", to="night1", about="new2"))
    assert [(one["head"], one["relation"], one["tail"]) for one in few["added"]] == [("new2", "r3", "new1")]
    none = found(server.get("/api/diff", from_="base", to="night1", about="nobody"))
    assert (none["added"], none["deleted"], none["added_total"]) == ([], [], 0)
    many = server.request("GET", "/api/diff?from=base&to=night1" + "&about=e4" * 65)
    assert many.status == 422 and many.error.startswith("about:")
    fidelity = found(server.get("/api/fidelity"))
    assert fidelity["sampled"] and fidelity["added_emerging"]["triples"] > 0
    assert "not learnt online" in server.get("/api/fidelity", version=2).error


def test_other_versions(server: Server, served_store: Path) -> None:
    expected = dkge_dist.answer(served_store, "e4", "r2", version=2)
    for name in ("2", "base", "3"):
        for word in ("version", "as_of"):
            told = server.get("/api/answer", head="e4", relation="r2", **{word: name}).json
            assert (told["version"], told["snapshot"]) == (2, "base")
            assert [one["score"] for one in told["answers"]] == [one["score"] for one in expected["answers"]]
    assert "not both" in server.get("/api/answer", head="e4", relation="r2", version=2, as_of=2).error
    reply = server.get("/api/similar", entity="new1", version=2)
    assert reply.status == 404 and reply.error == "no entity 'new1'"
    assert "there is no model at '1' yet" in server.get("/api/similar", entity="e4", version=1).error


def test_batches(server: Server, opened: OpenStore) -> None:
    batch = [{"head": "e4", "relation": "r2"}, {"head": "nobody", "relation": "r2"}, {"tail": "e9", "relation": "r0"}]
    told = found(server.post("/api/answer", {"batch": batch, "k": 2}))
    assert told["failed"] == 1 and told["results"][1] == {"line": 2, "error": "no entity 'nobody'"}
    for one, asked in ((told["results"][0], ("e4", "r2", None)), (told["results"][2], (None, "r0", "e9"))):
        expected = opened.answer(*asked, top=2)
        assert [some["score"] for some in one["answers"]] == [some.score for some in expected]
    told = found(server.post("/api/score", {"batch": [{"head": "e4", "relation": "r2", "tail": "e9"}, {"head": "e4"}]}))
    assert told["results"][0]["score"] == opened.score("e4", "r2", "e9").score
    assert told["results"][1]["line"] == 2 and told["failed"] == 1
    told = found(server.post("/api/similar", {"batch": ["e4", "nobody"], "k": 2, "as_of": "night1"}))
    assert len(told["results"][0]["similar"]) == 2 and told["results"][1]["error"] == "no entity 'nobody'"


def test_search(server: Server) -> None:
    def search(text: str, **more: Any) -> list[tuple[str, str | None]]:
        told = found(server.get("/api/search", q=text, **more))
        return [(one["label"], one.get("name")) for one in told["results"]]

    assert sorted(search("the harb")) == [("e4", "The Harbour"), ("e5", "The Harbour Master")]
    assert search("THE HARBOUR")[0] == ("e4", "The Harbour")
    assert search("ärg") == search("ÄRG") == [("e9", "Ärger im Hafen")]
    assert search("STRASS") == [("e10", "Straße")]
    assert search("e4")[0] == ("e4", "The Harbour") and len(search("e4", limit=3)) == 3
    assert search("dir", kind="relation") == [("r2", "directed by")]
    assert {label for label, _ in search("r", kind="relation", limit=100)} == {"r0", "r1", "r2", "r3", "r9"}
    assert search("nothing like it") == []
    assert len(search("", limit=5)) == 5
    assert ("new1", None) in search("new")
    assert server.get("/api/search", q="new", version=2).json["results"] == []


def test_pages(server: Server) -> None:
    page = server.get("/docs")
    assert page.status == 200 and b"/api/answer" in page.body
    assert not re.search(rb"(src|href)=.?(https?:)?//", page.body), "nothing is loaded from elsewhere"
    assert "default-src 'none'" in page.headers["content-security-policy"]
    described = server.get("/openapi.json").json
    assert "/api/answer" in described["paths"]
    page = server.get("/")
    if app.EXPLORER.is_file():
        assert page.status == 200 and page.headers["content-type"].startswith("text/html")
    else:
        assert page.status == 404 and "not installed" in page.error


def test_metrics_of_requests_and_of_the_version(server: Server) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    server.get("/api/search", q="e")
    reply = server.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    families = {one.name: one for one in text_string_to_metric_families(reply.body.decode())}
    assert families["dkge_serve_version"].samples[0].value == 5
    assert families["dkge_serve_versions_behind"].samples[0].value == 0
    counts = {
        sample.labels["route"]: sample.value
        for sample in families["dkge_http_request_seconds"].samples
        if sample.name.endswith("_count")
    }
    assert counts["/api/search"] >= 1
    assert families["dkge_nights"].samples[0].value == 1
    assert families["dkge_model_added"].samples[0].value > 0
    groups = {sample.labels["figure"].split(".")[0] for sample in families["dkge_model_fidelity"].samples}
    assert groups >= {"deleted", "kept_far"}


def test_neither_torch_nor_ray_is_loaded(server: Server) -> None:
    for path in ("/api/answer?head=e4&relation=r2&why=true", "/api/score?head=e4&relation=r2&tail=e9&ranks=1",
                 "/api/similar?entity=e4", "/api/fidelity", "/api/diff?from=1&to=4"):  # fmt: skip
        assert server.request("GET", path).status == 200
    mapped = Path(f"/proc/{server.process.pid}/maps").read_text()
    assert "numba" in mapped and "torch" not in mapped and "_raylet" not in mapped


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_gracefully(served_store: Path, number: int) -> None:
    server = Server(served_store)
    assert server.get("/api/answer", head="e4", relation="r2").status == 200
    assert server.end(number) == 0
    assert len(server.said) == 1, server.said
