"""Every golden SQL query that is taken, planned as binary joins and exported as Flink's SQL, run on Flink against DuckDB's rows.

    python -m tests.bench.sql_on_flink FLINK_PYTHON [--only 012 013]

FLINK_PYTHON is the interpreter of an environment with apache-flink (2.3 was tried), which pins other versions than ours: it gets the queries
and tables as a document, and gives back each query's rows, and how many of its joins Flink takes for interval joins. All must be:
a join of another kind never lets go of its rows. Prints a line per query and fails if any is wrong.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

from models.request import PlanRequest
from solvers.common.errors import MethodError, SqlError
from solvers.planner import plan
from solvers.to_sql import to_sql
from tests.sql_cases import SCHEMAS, Query, columns_of, database, duckdb_rows, plain, queries, rows_of

# What runs in the other environment. Its tables are JSON files with event times in text.
ON_FLINK = """
import json, sys
from pyflink.table import EnvironmentSettings, TableEnvironment
task = json.load(open(sys.argv[1]))
env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
env.get_config().set("parallelism.default", "1")
env.get_config().set("table.local-time-zone", "UTC")
env.execute_sql("CREATE DATABASE shop")
for ddl in task["tables"]:
    env.execute_sql(ddl)
for name, sql in task["queries"].items():
    try:
        explained = env.explain_sql(sql).split("== Optimized Execution Plan ==")[1]
        with env.execute_sql(sql).collect() as rows:
            found = [[json.loads(json.dumps(value, default=str)) for value in row] for row in rows]
        print(json.dumps({"name": name, "intervals": explained.count("IntervalJoin("), "rows": found}), flush=True)
    except Exception as failure:
        print(json.dumps({"name": name, "failure": str(failure)[:2000]}), flush=True)
"""
NOT_FLINKS = {"Names are the same in upper and lower case."}  # they are not to Flink
EVENT_TIMES = {"bid": "dateTime", "auction": "dateTime", "person": "dateTime"}


def tables(folder: Path) -> list[str]:
    """The tables as files, and how Flink is told of them."""
    made = []
    for table in SCHEMAS:
        lines = [
            json.dumps({name: plain(value)[:-3] if kind == "TIMESTAMP" else value for name, kind, value in _values(table, row)})
            for row in rows_of(table)
        ]
        (folder / table).mkdir()
        (folder / table / "rows.json").write_text("\n".join(lines) + "\n")
        types = {"TIMESTAMP": "TIMESTAMP(3)", "STRUCT": "ROW<customer BIGINT, kind STRING>"}
        ddl = ", ".join(f"`{name}` {types.get(kind, kind)}" for name, kind in columns_of(table))
        time = f"`{EVENT_TIMES.get(table, 'ts')}`"
        for name in (table, f"shop.{table}"):
            made.append(
                f"CREATE TABLE {name} ({ddl}, WATERMARK FOR {time} AS {time} - INTERVAL '60' SECOND) "
                f"WITH ('connector' = 'filesystem', 'path' = '{folder / table}', 'format' = 'json')"
            )
    return made


def _values(table: str, row: dict[str, Any]) -> list[tuple[str, str, Any]]:
    return [(name, kind, row[name]) for name, kind in columns_of(table)]


def exported(query: Query) -> tuple[str, int]:
    """The query as Flink's SQL in the plan's order, and how many joins it has."""
    meaning = query.meaning()
    request = meaning.request.model_dump(mode="json")
    request["options"]["method"] = "bjtree"
    made = plan(PlanRequest.model_validate(request))
    return to_sql(made, meaning.bindings, "flink"), len(made.operators)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("python", metavar="FLINK_PYTHON")
    parser.add_argument("--only", nargs="*", metavar="NUMBER", help="these cases of tests/golden/sql.test, by their numbers")
    arguments = parser.parse_args()
    sent: dict[str, tuple[Query, str, int]] = {}
    for query in queries():
        if query.why in NOT_FLINKS or (arguments.only and query.name not in arguments.only):
            continue
        try:
            sent[query.name] = (query, *exported(query))
        except (MethodError, SqlError) as refused:
            print(f"{query.name} refused: {refused.detail}")
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, database() as connection:
        task = {"tables": tables(Path(folder)), "queries": {name: sql for name, (_, sql, _) in sent.items()}}
        (Path(folder) / "task.json").write_text(json.dumps(task))
        command = [arguments.python, "-c", ON_FLINK, str(Path(folder) / "task.json")]
        answered = subprocess.run(command, capture_output=True, text=True, check=False)
        for line in filter(lambda line: line.startswith("{"), answered.stdout.splitlines()):
            answer = json.loads(line)
            query, sql, joins = sent[answer["name"]]
            expected = Counter(map(_loose, duckdb_rows(connection, query.request.sql, query.request.dialect).elements()))
            found = Counter(_loose(row) for row in answer.get("rows", ()))
            right = bool(expected) and found == expected and answer.get("intervals") == joins
            wrong += not right
            print(f"{query.name} {'same' if right else 'DIFFERENT':9} {joins} joins, {answer.get('intervals')} interval joins  {query.why}")
            if not right:
                print(f"{sql}{answer.get('failure', '')}\n  missing {list(expected - found)[:3]}, too much {list(found - expected)[:3]}")
    lost = len(sent) - answered.stdout.count('{"name"')
    print(f"{len(sent) - wrong - lost} of {len(sent)} queries have DuckDB's rows on Flink, all joins interval joins")
    if lost:
        print(answered.stderr[-3000:])
    return 1 if wrong or lost else 0


def _loose(row: Any) -> tuple[Any, ...]:
    """A row whose times are in text of one form."""
    return tuple(_moment(value) if isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d[T ]", value) else value for value in row)


def _moment(text: str) -> str:
    return datetime.fromisoformat(text).isoformat()


if __name__ == "__main__":
    sys.exit(main())
