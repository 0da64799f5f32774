"""What learning from scratch and learning online share: objects with their contexts, batches, encoding, the step."""
