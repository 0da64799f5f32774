"""The nights that wait in a bucket, one after the other: `dkge nightly` for each, in the order of their names.

    python launch/incoming.py s3://bucket/store s3://bucket/incoming --shards 8 --json
    ray job submit --working-dir . -- python launch/incoming.py s3://bucket/store s3://bucket/incoming --shards 8 --json

A night that was learnt is moved to done/ beside incoming/. If one fails, the run stops with its exit code and the next
run starts with it again: a change file is only valid after the ones before it. A night is idempotent, also one that was
learnt and not moved yet. No node needs a file system that others see.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import obstore

from dkge_dist.store.storage.objects import Objects
from dkge_dist.types import DkgeError

DKGE = Path(sys.executable).with_name("dkge")


def main(store: str, incoming: str, *options: str) -> int:
    """Learn what has come; the exit code."""
    above, _, last = incoming.rstrip("/").rpartition("/")
    objects = Objects(above)
    for name in objects.names(last)[0]:
        found = objects.head(f"{last}/{name}")
        if found is None:
            continue
        with tempfile.TemporaryDirectory(prefix="dkge-incoming-") as folder:
            with (Path(folder) / name).open("wb") as file:
                objects.download(found.name, file, found.size)
            command = [str(DKGE), "nightly", store, str(Path(folder) / name), *options]
            # With --shards, join the cluster that this node belongs to; never start a Ray beside it.
            environment = {"RAY_ADDRESS": "auto", **os.environ}
            code = subprocess.run(command, check=False, env=environment).returncode
        if code:
            print(f"{incoming}/{name}: ended with exit code {code}", file=sys.stderr)
            return code
        obstore.rename(objects.client, found.name, f"done/{name}")
    return 0


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1].startswith("-") or sys.argv[2].startswith("-"):
        sys.exit("usage: incoming.py STORE s3://BUCKET/INCOMING [options of dkge nightly]")
    try:
        sys.exit(main(*sys.argv[1:]))
    except DkgeError as error:
        sys.exit(f"error: {error}")
