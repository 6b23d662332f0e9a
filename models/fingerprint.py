"""The fingerprint of a plan: SHA-256 over its structure alone (contract §3).

Same tree, same probe orders, same algorithms and same caches: same fingerprint, whatever the figures, the operators'
ids or the order in which streams and operators are listed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from json.encoder import encode_basestring_ascii as _quoted
from operator import attrgetter

from models.plan import Algorithm, Cache, Operator
from models.table import TableAccess

__all__ = ["fingerprint"]

_step = attrgetter("target", "algorithm")
_json = json.JSONEncoder(separators=(",", ":")).encode


class _Steps(dict[tuple[str, Algorithm], str]):
    """JSON of probes by target and algorithm: of a plan's 40,000 probes few differ in these. Targets that are joins are named by what is `below`."""

    def __init__(self, below: dict[str, str]) -> None:
        super().__init__()
        self._below = below

    def __missing__(self, step: tuple[str, Algorithm]) -> str:
        target, algorithm = step
        self[step] = text = f"[{_quoted(self._below.get(target, target))},{_quoted(algorithm.value)}]"
        return text


def fingerprint(streams: Sequence[str], operators: Sequence[Operator], caches: Sequence[Cache] = (), tables: Sequence[TableAccess] = ()) -> str:
    """The hex digest of the structure. `streams` are the query's, tables included, which a plan of one stream has nothing else of."""
    below = {operator.id: "⋈".join(operator.streams) for operator in operators}
    steps = _Steps(below)

    def label(name: str) -> str:
        return below.get(name, name)

    def joined(operator: Operator) -> str:
        inputs = ",".join(map(_quoted, sorted(map(label, operator.inputs))))
        pipelines = sorted((label(pipeline.input), ",".join(map(steps.__getitem__, map(_step, pipeline.probes)))) for pipeline in operator.pipelines)
        listed = ",".join([f"[{_quoted(name)},[{probes}]]" for name, probes in pipelines])
        return f"[{_quoted(below[operator.id])},{_quoted(operator.kind.value)},[{inputs}],[{listed}]]"

    structure = {
        "caches": _json(
            sorted(
                [below[cache.operator], label(cache.input), cache.first, cache.last, cache.kind.value, sorted(cache.key), sorted(cache.semijoin)]
                for cache in caches
            )
        ),
        "operators": f"[{','.join(map(joined, sorted(operators, key=lambda operator: below[operator.id])))}]",
        "streams": _json(sorted(streams)),
    }
    if tables:
        structure["tables"] = _json(sorted([table.name, table.access.value, sorted(table.bound)] for table in tables))
    return hashlib.sha256(f"{{{','.join([f'{_quoted(name)}:{text}' for name, text in structure.items()])}}}".encode()).hexdigest()
