"""A plan's joins as the SQL of one engine, each with its own way to let go of state.

- Flink takes a join for an interval join only if it has one pair of bounds on event times (or else it keeps rows for ever). The pair of
  streams that are nearest to each other gets them; others are compared by a copy of the time, computed, which is no event time any more.
- Spark lets one event time leave a join that feeds another, and knows the alias of a stream only beside the stream itself. So a stream travels as
  a struct of its name with its time beside it, and all times but one are computed anew on the way. That one is the stream's with
  the shortest window, as in engine `native`, and its bounds are always written. A table has no time: Spark reads it in every batch, and a join
  with it keeps nothing, whichever side it is on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from solvers.common.errors import MethodError, SqlError
from solvers.sql.bounds import Bound, Pair
from solvers.sql.comparisons import Side, TwoSided
from solvers.sql.intervals import SECOND, seconds

__all__ = ["ENGINES", "Join", "Written"]

INDENT = "  "


@dataclass(frozen=True, slots=True)
class Written:
    """A stream, or a table, as SQL reads it."""

    table: exp.Expr
    event_time: exp.Expr | None
    """None of a table."""
    where: exp.Expr | None

    def is_time(self, node: exp.Expr) -> bool:
        """Whether an expression is the stream's event time, in upper or lower case, quoted or not."""
        if self.event_time is None:
            return False
        mine, other = (part.sql("spark", identify=True).lower() for part in (self.event_time, node))
        return mine == other


@dataclass(frozen=True, slots=True)
class Join:
    """One join of the plan, in terms of its streams and tables."""

    id: str
    left: str
    right: str
    left_streams: tuple[str, ...]
    """Those that flow; none where the input is a table."""
    right_streams: tuple[str, ...]
    names: tuple[str, ...]
    """All streams and tables below: those of `left`, then those of `right`."""
    predicates: tuple[TwoSided, ...]
    bounds: Mapping[Pair, Bound]
    """Of every stream on one side and every one on the other, in both directions."""
    needed: frozenset[Pair]
    """Those that do not follow from others."""


class Engine(ABC):
    """Writes the query as one engine wants it."""

    quotes = False
    """Whether names are written in quotes, as those must be that happen to be words of the engine."""

    def __init__(self, relations: Mapping[str, Written], windows: Mapping[str, int], select: Sequence[exp.Expr]) -> None:
        self.relations, self.windows, self.select = relations, windows, select
        self.streams = {name: one.event_time for name, one in relations.items() if one.event_time is not None}
        """Event times by stream."""
        self.tables = [name for name in relations if name not in self.streams]
        for name, event_time in self.streams.items():
            if not isinstance(event_time, exp.Column) or len(event_time.parts) > 1:
                said = f"the event time of {name} is {event_time.sql('spark')}; to {type(self).__name__} it is a column with a watermark"
                raise SqlError([(f"/streams/{name}/event_time", f"{said}: add one to its table")])

    def query(self, joins: Sequence[Join]) -> str:
        """The whole text."""
        root = joins[-1].id if joins else next(iter(self.streams))
        conditions = {join.id: self.conditions(join) for join in joins}
        made = {name: self.leaf(name) for name in self.relations}
        for join in joins:
            lines = [*made[join.left], f"JOIN {made[join.right][0]}", *made[join.right][1:]]
            lines += [f"{INDENT}{'AND' if k else 'ON'} {text}" for k, text in enumerate(conditions[join.id] or ["TRUE"])]
            made[join.id] = lines if join.id == root else self.nested(join, lines)
        columns = [self.text(self.selected(column)) for column in self.select] or [self.whole(name) for name in self.relations]
        listed = [f"{INDENT}{column}{',' if k < len(columns) else ''}" for k, column in enumerate(columns, 1)]
        return "\n".join([*self.opening(), "SELECT", *listed, "FROM", *_indented(made[root])]) + "\n"

    def text(self, node: exp.Expr) -> str:
        return node.sql("spark", identify=self.quotes)

    def name(self, name: str) -> str:
        return self.text(exp.to_identifier(name))

    def opening(self) -> Iterator[str]:
        yield f"-- {', '.join(self.relations)}, joined two at a time in the order that Watersmeet planned."

    def selected(self, column: exp.Expr) -> exp.Expr:
        """A column of the result."""
        return column

    def rows(self, name: str, *columns: str) -> list[str]:
        """The rows of a stream or table with these columns, in parentheses."""
        one = self.relations[name]
        where = [f"{INDENT}WHERE {self.text(one.where)}"] if one.where is not None else []
        return ["(", f"{INDENT}SELECT {', '.join(columns)}", f"{INDENT}FROM {self.text(one.table)}", *where, ")"]

    def predicate(self, one: TwoSided) -> str:
        return f"{self.value(one.left)} {'<>' if one.op == '!=' else one.op} {self.value(one.right)}"

    def value(self, side: Side) -> str:
        """A side of a predicate, with the stream's name before its columns."""

        def qualified(node: exp.Expr) -> exp.Expr:
            return self.column(side.relation, node) if isinstance(node, exp.Column) else node

        base = self.text(side.base.transform(qualified))
        if not side.offset:
            return base
        return f"{f'({base})' if isinstance(side.base, exp.Binary) else base}{self.added(side.offset)}"

    def column(self, name: str, node: exp.Column) -> exp.Expr:
        """A column of a stream inside an expression. Of `payload.kind` the first part stands in the place of a table."""
        parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
        first = exp.Column(this=parts[0].copy(), table=exp.to_identifier(name))
        return exp.Dot.build([first, *(part.copy() for part in parts[1:])]) if parts[1:] else first

    def bound(self, bound: Bound, later: str, earlier: str) -> str:
        return f"{later} {'<' if bound.strict else '<='} {earlier}{self.added(bound.length)}"

    def added(self, length: int) -> str:
        """So many microseconds, with their sign."""
        return f" {'-' if length < 0 else '+'} INTERVAL {self.interval(abs(length))}" if length else ""

    def interval(self, length: int) -> str:
        return f"'{seconds(length)}' SECOND"

    @abstractmethod
    def leaf(self, name: str) -> list[str]:
        """A stream or table, as lines. Asked for after all conditions."""

    @abstractmethod
    def conditions(self, join: Join) -> list[str]:
        """What must hold between the two inputs of a join."""

    @abstractmethod
    def nested(self, join: Join, lines: list[str]) -> list[str]:
        """A join as the input of another."""

    @abstractmethod
    def whole(self, name: str) -> str:
        """A stream or table among the result's columns, where none are named."""


class Flink(Engine):
    quotes = True
    PLAIN = "time_as_value"
    """The copy of a stream's event time."""

    def __init__(self, relations: Mapping[str, Written], windows: Mapping[str, int], select: Sequence[exp.Expr]) -> None:
        super().__init__(relations, windows, select)
        if self.tables:
            said = f"a plain join with a table ({', '.join(self.tables)}) keeps every row for ever in Flink: leave tables out and look them up after"
            raise MethodError(f"{said} the joins, or export for Spark", "/query/tables")
        self.copied: set[str] = set()
        """Streams whose time is compared as a value as well."""

    def opening(self) -> Iterator[str]:
        yield from super().opening()
        if self.copied:
            yield f"-- {self.PLAIN} is an event time as any value: only a join with one pair of bounds on event times is an interval join to Flink."

    def leaf(self, name: str) -> list[str]:
        stream = self.relations[name]
        if name not in self.copied and stream.where is None:
            return [f"{self.text(stream.table)} AS {self.name(name)}"]
        # Adding nothing is enough to make a value of it, whatever its type; a cast would have to name that.
        copy = [f"{self.text(self.streams[name])} + INTERVAL '0' SECOND AS {self.PLAIN}"] if name in self.copied else []
        return [*self.rows(name, "*", *copy)[:-1], f") AS {self.name(name)}"]

    def conditions(self, join: Join) -> list[str]:
        between = {(i, j): join.bounds[i, j].length + join.bounds[j, i].length for i in join.left_streams for j in join.right_streams}
        i, j = min(between, key=lambda pair: between[pair])
        found = [self.predicate(one) for one in join.predicates]
        times = {name: f"{self.name(name)}.{self.text(self.streams[name])}" for name in (i, j)}
        found += [self.bound(join.bounds[first, last], times[last], times[first]) for first, last in ((i, j), (j, i))]
        for first, last in join.bounds:
            if (first, last) in join.needed and {first, last} != {i, j}:
                found.append(self.bound(join.bounds[first, last], self.plain(last), self.plain(first)))
        return found

    def plain(self, name: str) -> str:
        self.copied.add(name)
        return f"{self.name(name)}.{self.PLAIN}"

    def column(self, name: str, node: exp.Column) -> exp.Expr:
        if self.relations[name].is_time(node):
            self.copied.add(name)
            return exp.Column(this=exp.to_identifier(self.PLAIN), table=exp.to_identifier(name))
        return super().column(name, node)

    def interval(self, length: int) -> str:
        """Flink takes two digits before the point of seconds, and of days, unless it is told of more, which it takes for days alone."""
        if length < 100 * SECOND:
            return super().interval(length)
        minutes, rest = divmod(length, 60 * SECOND)
        days, hours = divmod(minutes // 60, 24)
        clock, _, fraction = seconds(rest).partition(".")
        digits = f"({len(str(days))})" if days > 99 else ""
        return f"'{days} {hours:02}:{minutes % 60:02}:{int(clock):02}{f'.{fraction}' if fraction else ''}' DAY{digits} TO SECOND"

    def nested(self, join: Join, lines: list[str]) -> list[str]:
        return ["(", *_indented(lines), ")"]

    def whole(self, name: str) -> str:
        return f"{self.name(name)}.*"


class Spark(Engine):
    def opening(self) -> Iterator[str]:
        yield from super().opening()
        yield "-- A stream travels as a struct of its name, with its event time beside it. Only one event time may leave a join that feeds another:"
        yield "-- the others are computed anew, as plain times. Each stream's table has a watermark on its event time."
        if self.tables:
            yield f"-- Not flowing, and read anew in every batch: {', '.join(self.tables)}."

    def leaf(self, name: str) -> list[str]:
        time = [f"{self.text(self.streams[name])} AS {self.time(name)}"] if name in self.streams else []
        return self.rows(name, f"struct(*) AS {self.name(name)}", *time)

    def conditions(self, join: Join) -> list[str]:
        found = [self.predicate(one) for one in join.predicates]
        if not join.left_streams or not join.right_streams:
            return found  # a table is joined on any condition, and on none
        if not any(one.op == "=" for one in join.predicates):
            # Spark joins streams only on a key. This one is 0 for all rows, in a form that is not optimized away.
            one, other = (f"pmod(unix_micros({self.time(names[0])}), 1)" for names in (join.left_streams, join.right_streams))
            found.insert(0, f"{one} = {other}")
        surviving = {self.survivor(join.left_streams), self.survivor(join.right_streams)}
        for (first, last), bound in join.bounds.items():
            if (first, last) in join.needed or {first, last} == surviving:
                found.append(self.bound(bound, self.time(last), self.time(first)))
        return found

    def nested(self, join: Join, lines: list[str]) -> list[str]:
        names = join.left_streams + join.right_streams
        kept = self.survivor(names)
        times = [self.time(name) if name == kept else f"timestamp_micros(unix_micros({self.time(name)})) AS {self.time(name)}" for name in names]
        columns = ", ".join([*map(self.name, join.names), *times])
        return ["(", f"{INDENT}SELECT {columns}", f"{INDENT}FROM", *_indented(_indented(lines)), ")"]

    def column(self, name: str, node: exp.Column) -> exp.Expr:
        return self.beside(name) if self.relations[name].is_time(node) else super().column(name, node)

    def selected(self, column: exp.Expr) -> exp.Expr:
        streams = {name.lower(): name for name in self.streams}

        def travelling(node: exp.Expr) -> exp.Expr:
            name = streams.get(node.table.lower()) if isinstance(node, exp.Column) and len(node.parts) == 2 else None
            return node if name is None or not self.relations[name].is_time(exp.Column(this=node.this.copy())) else self.beside(name)

        changed = column.transform(travelling)
        return exp.alias_(changed, column.output_name) if isinstance(changed, exp.Identifier) else changed

    def beside(self, name: str) -> exp.Expr:
        """The name under which a stream's event time travels beside the stream's struct. Spark takes a time that is read out of the struct for
        another event time, and allows one alone."""
        return exp.to_identifier(f"{name}@ts", quoted=True)

    def survivor(self, names: Sequence[str]) -> str:
        """The stream whose event time is still one after these are joined."""
        return min(names, key=lambda name: (self.windows[name], name))

    def time(self, name: str) -> str:
        return f"`{name}@ts`"

    def whole(self, name: str) -> str:
        return self.name(name)


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"{INDENT}{line}" for line in lines]


ENGINES: dict[str, type[Engine]] = {"spark": Spark, "flink": Flink}
