"""Cases of damaged stores: they say so, or answer as the sound one."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dkge_dist.store.manifest import sealed
from dkge_dist.store.store import Store
from dkge_dist.store.tables import load_table
from dkge_dist.surfaces import api
from tests.fuzzing.mutation import STRANGE, Rng, SilentError, mutated, written
from tests.graphs import LEARN, dense, fresh_labels, write_changes, write_tsv


class SoundStore:
    """A store with two models and a night, and what it answers."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "store"
        words = [*LEARN, "model.dim=4", "train.max_epochs=1"]
        base = dense(300, entities=60)  # Nearly as many as a block has rows: hardly a bit is padding.
        names = written(folder / "names.tsv", "".join(f"e{n}\tName of {n}\n" for n in range(60)).encode())
        api.ingest(self.path, write_tsv(folder / "base.tsv", base), valid=8, test=8, labels=names)
        api.train(self.path, settings=words)
        renamed = written(folder / "renamed.tsv", b"e1\tAnother\nr1\trelation one\n")
        api.ingest(self.path, write_changes(folder / "night.changes", fresh_labels(1), base[5:6]), labels=renamed)
        api.update(self.path)
        self.questions = folder / "questions.tsv"
        entities, relations = ["another", *(f"e{number}" for number in range(1, 60, 9))], ["relation one", "r2"]
        asked = [line for e in entities for r in relations for line in (f"{e}\t{r}\t?", f"?\t{r}\t{e}")]
        self.questions.write_text("\n".join(asked))
        self.answers = self.asked(self.path)

    def asked(self, path: Path) -> Any:
        """Answers to many questions, and all vectors."""
        found = api.answer(path, batch=self.questions)
        model = Store.open(path).find_model().model
        storage = Store.open(path).storage
        tables = [table for kind in (model.entities, model.relations) for table in kind.values()]
        return found["questions"], [load_table(storage, table).tobytes() for table in tables]

    def copied(self, folder: Path) -> Path:
        return Path(shutil.copytree(self.path, folder / "store"))

    def compare(self, path: Path) -> None:
        if self.asked(path) != self.answers:
            raise SilentError("another answer")


def case_parts(rng: Rng, folder: Path, sound: SoundStore) -> None:
    path = sound.copied(folder)
    parts = sorted(path.glob("parts/*/*"))
    part = parts[int(rng.integers(len(parts)))]
    data = bytearray(part.read_bytes())
    if data and rng.random() < 0.7:
        data[int(rng.integers(len(data)))] ^= 1 << int(rng.integers(8))
    written(part, bytes(data) if data != part.read_bytes() else mutated(rng, bytes(data)))
    sound.compare(path)


def case_manifests(rng: Rng, folder: Path, sound: SoundStore) -> None:
    path = sound.copied(folder)
    names = [*sorted(path.glob("versions/*")), path / "store.json"]
    name = names[int(rng.integers(len(names)))]
    written(name, mutated(rng, name.read_bytes()))
    sound.compare(path)


def places(value: Any, found: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Every (container, key) in a JSON value."""
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        found.append((value, key))
        places(item, found)
    return found


def case_resealed(rng: Rng, folder: Path, sound: SoundStore) -> None:
    """Manifests of somebody who can compute seals: no promise what is answered, but how it ends."""
    path = sound.copied(folder)
    names = sorted(path.glob("versions/*"))
    hit, parent = int(rng.integers(len(names))), None
    for number, name in enumerate(names):
        content = json.loads(name.read_bytes())
        del content["sha256"]
        content["parent"] = parent
        if number == hit:
            for _ in range(int(rng.integers(1, 3))):
                found = places(content, [])
                container, key = found[int(rng.integers(len(found)))]
                others = [other[place] for other, place in found]
                pool = others if rng.random() < 0.4 else STRANGE
                container[key] = json.loads(json.dumps(pool[int(rng.integers(len(pool)))]))
        written(name, sealed(json.dumps(content, indent=1)))
        parent = hashlib.sha256(name.read_bytes()).hexdigest()
    sound.asked(path)


STORES: dict[str, Callable[[Rng, Path, SoundStore], None]] = {
    "parts": case_parts,
    "manifests": case_manifests,
    "resealed": case_resealed,
}
