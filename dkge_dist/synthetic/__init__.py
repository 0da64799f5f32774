"""A seeded evolving movie graph in the shape of IMDB, for demonstrations, tests and benchmarks without any data.

    graph = EvolvingGraph(PRESETS["demo"])
    for night in graph.nights(): ...           # night.added, night.deleted, graph.triples
    write_synth(PRESETS["imdb-13"], Path("movies"))

`spec` says what to make; `world` has the hidden traits, `casting` draws triples from them, `nights` draws changes;
`evolving` puts these together, `names` names everybody for people, and `files` writes all of it.
"""

from dkge_dist.synthetic.evolving import EvolvingGraph, Night
from dkge_dist.synthetic.files import write_synth
from dkge_dist.synthetic.spec import PRESETS, SynthSpec
from dkge_dist.synthetic.world import EPISODE, MOVIE, PERSON, RELATIONS, SERIES

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
