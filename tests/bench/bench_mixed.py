"""Ten minutes of mixed load on a service of its own: plans, frontiers and solvers, 3 to 200 streams, caps and time limits at random.

Eight clients ask one request after the other, over loopback, on the machine's own cores; some ask for a stream of events, some leave early.
Aims: no 5xx but 503 with its `Retry-After`; no answer later than its time limit and a second beyond its wait in the queue (`Server-Timing` says
how long that was); memory flat after the first minute but for the answers that are kept. `python -m tests.bench.bench_mixed 120` takes
120 seconds; a second number is the seed. The machine must have nothing else to do: the aims are about seconds of its clock.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import httpx

from tests.bench.bench_load import megabytes, serving
from tests.graphs import random_graph

SECONDS, CLIENTS = 600, 8
LATE = 1.0  # seconds that an answer may take beyond its limit and its wait
SETTLED = 60.0  # seconds after which memory stays where it is
GROWTH = 0.1  # of the memory after the first minute: allocators keep what the largest request took
SHAPES = ("chain", "star", "random", "cycle", "clique")
SIZES = (3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 50, 80, 100, 150, 200)
LIMITS = (0.05, 0.2, 0.5, 1.0, 2.0)
LARGEST_CLIQUE = 60  # streams: a clique of 200 is a body of megabytes
FIRST = 5.0  # seconds between two looks at the memory


@dataclass
class Seen:
    """What the clients saw."""

    statuses: Counter[str] = field(default_factory=Counter)
    terminations: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    late: list[tuple[float, str]] = field(default_factory=list)
    """Seconds beyond the limit and the wait, and of what."""
    memory: list[tuple[float, float, float]] = field(default_factory=list)
    """Seconds since the start, megabytes, megabytes of answers that are kept."""


def query(generator: random.Random) -> tuple[str, dict[str, Any]]:
    n, shape = generator.choice(SIZES), generator.choice(SHAPES)
    n = min(n, LARGEST_CLIQUE) if shape == "clique" else n
    made = random_graph(generator, n, shape, theta=generator.choice((0.0, 0.2)), rows=generator.choice((0.0, 0.3)))
    return f"{shape} of {n}", made.model_dump(mode="json", exclude_none=True)


def resources(generator: random.Random) -> dict[str, float]:
    """Loose, tight, impossible, or none."""
    caps = {"cpu": 10.0 ** generator.uniform(-5, 1), "memory_bytes": 10.0 ** generator.uniform(4, 10)}
    return {name: cap for name, cap in caps.items() if generator.random() < 0.6}


def request(generator: random.Random) -> tuple[str, str, dict[str, Any], float]:
    """What it is, its path, its body and its time limit."""
    limit = generator.choice(LIMITS)
    kind = generator.choice(("plans", "plans", "plans", "frontiers", "frontiers", "jtree", "allocation", "cover", "caches"))
    if kind in ("plans", "frontiers", "jtree"):
        what, asked = query(generator)
        objective = generator.choice(("min_cpu", "min_memory", "max_headroom"))
        body: dict[str, Any] = {"query": asked, "resources": resources(generator), "objective": objective}
        if kind == "jtree":
            return f"jtree, {what}", "/v1/solvers/jtree", {**body, "time_limit": limit}, limit
        body["options"] = {"time_limit": limit, "caches": generator.choice(("auto", "off", "prefix", "global"))}
        return f"{kind}, {what}, {objective}, caches {body['options']['caches']}", f"/v1/{kind}", body, limit
    count = generator.choice((5, 20, 60))
    if kind == "allocation":
        takes = [generator.randrange(10**5, 10**6) for _ in range(count)]
        paths = [{"name": f"p{i}", "resources": taken, "output": taken + generator.randrange(100), "max_units": 2} for i, taken in enumerate(takes)]
        body = {"capacity": sum(takes) // 2, "model": generator.choice(("discrete", "continuous")), "paths": paths}
    elif kind == "cover":
        names = [f"s{i}" for i in range(max(2, count // 3))]
        covering = [{name: generator.randrange(1, 9) for name in generator.sample(names, min(len(names), 6))} for _ in range(count)]
        body = {
            "states": [{"name": name, "required": generator.randrange(5, 40)} for name in names],
            "paths": [{"name": f"p{i}", "cost": generator.randrange(50, 150), "covers": covers} for i, covers in enumerate(covering)],
            "model": generator.choice(("discrete", "continuous")),
        }
    else:
        lengths = [generator.randrange(2, 8) for _ in range(count)]
        body = {
            "pipelines": [{"name": f"q{i}", "operator_costs": [generator.random() for _ in range(length)]} for i, length in enumerate(lengths)],
            "candidates": [
                {"id": f"c{i}", "pipeline": f"q{i}", "first": 0, "last": length - 1, "group": f"g{i % 7}", "proc": 0.1, "memory_bytes": 1000.0 + i}
                for i, length in enumerate(lengths)
            ],
            "groups": [{"id": f"g{k}", "update_cost": 0.2} for k in range(7)],
            "memory_bytes": 500.0 * count,
        }
    return f"{kind}, {count}", f"/v1/solvers/{kind}", {**body, "time_limit": limit}, limit


def ask(url: str, seed: int, until: float, seen: Seen) -> None:
    """One client."""
    generator = random.Random(seed)
    with httpx.Client(base_url=url, timeout=120) as client:
        while time.monotonic() < until:
            what, path, body, limit = request(generator)
            said = f"{what}, limit {limit:g} s"
            content = json.dumps(body).encode()
            leaves = generator.random() < 0.03
            began = time.monotonic()
            try:
                timeout = generator.uniform(0.01, limit) if leaves else 120.0
                response = client.post(path, content=content, headers={"Content-Type": "application/json"}, timeout=timeout)
            except httpx.ReadTimeout:
                seen.statuses["left"] += 1
                if not leaves:
                    seen.wrong.append(f"no answer: {said}")
                continue
            took = time.monotonic() - began
            seen.statuses[str(response.status_code)] += 1
            if response.status_code == 200:
                waits = re.search(r"queue;dur=([\d.]+)", response.headers.get("server-timing", "queue;dur=0"))
                assert waits is not None
                seen.late.append((took - limit - float(waits[1]) / 1e3, said))
                seen.terminations[f"{path} {response.json().get('termination')}"] += 1
            elif response.status_code == 503 and "retry-after" in response.headers:
                time.sleep(float(response.headers["retry-after"]))
            else:
                seen.wrong.append(f"{response.status_code}: {said}: {response.text[:300]}")


def figure(client: httpx.Client, name: str) -> float:
    """One of the service's figures."""
    found = re.search(rf"^{name} (\S+)$", client.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return float(found[1])


def watch(client: httpx.Client, pid: int, began: float, until: float, seen: Seen) -> None:
    """The memory of the service, until the clients are done."""
    while time.monotonic() < until:
        time.sleep(FIRST)
        seen.memory.append((time.monotonic() - began, megabytes(pid), figure(client, "watersmeet_kept_answers_bytes") / 1e6))


def main() -> None:
    given = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    seconds, seed = given[0] if given else SECONDS, given[1] if len(given) > 1 else 0
    print(f"{seconds} s, {CLIENTS} clients, {os.cpu_count()} cores for clients and service")
    seen = Seen()
    with serving("-m", "app", "serve", "--port", "PORT") as (client, pid):
        began = time.monotonic()
        clients = [threading.Thread(target=ask, args=(str(client.base_url), 1000 * seed + k, began + seconds, seen)) for k in range(CLIENTS)]
        for thread in clients:
            thread.start()
        watch(client, pid, began, began + seconds, seen)
        for thread in clients:
            thread.join()
        replaced = figure(client, "watersmeet_replaced_workers_total")
    print("answers:", dict(sorted(seen.statuses.items())), f"workers replaced: {replaced:g}")
    print("terminations:", dict(sorted(seen.terminations.items())))
    beyond = sorted(seen.late, reverse=True)
    past = [late for late in beyond if late[0] > LATE]
    print(f"later than limit and wait: at most {beyond[0][0]:.2f} s; past {LATE:g} s: {len(past)} of {len(beyond)}")
    for late, what in beyond[:10]:
        print(f"  {late:+.2f} s  {what}")
    for wrong in seen.wrong[:10]:
        print(f"  wrong: {wrong}")
    settled = [(megabytes_ - kept) for at, megabytes_, kept in seen.memory if at >= min(SETTLED, seconds / 2)]
    print(f"memory without kept answers: {settled[0]:.0f} MB after the first minute, {settled[-1]:.0f} MB at the end, {max(settled):.0f} MB at most")
    assert not seen.wrong, f"{len(seen.wrong)} wrong answers"
    assert not past, f"{len(past)} late answers"
    assert settled[-1] <= settled[0] * (1.0 + GROWTH), "memory grows"


if __name__ == "__main__":
    main()
