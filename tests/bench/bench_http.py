"""Planning over HTTP against a database's planner: chains of 8, 12 and 16 streams here, EXPLAIN of joins of as many tables in DuckDB.

Ours is everything a client waits for: a request on a connection that is kept open, a real server process, decoding,
validation, the search, the plan's figures and explanation, and the whole answer read. DuckDB plans in-process, from
SQL text to the printed plan. The two take turns, so that both see the same machine. Aims: a ratio of at most 1 without caps and under caps, caches
allowed; at most 2 where nothing fits and what it would take is worked out as well. `python -m tests.bench.bench_http 12`: chains of 12 alone.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

__all__ = ["CAPS", "SIZES", "Compared", "chain", "compared", "duckdb_explain", "explain_text", "main", "server"]

SIZES = (8, 12, 16)
CAPS: dict[str, dict[str, float]] = {
    "no caps": {},
    "under caps": {"cpu": 4.0, "memory_bytes": 1e9},
    "nothing fits": {"cpu": 2e-3, "memory_bytes": 1e9},
}
ROUNDS = 60
WARM_UP = 10


def chain(n: int, caps: dict[str, float]) -> dict[str, Any]:
    """Rates and selectivities that differ, so that the order matters."""
    streams = [{"name": f"s{i}", "rate": 100 + 37 * (i * 5 % n), "window": {"seconds": 60}} for i in range(n)]
    predicates = [{"left": f"s{i}.k{i}", "right": f"s{i + 1}.k{i}", "selectivity": 2e-5 * (1 + i * 7 % 5)} for i in range(n - 1)]
    return {"query": {"streams": streams, "predicates": predicates}, "resources": caps}


def tables(n: int) -> duckdb.DuckDBPyConnection:
    """The same chain as tables that hold as many rows as the windows."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for i, stream in enumerate(chain(n, {})["query"]["streams"]):
        rows = stream["rate"] * stream["window"]["seconds"]
        connection.execute(f"CREATE TABLE s{i} AS SELECT range % 5000 AS k{max(i - 1, 0)}, range % 7000 AS k{i if i else 'x'} FROM range({rows})")
    return connection


def explain_text(n: int) -> str:
    joins = " ".join(f"JOIN s{i + 1} ON s{i}.k{i} = s{i + 1}.k{i}" for i in range(n - 1))
    return f"EXPLAIN SELECT * FROM s0 {joins}"


@contextmanager
def server() -> Iterator[http.client.HTTPConnection]:
    """A server process with one worker, warm, and an open connection to it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "serve", "--port", str(port)],
        stderr=subprocess.DEVNULL,
        env={**os.environ, "WATERSMEET_WORKERS": "1", "WATERSMEET_CACHE_BYTES": "0"},
    )
    connection = http.client.HTTPConnection("127.0.0.1", port)
    try:
        while True:
            time.sleep(0.05)
            try:
                connection.request("GET", "/readyz")
                response = connection.getresponse()
                response.read()
            except OSError:
                connection.close()
                assert process.poll() is None, "the server did not start"
                continue
            if response.status == 200:
                break
        connection.connect()
        assert connection.sock is not None
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield connection
    finally:
        connection.close()
        process.terminate()
        process.wait()


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@dataclass(frozen=True)
class Compared:
    """One kind of request: medians in ms of ours over HTTP, of the database's EXPLAIN and of an empty round trip."""

    n: int
    name: str
    ours: float
    theirs: float
    empty: float
    proof: str
    gap: float | None

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


def compared(connection: http.client.HTTPConnection, n: int, name: str, explain: Callable[[], object], rounds: int = ROUNDS) -> Compared:
    """One kind of request and its counterpart, in turns."""
    body = json.dumps(chain(n, CAPS[name])).encode()

    def plan() -> dict[str, Any]:
        connection.request("POST", "/v1/plans", body, {"Content-Type": "application/json"})
        response = connection.getresponse()
        answer: dict[str, Any] = json.loads(response.read())
        assert response.status == 200, answer
        return answer

    def healthz() -> None:
        connection.request("GET", "/healthz")
        connection.getresponse().read()

    answer = plan()
    assert len(answer["query"]["streams"]) == n and answer["tree_proof"] == "optimal" and answer["qualified"] == (name != "nothing fits")
    times = [(timed(plan), timed(explain), timed(healthz)) for _ in range(WARM_UP + rounds)][WARM_UP:]
    ours, theirs, empty = (statistics.median(listed) * 1e3 for listed in zip(*times, strict=True))
    return Compared(n, name, ours, theirs, empty, answer["proof"], answer["gap"])


def duckdb_explain(n: int) -> Callable[[], object]:
    database, statement = tables(n), explain_text(n)
    return lambda: database.execute(statement).fetchall()


def compare(connection: http.client.HTTPConnection, n: int, name: str) -> None:
    found = compared(connection, n, name, duckdb_explain(n))
    proven = f"{found.proof}, gap {found.gap:.2g}; an empty round trip takes {found.empty:.2f}"
    print(f"{n:2} streams, {name:12}: {found.ours:6.2f} ms, DuckDB {found.theirs:6.2f} ms, ratio {found.ratio:.2f} ({proven})", flush=True)


def main() -> None:
    sizes = [int(sys.argv[1])] if len(sys.argv) > 1 and sys.argv[1].isdigit() else SIZES
    print(f"DuckDB {duckdb.__version__}; medians of {ROUNDS} alternating rounds")
    with server() as connection:
        for n in sizes:
            for name in CAPS:
                compare(connection, n, name)


if __name__ == "__main__":
    main()
