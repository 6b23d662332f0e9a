"""How long planning takes, over HTTP, against the planners of DuckDB and PostgreSQL for joins of as many tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import duckdb

from tests.bench.bench_http import CAPS, SIZES, Compared, chain, compared, duckdb_explain, explain_text, server
from tests.bench.evidence import AGREES, DIFFERS, IN_KIND, Claim, Findings, NotAtHandError, Part, Section, Table

__all__ = ["SECTION"]

AIM, AIM_NOTHING = 1.0, 2.0
ROUNDS, QUICK_ROUNDS = 60, 15
HOW = (
    "Everything that a client waits for, on a connection that is kept open, in turns with the database's EXPLAIN of the same chain; "
    "medians, wall time."
)


def _findings(peer: str, found: list[Compared], rounds: int, notes: list[str]) -> Findings:
    most = max(one.ratio for one in found if one.name != "nothing fits")
    nothing = max(one.ratio for one in found if one.name == "nothing fits")

    def verdict(ratio: float, aim: float) -> str:
        return AGREES if ratio <= aim else IN_KIND if ratio <= 1.5 * aim else DIFFERS

    claims = [
        Claim(f"(aim) A plan takes no longer than {peer}'s, with and without caps.", f"{most:.2f} times at most.", verdict(most, AIM)),
        Claim(f"(aim) Where nothing fits, at most {AIM_NOTHING:g} times.", f"{nothing:.2f} times at most.", verdict(nothing, AIM_NOTHING)),
    ]
    rows = [[str(one.n), one.name, f"{one.ours:.1f}", f"{one.theirs:.1f}", f"{one.ratio:.2f}", one.proof] for one in found]
    table = Table("Milliseconds", ["streams", "request", "ours", peer, "ratio", "proof"], rows)
    quoted = {f"{peer.lower()}_{n}": f"{one.ratio:.2f}" for one in found if one.name == "under caps" for n in [one.n]}
    return Findings(claims, [HOW, f"{rounds} rounds. On a busy machine both wait, and the ratio is rough."], [table], [], notes, quoted)


def _all(explain: Callable[[int], Callable[[], object]], quick: bool) -> list[Compared]:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    with server() as connection:
        return [compared(connection, n, name, explain(n), rounds) for n in SIZES for name in CAPS]


def against_duckdb(quick: bool) -> Findings:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    return _findings("DuckDB", _all(duckdb_explain, quick), rounds, [f"DuckDB {duckdb.__version__}, one thread, in-process."])


@contextmanager
def postgres_explains() -> Iterator[Callable[[int], Callable[[], object]]]:
    """A PostgreSQL of our own with the chain's tables, empty of rows but with their statistics' worth of pages left to the planner."""
    import psycopg

    from tests.app.tools import NoDatabaseError
    from tests.spark_adapter.postgres import running_postgres

    try:
        context = running_postgres()
        postgres = context.__enter__()
    except (NoDatabaseError, KeyError, OSError) as error:
        raise NotAtHandError(f"no PostgreSQL here ({type(error).__name__})") from error
    try:
        with psycopg.connect(postgres.url().replace("+psycopg", ""), autocommit=True) as connection:

            def explain(n: int) -> Callable[[], object]:
                for i, stream in enumerate(chain(n, {})["query"]["streams"]):
                    rows = min(20_000, stream["rate"] * stream["window"]["seconds"])
                    columns = f"i % 5000 AS k{max(i - 1, 0)}, i % 7000 AS k{i if i else 'x'}"
                    connection.execute(f"DROP TABLE IF EXISTS s{i}")
                    connection.execute(f"CREATE TABLE s{i} AS SELECT {columns} FROM generate_series(1, {rows}) AS i")
                    connection.execute(f"ANALYZE s{i}")
                connection.execute(f"SET join_collapse_limit = {n}")
                text = explain_text(n)
                return lambda: connection.execute(text).fetchall()

            yield explain
    finally:
        context.__exit__(None, None, None)


def against_postgres(quick: bool) -> Findings:
    with postgres_explains() as explain:
        found = _all(explain, quick)
    notes = [
        "`join_collapse_limit` is set to the number of tables, so that all orders are looked at; from 12 tables on PostgreSQL searches by "
        "its genetic algorithm, as it "
        "does by default."
    ]
    return _findings("PostgreSQL", found, QUICK_ROUNDS if quick else ROUNDS, notes)


SECTION = Section(
    "planning",
    "Planning time",
    "A plan over HTTP, validated, priced, proven and explained, against databases that plan a join of as many tables.",
    (Part("duckdb", "Against DuckDB", against_duckdb), Part("postgres", "Against PostgreSQL", against_postgres)),
)
