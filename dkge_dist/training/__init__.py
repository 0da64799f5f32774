"""Learning from scratch: the trainer, its checkpoints."""
