"""Compiled loops: arrays in, arrays out. Nothing here knows files, labels or settings."""
