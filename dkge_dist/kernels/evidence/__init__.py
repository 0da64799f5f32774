"""Numba kernels that read evidence off the train graph: counts, thinned lists, walks, and the likelihood of a fit."""
