"""Learning, from scratch or a night: the plan, batches, the step, the loop over them, checkpoints, where it runs."""
