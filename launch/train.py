"""`dkge train` as a job on a Ray cluster: same arguments, same output, same exit code.

    ray submit launch/cluster.yaml launch/train.py -- STORE --shards 8 --workers 4 --json
    ray job submit --working-dir . -- python launch/train.py STORE --shards 8 --workers 4 --json

STORE is in a bucket (s3://bucket/prefix), or on a file system that all nodes share. A training that was stopped or lost
is resumed from its checkpoint when the same job is submitted again. `ray submit` copies only this file: the package is
installed by cluster.yaml.
"""

import os
import sys

from dkge_dist.surfaces.cli.main import main

if __name__ == "__main__":
    # With --shards, join the cluster that this node belongs to; never start a Ray beside it.
    os.environ.setdefault("RAY_ADDRESS", "auto")
    sys.argv.insert(1, "train")
    main()
