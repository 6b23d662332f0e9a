"""The fingerprint of a plan: SHA-256 over its structure alone (contract §3).

Same tree, same probe orders, same algorithms and same caches: same fingerprint, whatever the figures, the operators'
ids or the order in which streams and operators are listed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

from models.plan import Cache, Operator
from models.table import TableAccess

__all__ = ["fingerprint"]

_ENCODER = json.JSONEncoder(separators=(",", ":"), sort_keys=True)  # `json.dumps` would make one for every plan


def fingerprint(streams: Sequence[str], operators: Sequence[Operator], caches: Sequence[Cache] = (), tables: Sequence[TableAccess] = ()) -> str:
    """The hex digest of the structure. `streams` are the query's, tables included, which a plan of one stream has nothing else of."""
    below = {operator.id: "⋈".join(operator.streams) for operator in operators}

    def label(name: str) -> str:
        return below.get(name, name)

    structure: dict[str, object] = {
        "streams": sorted(streams),
        "operators": sorted(
            [
                below[operator.id],
                operator.kind.value,
                sorted(label(name) for name in operator.inputs),
                sorted(
                    [label(pipeline.input), [(below.get(probe.target, probe.target), probe.algorithm) for probe in pipeline.probes]]
                    for pipeline in operator.pipelines
                ),
            ]
            for operator in operators
        ),
        "caches": sorted(
            [below[cache.operator], label(cache.input), cache.first, cache.last, cache.kind.value, sorted(cache.key), sorted(cache.semijoin)]
            for cache in caches
        ),
    }
    if tables:
        structure["tables"] = sorted([table.name, table.access.value, sorted(table.bound)] for table in tables)
    return hashlib.sha256(_ENCODER.encode(structure).encode()).hexdigest()
