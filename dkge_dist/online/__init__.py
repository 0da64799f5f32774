"""Learning online: what a night changed, and nothing else."""
