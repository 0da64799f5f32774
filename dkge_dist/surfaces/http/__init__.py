"""Answers for others: an HTTP API over a store, which follows its versions. Imports neither torch nor Ray."""
