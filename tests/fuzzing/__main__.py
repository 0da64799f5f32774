"""Malformed inputs of every kind, made of sound ones by chance, and what has to come of them.

    python -m tests.fuzzing --count 10000 --seed 1

An input has to be refused with a message, or read as its slow twin reads it; a damaged store has to say so, or answer
as the sound one. Cases run in another process, so that a signal or a hang is noticed and told with its number: the seed
and that number give the case again (`--only NUMBER`).
"""

from __future__ import annotations

import argparse
import time
from collections import Counter

from tests.fuzzing.running import KINDS, WRONG, run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", type=int, help="run this case alone")
    arguments = parser.parse_args()
    numbers = range(arguments.count) if arguments.only is None else range(arguments.only, arguments.only + 1)
    began = time.monotonic()
    endings: Counter[tuple[str, str]] = Counter()
    for outcome in run(arguments.seed, numbers):
        endings[outcome.kind, outcome.ending] += 1
        if outcome.number % 1000 == 999:
            print(f"{outcome.number + 1:,} cases, {time.monotonic() - began:.0f} s", flush=True)
        if outcome.ending in WRONG or arguments.only is not None:
            print(f"case {outcome.number} ({outcome.kind}): {outcome.ending}: {outcome.told}", flush=True)
    for kind in KINDS:
        print(f"{kind:12}", {ending: count for (k, ending), count in sorted(endings.items()) if k == kind})
    wrong = {ending: sum(count for (_, e), count in endings.items() if e == ending) for ending in WRONG}
    print(f"{sum(endings.values()):,} cases, seed {arguments.seed}, {time.monotonic() - began:.0f} s: {wrong}")
    raise SystemExit(1 if any(wrong.values()) else 0)


if __name__ == "__main__":
    main()
