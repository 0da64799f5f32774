"""The evolving graph: labels and their permanent rows, snapshots, diffs, contexts, and who is affected by a change."""
