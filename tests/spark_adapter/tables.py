"""Tables for tests: random queries and plans with them, databases that hold them, and the answer by the definition."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from sqlalchemy import BigInteger, Column, MetaData, Table, create_engine

from models.plan import Plan
from models.request import Query
from spark_adapter.documents import check_tree
from spark_adapter.errors import PlanError
from spark_adapter.stem.lookup import Lookups, Reach
from tests.spark_adapter.cells import ATTRIBUTES, OPERATORS, Batch, batches, by_definition, reordered, with_caches
from tests.spark_adapter.plans import Shape, make_plan

__all__ = ["Content", "TableCase", "database", "fill", "joined_with_tables", "lookups", "table_cases", "table_plans"]

Content = Mapping[str, Sequence[Mapping[str, Any]]]
"""Per table its rows: id, x, y; x and y may be null."""


@dataclass(frozen=True)
class TableCase:
    """A plan, batches with their watermarks, and what the tables hold from which batch on."""

    plan: Plan
    batches: list[tuple[Batch, int]]
    contents: dict[int, Content]
    """From this batch on; 0 is always there."""
    competing: frozenset[str]
    """Kept tables whose rows are there from the second batch on only."""
    parallelism: int


def fill(url: str, content: Content) -> None:
    """Make the tables anew with these rows."""
    engine = create_engine(url)
    with engine.begin() as connection:
        if engine.dialect.name == "sqlite":
            connection.exec_driver_sql("PRAGMA synchronous = OFF")  # the file goes with the test: waiting for the disk took a third of its time
        for name, rows in content.items():
            table = Table(name, MetaData(), *(Column(column, BigInteger) for column in ("id", *ATTRIBUTES)))
            table.drop(connection, checkfirst=True)
            table.create(connection)
            if rows:
                connection.execute(table.insert(), [dict(row) for row in rows])
    engine.dispose()


@contextmanager
def database() -> Iterator[str]:
    """The URL of an SQLite database of its own."""
    with TemporaryDirectory(prefix="watersmeet-") as folder:
        yield f"sqlite:///{Path(folder) / 'tables.db'}"


def lookups(url: str, query: Query, cells: int = 1) -> Lookups:
    """Whoever asks for the tables of a query, in types of 64 bits."""
    used = {side for predicate in query.predicates for side in (predicate.left, predicate.right)}
    columns = pa.schema([(name, pa.int64()) for name in ("id", *ATTRIBUTES)])
    reaches = {
        table.name: Reach(
            url,
            table.name,
            None,
            columns,
            {side: (side.split(".")[1], pa.int64()) for side in sorted(used) if side.split(".")[0] == table.name},
            ("id",),
            2,
            0.0,
        )
        for table in query.tables
    }
    return Lookups(reaches, cells)


def joined_with_tables(plan: Plan, timed: Sequence[tuple[Batch, int]], contents: Mapping[int, Content]) -> Counter[tuple[int, ...]]:
    """Every combination: streams as ever; a table's rows as they were in the batch in which the last of the streams came that it is joined with."""
    query = plan.query
    tables = [table.name for table in query.tables]
    alone = query.model_dump(mode="json")
    alone["tables"] = []
    alone["predicates"] = [
        predicate for predicate in alone["predicates"] if not {side.split(".")[0] for side in (predicate["left"], predicate["right"])} & set(tables)
    ]
    names = [stream.name for stream in query.streams]
    arrived = {(name, row["id"]): (n, row) for n, (batch, _) in enumerate(timed) for name, rows in batch.items() for row in rows}
    users = {name: [leaf for leaf in operator.streams if leaf in names] for operator in plan.operators for name in operator.inputs if name in tables}
    found: Counter[tuple[int, ...]] = Counter()
    for result, count in by_definition(Query.model_validate(alone), timed).items():
        rows = {name: arrived[name, identity][1] for name, identity in zip(names, result, strict=True)}
        since = {name: arrived[name, identity][0] for name, identity in zip(names, result, strict=True)}
        choices = [contents[max(n for n in contents if n <= max(since[name] for name in users[table]))][table] for table in tables]
        for chosen in itertools.product(*choices):
            together: dict[str, Mapping[str, Any]] = {**rows, **dict(zip(tables, chosen, strict=True))}
            if all(_holds(predicate, together) for predicate in query.predicates):
                found[(*result, *(row["id"] for row in chosen))] += count
    return found


def _holds(predicate: Any, rows: Mapping[str, Mapping[str, Any]]) -> bool:
    (left, x), (right, y) = predicate.left.split("."), predicate.right.split(".")
    one, other = rows[left][x], rows[right][y]
    return one is not None and other is not None and bool(OPERATORS[predicate.op.value](one, other))


@st.composite
def table_queries(draw: st.DrawFn, counted: bool) -> Query:
    names = [f"s{i}" for i in range(draw(st.integers(1, 3)))]
    tables = [f"t{i}" for i in range(draw(st.integers(1, 2)))]
    streams = []
    for name in names:
        by_rows = counted and draw(st.booleans())
        window = {"rows": draw(st.integers(1, 6))} if by_rows else {"seconds": draw(st.sampled_from([0.5, 1, 2, 5]))}
        streams.append({"name": name, "rate": 10, "window": window})
    everyone = [*names, *tables]
    pairs = [(everyone[i], draw(st.sampled_from(everyone[:i]))) for i in range(1, len(everyone))]
    pairs += draw(st.lists(st.sampled_from(list(itertools.combinations(everyone, 2))), max_size=2))
    predicates: list[dict[str, Any]] = [
        {
            "left": f"{one}.{draw(st.sampled_from(ATTRIBUTES))}",
            "op": draw(st.sampled_from(["=", "=", "=", "=", "=", "<", "!="])),
            "right": f"{other}.{draw(st.sampled_from(ATTRIBUTES))}",
            "selectivity": 0.5,
        }
        for one, other in pairs
    ]
    listed = []
    for name in tables:
        sides = [side for predicate in predicates if predicate["op"] == "=" for side in (predicate["left"], predicate["right"])]
        bound = sorted({side.split(".")[1] for side in sides if side.split(".")[0] == name})
        offers = [{"kind": "index", "bound": list(some), "cpu": 1e-5, "keys": draw(st.integers(1, 3))} for some in _some(bound)]
        listed.append({"name": name, "rows": 5, "access": [{"kind": "scan"}, *offers]})
    return Query.model_validate({"streams": streams, "tables": listed, "predicates": predicates})


def _some(bound: Sequence[str]) -> list[tuple[str, ...]]:
    return [some for size in (1, 2) for some in itertools.combinations(bound, size)]


@st.composite
def table_plans(draw: st.DrawFn, query: Query) -> Plan:
    """Any tree in which no tables are joined alone, any accesses and orders that can bind them, any caches of answers and of other segments."""
    streams = [stream.name for stream in query.streams]
    nodes: list[Shape] = [*streams, *(table.name for table in query.tables)]
    while len(nodes) > 1:
        width = draw(st.integers(2, len(nodes)))
        flowing = [i for i, node in enumerate(nodes) if not isinstance(node, str) or node in streams]
        first = draw(st.sampled_from(flowing))
        taken = [first, *(i for i in draw(st.permutations(range(len(nodes)))) if i != first)][:width]
        nodes = [node for i, node in enumerate(nodes) if i not in taken] + [[nodes[i] for i in draw(st.permutations(taken))]]
    asked: dict[str, list[str]] = {}
    for table in query.tables:
        offers = [offer.bound for offer in table.access if offer.kind.value == "index"]
        if offers and draw(st.sampled_from([False, True, True])):
            asked[table.name] = draw(st.sampled_from(offers))
    plan = make_plan(query, nodes[0], asked)
    orders = {
        (entry.id, pipeline.input): draw(st.permutations(range(len(pipeline.probes)))) for entry in plan.operators for pipeline in entry.pipelines
    }
    plan = _bound(reordered(plan, orders))
    places = []
    for entry in plan.operators:
        for pipeline in entry.pipelines:
            step = draw(st.integers(0, len(pipeline.probes) - 1))
            if draw(st.booleans()):
                last = draw(st.integers(step, len(pipeline.probes) - 1))
                places.append((entry.id, pipeline.input, step, last, "prefix", draw(st.sampled_from([0.0, 400.0, 1e9]))))
    return with_caches(plan, places)


def _bound(plan: Plan) -> Plan:
    """With probes that ask moved behind those that give them keys; a table that some pipeline cannot bind at all is kept."""
    query = plan.query
    below = {relation.name: [relation.name] for relation in query.relations} | {entry.id: entry.streams for entry in plan.operators}
    asked = {table.name: list(table.bound) for table in plan.tables if table.bound}
    orders: dict[tuple[str, str], list[int]] = {}
    for entry in plan.operators:
        for pipeline in entry.pipelines:
            visited, waiting, order = set(below[pipeline.input]), list(range(len(pipeline.probes))), []
            while waiting:
                targets = [pipeline.probes[i].target for i in waiting]
                able = [i for i, target in zip(waiting, targets, strict=True) if _binds(query, visited, target, asked.get(target, []))]
                if not able:
                    asked.pop(next(target for target in targets if target in asked))
                    continue
                order.append(able[0])
                waiting.remove(able[0])
                visited |= set(below[pipeline.probes[able[0]].target])
            orders[entry.id, pipeline.input] = order
    document = reordered(plan, orders).model_dump(mode="json", by_alias=True)
    for table in document["tables"]:
        table |= {"access": "index" if table["name"] in asked else "scan", "bound": asked.get(table["name"], [])}
    found = Plan.model_validate(document)
    try:
        check_tree(found)
    except PlanError as wrong:
        raise AssertionError(f"the test made a plan that is refused: {wrong}") from wrong
    return found


def _binds(query: Query, visited: set[str], target: str, bound: Sequence[str]) -> bool:
    given = {
        own
        for predicate in query.predicates
        if predicate.op.value == "="
        for own, other in ((predicate.left, predicate.right), (predicate.right, predicate.left))
        if other.split(".")[0] in visited
    }
    return given.issuperset(f"{target}.{attribute}" for attribute in bound)


@st.composite
def contents(draw: st.DrawFn, query: Query, several: int) -> dict[int, Content]:
    """Duplicate keys, missing keys, null keys; other rows from some later batches on."""
    value = st.one_of(st.integers(0, 3), st.integers(0, 3), st.none())
    rows = st.lists(st.tuples(value, value), max_size=6)

    def drawn(start: int) -> Content:
        return {
            table.name: [{"id": start + 100 * t + k, "x": x, "y": y} for k, (x, y) in enumerate(draw(rows))] for t, table in enumerate(query.tables)
        }

    return {0: drawn(1000)} | {n: drawn(1000 + 1000 * n) for n in range(1, several) if draw(st.booleans())}


@st.composite
def table_cases(draw: st.DrawFn, counted: bool = False) -> TableCase:
    query = draw(table_queries(counted))
    plan = draw(table_plans(query))
    timed = draw(batches(query))
    kept = [table.name for table in plan.tables if not table.bound]
    return TableCase(
        plan,
        timed,
        draw(contents(query, len(timed))),
        frozenset(draw(st.sets(st.sampled_from(kept)))) if kept else frozenset(),
        draw(st.sampled_from([1, 2, 4])),
    )
