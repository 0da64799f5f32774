"""The `dkge` command: options, progress bars and tables over `dkge_dist.surfaces.api`."""
