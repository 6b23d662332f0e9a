"""Plans of a given shape, and streams as files: what the Spark tests are made of."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from models.bindings import Bindings
from models.plan import PLAN_FORMAT, Plan
from models.request import Query

__all__ = ["bindings_of", "make_plan", "make_query", "moment", "write_stream"]

Shape = str | Sequence["Shape"]
"""A stream's name, or the shapes that a join joins."""

START = datetime(2026, 1, 1, tzinfo=UTC)


def moment(seconds: float) -> datetime:
    """A time `seconds` after the start of all test data."""
    return START + timedelta(microseconds=round(seconds * 1_000_000))


def make_query(windows: Mapping[str, float], predicates: Sequence[str]) -> Query:
    """A query from window lengths and predicates as they are read: "a.x = b.y"."""
    parts = [text.split() for text in predicates]
    return Query.model_validate(
        {
            "streams": [{"name": name, "rate": 1.0, "window": {"seconds": seconds}} for name, seconds in windows.items()],
            "predicates": [{"left": left, "op": op, "right": right, "selectivity": 0.1} for left, op, right in parts],
        }
    )


def make_plan(query: Query, shape: Shape, asked: Mapping[str, Sequence[str]] | None = None) -> Plan:
    """A plan of this shape, probing in the order of the inputs; its figures are all 0. `asked` are tables and what they are asked by."""
    asked = asked or {}
    operators: list[dict[str, Any]] = []
    names: dict[int, tuple[str, list[str]]] = {}
    waiting = [(shape, False)]
    while waiting:
        node, inputs_done = waiting.pop()
        if isinstance(node, str):
            continue
        if not inputs_done:
            waiting.append((node, True))
            waiting.extend((child, False) for child in reversed(node))
            continue
        inputs = [(child, [child]) if isinstance(child, str) else names[id(child)] for child in node]
        streams = sorted(name for _, below in inputs for name in below)
        own = f"join-{len(operators) + 1}"
        names[id(node)] = (own, streams)
        operators.append(_operator(query, own, inputs, streams, asked))
    if operators:
        operators[-1]["materialized"] = False
    return Plan.model_validate(
        {
            "format": PLAN_FORMAT,
            "fingerprint": json.dumps(shape),
            "qualified": True,
            "proof": "none",
            "bound": None,
            "gap": None,
            "query": query.model_dump(mode="json"),
            "resources": {},
            "costs": {},
            "objective": "min_cpu",
            "cost": {"cpu": 0, "memory_bytes": 0, "memory_tuples": 0, "output_rate": 0},
            "headroom": None,
            "operators": operators,
            "tables": [
                {"name": table.name, "access": "index" if table.name in asked else "scan", "bound": list(asked.get(table.name, ()))}
                for table in query.tables
            ],
            "caches": [],
            "allocation": None,
            "shortfall": None,
            "validity": [],
            "explanation": [],
            "warnings": [],
        }
    )


def _operator(query: Query, own: str, inputs: Sequence[tuple[str, list[str]]], streams: list[str], asked: Collection[str]) -> dict[str, Any]:
    pipelines = []
    tables = [table.name for table in query.tables]
    for k, (name, below) in enumerate(inputs):
        if name in tables:
            continue
        visited = list(below)
        probes = []
        for target, members in [*inputs[:k], *inputs[k + 1 :]]:
            checked = [p for p in range(len(query.predicates)) if _between(query, p, visited, members)]
            hashed = any(query.predicates[p].op == "=" for p in checked)
            algorithm = "lookup" if target in asked else "hash" if hashed else "nested_loop"
            probes.append({"target": target, "algorithm": algorithm, "predicates": checked, "rate_in": 0, "rate_out": 0, "cpu": 0})
            visited += members
        pipelines.append({"input": name, "probes": probes})
    return {
        "id": own,
        "kind": "binary_join" if len(inputs) == 2 else "mjoin",
        "inputs": [name for name, _ in inputs],
        "streams": streams,
        "materialized": True,
        "rate": 0,
        "state_tuples": 0,
        "state_bytes": 0,
        "cpu": 0,
        "states": [{"input": name, "indexed": True, "cpu": 0} for name, _ in inputs],
        "pipelines": pipelines,
    }


def _between(query: Query, p: int, visited: Sequence[str], members: Sequence[str]) -> bool:
    left, right = (side.split(".")[0] for side in (query.predicates[p].left, query.predicates[p].right))
    return (left in visited and right in members) or (right in visited and left in members)


def write_stream(folder: Path, rows: Sequence[Mapping[str, Any]], files: int = 1) -> None:
    """The rows as JSON files, in order; Spark takes files by modification time, so these are a second apart."""
    folder.mkdir(parents=True)
    for k in range(files):
        part = rows[k * len(rows) // files : (k + 1) * len(rows) // files]
        path = folder / f"{k:05}.json"
        path.write_text("".join(json.dumps({key: _plain(value) for key, value in row.items()}) + "\n" for row in part))
        os.utime(path, (1_000_000_000 + k, 1_000_000_000 + k))


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def bindings_of(folder: Path, schemas: Mapping[str, str], watermark: str = "0 seconds", **more: Any) -> Bindings:
    """Bindings for the streams below `folder`, one file per batch, results as JSON in `folder`/out."""
    streams = {
        name: {
            "source": {"format": "json", "options": {"path": str(folder / name), "maxFilesPerTrigger": "1"}, "schema": schema},
            "event_time": "ts",
            "watermark": watermark,
        }
        for name, schema in schemas.items()
    }
    document: dict[str, Any] = {
        "streams": streams,
        "sink": {"format": "json", "options": {"path": str(folder / "out")}},
        "checkpoint": str(folder / "checkpoint"),
        "trigger": {"available_now": True},
    }
    return Bindings.model_validate(document | more)
