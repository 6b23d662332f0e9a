"""Tables that are asked by key: what their databases say of them, and whether the bindings fit, before anything is started."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import types as T  # noqa: N812 - everyone's name for it

from models.bindings import Bindings, TableBinding, TableIndex
from models.plan import Plan
from models.request import PlanRequest
from spark_adapter.errors import BindingError, Fault

__all__ = ["check_tables", "described", "unaskable", "unbound", "unmatched"]

DIGITS, SCALE = 38, 18  # of a number to which its database sets no limit


def check_tables(plan: Plan, bindings: Bindings) -> None:
    """That every table is bound as the plan reaches it, and that its database answers; needs no Spark. Raises BindingError."""
    faults = list(unbound(plan, bindings))
    for name, binding in bindings.tables.items():
        if binding.index is not None and not any(at.startswith(f"/tables/{name}") for at, _ in faults):
            faults += unreachable(name, binding.index)
    if faults:
        raise BindingError(faults)


def unmatched(kind: str, names: Sequence[str], bound: Iterable[str]) -> Iterator[Fault]:
    """Streams or tables of these names that are not bound, and those that are bound but not there."""
    known = list(bound)
    missing = [name for name in names if name not in known]
    if missing:
        yield f"/{kind}s", f"there is no binding for {', '.join(missing)}; every {kind} of the plan needs one"
    for name in known:
        if name not in names:
            yield f"/{kind}s/{name}", f"{name!r} is no {kind} of the plan; its {kind}s are {', '.join(names) or 'none'}"


def unbound(plan: Plan | PlanRequest, bindings: Bindings) -> Iterator[Fault]:
    """Tables without a binding, bindings without a table, and those that lack what the plan's access needs."""
    yield from unmatched("table", [table.name for table in plan.query.tables], bindings.tables)
    for reached in plan.tables if isinstance(plan, Plan) else ():
        binding = bindings.tables.get(reached.name)
        if binding is not None and reached.bound and binding.index is None:
            yield f"/tables/{reached.name}/index", f"the plan asks {reached.name} by {', '.join(reached.bound)}, so its binding needs an index"
        elif binding is not None and not reached.bound and binding.scan is None:
            yield f"/tables/{reached.name}/scan", f"the plan keeps {reached.name}, so its binding needs a scan"


def unreachable(name: str, index: TableIndex) -> Iterator[Fault]:
    """A database that does not answer, or that has no such table: in its driver's own words."""
    at = f"/tables/{name}/index"
    try:
        import sqlalchemy
        from sqlalchemy.exc import ArgumentError, NoSuchModuleError, NoSuchTableError, SQLAlchemyError
    except ModuleNotFoundError:
        yield at, f"asking {name} needs SQLAlchemy: pip install 'watersmeet[tables]', and a driver for its database"
        return
    from spark_adapter.stem.lookup import engine_of, in_one_line, reflected

    try:
        reflected(engine_of(index.url), index.table, index.schema_)
    except ArgumentError:
        yield f"{at}/url", f"the url of {name} must be one of SQLAlchemy's, like postgresql+psycopg://user@host/database"
    except (NoSuchModuleError, ModuleNotFoundError) as absent:
        yield f"{at}/url", f"asking {name} needs a driver that is not installed: {in_one_line(absent)}"
    except NoSuchTableError:
        yield f"{at}/table", f"the database of {name} has no table {index.table!r}"
    except SQLAlchemyError as failure:
        shown = sqlalchemy.make_url(index.url).render_as_string(hide_password=True)
        yield f"{at}/url", f"the database of {name}, {shown}, cannot be asked: {in_one_line(failure)}"


def described(index: TableIndex) -> T.StructType:
    """The columns of a table that is asked, as Spark would have them; those of types that Spark has no match for are left out."""
    from spark_adapter.stem.lookup import engine_of, reflected

    found = reflected(engine_of(index.url), index.table, index.schema_)
    kinds = {column.name: _kind(column.type) for column in found.columns}
    return T.StructType([T.StructField(name, kind) for name, kind in kinds.items() if kind is not None])


def _kind(kind: Any) -> T.DataType | None:
    import sqlalchemy as sa

    if isinstance(kind, sa.DateTime):
        return T.TimestampType() if kind.timezone else T.TimestampNTZType()
    if isinstance(kind, sa.Numeric) and not isinstance(kind, sa.Float):
        return T.DecimalType(kind.precision, kind.scale or 0) if kind.precision and kind.precision <= DIGITS else T.DecimalType(DIGITS, SCALE)
    matches: Mapping[Any, T.DataType] = {
        sa.Integer: T.LongType(),
        sa.Float: T.DoubleType(),
        sa.Boolean: T.BooleanType(),
        sa.Date: T.DateType(),
        sa.LargeBinary: T.BinaryType(),
        sa.Uuid: T.StringType(),
        sa.String: T.StringType(),
    }
    return next((match for known, match in matches.items() if isinstance(kind, known)), None)


def unaskable(name: str, binding: TableBinding, columns: T.StructType, wanted: Sequence[str]) -> Iterator[Fault]:
    """Attributes that are no column of the database's table, or of a type in which it cannot be asked."""
    assert binding.index is not None
    known = described(binding.index)
    for attribute in wanted:
        column = binding.columns.get(attribute, attribute)
        if column not in known.names:
            what = f"{name} is asked by key, so {attribute} must be a column of {binding.index.table!r}, among {', '.join(known.names)}"
            yield f"/tables/{name}/columns/{attribute}", f"{what}; got {column!r}"
        elif column in columns.names and isinstance(columns[column].dataType, T.TimestampNTZType):
            yield (
                f"/tables/{name}/columns/{attribute}",
                f"{column} of {binding.index.table!r} has times without a zone, in which a database and Spark may differ: ask by another column",
            )
    missing = [column for column in columns.names if column not in known.names]
    if missing:
        what = f"the scan of {name} has columns that {binding.index.table!r} of its index has not: {', '.join(missing)}"
        yield f"/tables/{name}/index/table", f"{what}; both must have the same"
