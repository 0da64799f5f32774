"""`dkge nightly` as a job on a Ray cluster: same arguments, same output, same exit code.

    ray submit launch/cluster.yaml launch/nightly.py -- STORE SOURCE --shards 8 --json
    ray job submit --working-dir . -- python launch/nightly.py STORE SOURCE --shards 8 --json

STORE is in a bucket (s3://bucket/prefix), or on a file system that all nodes share; SOURCE is a file that the driver
reads. A night is idempotent: submit a failed job again; one that succeeded does nothing the second time. Leave
`--submission-id` out: Ray refuses one that it has seen, also of a job that failed.
"""

import os
import sys

from dkge_dist.surfaces.cli.main import main

if __name__ == "__main__":
    # With --shards, join the cluster that this node belongs to; never start a Ray beside it.
    os.environ.setdefault("RAY_ADDRESS", "auto")
    sys.argv.insert(1, "nightly")
    main()
