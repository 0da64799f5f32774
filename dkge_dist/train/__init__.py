"""Learning from scratch: batches, the step, the trainer."""
