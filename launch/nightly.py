"""`dkge nightly` as a job on a Ray cluster: same arguments, same output, same exit code.

    ray submit launch/cluster.yaml launch/nightly.py -- STORE SOURCE --shards 8 --json
    ray job submit --working-dir . -- python launch/nightly.py STORE SOURCE --shards 8 --json

STORE and SOURCE are on a file system that all nodes share. Submit it as often as you like: the store knows which night
is done, so a job that failed is simply submitted again, and one that succeeded does nothing. Leave `--submission-id`
out: Ray refuses one that it has seen, also of a job that failed.
"""

import os
import sys

from dkge_dist.cli.main import main

if __name__ == "__main__":
    # With --shards, join the cluster that this node belongs to; never start a Ray beside it.
    os.environ.setdefault("RAY_ADDRESS", "auto")
    sys.argv.insert(1, "nightly")
    main()
