"""Columns and expressions of a query: which relation each belongs to, and how Spark would write it.

Names of relations and columns are the same in upper and lower case, as they are to Spark, and are written as they first were.
"""

from __future__ import annotations

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from solvers.sql.intervals import interval, microseconds
from solvers.sql.relations import From
from solvers.sql.text import FaultError, Text

__all__ = ["Columns"]

SUBQUERIES = (exp.Query, exp.Exists)
# Not the same every time they are computed: a batch that is worked off again after a failure must find the same partners.
CHANGING = (
    exp.Rand,
    exp.Randn,
    exp.Uuid,
    exp.CurrentTimestamp,
    exp.CurrentTimestampLTZ,
    exp.CurrentDate,
    exp.CurrentDatetime,
    exp.CurrentTime,
    exp.Localtime,
    exp.Localtimestamp,
)
CHANGING_NAMES = {"now", "proctime", "current_row_timestamp", "gen_random_uuid", "clock_timestamp", "statement_timestamp", "localtime"}


class Columns:
    """Finds the relation of every column. All methods raise FaultError at the place of what they refuse."""

    def __init__(self, text: Text, joined: From) -> None:
        self.text, self.joined = text, joined
        self._spelled: dict[tuple[str, ...], list[exp.Identifier | exp.Star]] = {}

    def relations(self, node: exp.Expr) -> list[str]:
        """The names of the relations that an expression mentions, each once, in the order of the text."""
        found: dict[str, None] = {}
        for column in node.find_all(exp.Column, bfs=False):
            found[self._resolved(column)[0]] = None
        return list(found)

    def inside(self, node: exp.Expr) -> exp.Expr:
        """An expression over one relation, without the relation's name: as the source of the stream reads it."""
        return self._written(node, qualified=False)

    def outside(self, node: exp.Expr) -> exp.Expr:
        """An expression over the results, in which a relation is a column of its rows."""
        return self._written(node, qualified=True)

    def given(self, expression: str, relation: str, pointer: str, dialect: str) -> exp.Expr:
        """An expression over one relation that is given beside the query, as `inside` would have it."""
        try:
            node = sqlglot.parse_one(expression, read=dialect)
        except (SqlglotError, RecursionError):
            raise FaultError(pointer, f"{expression!r} is not a column or an expression of SQL") from None
        for column in list(node.find_all(exp.Column)):
            if not column.table:
                column.set("table", exp.to_identifier(relation))
        try:
            self.check_row(node)
            if self.relations(node) == [relation]:
                return self.inside(node)
        except FaultError as error:
            raise FaultError(pointer, error.fault[1].partition(": ")[2]) from None
        raise FaultError(pointer, f"{expression!r} is not computed from the columns of {relation} alone")

    def check_row(self, node: exp.Expr, steady: bool = True) -> None:
        """That the expression can be computed from the rows it mentions alone, and, where it must be, the same every time."""
        for inner in node.walk(bfs=False):
            if isinstance(inner, SUBQUERIES):
                raise self.text.fault(inner, "a query inside a query is not planned; join the streams themselves")
            if isinstance(inner, (exp.Window, exp.WindowSpec)):
                raise self.text.fault(inner, "window functions are not planned; compute them in what reads the results")
            if isinstance(inner, exp.AggFunc):
                raise self.text.fault(inner, f"{inner.key.upper()}() is an aggregate; aggregate in what reads the results")
            if isinstance(inner, (exp.Placeholder, exp.Parameter, exp.SessionParameter)):
                raise self.text.fault(inner, f"{inner.sql(self.text.dialect)} has no value; write the value itself")
            changing = isinstance(inner, CHANGING) or (isinstance(inner, exp.Anonymous) and inner.name.lower() in CHANGING_NAMES)
            if steady and changing:
                raise self.text.fault(inner, f"{inner.sql(self.text.dialect)} is not the same every time it is computed; nothing can be joined by it")

    def _resolved(self, column: exp.Column) -> tuple[str, list[exp.Identifier | exp.Star]]:
        """The relation's name as it is written in FROM, and the parts of the name after it."""
        parts = [part for part in column.parts if isinstance(part, (exp.Identifier, exp.Star))]
        relations = self.joined.relations
        first = parts[0].name.lower()
        if len(parts) > 1 and first in relations:
            return relations[first].name, parts[1:]
        merged = self.joined.merged.get(first)
        if merged:
            return relations[merged].name, parts
        if len(relations) == 1:
            return next(iter(relations.values())).name, parts
        known = ", ".join(relation.name for relation in relations.values())
        if len(parts) > 1:
            raise self.text.fault(column, f"{parts[0].name} is no stream of this query; its streams are {known}")
        raise self.text.fault(column, f"{parts[0].name} does not say which stream it is of; write it with one of {known} before it")

    def _written(self, node: exp.Expr, qualified: bool) -> exp.Expr:
        """A copy in the words of Spark, intervals in seconds."""

        def rewritten(inner: exp.Expr) -> exp.Expr:
            if isinstance(inner, exp.Column):
                relation, parts = self._resolved(inner)
                if isinstance(parts[-1], exp.Star):
                    return exp.Column(this=exp.Star(), table=exp.to_identifier(relation))
                spelled = self._spelled.setdefault((relation, *(part.name.lower() for part in parts)), parts)
                names = [exp.to_identifier(part.name, quoted=part.args.get("quoted")) for part in spelled]
                first = exp.Column(this=names[0], table=exp.to_identifier(relation) if qualified else None)
                return exp.Dot.build([first, *names[1:]]) if names[1:] else first
            length = microseconds(inner)
            return inner if length is None else interval(length)

        return node.transform(rewritten)
