"""What learning from scratch and online share: contexts, batches, prefetch, encoding, the step, early stopping."""
