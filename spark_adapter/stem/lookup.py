"""Asking databases for rows by key, from a worker: SQLAlchemy's core, so any database that it speaks to.

The problem: the distinct keys of a batch, some hundred thousand of them, each with any number of rows in a table elsewhere. The method: a
query for as many keys at a time as the plan says, several side by side, each on a connection of its own. Names come from the database's own
description of the table and are quoted by SQLAlchemy; keys are bound, never text. A call that fails is tried again, after a pause that
doubles, for as long as the binding says; then the batch fails, and nothing of it is lost, since its changes are the store's only when it ends.

Keys are compared in the type that the query's predicates compare in, the database compares in the column's own: a key that the column's type
cannot hold has no partner there. What comes back is compared once more by the join itself, so a database that is generous, such as one that
does not tell upper from lower case, adds nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import polars as pl
import pyarrow as pa

from spark_adapter.errors import MARK
from spark_adapter.stem.program import Table
from spark_adapter.stem.tables import Calls

if TYPE_CHECKING:
    from sqlalchemy import Engine, Select

__all__ = ["AskingError", "Lookups", "Reach", "engine_of", "in_one_line", "reflected"]

FIRST_PAUSE = 0.05  # seconds before a call that failed is tried again…
LONGEST_PAUSE = 5.0  # … twice as many each time, up to these
MOST_BOUND = 30_000  # values that one query binds at most: SQLite takes 32,766, PostgreSQL 65,535
GOES_ON = "when that is mended, start the pipeline with the same checkpoint: it goes on with this batch, and nothing is lost"


class AskingError(Exception):
    """A database that did not answer, in one sentence."""


@dataclass(frozen=True)
class Reach:
    """How a worker gets at one table. It is sent with the tasks, and written down nowhere: the URL may have a password in it."""

    url: str
    table: str
    schema: str | None
    columns: pa.Schema
    """What is read, in the types that the rows have from there on."""
    attributes: Mapping[str, tuple[str, pa.DataType]]
    """Attribute → its column, and the type in which it is compared."""
    payload: tuple[str, ...]
    """The columns of a result, in order."""
    side_by_side: int | None
    """Calls at a time in this cell; None: what the plan says, spread over the cells."""
    retry_for: float
    """Seconds."""


_engines: dict[str, Engine] = {}
_lock = threading.Lock()


def engine_of(url: str) -> Engine:
    """One per process and database: it pools connections, and looks at each before it is used again."""
    from sqlalchemy import create_engine

    with _lock:
        if url not in _engines:
            _engines[url] = create_engine(url, pool_pre_ping=True, pool_size=8, max_overflow=256)
        return _engines[url]


def reflected(engine: Engine, table: str, schema: str | None) -> Any:
    """The table as the database describes it."""
    from sqlalchemy import MetaData
    from sqlalchemy import Table as Described

    return Described(table, MetaData(), schema=schema, autoload_with=engine, resolve_fks=False)


def in_one_line(failure: BaseException) -> str:
    """What the driver says, without SQLAlchemy's frame around it."""
    lines = [line.strip() for line in str(getattr(failure, "orig", None) or failure).splitlines() if line.strip()]
    return " ".join(lines) or type(failure).__name__


class Lookups:
    """Whoever asks, for one cell."""

    def __init__(self, reaches: Mapping[str, Reach], cells: int) -> None:
        self._reaches, self._cells = reaches, cells
        self._tables: dict[str, Any] = {}

    def __call__(self, table: Table, keys: pl.DataFrame, calls: Calls) -> pl.DataFrame:
        reach = self._reaches[table.name]
        columns = [reach.attributes[side][0] for side in table.bound]
        wanted = _as_columns(keys, columns, reach)
        if not wanted:
            return _rows([], reach)
        size = max(1, min(table.keys, MOST_BOUND // len(columns)))
        parts = [wanted[start : start + size] for start in range(0, len(wanted), size)]
        calls.calls += len(parts)
        query = self._query(table.name, reach, columns)
        side_by_side = min(len(parts), reach.side_by_side or max(1, -(-table.side_by_side // self._cells)))
        if side_by_side == 1:
            answers = [self._called(table.name, reach, query, part) for part in parts]
        else:
            with ThreadPoolExecutor(side_by_side) as pool:
                answers = list(pool.map(lambda part: self._called(table.name, reach, query, part), parts))
        return _rows([row for answer in answers for row in answer], reach)

    def _query(self, name: str, reach: Reach, columns: Sequence[str]) -> Select[Any]:
        from sqlalchemy import bindparam, select, tuple_

        described = self._tables.get(name)
        if described is None:
            described = self._tables[name] = self._tried(name, reach, lambda: reflected(engine_of(reach.url), reach.table, reach.schema))
        keys: Any = bindparam("keys", expanding=True)
        bound = [described.c[column] for column in columns]
        fits = bound[0].in_(keys) if len(bound) == 1 else tuple_(*bound).in_(keys)
        return select(*(described.c[column] for column in reach.columns.names)).where(fits)

    def _called(self, name: str, reach: Reach, query: Select[Any], keys: Sequence[Any]) -> Sequence[Any]:
        def call() -> Sequence[Any]:
            with engine_of(reach.url).connect() as connection:
                return connection.execute(query, {"keys": keys}).all()

        found: Sequence[Any] = self._tried(name, reach, call)
        return found

    def _tried(self, name: str, reach: Reach, call: Any) -> Any:
        from sqlalchemy.exc import DBAPIError, SQLAlchemyError
        from sqlalchemy.exc import TimeoutError as NoConnectionError

        deadline, pause = time.monotonic() + reach.retry_for, FIRST_PAUSE
        while True:
            try:
                return call()
            except SQLAlchemyError as failure:
                # What is wrong with the query itself will not get better.
                lasting = not isinstance(failure, (DBAPIError, NoConnectionError)) or type(failure).__name__ in ("ProgrammingError", "DataError")
                left = deadline - time.monotonic()
                if lasting or left <= 0:
                    tried = "" if lasting else f", tried for {reach.retry_for:g} seconds"
                    raise AskingError(f"{MARK}table {name} cannot be asked{tried}: {in_one_line(failure)}; {GOES_ON}") from None
                time.sleep(min(pause, left))
                pause = min(2 * pause, LONGEST_PAUSE)


def _as_columns(keys: pl.DataFrame, columns: Sequence[str], reach: Reach) -> list[Any]:
    """Keys as values of the columns, without those that a column's type cannot hold: plain values, or tuples where there are several columns."""
    dtypes = _dtypes(reach.columns)
    fits = pl.lit(True)
    casts = []
    for side, column in zip(keys.columns, columns, strict=True):
        if keys.schema[side] != dtypes[column]:
            cast = pl.col(side).cast(dtypes[column], strict=False)
            fits &= cast.cast(keys.schema[side], strict=False) == pl.col(side)
            casts.append(cast)
        else:
            casts.append(pl.col(side))
    found = keys.filter(fits).select(casts)
    return list(found.to_series()) if len(columns) == 1 else list(found.rows())


def _dtypes(schema: pa.Schema) -> dict[str, Any]:
    empty = pl.from_arrow(schema.empty_table())
    assert isinstance(empty, pl.DataFrame)
    return dict(empty.schema)


def _rows(answers: Sequence[Any], reach: Reach) -> pl.DataFrame:
    """As attributes and payload."""
    dtypes = _dtypes(reach.columns)
    values = zip(*answers, strict=True) if answers else ([] for _ in dtypes)
    columns = {}
    for (name, dtype), listed in zip(dtypes.items(), values, strict=True):
        try:
            columns[name] = _column(list(listed), dtype)
        except (TypeError, ValueError, OverflowError, pl.exceptions.PolarsError) as wrong:
            raise AskingError(f"{MARK}column {name} of {reach.table} has a value that is no {dtype}: {in_one_line(wrong)}") from None
    compared = _dtypes(pa.schema([(side, kind) for side, (_, kind) in reach.attributes.items()]))
    name = next(iter(reach.attributes)).split(".", 1)[0]
    found = {side: columns[column].cast(compared[side]) for side, (column, _) in reach.attributes.items()}
    return pl.DataFrame(found | {f"{name}/{i}": columns[column] for i, column in enumerate(reach.payload)})


def _column(values: list[Any], dtype: Any) -> pl.Series:
    """What a driver gives, as a column of this type."""
    first = next((value for value in values if value is not None), None)
    if isinstance(first, UUID):
        values = [None if value is None else str(value) for value in values]
    elif isinstance(first, memoryview):
        values = [None if value is None else bytes(value) for value in values]
    elif isinstance(first, Decimal) and dtype.is_float():
        values = [None if value is None else float(value) for value in values]
    elif isinstance(dtype, pl.Datetime) and dtype.time_zone is not None:
        return pl.Series(values, dtype=pl.Datetime("us", "UTC")).dt.convert_time_zone(dtype.time_zone)
    return pl.Series(values, dtype=dtype)
