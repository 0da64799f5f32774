"""`python -m dkge_dist.surfaces.cli` is `dkge`."""

from dkge_dist.surfaces.cli.main import main

main()
