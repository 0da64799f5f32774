"""Reports that tests of several commands render."""

from __future__ import annotations

from typing import Any

METRICS = {"mrr": 0.5, "hits@1": 0.25, "hits@3": 0.5, "hits@10": 0.75, "mr": 1234.5}
INGESTED: dict[str, Any] = {
    "unchanged": False, "name": "day 1", "version": 3, "entities": 1200, "relations": 4, "train": 5000, "valid": 20,
    "test": 30, "added": 10, "deleted": 2, "emerging_entities": 5, "removed_entities": 1, "emerging_relations": 1,
    "removed_relations": 0, "counts": {"duplicates": 2, "bad_lines": 0}, "rejects": None, "seconds": 1.26,
    "triples_per_second": 4000, "named_entities": 0, "named_relations": 0, "unnamed_entities": 0,
    "unnamed_relations": 0, "held_out_by_default": False,
    "misspellings": {"total": 0, "relations": [], "entities": [], "not_compared": 0},
}  # fmt: skip
