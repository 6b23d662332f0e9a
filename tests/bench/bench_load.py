"""The service under load, beside a bare FastAPI echo of the same bodies: requests per second, p50 and p99, and how it is afterwards.

wrk sends plan requests of 4 to 12 streams in turn over loopback, from the same machine, so its own share of the CPU is printed.
`cached` repeats nine requests; `distinct` never sends one twice; `burst` sends distinct ones over more connections than
there are places, so that 503 is the right answer to most. The echo runs on the same server with the same options.
Aims: no answer but 200 and 503, and no 503 outside the burst; latency and memory after the burst where they were before.
Aims where there are two cores: `cached` at 0.8 of the echo's rate, `distinct` 500 chains of 8 streams a second, p99 below three times p50. The nine
requests of `cached` are answered once before it is timed: what is measured is answers that are kept.
`python -m tests.bench.bench_load 5` takes 5 seconds for each part instead of 60; `… 5 8` asks for chains of 8 streams alone.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx

from tests.app.serving import answers, free_port, until

SECONDS = 60
SIZES = range(4, 13)
CONNECTIONS, BURST_CONNECTIONS = 16, 200
CACHE_BYTES = 16 * 1024 * 1024  # small, so that it is full before memory is measured
RATE = "4321.5"  # stands in every body once; what makes requests distinct is written over it

SCRIPT = """
local bodies = { BODIES }
local distinct = DISTINCT
local i = 0
local counts = {}
threads = {}
function setup(thread) table.insert(threads, thread) end
function request()
  i = i + 1
  local body = bodies[i % #bodies + 1]
  if distinct then body = body:gsub("4321%.5", string.format("%d.FRACTION", 10000 + i)) end
  return wrk.format("POST", "/v1/plans", {["Content-Type"] = "application/json"}, body)
end
seen = ""
function response(status)
  counts[status] = (counts[status] or 0) + 1
  if counts[status] % 50 == 1 or status ~= 200 then
    local parts = {}
    for key, value in pairs(counts) do table.insert(parts, key .. "=" .. value) end
    seen = table.concat(parts, " ")
  end
end
function done(summary, latency)
  io.write(string.format("RESULT %d %d %.3f %.3f %d %d | ", summary.requests, summary.duration, latency:percentile(50) / 1000,
    latency:percentile(99) / 1000, summary.errors.connect + summary.errors.read + summary.errors.write, summary.errors.timeout))
  for _, thread in ipairs(threads) do io.write(thread:get("seen")) end
  io.write("\\n")
end
"""

ECHO = """
import sys
import uvicorn
from fastapi import FastAPI, Request, Response
app = FastAPI()
@app.post("/v1/plans")
async def echo(request: Request) -> Response:
    return Response(await request.body(), media_type="application/json")
@app.get("/readyz")
async def ready() -> dict[str, str]:
    return {"status": "ready"}
uvicorn.run(app, port=int(sys.argv[1]), log_config=None, access_log=False, ws="none")
"""


def chain(n: int) -> str:
    streams = [{"name": f"s{i}", "rate": 100 + 37 * (i * 5 % n), "window": {"seconds": 60}} for i in range(n)]
    streams[0]["rate"] = float(RATE)
    predicates = [{"left": f"s{i}.k{i}", "right": f"s{i + 1}.k{i}", "selectivity": 2e-5 * (1 + i * 7 % 5)} for i in range(n - 1)]
    return json.dumps({"query": {"streams": streams, "predicates": predicates}, "resources": {"cpu": 4.0, "memory_bytes": 1e9}})


@contextmanager
def serving(*command: str) -> Iterator[tuple[httpx.Client, int]]:
    """A server process that is ready, and its pid."""
    port = free_port()
    environment = {**os.environ, "WATERSMEET_CACHE_BYTES": str(CACHE_BYTES)}
    process = subprocess.Popen([sys.executable, *(part.replace("PORT", str(port)) for part in command)], stderr=subprocess.DEVNULL, env=environment)
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            until(lambda: answers(client), "the server was ready")
            yield client, process.pid
    finally:
        process.terminate()
        process.wait()


def family(pid: int) -> list[int]:
    """The process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def cpu_seconds(pid: int) -> float:
    ticks = 0
    for member in family(pid):
        fields = Path(f"/proc/{member}/stat").read_text().rsplit(")", 1)[1].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def megabytes(pid: int) -> float:
    return sum(int(Path(f"/proc/{member}/statm").read_text().split()[1]) for member in family(pid)) * 4096 / 1e6


@dataclass(frozen=True)
class Load:
    per_second: float
    p50: float
    p99: float
    """Milliseconds."""
    statuses: dict[int, int]
    errors: int
    client_share: float
    """Of the CPU that client and server used together, what the client used."""


def ask(client: httpx.Client, body: str) -> None:
    assert client.post("/v1/plans", content=body, headers={"Content-Type": "application/json"}).status_code == 200


@dataclass(frozen=True)
class Asking:
    """What a load is made of."""

    sizes: Sequence[int]
    connections: int
    distinct: bool
    fraction: str = "5"


def load(client: httpx.Client, pid: int, seconds: int, asking: Asking) -> Load:
    bodies = ", ".join(f"[==[{chain(n)}]==]" for n in asking.sizes)
    distinct, connections, fraction = asking.distinct, asking.connections, asking.fraction
    script = SCRIPT.replace("BODIES", bodies).replace("DISTINCT", str(distinct).lower()).replace("FRACTION", fraction)
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as file:
        file.write(script)
        file.flush()
        mine, theirs = resource.getrusage(resource.RUSAGE_CHILDREN), cpu_seconds(pid)
        command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "--timeout", "30s", "-s", file.name, str(client.base_url)]
        said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = now.ru_utime + now.ru_stime - mine.ru_utime - mine.ru_stime
    found = re.search(r"RESULT (\d+) (\d+) (\S+) (\S+) (\d+) (\d+) \| (.*)", said)
    assert found, said
    requests, micros, p50, p99, errors, timeouts = (float(value) for value in found.groups()[:6])
    statuses = {int(status): int(count) for status, count in (pair.split("=") for pair in found[7].split())}
    return Load(requests / micros * 1e6, p50, p99, statuses, int(errors + timeouts), used / (used + cpu_seconds(pid) - theirs))


def one_at_a_time(client: httpx.Client, first: int) -> float:
    """Median milliseconds of a request that nobody has sent before, with nothing else going on."""
    times = []
    for i in range(60):
        body = chain(8).replace(RATE, f"{first + i}.25")
        began = time.perf_counter()
        ask(client, body)
        times.append(time.perf_counter() - began)
    return statistics.median(times) * 1e3


def _shares(found: Load) -> str:
    total = sum(found.statuses.values())
    return ", ".join(f"{status}: {count / total:.1%}" for status, count in sorted(found.statuses.items()))


def show(name: str, found: Load, echo: Load | None = None) -> None:
    against = f", {found.per_second / echo.per_second:.3f} of the echo's" if echo else ""
    print(
        f"{name:9} {found.per_second:8.0f} requests/s{against}; p50 {found.p50:.2f} ms, p99 {found.p99:.2f} ms; "
        f"{_shares(found)}, broken connections {found.errors}; the client took {found.client_share:.0%} of the CPU",
        flush=True,
    )


def main() -> None:
    if shutil.which("wrk") is None:
        print("wrk is not on this machine; on Debian: apt install wrk")
        return
    given = [int(argument) for argument in sys.argv[1:] if argument.isdigit()]
    seconds, sizes = given[0] if given else SECONDS, given[1:] or SIZES
    print(f"{seconds} s each, chains of {sizes[0]} to {sizes[-1]} streams, {CONNECTIONS} connections, {os.cpu_count()} cores for client and server")
    fresh = Asking(sizes, CONNECTIONS, distinct=True)
    with serving("-c", ECHO, "PORT") as (client, pid):
        echo = load(client, pid, seconds, fresh)
    show("echo", echo)
    with serving("-m", "app", "serve", "--port", "PORT") as (client, pid):
        for n in sizes:
            ask(client, chain(n))
        cached = load(client, pid, seconds, replace(fresh, distinct=False))
        show("cached", cached, echo)
        distinct = load(client, pid, seconds, fresh)
        show("distinct", distinct, echo)
        before: tuple[Any, ...] = one_at_a_time(client, 20_000), megabytes(pid)
        burst = load(client, pid, max(1, seconds // 4), replace(fresh, connections=BURST_CONNECTIONS, fraction="75"))
        show(f"burst {BURST_CONNECTIONS}", burst)
        time.sleep(1.0)
        after: tuple[Any, ...] = one_at_a_time(client, 30_000), megabytes(pid)
    print(f"one request at a time: {before[0]:.2f} ms before the burst, {after[0]:.2f} ms after it")
    print(f"memory of the server and its workers: {before[1]:.0f} MB before the burst, {after[1]:.0f} MB after it")
    for found in (cached, distinct):
        assert set(found.statuses) == {200} and found.errors == 0, found
    assert set(burst.statuses) <= {200, 503} and burst.errors == 0, burst


if __name__ == "__main__":
    main()
