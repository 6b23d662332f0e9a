"""Mutated bodies to every endpoint, in this process: each is answered or refused, and nothing else happens.

Aim: of a hundred thousand not one is answered 500, none takes longer than its time limit and a second more.
`python -m tests.bench.bench_fuzz 20000 7` takes 20,000 bodies from seed 7 on; a body that fails is printed with its seed.
"""

from __future__ import annotations

import json
import random
import sys
import time
import traceback
from collections import Counter

from solvers.jtree.warm import warm
from tests.app.mutation import BY_NAME, EXAMPLES, TIME_LIMIT, bodies, check_reply, doctored, reply_to

COUNT = 3_000
LATE = 1.0  # seconds past the time limit


def main() -> None:
    given = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    count, first = given[0] if given else COUNT, given[1] if len(given) > 1 else 0
    warm()
    statuses: Counter[str] = Counter()
    failed = 0
    for seed in range(first, first + count):
        generator = random.Random(seed)
        name = generator.choice(sorted(BY_NAME))
        body = doctored(generator, bodies(*generator.choice(EXAMPLES))[name], generator.randint(1, 4))
        began = time.perf_counter()
        try:
            reply = reply_to(BY_NAME[name], body)
            check_reply(BY_NAME[name], reply)
            statuses[f"{name} {reply.status}"] += 1
            assert time.perf_counter() - began < TIME_LIMIT + LATE, f"{time.perf_counter() - began:.1f} s"
        except Exception:
            failed += 1
            print(f"seed {seed}, {name}: {json.dumps(body)[:3000]}\n{traceback.format_exc()}", flush=True)
    print(f"{count} bodies, {failed} failed; " + ", ".join(f"{what}: {times}" for what, times in sorted(statuses.items())))
    assert not failed


if __name__ == "__main__":
    main()
