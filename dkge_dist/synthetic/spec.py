"""What to generate: the sizes of an evolving movie graph, and the presets. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

MIN_ENTITIES, MAX_ENTITIES = 200, 50_000_000
MIN_TRIPLES = 500
# Below, triples do not suffice to touch every entity; above, people would work on a large part of all titles.
MIN_DENSITY, MAX_DENSITY = 1.2, 8.0


@dataclass(frozen=True)
class SynthSpec:
    """Sizes of the base graph and of each night's change (net: what is added was absent, what is deleted was there)."""

    entities: int
    triples: int
    nights: int
    added: int
    deleted: int
    seed: int = 0

    def __post_init__(self) -> None:
        if not MIN_ENTITIES <= self.entities <= MAX_ENTITIES:
            raise ValueError(f"entities={self.entities}: must be from {MIN_ENTITIES} to {MAX_ENTITIES}")
        if self.triples < MIN_TRIPLES:
            raise ValueError(f"triples={self.triples}: must be at least {MIN_TRIPLES}")
        if not MIN_DENSITY <= self.triples / self.entities <= MAX_DENSITY:
            raise ValueError(
                f"triples={self.triples}: must be {MIN_DENSITY} to {MAX_DENSITY} times entities={self.entities}"
            )
        if self.nights < 0 or self.seed < 0:
            raise ValueError(f"nights={self.nights}, seed={self.seed}: must not be negative")
        if not 0 <= self.added <= self.triples // 4:
            raise ValueError(f"added={self.added}: must be from 0 to a quarter of the {self.triples} triples")
        if not 0 <= self.deleted <= self.triples // 4:
            raise ValueError(f"deleted={self.deleted}: must be from 0 to a quarter of the {self.triples} triples")
        final = self.triples + self.nights * (self.added - self.deleted)
        if final < self.triples // 2:
            raise ValueError(f"deleted={self.deleted}: {self.nights} nights would leave less than half of the graph")

    def resized(
        self,
        entities: int | None = None,
        triples: int | None = None,
        nights: int | None = None,
        seed: int | None = None,
    ) -> SynthSpec:
        """The same graph in another size: what is not given keeps its proportion to what is."""
        if entities is None:
            entities = self.entities if triples is None else round(self.entities * triples / self.triples)
        if triples is None:
            triples = round(self.triples * entities / self.entities)
        return replace(
            self,
            entities=entities,
            triples=triples,
            nights=self.nights if nights is None else nights,
            added=round(self.added * triples / self.triples),
            deleted=round(self.deleted * triples / self.triples),
            seed=self.seed if seed is None else seed,
        )


PRESETS = {
    "demo": SynthSpec(entities=3_000, triples=7_500, nights=5, added=120, deleted=40),
    # The sizes of the published sets IMDB-30SP and IMDB-13.
    "imdb-30": SynthSpec(entities=243_000, triples=627_000, nights=30, added=9_400, deleted=2_400),
    "imdb-13": SynthSpec(entities=3_244_455, triples=7_923_773, nights=3, added=17_472, deleted=18_405),
}
