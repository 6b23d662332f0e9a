"""`make demo`, `watersmeet demo`: an auction site, from its request to checked results, in a minute.

It plans openapi/examples/auction.json, asks the real service for the same plan, generates the site's streams at a twentieth
of their rates, runs the plan on local Spark, holds every result row against a nested loop, and the plan's predicted
rates against the measured ones. Whatever it makes lies in .demo/ and is removed at the end; exit code 1 where anything is not as it should be.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np

from app.commands.draw import draw_plan
from app.files import EXAMPLES
from models.bindings import Bindings
from models.plan import Plan
from models.request import PlanRequest
from solvers.planner import plan as make_plan
from spark_adapter.errors import AdapterError

__all__ = ["main"]

EXAMPLE = EXAMPLES / "auction.json"
FOLDER = Path(".demo")
SCALE = 20  # the run has 1/20 of the site's rates, accounts and listings: 50 rows a second, and every rate of the plan 1/20
SECONDS = 900  # of event time: the longest window is 600, so the last 300 are like any other later
BATCHES = 6
WARM_UP_BATCHES = 4
TOLERANCE = 0.1  # the site draws at random: a tenth is several standard deviations of every rate shown

Triples = np.ndarray[Any, np.dtype[np.int64]]


def main() -> int:
    """Everything in order; 0 where all of it is as it should be."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir()
    try:
        request = PlanRequest.model_validate_json(EXAMPLE.read_text())
        plan = plan_here(request)
        good = ask_the_service(plan)
        small, bindings = generate(request)
        good &= run_on_spark(small, bindings)
        found = results(bindings)
        good &= check_rows(small, found)
        good &= compare_rates(small)
    except AdapterError as error:
        say(str(error))
        good = False
    finally:
        shutil.rmtree(FOLDER, ignore_errors=True)
    say("", "All as it should be." if good else "Something is not as it should be: see above.")
    return 0 if good else 1


def say(*lines: str) -> None:
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def step(title: str) -> None:
    say("", f"== {title}")


def plan_here(request: PlanRequest) -> Plan:
    step("plan: persons, auctions and bids of an auction site, joined within their windows")
    say(f"$ watersmeet explain {EXAMPLE}")
    started = time.perf_counter()
    plan = make_plan(request)
    taken = time.perf_counter() - started
    say(draw_plan(plan), f"planned in {1000 * taken:.1f} ms")
    return plan


def ask_the_service(plan: Plan) -> bool:
    step("serve: the same over HTTP")
    with service() as url:
        say(f"$ watersmeet serve --port {url.rsplit(':', 1)[1]} &")
        say(f"$ curl -s {url}/v1/plans -H 'Content-Type: application/json' -d @{EXAMPLE}")
        asked = urllib.request.Request(f"{url}/v1/plans", EXAMPLE.read_bytes(), {"Content-Type": "application/json"})
        with urllib.request.urlopen(asked, timeout=30) as response:
            answer = json.load(response)
    shown = {key: answer[key] for key in ("format", "fingerprint", "qualified", "proof", "cost", "headroom")}
    say(json.dumps(shown, indent=2)[:-2] + ",", "  …", "}")
    same = bool(answer["fingerprint"] == plan.fingerprint and answer["cost"] == plan.cost.model_dump(mode="json"))
    say("the service's plan is the one planned here" if same else "the service's plan is not the one planned here")
    return same


@contextmanager
def service() -> Iterator[str]:
    """A service on a free port, for as long as it is needed."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    with (FOLDER / "service.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-m", "app", "serve", "--port", str(port)], stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + 60
        while not answers(f"{url}/readyz"):
            if process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the service does not start:\n" + (FOLDER / "service.log").read_text())
            time.sleep(0.05)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=30)


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def generate(request: PlanRequest) -> tuple[Plan, Bindings]:
    """The site at 1/SCALE: rates, accounts and listings shrink alike, so selectivities grow and every rate of the plan shrinks by it too."""
    from spark_adapter.nexmark import SCHEMAS, Site, write

    step(f"generate: the site at 1/{SCALE} of its size, {SECONDS} seconds of it")
    document = request.model_dump(mode="json")
    for stream in document["query"]["streams"]:
        stream["rate"] /= SCALE
        stream["distinct"] = {attribute: count / SCALE for attribute, count in stream["distinct"].items()}
    small = make_plan(PlanRequest.model_validate(document))
    streams = {stream.name: stream for stream in small.query.streams}
    rates = {name: stream.rate for name, stream in streams.items()}
    site = Site(rates, round(streams["persons"].distinct["id"]), round(streams["auctions"].distinct["id"]), SECONDS)
    write(site, FOLDER / "data", BATCHES)
    bindings = Bindings.model_validate(
        {
            "streams": {
                name: {
                    "source": {"format": "json", "schema": schema, "options": {"path": str(FOLDER / "data" / name), "maxFilesPerTrigger": "1"}},
                    "event_time": "ts",
                }
                for name, schema in SCHEMAS.items()
            },
            "select": [
                *(f"unix_micros({name}.ts) AS {name}_ts" for name in SCHEMAS),
                "persons.name AS seller",
                "auctions.item AS item",
                "bids.price AS price",
            ],
            "sink": {"format": "parquet", "options": {"path": str(FOLDER / "results")}},
            "checkpoint": str(FOLDER / "checkpoint"),
            "trigger": {"available_now": True},
        }
    )
    (FOLDER / "plan.json").write_text(small.model_dump_json(indent=2))
    (FOLDER / "bindings.json").write_text(bindings.model_dump_json(indent=2, by_alias=True))
    total = sum(int(rate * SECONDS) for rate in rates.values())
    say(f"{total:,} rows in {BATCHES} files a stream, seeded: the same on every machine")
    return small, bindings


def run_on_spark(plan: Plan, bindings: Bindings) -> bool:
    from spark_adapter.run import run

    step("run: the plan as one stateful operator on local Spark")
    say("$ watersmeet run .demo/plan.json .demo/bindings.json", "(Spark takes some seconds to start, and as many for its first batch)")
    return run(plan, bindings, sys.stdout) == 0


def results(bindings: Bindings) -> dict[str, list[Any]]:
    """The columns that the run wrote."""
    import pyarrow.parquet as pq

    files = sorted(Path(bindings.sink.options["path"]).glob("*.parquet"))
    tables = [pq.read_table(file) for file in files]
    return {name: [value for table in tables for value in table.column(name).to_pylist()] for name in tables[0].column_names}


def check_rows(plan: Plan, found: dict[str, list[Any]]) -> bool:
    step("check: every row against a nested loop")
    expected = nested_loop(plan)
    made = np.array([found[f"{name}_ts"] for name in ("persons", "auctions", "bids")], dtype=np.int64).T
    same = expected.shape == made.shape and bool((ordered(expected) == ordered(made)).all())
    say(f"{len(made):,} rows from Spark, {len(expected):,} from the nested loop: {'the same, each once' if same else 'they differ'}")
    say("", f"{'seller':<14}{'item':<10}{'bid':>8}")
    for i in np.lexsort(made.T)[:4]:
        say(f"{found['seller'][i]:<14}{found['item'][i]:<10}{found['price'][i]:>8.2f}")
    return same


def nested_loop(plan: Plan) -> Triples:
    """Event times of (person, auction, bid) for all results by the definition, every pair of rows compared."""
    window = {stream.name: round((stream.window.seconds or 0) * 1_000_000) for stream in plan.query.streams}
    persons, auctions, bids = (table(name) for name in ("persons", "auctions", "bids"))
    bid, auction = pairs(bids["ts"], bids["auction"], window["bids"], auctions["ts"], auctions["id"], window["auctions"])
    k, person = pairs(auctions["ts"][auction], auctions["seller"][auction], window["auctions"], persons["ts"], persons["id"], window["persons"])
    bid_ts, person_ts = bids["ts"][bid[k]], persons["ts"][person]
    within = (bid_ts - person_ts <= window["persons"]) & (person_ts - bid_ts <= window["bids"])
    triples: Triples = np.array([person_ts, auctions["ts"][auction[k]], bid_ts], dtype=np.int64).T[within]
    return triples


def table(name: str) -> dict[str, Triples]:
    """The whole numbers of a generated stream, read back from its files."""
    rows = [json.loads(line) for file in sorted((FOLDER / "data" / name).glob("*.json")) for line in file.read_text().splitlines()]
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    columns = {key: np.array([row[key] for row in rows], dtype=np.int64) for key, value in rows[0].items() if isinstance(value, int)}
    return columns | {"ts": np.array([(datetime.fromisoformat(row["ts"]) - epoch) // timedelta(microseconds=1) for row in rows], dtype=np.int64)}


def pairs(ts: Triples, key: Triples, window: int, other_ts: Triples, other_key: Triples, other_window: int) -> tuple[Triples, Triples]:
    """Indexes of all pairs with equal keys, each within the other's window: a block of rows against all others at a time."""
    left, right = [], []
    for start in range(0, len(ts), 1000):
        block = slice(start, start + 1000)
        apart = ts[block, None] - other_ts[None, :]
        i, j = np.nonzero((key[block, None] == other_key[None, :]) & (apart <= other_window) & (-apart <= window))
        left.append(i + start)
        right.append(j)
    return np.concatenate(left), np.concatenate(right)


def ordered(triples: Triples) -> Triples:
    return triples[np.lexsort(triples.T)]


def compare_rates(plan: Plan) -> bool:
    """The plan's predictions against what the run's statistics say of the batches after the windows have filled."""
    step("compare: what the plan predicted, what the run measured")
    lines = [json.loads(line) for line in (FOLDER / "checkpoint" / "statistics.jsonl").read_text().splitlines()]
    steady = [line for line in lines if WARM_UP_BATCHES <= line["batch"] < BATCHES]
    seconds = len(steady) * SECONDS / BATCHES
    rows: list[tuple[str, float, float]] = []
    for stream in plan.query.streams:
        arrived = sum(seen["rows"] for line in steady for seen in line["streams"] if seen["stream"] == stream.name)
        rows.append((f"{stream.name}", stream.rate, arrived / seconds))
    for operator in plan.operators:
        last = {pipeline.input: len(pipeline.probes) - 1 for pipeline in operator.pipelines}
        made = sum(
            seen["rows_out"] for line in steady for seen in line["steps"] if seen["operator"] == operator.id and seen["step"] == last[seen["input"]]
        )
        rows.append(("⋈".join(operator.streams), operator.rate, made / seconds))
    say(f"{'tuples per second':<28}{'predicted':>12}{'measured':>12}{'off by':>9}")
    for name, predicted, measured in rows:
        say(f"{name:<28}{predicted:>12.2f}{measured:>12.2f}{measured / predicted - 1:>9.1%}")
    return all(abs(measured / predicted - 1) <= TOLERANCE for _, predicted, measured in rows)


if __name__ == "__main__":
    sys.exit(main())
