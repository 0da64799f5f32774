"""`python -m dkge_dist.cli` is `dkge`."""

from dkge_dist.cli.main import main

main()
