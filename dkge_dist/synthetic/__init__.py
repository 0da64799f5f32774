"""A seeded evolving movie graph in the shape of IMDB, for demonstrations, tests and benchmarks without any data.

    graph = EvolvingGraph(PRESETS["demo"])
    for night in graph.nights(): ...           # night.added, night.deleted, graph.triples
    write_synth(PRESETS["imdb-13"], Path("movies"))

`world` has the hidden traits, `casting` draws triples and changes from them, `names` makes readable names;
`evolving` says what to make, puts these together and writes files.
"""

from dkge_dist.synthetic.evolving import PRESETS, EvolvingGraph, Night, SynthSpec, write_synth
from dkge_dist.synthetic.world import EPISODE, MOVIE, PERSON, RELATIONS, SERIES

__all__ = [
    "EPISODE", "MOVIE", "PERSON", "PRESETS", "RELATIONS", "SERIES", "EvolvingGraph", "Night", "SynthSpec",
    "write_synth",
]  # fmt: skip
