"""A seeded evolving movie graph in the shape of IMDB, for demonstrations, tests and benchmarks without any data.

    graph = EvolvingGraph(PRESETS["demo"])
    for night in graph.nights(): ...           # night.added, night.deleted, graph.triples
    write_synth(PRESETS["imdb-13"], Path("movies"))

`spec` says what to make; `world` has the hidden traits, `casting` draws triples from them, `nights` draws changes;
`evolving` puts these together and `files` writes them.
"""

from dkge_dist.synth.evolving import EvolvingGraph, Night
from dkge_dist.synth.files import write_synth
from dkge_dist.synth.spec import PRESETS, SynthSpec
from dkge_dist.synth.world import EPISODE, MOVIE, PERSON, RELATIONS, SERIES

__all__ = [
    "EPISODE",
    "MOVIE",
    "PERSON",
    "PRESETS",
    "RELATIONS",
    "SERIES",
    "EvolvingGraph",
    "Night",
    "SynthSpec",
    "write_synth",
]
