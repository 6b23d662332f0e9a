"""How long planning takes, over HTTP, against the planners of DuckDB and PostgreSQL for joins of as many tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb

from tests.bench.bench_http import CAPS, SIZES, Compared, chain, compared, duckdb_explain, explain_text, server
from tests.bench.evidence import AGREES, DIFFERS, IN_KIND, Claim, Figure, Findings, NotAtHandError, Part, Section, Table, line, told

__all__ = ["SECTION"]

AIM, AIM_NOTHING, NEARLY = 1.0, 2.0, 1.5
ROUNDS, QUICK_ROUNDS = 60, 15
SAYS = {
    "DuckDB": "One thread, in-process.",
    "PostgreSQL": "`join_collapse_limit` is set to the number of tables, so that all orders are looked at; from 12 tables on PostgreSQL searches by "
    "its genetic algorithm, as it does by default.",
}
HOW = (
    "Everything that a client waits for, on a connection that is kept open, in turns with the database's EXPLAIN of the same chain; "
    "medians, wall time."
)


def _data(peer: str, release: str, found: list[Compared], rounds: int) -> dict[str, Any]:
    plain = [{"n": one.n, "name": one.name, "ours": one.ours, "theirs": one.theirs, "proof": one.proof} for one in found]
    return {"peer": peer, "release": release, "rounds": rounds, "found": plain}


@dataclass(frozen=True)
class Asked:
    """One kind of request: median milliseconds of ours and of the peer's."""

    n: int
    name: str
    ours: float
    theirs: float
    proof: str

    @property
    def ratio(self) -> float:
        return self.ours / self.theirs


def planning_told(data: Mapping[str, Any]) -> Findings:
    peer, found = data["peer"], [Asked(**one) for one in data["found"]]
    most = max(one.ratio for one in found if one.name != "nothing fits")
    nothing = max(one.ratio for one in found if one.name == "nothing fits")

    def verdict(ratio: float, aim: float) -> str:
        return AGREES if ratio <= aim else IN_KIND if ratio <= NEARLY * aim else DIFFERS

    claims = [
        Claim(f"(aim) A plan takes no longer than {peer}'s, with and without caps.", f"{most:.2f} times at most.", verdict(most, AIM)),
        Claim(f"(aim) Where nothing fits, at most {AIM_NOTHING:g} times.", f"{nothing:.2f} times at most.", verdict(nothing, AIM_NOTHING)),
    ]
    rows = [[str(one.n), one.name, f"{one.ours:.1f}", f"{one.theirs:.1f}", f"{one.ratio:.2f}", one.proof] for one in found]
    table = Table("Milliseconds", ["streams", "request", "ours", peer, "ratio", "proof"], rows)
    quoted = {f"{peer.lower()}_{n}": f"{one.ratio:.2f}" for one in found if one.name == "under caps" for n in [one.n]}
    series = {
        f"{who}, {name}": line((float(one.n), getattr(one, which)) for one in found if one.name == name)
        for name in dict.fromkeys(one.name for one in found)
        for who, which in (("ours", "ours"), (peer, "theirs"))
    }
    figure = Figure(f"{peer.lower()}", f"Planning time against {peer}", "streams", "ms", series)
    notes = [f"{data['release']}. {SAYS[peer]}", *_what_would_have_to_hold(peer, found)]
    return Findings(claims, [HOW, f"{data['rounds']} rounds. On a busy machine both wait, and the ratio is rough."], [table], [figure], notes, quoted)


def _what_would_have_to_hold(peer: str, found: Sequence[Asked]) -> list[str]:
    """Where we take longer than we aim to: at which requests, and by what."""
    over = [one for one in found if one.ratio > (AIM_NOTHING if one.name == "nothing fits" else AIM)]
    if not over:
        return []
    sizes = sorted({one.n for one in over})
    rest = sorted({one.n for one in found} - set(sizes))
    most = max(one.ours - one.theirs * (AIM_NOTHING if one.name == "nothing fits" else AIM) for one in over)
    least = min(one.ours for one in found)
    tail = f" At {', '.join(map(str, rest))} streams the aims hold." if rest else ""
    return [
        f"The aims are missed at {', '.join(map(str, sizes))} streams, by {most:.1f} ms at most; {peer} plans in "
        f"{min(one.theirs for one in over):.1f} ms and "
        f"more there. No request of ours, however small, is answered in less than {least:.1f} ms: HTTP, validation, prices, proof and explanation "
        f"included. "
        f"To hold, these together would have to take less than {min(one.theirs for one in over):.1f} ms; {peer}'s planner is asked without any of "
        f"them.{tail}"
    ]


def _all(explain: Callable[[int], Callable[[], object]], quick: bool) -> list[Compared]:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    with server() as connection:
        return [compared(connection, n, name, explain(n), rounds) for n in SIZES for name in CAPS]


def against_duckdb(quick: bool) -> Findings:
    rounds = QUICK_ROUNDS if quick else ROUNDS
    return told(planning_told, _data("DuckDB", f"DuckDB {duckdb.__version__}", _all(duckdb_explain, quick), rounds))


@contextmanager
def postgres_explains() -> Iterator[tuple[Callable[[int], Callable[[], object]], str]]:
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

            yield explain, f"PostgreSQL {connection.info.server_version // 10000}.{connection.info.server_version % 10000}"
    finally:
        context.__exit__(None, None, None)


def against_postgres(quick: bool) -> Findings:
    with postgres_explains() as (explain, release):
        found = _all(explain, quick)
    return told(planning_told, _data("PostgreSQL", release, found, QUICK_ROUNDS if quick else ROUNDS))


SECTION = Section(
    "planning",
    "Planning time",
    "A plan over HTTP, validated, priced, proven and explained, against databases that plan a join of as many tables.",
    (Part("duckdb", "Against DuckDB", against_duckdb, planning_told), Part("postgres", "Against PostgreSQL", against_postgres, planning_told)),
    f"the largest ratio at most the aim, in kind {NEARLY:g} times the aim.",
)
