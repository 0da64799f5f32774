"""Ranks, link prediction and answers."""
