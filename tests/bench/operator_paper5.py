"""Paper 5's experiments with sources: one that stalls (§4.4, Fig. 11), and a table that offers a scan and an index (§4.5, Fig. 12).

A stalled stream: R, T and U join pairwise. T is silent for a while, and then sends what it held back. With state modules no spanning tree of the
three predicates is fixed, so that pairs of R and U go on being made; a tree that begins with R ⋈ T makes none. Batches arrive in one process; the
watermark stands still with T, as Spark's does. What is counted are pairs and results that the operator makes in each batch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

import polars as pl

from models.plan import Plan
from tests.bench.bench_stem import Flow, request_of, shaped
from tests.bench.evidence import AGREES, DIFFERS, IN_KIND, Claim, Figure, Findings, Table, judged, line, told
from tests.spark_adapter.in_process import InProcess, Stretch, arrivals, cut

__all__ = ["access", "access_told", "held_back", "stalled"]

WINDOW, BATCH = 10.0, 1.0  # seconds
AHEAD = 1.05  # times as long
WAYS = {"kept": "scan, kept", "asked": "index, asked", "asked, answers kept": "index, answers kept"}
RATE, KEYS = 500.0, 1000
FLOWS = {
    "R": Flow(RATE, WINDOW, {"x": KEYS, "z": KEYS}),
    "T": Flow(RATE, WINDOW, {"x": KEYS, "y": KEYS}),
    "U": Flow(RATE, WINDOW, {"y": KEYS, "z": KEYS}),
}
PREDICATES = ["R.x = T.x", "T.y = U.y", "R.z = U.z"]
MODULES, TREE, ROUTED = "state modules", "tree (R ⋈ T) ⋈ U", "state modules, routed"
Batches = Sequence[tuple[Mapping[str, pl.DataFrame], int]]


def held_back(batches: Batches, name: str, first: int, last: int) -> list[tuple[dict[str, pl.DataFrame], int]]:
    """The batches, with one stream's from `first` up to `last` arriving in batch `last` at once. The watermark does not pass what is held back."""
    made = []
    for n, (batch, watermark) in enumerate(batches):
        silent = first <= n < last
        rows = [batches[k][0][name] for k in range(first, last)] if n == last else []
        made.append(
            (
                dict(batch) | {name: batch[name].clear() if silent else pl.concat([*rows, batch[name]])},
                min(watermark, batches[first][1]) if first <= n <= last else watermark,
            )
        )
    return made


def plans() -> dict[str, Plan]:
    request = request_of(FLOWS, PREDICATES)
    modules = shaped(request, [("join-1", ["R", "T", "U"], {"R": ["U", "T"], "T": ["R", "U"], "U": ["R", "T"]})])
    tree = shaped(request, [("join-1", ["R", "T"], {}), ("join-2", ["join-1", "U"], {})])
    return {MODULES: modules, TREE: tree, ROUTED: modules}


def run(title: str, plan: Plan, batches: Batches) -> InProcess:
    one = InProcess(plan)
    if title == ROUTED:
        one._program = replace(one._program, adaptive=True)
    one.run(batches)
    return one


def pairs_of(one: InProcess) -> list[int]:
    """Rows of two streams that the operator made in each batch, whichever two."""
    return [sum(step["rows_out"] for step in batch.line["steps"] if len(step["arriving"] + step["joined"]) == 2) for batch in one.batches]


def stalled(quick: bool) -> Findings:
    third = 20 if quick else 60  # seconds: before, during and after
    rows = arrivals({name: [Stretch(3.0 * third, flow.rate, flow.values)] for name, flow in FLOWS.items()})
    flowing = cut(rows, BATCH)
    first, last = round(third / BATCH), round(2 * third / BATCH)
    never = sum(batch.results for batch in run(MODULES, plans()[MODULES], flowing).batches)
    found = {title: run(title, plan, held_back(flowing, "T", first, last)) for title, plan in plans().items()}
    pairs = {title: pairs_of(one) for title, one in found.items()}
    whole = {title: [batch.results for batch in one.batches] for title, one in found.items()}
    # A tree still joins what arrives with what T had sent before, for the length of a window.
    silent = slice(first + round(WINDOW / BATCH), last)
    during = {title: sum(made[silent]) for title, made in pairs.items()}
    cpu = {title: sum(batch.cpu for batch in one.batches[silent]) for title, one in found.items()}
    lost = {title: never - sum(made) for title, made in whole.items()}
    table = [
        [title, f"{during[title]:,}", f"{sum(whole[title][silent]):,}", f"{cpu[title]:.2f}", f"{sum(whole[title]):,}", f"{lost[title]:,}"]
        for title in found
    ]
    series = {title: line((n * BATCH, float(total)) for n, total in enumerate(accumulate(made))) for title, made in pairs.items()}
    results = {title: line((n * BATCH, float(total)) for n, total in enumerate(accumulate(made))) for title, made in whole.items()}
    return Findings(
        [
            judged(
                "(Fig. 11) While T stalls partial results go on with state modules; with a tree that begins with T they stop.",
                f"from {WINDOW:g} s after T fell silent {during[MODULES]:,} pairs against {during[TREE]:,}.",
                during[MODULES] > 0 and during[TREE] == 0,
                IN_KIND if during[MODULES] > during[TREE] else DIFFERS,
            ),
            Claim(
                "Full results wait for T in either case.",
                f"{sum(whole[MODULES][silent]):,} and {sum(whole[TREE][silent]):,} while it is silent.",
                AGREES if not sum(whole[MODULES][silent]) + sum(whole[TREE][silent]) else DIFFERS,
            ),
            judged(
                "(ours) Nothing is lost by the delay.",
                f"of {never:,} results that there are without it {max(lost.values()):,} are missing.",
                not any(lost.values()),
            ),
        ],
        [
            f"Three streams of {RATE:g} rows/s, {KEYS:,} values, windows of {WINDOW:g} s, batches of {BATCH:g} s; "
            f"T silent from {third} to {2 * third} s."
        ],
        [Table("While T is silent, and in all", ["", "pairs", "results", "CPU s", "results in all", "missing"], table)],
        [
            Figure("stalled-pairs", "Pairs made so far", "seconds", "pairs", series),
            Figure("stalled-results", "Results made so far", "seconds", "results", results),
        ],
        [
            "Pairs are counted in the operator; it writes full results alone, so that for a user they are a measure of work done ahead, not an "
            "answer. Routing goes for results per CPU, not for pairs: while T has nothing to join with, rows that are sent there first make none, "
            f"and it made {during[ROUTED] / max(1, during[MODULES]):.0%} of the pairs that the fixed order made."
        ],
    )


def release_of(url: str) -> str:
    """Which database it is, by its own word."""
    from sqlalchemy import create_engine

    engine = create_engine(url)
    with engine.connect() as connection:
        release = connection.dialect.server_version_info or ()
    return f"{'SQLite' if engine.dialect.name == 'sqlite' else 'PostgreSQL'} {'.'.join(map(str, release))}"


def access(quick: bool) -> Findings:
    """Orders against a table that is read and kept, or asked by key: few orders and many, on Spark with a database."""
    from spark_adapter.session import open_session
    from tests.bench.bench_tables import Size, database, written
    from tests.bench.bench_tables import run as run_way

    customers = 200_000 if quick else 1_000_000
    sizes = {"few": Size(200, 5, customers, customers), "many": Size(20_000 if quick else 100_000, 20, customers, customers)}
    shown: list[dict[str, Any]] = []
    release = ""
    session = open_session({})
    for load, size in sizes.items():
        with tempfile.TemporaryDirectory() as made, database(Path(made), written(Path(made), size)) as url:
            release = release_of(url)
            for way in WAYS:
                run_way(session, Path(made), way, size, url)  # warms the JVM up
                figures = run_way(session, Path(made), way, size, url)
                orders = size.rate * size.seconds
                took = {"seconds": orders / figures["rows_per_second"], "cpu": figures["cpu"] * size.seconds, "keys": figures["keys"]}
                shown.append({"load": load, "way": way, "orders": orders} | took)
    session.stop()
    return told(access_told, {"customers": customers, "database": release, "runs": shown})


def access_told(data: Mapping[str, Any]) -> Findings:
    runs = data["runs"]
    seconds = {(run["load"], run["way"]): run["seconds"] for run in runs}
    few, many = (seconds[load, "asked"] / seconds[load, "kept"] for load in ("few", "many"))
    table = [[f"{run['orders']:,}, {WAYS[run['way']]}", f"{run['seconds']:.1f}", f"{run['cpu']:.1f}", f"{run['keys']:,.0f}"] for run in runs]
    rates = {f"access_{run['way'].split(',')[-1].split()[0]}": f"{run['orders'] / run['seconds']:,.0f}" for run in runs if run["load"] == "many"}
    return Findings(
        [
            judged(
                "(Fig. 12) In the beginning an index is ahead of a scan.",
                f"the first orders take {few:.2f} times as long by the index.",
                few < 1 / AHEAD,
            ),
            judged("In the end the scan is ahead.", f"many orders take {many:.2f} times as long by the index.", many > AHEAD),
        ],
        [
            f"A table of {data['customers']:,} rows, orders of any of them, so that few customers order twice in a batch; few orders are one batch. "
            f"Wall time "
            f"of the second run; the database is {data['database']}."
        ],
        [Table("", ["orders, access", "seconds", "CPU s", "keys asked"], table)],
        [],
        [],
        rates | {"access_customers": f"{data['customers']:,}"},
    )
