"""Manifests: what was written is read, and everything else is refused by name."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dkge_dist.store.manifest import FORMAT, ModelManifest, parse_manifest, parts_of, sealed
from dkge_dist.store.storage import StoreError
from dkge_dist.surfaces import api
from dkge_dist.types import Field
from tests.graphs import head


def test_a_model_that_does_not_say_what_is_current_is_refused(model: Path) -> None:
    path = model / "versions" / "00000002.json"
    content = json.loads(path.read_bytes())
    del content["sha256"], content["current"]
    with pytest.raises(StoreError, match=r"00000002\.json: not a manifest of this program: current"):
        parse_manifest(sealed(json.dumps(content, indent=1)), str(path))


def test_any_flipped_bit_in_the_newest_manifest_is_found(model: Path) -> None:
    """No later version has its checksum."""
    path = model / "versions" / "00000002.json"
    content = path.read_bytes()
    for bit in range(0, 8 * len(content), 7):
        altered = bytearray(content)
        altered[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreError, match=r"00000002\.json: "):
            parse_manifest(bytes(altered), str(path))
    assert parse_manifest(content, str(path)) == head(model)


@pytest.mark.parametrize("data", [b"", b"[]", b"7", b"null", b"\xff\xfe", b"{}", b'{"format": 1}', b"{" * 50])
def test_files_that_are_no_manifests(model: Path, data: bytes) -> None:
    path = model / "versions" / "00000002.json"
    path.write_bytes(data)
    (problem,) = api.check(model)["problems"]
    assert (problem["version"], str(path) in problem["problem"]) == (2, True)


@pytest.mark.parametrize(("number", "advice"), [(FORMAT + 1, "upgrade dkge_dist"), (4, "ingest and train into a new")])
def test_another_format_is_refused_with_advice(model: Path, number: int, advice: str) -> None:
    path = model / "versions" / "00000002.json"
    path.write_bytes(sealed(json.dumps({"format": number, "whatever": "that may hold"}, indent=1)))
    expected = f"{path}: the store has format {number}, this program reads {FORMAT}: .*{advice}"
    (problem,) = api.check(model)["problems"]
    assert re.match(expected, problem["problem"])
    with pytest.raises(StoreError, match=expected):
        api.log(model)


def altered(model: Path, change: Callable[[dict], object]) -> bytes:
    """The manifest of a model, changed by somebody who can compute checksums."""
    content = json.loads((model / "versions" / "00000002.json").read_bytes())
    del content["sha256"]
    change(content)
    return sealed(json.dumps(content, indent=1))


@pytest.mark.parametrize("kind", ["entities", "relations"])
@pytest.mark.parametrize("field", Field)
def test_models_without_one_of_their_tables_are_refused(with_model: Path, kind: str, field: Field) -> None:
    data = altered(with_model, lambda content: content["model"][kind].pop(field))
    expected = f"2: not a manifest of this program: model.{kind}: .*a model without {field} vectors"
    with pytest.raises(StoreError, match=expected):
        parse_manifest(data, "2")


def test_unknown_tables_are_refused(with_model: Path) -> None:
    data = altered(with_model, lambda content: content["model"]["entities"].update(other=None))
    with pytest.raises(StoreError, match=r"2: not a manifest of this program: model\.entities\.other"):
        parse_manifest(data, "2")


def test_tables_are_found_by_field_and_written_by_name(with_model: Path) -> None:
    data = (with_model / "versions" / "00000002.json").read_bytes()
    manifest = parse_manifest(data, "2")
    assert isinstance(manifest, ModelManifest)
    assert list(manifest.model.entities) == list(manifest.model.relations) == list(Field)
    assert manifest.to_json() == data
    assert list(json.loads(data)["model"]["entities"]) == ["knowledge", "context", "joint"]


def test_every_part_of_a_manifest_is_named(with_model: Path) -> None:
    def digests(value: object) -> list[str]:
        if isinstance(value, dict):
            found = [value["digest"]] if "digest" in value else []
            return [*found, *(digest for item in value.values() for digest in digests(item))]
        return [digest for item in value for digest in digests(item)] if isinstance(value, list) else []

    for version in (1, 2):
        data = (with_model / "versions" / f"{version:08d}.json").read_bytes()
        expected = digests(json.loads(data))
        assert len(expected) >= 9
        assert sorted(part.digest for part in parts_of(parse_manifest(data, ""))) == sorted(expected)


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000])
def test_deeply_nested_json_is_damage(data: bytes) -> None:
    with pytest.raises(StoreError, match="somewhere: damaged"):
        parse_manifest(data, "somewhere")
