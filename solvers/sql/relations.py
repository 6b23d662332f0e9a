"""FROM, JOIN and WHERE of a query: which relations it joins, and every condition that it puts on them.

An inner join means the same wherever its conditions stand, so ON, USING and WHERE become one list of conditions that all must hold.
Whatever is not an inner join of named relations is refused here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from models.faults import MAX_STREAMS
from solvers.sql.text import Faults, Text

__all__ = ["From", "Relation", "conjuncts", "read_from", "the_select"]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")

# Clauses that a select may have, beside what it selects, joins and filters; sqlglot's names, a person's words, and the keyword.
CLAUSES = {
    "with_": ("WITH", "a query in WITH is not planned; write it where it is used, as a condition on the stream"),
    "distinct": ("DISTINCT", "DISTINCT is not planned: a plan gives every match; remove duplicates in what reads the results"),
    "group": ("GROUP", "GROUP BY is not planned; aggregate in what reads the results"),
    "having": ("HAVING", "HAVING is not planned; aggregate in what reads the results"),
    "order": ("ORDER", "ORDER BY is not planned: a stream of results has no last row to sort by"),
    "sort": ("SORT", "SORT BY is not planned: a stream of results has no last row to sort by"),
    "cluster": ("CLUSTER", "CLUSTER BY is not planned"),
    "distribute": ("DISTRIBUTE", "DISTRIBUTE BY is not planned"),
    "limit": ("LIMIT", "LIMIT is not planned: a stream of results does not end"),
    "offset": ("OFFSET", "OFFSET is not planned: a stream of results does not end"),
    "qualify": ("QUALIFY", "QUALIFY is not planned"),
    "windows": ("WINDOW", "window functions are not planned"),
    "laterals": ("LATERAL", "LATERAL is not planned: streams are joined whole"),
    "into": ("INTO", "give the SELECT alone"),
    "match": ("MATCH_RECOGNIZE", "MATCH_RECOGNIZE is not planned"),
    "pivots": ("PIVOT", "PIVOT is not planned"),
    "connect": ("CONNECT", "CONNECT BY is not planned"),
    "prewhere": ("PREWHERE", "write PREWHERE as WHERE"),
    "sample": ("TABLESAMPLE", "samples are not planned"),
    "locks": ("FOR", "locks mean nothing for streams"),
    "settings": ("SETTINGS", "settings are not taken"),
    "format": ("FORMAT", "a format is not taken"),
    "options": ("OPTION", "options are not taken"),
    "for_": ("FOR", "FOR is not taken"),
    "top": ("TOP", "TOP is not planned: a stream of results does not end"),
}
TAKEN = {"hint", "expressions", "from_", "joins", "where", "operation_modifiers", "limit_options"}
OF_A_TABLE = {"this", "db", "catalog", "alias", "joins"}


@dataclass(frozen=True, slots=True)
class Relation:
    """One stream or table that the query joins."""

    name: str
    """Its alias, or the last part of the table's name."""
    table: str
    """The table's name, in Spark's SQL."""
    node: exp.Table


@dataclass(frozen=True, slots=True)
class From:
    """What a query joins, and on what."""

    relations: Mapping[str, Relation]
    """By name in lower case, in the order of the query."""
    conditions: Sequence[exp.Expr]
    """All must hold."""
    merged: Mapping[str, str]
    """Columns that USING made one, in lower case: the relation to take each from, or nothing where that is not clear."""
    hinted: bool
    """Whether it says how it would be joined, which is the plan's to say."""


def the_select(text: Text, statement: exp.Expr, faults: Faults) -> exp.Select:
    """The query itself; clauses that no plan can follow are in `faults`. Raises FaultError for any other statement."""
    while isinstance(statement, exp.Subquery) and set(_given(statement)) <= {"this"}:
        statement = statement.this
    if isinstance(statement, exp.SetOperation):
        raise text.fault(statement.expression, f"{statement.key.upper()} is not planned; plan each query on its own", statement.key.upper())
    if not isinstance(statement, exp.Select):
        raise text.fault(statement, "only a SELECT is planned; give the SELECT alone")
    for name in _given(statement):
        if name not in TAKEN:
            keyword, sentence = CLAUSES.get(name, ("", f"{name.strip('_').upper()} is not planned"))
            with faults.gathered():
                raise text.fault(_node(statement.args[name]), sentence, keyword)
    if statement.args.get("from_") is None:
        raise text.fault(statement, "there is no FROM: name the streams that are joined")
    return statement


def _given(node: exp.Expr) -> list[str]:
    return [name for name, value in node.args.items() if value]


def _node(value: object) -> exp.Expr:
    found = value[0] if isinstance(value, list) else value
    return found if isinstance(found, exp.Expr) else exp.Null()


def read_from(text: Text, select: exp.Select, faults: Faults) -> From:
    """Every relation and condition of the query; what is refused is in `faults`."""
    reader = _Reader(text, faults)
    reader.read(select.args["from_"].this, select.args.get("joins") or [])
    where = select.args.get("where")
    if where is not None:
        reader.conditions += conjuncts(where.this)
    return From(reader.relations, reader.conditions, reader.merged, select.args.get("hint") is not None)


def conjuncts(condition: exp.Expr) -> list[exp.Expr]:
    """The parts of a condition that all must hold, from left to right."""
    found: list[exp.Expr] = []
    waiting = [condition]
    while waiting:
        node = waiting.pop()
        if isinstance(node, exp.And):
            waiting += [node.right, node.left]
        elif isinstance(node, exp.Paren):
            waiting.append(node.this)
        else:
            found.append(node)
    return found


class _Reader:
    """Goes through FROM and its joins from left to right."""

    def __init__(self, text: Text, faults: Faults) -> None:
        self.text, self.faults = text, faults
        self.relations: dict[str, Relation] = {}
        self.conditions: list[exp.Expr] = []
        self.merged: dict[str, str] = {}

    def read(self, first: exp.Expr, joins: Sequence[exp.Join]) -> list[str]:
        """The names of the relations of one chain of joins, in lower case."""
        names = self._relation(first)
        for join in joins:
            with self.faults.gathered():
                self._check_join(join)
            right = self._relation(join.this)
            on = join.args.get("on")
            if on is not None:
                self.conditions += conjuncts(on)
            for column in join.args.get("using") or []:
                with self.faults.gathered():
                    self._use(column, names, right)
            names = names + right
        return names

    def _relation(self, node: exp.Expr) -> list[str]:
        """A table; or joins in parentheses, which hang on their first table, as do joins whose ON comes later."""
        if isinstance(node, exp.Subquery) and isinstance(node.this, exp.Table) and set(_given(node)) <= {"this"}:
            return self._relation(node.this)
        joins = node.args.get("joins") or []
        if joins:
            alone = node.copy()
            alone.set("joins", None)
            return self.read(alone, joins)
        with self.faults.gathered():
            self._add(node)
        return [node.alias_or_name.lower()]

    def _add(self, node: exp.Expr) -> None:
        if isinstance(node, exp.Subquery):
            raise self.text.fault(node, "a query inside FROM is not planned; join the streams themselves, with its conditions in WHERE")
        if not isinstance(node, exp.Table) or not isinstance(node.this, exp.Identifier):
            raise self.text.fault(node, "only named streams and tables are joined, not functions or values")
        for name in _given(node):
            if name == "version":
                raise self.text.fault(node, f"{node.name} is read as of a time (FOR SYSTEM_TIME), which is not planned")
            if name not in OF_A_TABLE:
                raise self.text.fault(node, f"{node.name} has {name.rstrip('s_').upper()}, which is not planned")
        name = node.alias_or_name
        if node.args.get("alias") is not None and node.args["alias"].args.get("columns"):
            raise self.text.fault(node, f"the columns of {name} are renamed; name them as they are")
        if not NAME.fullmatch(name):
            raise self.text.fault(node, f"{name!r} cannot name a stream: give it an alias of up to 63 letters, digits and _")
        if len(self.relations) == MAX_STREAMS:
            raise self.text.fault(node, f"a query joins at most {MAX_STREAMS} streams, and this is one more")
        if name.lower() in self.relations:
            raise self.text.fault(node, f"{name} is joined already; give each its own alias")
        table = exp.Table(**{part: node.args[part].copy() for part in ("this", "db", "catalog") if node.args.get(part)})
        self.relations[name.lower()] = Relation(name, table.sql("spark"), node)

    def _check_join(self, join: exp.Join) -> None:
        side, kind, method = (str(join.args.get(part) or "").upper() for part in ("side", "kind", "method"))
        name = join.this.alias_or_name
        if side or kind == "OUTER":
            words = " ".join(word for word in (side, kind) if word)
            raise self.text.fault(join.this, f"{words} JOIN of {name} is not planned: plans are inner joins", side or kind)
        if method:
            raise self.text.fault(join.this, f"{method} JOIN of {name} is not planned; write an inner join with ON or USING", method)
        if kind not in ("", "INNER", "CROSS"):
            raise self.text.fault(join.this, f"{kind} JOIN of {name} is not planned: plans are inner joins", kind)

    def _use(self, column: exp.Expr, left: Sequence[str], right: Sequence[str]) -> None:
        """USING (column): the left side's and the right side's are equal, and the column is one from here on."""
        key = column.name.lower()
        sides = []
        for names in (left, right):
            known = self.merged.get(key, "")
            if known in names:
                sides.append(known)
            elif len(names) == 1:
                sides.append(names[0])
            else:
                shown = ", ".join(self.relations[name].name for name in names if name in self.relations)
                raise self.text.fault(column, f"USING ({column.name}) does not say which of {shown} has {column.name}; write it with ON")
        first, second = sides
        # Made one twice, among different relations, it is two columns again when neither is named.
        self.merged[key] = first if self.merged.get(key, first) in (*left, *right) else ""
        equal = exp.EQ(this=_column(column, first), expression=_column(column, second))
        self.conditions.append(equal)


def _column(column: exp.Expr, relation: str) -> exp.Column:
    """The same column, said to be of this relation. It keeps its place in the text."""
    return exp.Column(this=column.copy(), table=exp.to_identifier(relation))
