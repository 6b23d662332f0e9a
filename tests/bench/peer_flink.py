"""One query on Flink in an environment of its own, for `watched`: warms up on fewer rows, then says that it begins, runs, and says that it has ended.

    FLINK_PYTHON tests/bench/peer_flink.py TASK.json      # {settings, warm: {tables, query}, rows: {tables, query}}

apache-flink pins other versions than ours, so nothing here is imported from beside this file; the lines it prints are those of `watched`.
"""

import json
import sys
from pathlib import Path

from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]


def run(settings: dict[str, str], job: dict[str, object]) -> None:
    environment = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for key, value in settings.items():
        environment.get_config().set(key, value)
    for table in job["tables"]:  # type: ignore[attr-defined]
        environment.execute_sql(table)
    environment.execute_sql(job["query"]).wait()


if __name__ == "__main__":
    task = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    run(task["settings"], task["warm"])
    print("== begin", flush=True)
    run(task["settings"], task["rows"])
    print("== end", flush=True)
