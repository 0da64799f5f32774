"""The evolving graph: labels and their rows, snapshots, diffs, contexts, and the objects that a change affects."""
