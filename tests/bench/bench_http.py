"""Planning over HTTP against a database's planner: a chain of 12 streams here, EXPLAIN of a join of 12 tables in DuckDB.

Ours is everything a client waits for: a request on a connection that is kept open, a real server process, decoding,
validation, the search, the plan's figures and explanation, and the whole answer read. DuckDB plans in-process, from
SQL text to the printed plan. The two take turns, so that both see the same machine. Aim: a ratio of at most 1.
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
from typing import Any

import duckdb

STREAMS = 12
ROUNDS = 200
WARM_UP = 20


def chain() -> dict[str, Any]:
    """Rates and selectivities that differ, so that the order matters."""
    streams = [{"name": f"s{i}", "rate": 100 + 37 * (i * 5 % STREAMS), "window": {"seconds": 60}} for i in range(STREAMS)]
    predicates = [{"left": f"s{i}.k{i}", "right": f"s{i + 1}.k{i}", "selectivity": 2e-5 * (1 + i * 7 % 5)} for i in range(STREAMS - 1)]
    return {"query": {"streams": streams, "predicates": predicates}, "resources": {"cpu": 4.0, "memory_bytes": 1e9}}


def tables() -> duckdb.DuckDBPyConnection:
    """The same chain as tables that hold as many rows as the windows."""
    connection = duckdb.connect()
    connection.execute("SET threads = 1")
    for i, stream in enumerate(chain()["query"]["streams"]):
        rows = stream["rate"] * stream["window"]["seconds"]
        connection.execute(f"CREATE TABLE s{i} AS SELECT range % 5000 AS k{max(i - 1, 0)}, range % 7000 AS k{i if i else 'x'} FROM range({rows})")
    return connection


def explain_text() -> str:
    joins = " ".join(f"JOIN s{i + 1} ON s{i}.k{i} = s{i + 1}.k{i}" for i in range(STREAMS - 1))
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


def main() -> None:
    body = json.dumps(chain()).encode()
    database, statement = tables(), explain_text()
    with server() as connection:

        def plan() -> dict[str, Any]:
            connection.request("POST", "/v1/plans", body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            answer: dict[str, Any] = json.loads(response.read())
            assert response.status == 200, answer
            return answer

        def healthz() -> None:
            connection.request("GET", "/healthz")
            connection.getresponse().read()

        def solver_seconds() -> float:
            """The mean time in the solver, as the service measures it."""
            connection.request("GET", "/metrics")
            figures = dict(line.rsplit(" ", 1) for line in connection.getresponse().read().decode().splitlines() if not line.startswith("#"))
            total, count = (float(figures[f'watersmeet_solve_seconds_{kind}{{route="/v1/plans"}}']) for kind in ("sum", "count"))
            return total / count

        def explain() -> object:
            return database.execute(statement).fetchall()

        answer = plan()
        assert len(answer["query"]["streams"]) == STREAMS and answer["proof"] == "optimal"
        rounds = [(timed(plan), timed(explain), timed(healthz)) for _ in range(WARM_UP + ROUNDS)][WARM_UP:]
        solving = solver_seconds() * 1e3
    a, b, c = (statistics.median(times) * 1e3 for times in zip(*rounds, strict=True))
    print(f"plan of a {STREAMS}-stream chain over HTTP: {a:.2f} ms ({solving:.2f} ms in the solver on average; an empty round trip: {c:.2f} ms)")
    print(f"DuckDB {duckdb.__version__} EXPLAIN of a {STREAMS}-table chain: {b:.2f} ms")
    print(f"ratio: {a / b:.2f}  (medians of {ROUNDS} alternating rounds)")


if __name__ == "__main__":
    main()
