"""Are all claims true? `python -m tests.bench.random_claims [--count 1000] [--seed 1000000]`

Draws requests (`tests.solvers.claims`), asks for the plan and the frontier of each, and prints every claim that brute force, plans with caches or
the other endpoint contradict. Ends with exit code 1 where there was one. A thousand take about ten minutes.
"""

from __future__ import annotations

import argparse
import sys

from tests.solvers.claims import contradictions, random_request


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1_000_000, help="of the first request; the tests draw those from 0 on")
    arguments = parser.parse_args()
    wrong = 0
    for seed in range(arguments.seed, arguments.seed + arguments.count):
        for contradiction in contradictions(random_request(seed)):
            wrong += 1
            print(f"request {seed}: {contradiction}", flush=True)
    print(f"{arguments.count} requests, {wrong} claims that are not true")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
