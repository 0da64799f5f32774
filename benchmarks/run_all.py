"""Run every benchmark and keep the results: `make bench`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def main() -> None:
    failed = []
    for script in sorted(Path(__file__).parent.glob("bench_*.py")):
        print(f"== {script.stem}", flush=True)
        command = [sys.executable, "-m", f"benchmarks.{script.stem}", "--save", *sys.argv[1:]]
        if subprocess.run(command, check=False).returncode:
            failed.append(script.stem)
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
