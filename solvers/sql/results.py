"""What a query selects, as columns of the results."""

from __future__ import annotations

from collections import Counter

from sqlglot import exp

from solvers.sql.columns import Columns
from solvers.sql.text import Faults, Text

__all__ = ["read_results"]


def read_results(text: Text, columns: Columns, select: exp.Select, faults: Faults) -> tuple[list[str], list[str]]:
    """The result's columns as SQL over the streams, nothing for one column per stream; and what a reader might not expect of them."""
    items = select.expressions
    relations = [relation.name for relation in columns.joined.relations.values()]
    warnings: list[str] = []
    found: list[tuple[str, str, str]] = []
    for k, item in enumerate(items, 1):
        with faults.gathered():
            if isinstance(item, exp.Star):
                _check_star(text, item)
                warnings.append("* gives one column per stream, a struct of its columns; name columns to have each on its own")
                found += [(relation, "", "") for relation in relations]
            else:
                columns.check_row(item, steady=False)
                found.append(_column(columns, item, k))
    if len(items) == 1 and isinstance(items[0], exp.Star):
        return [], warnings
    taken = Counter(name.lower() for _, _, name in found)
    results, renamed = [], []
    for written, relation, name in found:
        if relation and taken[name.lower()] > 1:
            name = f"{relation}_{name}"
            renamed.append(name)
        results.append(f"{written} AS {exp.to_identifier(name).sql('spark')}" if name else written)
    if renamed:
        warnings.append(f"columns of the same name are told apart by their streams: {', '.join(renamed)}")
    return results, warnings


def _check_star(text: Text, star: exp.Star) -> None:
    for name, value in star.args.items():
        if value:
            raise text.fault(value[0], f"* with {name.rstrip('_').upper()} is not taken; name the columns")


def _column(columns: Columns, item: exp.Expr, place: int) -> tuple[str, str, str]:
    """The expression, the relation whose column it is where the query gives it no name, and its name."""
    named = item.this if isinstance(item, exp.Alias) else item
    for column in named.find_all(exp.Column):
        columns.relations(column)
    written = columns.outside(named).sql("spark")
    if isinstance(named, exp.Column) and isinstance(named.this, exp.Star):
        return written, "", ""
    if isinstance(item, exp.Alias):
        return written, "", item.alias
    if isinstance(named, (exp.Column, exp.Dot)):
        return written, columns.relations(named)[0], named.name
    return written, "", f"column_{place}"
