"""Every golden SQL query that is taken, planned and run on Spark, against DuckDB's answer to the same SQL over the same rows as tables.

    python -m tests.bench.sql_rows [--engine stem|native|exported] [--only 012 013]

Prints a line per query and fails if any differs.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from solvers.common.errors import SqlError
from spark_adapter.session import open_session
from tests.spark_adapter.sql_runs import exported_rows, spark_rows, write_tables
from tests.sql_cases import database, duckdb_rows, queries


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["stem", "native", "exported"], default="stem", help="exported: the plan as SQL, on Spark")
    parser.add_argument("--only", nargs="*", metavar="NUMBER", help="these cases of tests/golden/sql.test, by their numbers")
    arguments = parser.parse_args()
    chosen = [query for query in queries() if not arguments.only or query.name in arguments.only]
    began = time.monotonic()
    session = open_session({"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"})
    wrong = 0
    with tempfile.TemporaryDirectory() as folder, database() as connection:
        write_tables(Path(folder))
        if arguments.engine == "exported":
            found, refused = {}, []
            for query in chosen:
                if any("." in stream.table for stream in query.meaning().bindings.streams.values()):
                    refused.append(query)
                    print(f"{query.name} not run: its tables are in a schema, and the views that stand for them here cannot be")
                    continue
                try:
                    found[query.name] = exported_rows(session, Path(folder), query)
                except SqlError as error:
                    refused.append(query)
                    print(f"{query.name} refused: {error}")
            chosen = [query for query in chosen if query not in refused]
        else:
            found = spark_rows(session, Path(folder), chosen, arguments.engine)
        for query in chosen:
            expected = duckdb_rows(connection, query.request.sql, query.request.dialect)
            right = bool(expected) and found[query.name] == expected
            wrong += not right
            print(f"{query.name} {'same' if right else 'DIFFERENT':9} {expected.total():5} rows  {query.why}")
            if not right:
                print(f"    missing {list((expected - found[query.name]).items())[:3]}, too much {list((found[query.name] - expected).items())[:3]}")
    session.stop()
    print(f"{len(chosen) - wrong} of {len(chosen)} queries have DuckDB's rows by {arguments.engine}, in {time.monotonic() - began:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
